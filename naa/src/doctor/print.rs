//! The report for people.

use std::time::Duration;

use naa_doctor::{CheckGroup, CheckLevel, Report, SelfTest, Size};

use crate::show;

/// The width of the column of levels ("ok", "note", "warn", "bad").
const WORDS: usize = "note".len();
/// Codes of colours.
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

#[derive(Clone, Copy, Debug)]
pub(super) struct Colour(pub(super) bool);

impl Colour {
    fn paint(self, code: u8, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn heading(self, text: &str) -> String {
        self.paint(1, text)
    }
}

pub(super) fn report(report: &Report, colour: Colour) -> String {
    let Report { checks, providers } = report;
    let groups =
        [("RDMA", CheckGroup::Rdma), ("Network", CheckGroup::Network), ("Machine", CheckGroup::Machine)];
    let names = checks.iter().map(|check| check.name).chain(providers.iter().map(|p| p.name));
    let width = names.map(str::len).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (heading, group) in groups {
        lines.push(colour.heading(heading));
        for check in checks.iter().filter(|check| check.group == group) {
            lines.push(row(colour, width, style(check.level), check.name, &check.finding));
            // A remedy that a provider needs is printed at the end, with the provider.
            let is_shown = |remedy: &&String| providers.iter().any(|p| p.remedy.as_ref() == Some(*remedy));
            let remedy = check.remedy.iter().filter(|remedy| !is_shown(remedy));
            lines.extend(remedy.map(|remedy| more(width, &format!("-> {remedy}"))));
        }
        lines.push(String::new());
    }
    lines.push(colour.heading("Providers"));
    for provider in providers {
        let mark = if provider.ready { ("yes", GREEN) } else { ("no", YELLOW) };
        lines.push(row(colour, width, mark, provider.name, &provider.why));
        lines.extend(provider.self_test.iter().map(|test| more(width, &self_test(test))));
        lines.extend(provider.remedy.iter().map(|remedy| more(width, &format!("-> {remedy}"))));
    }
    lines.join("\n")
}

/// The word of a level, and its colour.
fn style(level: CheckLevel) -> (&'static str, u8) {
    match level {
        CheckLevel::Ok => ("ok", GREEN),
        CheckLevel::Note => ("note", 36),
        CheckLevel::Warn => ("warn", YELLOW),
        CheckLevel::Bad => ("bad", 31),
    }
}

fn row(colour: Colour, width: usize, (mark, code): (&str, u8), name: &str, text: &str) -> String {
    format!("  {}  {name:width$}  {text}", colour.paint(code, &format!("{mark:WORDS$}")))
}

fn more(width: usize, text: &str) -> String {
    format!("{:indent$}{text}", "", indent = 2 + WORDS + 2 + width + 2)
}

fn self_test(test: &SelfTest) -> String {
    match &test.error {
        Some(error) => format!("self-test on {} failed: {error}", test.address),
        None => {
            let size = |size: &Size| {
                let time = show::time(Duration::from_secs_f64(size.median_microseconds / 1e6));
                format!("{} in {time}", show::bytes(size.bytes as u64))
            };
            let sizes = test.sizes.iter().map(size).collect::<Vec<_>>().join(", ");
            format!("self-test on {}: {} calls right; {sizes}", test.address, test.calls)
        }
    }
}

#[cfg(test)]
mod tests {
    use naa_doctor::{Check, ProviderReport};

    use super::*;

    #[test]
    fn remedies_stand_below_their_findings_and_are_told_once() {
        let check = |group, name, level, finding: &str, remedy: &str| {
            let (finding, remedy) = (finding.to_owned(), Some(remedy.to_owned()));
            Check { name, level, finding, remedy, group }
        };
        let firewall = check(CheckGroup::Network, "firewall", CheckLevel::Warn, "closed", "open it");
        let device = check(CheckGroup::Rdma, "device", CheckLevel::Note, "none", "get one");
        let provider = ProviderReport {
            name: "verbs",
            ready: false,
            addresses: Vec::new(),
            cannot_listen: Vec::new(),
            why: "not available: no RDMA device".into(),
            remedy: Some("get one".into()),
            self_test: None,
        };
        let mut few = Report { checks: vec![device, firewall], providers: vec![provider] };
        let text = report(&few, Colour(false));
        let wanted = "RDMA\n  note  device    none\n\nNetwork\n  warn  firewall  closed\n                  -> open it\n\n\
                      Machine\n\nProviders\n  no    verbs     not available: no RDMA device\n                  -> get one";
        assert_eq!(text, wanted);
        few.checks.clear();
        let text = report(&few, Colour(true));
        assert!(text.contains("\x1b[33mno  \x1b[0m"), "{text:?}");
    }
}
