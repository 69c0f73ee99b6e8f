//! E2SAR's INI files.

mod keys;

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context as _, anyhow, bail};
use configparser::ini::Ini as Parser;

use keys::{KEYS, Key, Use};

/// The role that reads its settings from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sender,
    Worker,
}

/// The settings of a file, all of whose keys are known. If there is no file, nothing is set.
#[derive(Debug, Default)]
pub(super) struct Ini {
    path: PathBuf,
    values: Vec<(&'static Key, String)>,
}

impl Ini {
    pub(super) fn read(path: Option<&Path>, role: Role) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let ini = Self::parse(path, text)?;
        ini.report_ignored(role);
        Ok(ini)
    }

    fn parse(path: &Path, text: String) -> anyhow::Result<Self> {
        let mut parser = Parser::new_cs();
        let sections = parser.read(text).map_err(|problem| anyhow!("{}: {problem}", path.display()))?;
        let mut ini = Self { path: path.to_owned(), values: Vec::new() };
        for (section, keys) in &sections {
            for (name, value) in keys {
                let known = KEYS.iter().find(|key| key.section == *section && key.name == *name);
                let key = known.with_context(|| ini.unknown(section, name))?;
                let value = value.as_deref().map(str::trim).filter(|value| !value.is_empty());
                let value = value.with_context(|| format!("{} has no value", ini.named(section, name)))?;
                ini.values.push((key, value.to_owned()));
            }
        }
        // The order is that of the table, so it is the same every time.
        ini.values.sort_by_key(|(key, _)| KEYS.iter().position(|known| std::ptr::eq(known, *key)));
        Ok(ini)
    }

    /// A setting, if the file has it.
    pub(super) fn get<T>(
        &self,
        section: &str,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        debug_assert!(KEYS.iter().any(|key| key.section == section && key.name == name), "{name}");
        let Some((_, value)) = self.values.iter().find(|(key, _)| key.section == section && key.name == name)
        else {
            return Ok(None);
        };
        match parse(value) {
            Ok(value) => Ok(Some(value)),
            Err(problem) => bail!("{} is {value:?}: {problem}", self.named(section, name)),
        }
    }

    fn report_ignored(&self, role: Role) {
        for (key, value) in &self.values {
            let named = self.named(key.section, key.name);
            match key.used_by(role) {
                Use::Setting => {}
                Use::Missing { default, why } if !same(value, default) => {
                    tracing::warn!("{named} = {value} is ignored: {why}");
                }
                Use::Elsewhere(why) | Use::Needless(why) | Use::Missing { why, .. } => {
                    tracing::debug!("{named} = {value} is ignored: {why}");
                }
            }
        }
    }

    fn named(&self, section: &str, name: &str) -> String {
        format!("{}: [{section}] {name}", self.path.display())
    }

    fn unknown(&self, section: &str, name: &str) -> String {
        let mut known: Vec<_> = KEYS.iter().filter(|key| key.section == section).collect();
        let listed = if known.is_empty() {
            known = KEYS.iter().collect();
            known.dedup_by_key(|key| key.section);
            let sections: Vec<_> = known.iter().map(|key| format!("[{}]", key.section)).collect();
            format!("no such section; there are {}", sections.join(", "))
        } else {
            let mut names: Vec<_> = known.iter().map(|key| key.name).collect();
            names.dedup();
            format!("known there are {}", names.join(", "))
        };
        format!("{} is unknown; {listed}", self.named(section, name))
    }
}

fn same(value: &str, default: &str) -> bool {
    let numbers = || Some(value.parse::<f64>().ok()? == default.parse::<f64>().ok()?);
    let flags = || Some(flag(value).ok()? == flag(default).ok()?);
    value == default || numbers().or_else(flags).unwrap_or(false)
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// A number in a range.
pub(super) fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    range: std::ops::RangeInclusive<T>,
) -> impl FnOnce(&str) -> Result<T, String> {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("write a number of {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Ini> {
        Ini::parse(Path::new("x.ini"), text.to_owned())
    }

    #[test]
    fn values_are_what_the_file_says() {
        let ini =
            parse("; E2SAR\n[general]\nuseCP = false\n\n[data-plane]\nmtu = 9000\nrateGbps=-1.0\n").unwrap();
        assert_eq!(ini.get("general", "useCP", flag).unwrap(), Some(false));
        assert_eq!(ini.get("data-plane", "mtu", number(576..=9000_u16)).unwrap(), Some(9000));
        assert_eq!(ini.get("data-plane", "numSendSockets", number(1..=128_u8)).unwrap(), None);
        let problem = ini.get("data-plane", "mtu", number(576..=1500_u16)).unwrap_err();
        assert_eq!(problem.to_string(), "x.ini: [data-plane] mtu is \"9000\": write a number of 576 to 1500");
    }

    #[test]
    fn what_is_unknown_is_named() {
        let told = |text| parse(text).unwrap_err().to_string();
        let problem = told("[general]\nuseCp = true");
        assert_eq!(problem, "x.ini: [general] useCp is unknown; known there are useCP");
        let problem = told("[data]\nmtu = 1");
        assert!(
            problem.contains("no such section; there are [general], [control-plane], [data-plane], [pid]")
        );
        assert!(told("mtu = 1").contains("mtu is unknown"));
        assert!(told("[data-plane]\nmtu").contains("[data-plane] mtu has no value"));
        assert!(told("[data-plane\nmtu = 1").contains("x.ini"));
    }

    #[test]
    fn defaults_in_any_spelling_are_harmless() {
        assert!(same("0.0", "0") && same("True", "true") && same("1", "true") && same("-1", "-1.0"));
        assert!(!same("0.5", "0") && !same("true", "false") && !same("x", "0"));
    }

    #[test]
    fn a_key_has_one_entry_and_sections_are_together() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(
                !KEYS[..at].iter().any(|k| k.section == key.section && k.name == key.name),
                "{}",
                key.name
            );
        }
        let mut sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
        sections.dedup();
        assert_eq!(sections, ["general", "control-plane", "data-plane", "pid"]);
    }
}
