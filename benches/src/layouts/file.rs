//! The files of a run: written again after every workload, so that one that is broken off can go on.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use naa_files::Destination;
use naa_measure::row::Row;
use serde::Serialize;

use super::point::Run;

/// A run and what is said about it, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Written<'a> {
    #[serde(flatten)]
    pub(crate) run: &'a Run,
    /// As the other benches have them; empty before the end.
    pub(crate) rows: &'a [Row],
}

/// Where a run is written.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn make(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path.into()))
    }

    pub(crate) fn json(&self) -> PathBuf {
        self.0.join("layouts.json")
    }

    pub(crate) fn csv(&self) -> PathBuf {
        self.0.join("layouts.csv")
    }

    pub(crate) fn html(&self) -> PathBuf {
        self.0.join("layouts.html")
    }

    /// Keeps what is there from an earlier run. What was kept, in words.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn keep_old(&self) -> anyhow::Result<Option<String>> {
        let (json, old) = (self.json(), self.0.join("layouts.old.json"));
        match fs::rename(&json, &old) {
            Ok(()) => Ok(Some(format!("{} of an earlier run is {} now", json.display(), old.display()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot rename {}", json.display())),
        }
    }

    /// The run that is there, if `fresh` would go on where it ended; without one `fresh`.
    ///
    /// # Errors
    /// If it is another run, or none.
    pub(crate) fn resume(&self, fresh: Run) -> anyhow::Result<Run> {
        let path = self.json();
        if !path.exists() {
            return Ok(fresh);
        }
        let there = read(&path)?;
        continued(there, fresh).with_context(|| format!("cannot resume {}", path.display()))
    }

    /// # Errors
    /// If it cannot be written; then what was there still is.
    pub(crate) fn save(&self, written: &Written<'_>) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(written)?;
        replace(&self.json(), &text)
    }
}

/// # Errors
/// If there is none, or it is no run's.
pub(crate) fn read(path: &Path) -> anyhow::Result<Run> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what `naa bench layouts` writes", path.display()))
}

/// Figures of one run must be made alike.
fn continued(there: Run, fresh: Run) -> anyhow::Result<Run> {
    let instead = "or start anew, without --resume or with another --out";
    if there.command != fresh.command {
        bail!("it was made by `{}`: say that and --resume, {instead}", there.command);
    }
    ensure!(
        there.rules == fresh.rules,
        "there `auto` followed {}, not {}: give --rule or NAA_LAYOUT_RULE as there, {instead}",
        rules(&there),
        rules(&fresh)
    );
    let differs = there.machine.iter().zip(&fresh.machine).find(|(there, here)| there != here);
    if let Some((there, here)) = differs {
        bail!("it was measured where there was {there:?}, not {here:?}: go on there, {instead}");
    }
    Ok(Run { points: there.points, ..fresh })
}

fn rules(run: &Run) -> String {
    let all: Vec<_> = run.rules.iter().map(|rule| format!("{} ({})", rule.rule, rule.provider)).collect();
    all.join(", ")
}

/// Replaces the text of a file. A program that reads the file meanwhile, or after a crash, gets either the old or the
/// new text.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn replace(path: &Path, contents: impl AsRef<[u8]>) -> anyhow::Result<()> {
    Ok(Destination::new(path)?.replace(contents.as_ref())?)
}

#[cfg(test)]
mod tests {
    use super::{super::point::ProviderRule, *};

    fn run(command: &str, rule: &str, machine: &str) -> Run {
        let rules = vec![ProviderRule { provider: "embedded".into(), rule: rule.into() }];
        Run { machine: vec![machine.into()], command: command.into(), rules, points: Vec::new() }
    }

    #[test]
    fn only_the_same_run_goes_on() {
        let rule = "packed:4096:2,gathered";
        let there = run("naa bench layouts --quick", rule, "2 x CPU");
        let refused = |fresh: Run| format!("{:#}", continued(there.clone(), fresh).unwrap_err());
        assert!(continued(there.clone(), there.clone()).is_ok());
        let other = refused(run("naa bench layouts", rule, "2 x CPU"));
        assert!(other.contains("`naa bench layouts --quick`") && other.contains("another --out"), "{other}");
        let other = refused(run("naa bench layouts --quick", "packed:64:1,symmetric", "2 x CPU"));
        assert!(other.contains("--rule") && other.contains("packed:4096:2,gathered (embedded)"), "{other}");
        let other = refused(run("naa bench layouts --quick", rule, "4 x CPU"));
        assert!(other.contains("\"2 x CPU\"") && other.contains("\"4 x CPU\""), "{other}");
    }

    #[test]
    fn a_page_is_not_written_through_a_link() {
        let path = std::env::temp_dir().join(format!("naa-layouts-link-{}", std::process::id()));
        let folder = Folder::make(&path).unwrap();
        let victim = path.join("victim");
        fs::write(&victim, "old").unwrap();
        std::os::unix::fs::symlink(&victim, path.join("layouts.html.new")).unwrap();
        replace(&folder.html(), "new").unwrap();
        assert_eq!(
            (fs::read(folder.html()).unwrap(), fs::read(&victim).unwrap()),
            (b"new".into(), b"old".into())
        );
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_is_written_is_read_and_kept() {
        let path = std::env::temp_dir().join(format!("naa-layouts-file-{}", std::process::id()));
        let folder = Folder::make(&path).unwrap();
        let run = run("naa bench layouts", "packed:4096:2,gathered", "2 x CPU");
        assert_eq!(folder.keep_old().unwrap(), None);
        assert_eq!(folder.resume(run.clone()).unwrap(), run);
        folder.save(&Written { run: &run, rows: &[] }).unwrap();
        assert_eq!(read(&folder.json()).unwrap(), run);
        assert!(folder.keep_old().unwrap().unwrap().contains("layouts.old.json"));
        assert!(!folder.json().exists() && path.join("layouts.old.json").exists());
        fs::write(folder.json(), "{}").unwrap();
        let error = format!("{:#}", folder.resume(run).unwrap_err());
        assert!(error.contains("is not what `naa bench layouts` writes"), "{error}");
        fs::remove_dir_all(path).unwrap();
    }
}
