//! How sentences of comments may not begin: `dev/xtask/openings.txt`.

use super::Finding;
use crate::sentences;
use anyhow::{Context, Result};
use std::{collections::BTreeMap, fs, path::Path};

const LIST: &str = "dev/xtask/openings.txt";

/// The most sentences of each folder that may still begin so. A number here may only fall. Folders that are not named may have none.
const MOST: &[(&str, usize)] = &[
    ("benches", 109),
    ("bindings/capi", 85),
    ("dev/fuzz", 3),
    ("dev/sim", 28),
    ("dev/simnet", 1),
    ("dev/xtask", 33),
    ("ejfat-bridge", 21),
    ("ejfat/client", 7),
    ("ejfat/control", 44),
    ("ejfat/cp", 5),
    ("ejfat/ejfat", 88),
    ("ejfat/events", 37),
    ("ejfat/lb", 40),
    ("ejfat/services", 3),
    ("ejfat/udp", 15),
    ("fpga", 2),
    ("kernels", 6),
    ("mrsp", 38),
    ("naa", 125),
    ("naa-host", 63),
    ("naa-server", 55),
    ("proto", 9),
    ("rdma/provider", 8),
    ("rdma/region", 7),
    ("rdma/roce", 16),
    ("rdma/roce-udp", 23),
    ("rdma/verbs", 9),
    ("rdma/verbs-ibv", 22),
    ("support", 30),
    ("tests", 86),
];

/// An opening that is refused.
#[derive(Debug, PartialEq, Eq)]
struct Opening {
    words: String,
    /// Only sentences without a comma are refused.
    without_comma: bool,
}

impl Opening {
    fn refuses(&self, sentence: &str) -> bool {
        let is_end = |rest: &str| {
            self.words.ends_with(['[', '`']) || rest.starts_with(|c: char| !c.is_alphanumeric() && c != '_')
        };
        sentence.strip_prefix(&self.words).is_some_and(is_end)
            && !(self.without_comma && sentence.contains(','))
    }
}

/// The list of the openings that are refused.
pub(super) struct Openings(Vec<Opening>);

impl Openings {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| {
                    let words = line.strip_suffix(" ...");
                    Opening { words: words.unwrap_or(line).to_owned(), without_comma: words.is_some() }
                })
                .collect(),
        )
    }

    /// How many sentences of each folder are refused, as text, and findings about those beyond what their folder may have.
    pub(super) fn check<'a>(
        &self,
        files: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> (String, Vec<Finding>) {
        let mut counts = BTreeMap::<_, Vec<Finding>>::new();
        for (path, text) in files {
            let folder = MOST.iter().map(|(folder, _)| *folder).find(|folder| is_within(path, folder));
            counts.entry(folder).or_default().extend(self.check_file(path, text));
        }
        let count = |(folder, found): (&Option<&str>, &Vec<Finding>)| {
            format!("{} {}", folder.unwrap_or("others"), found.len())
        };
        let shown = counts.iter().map(count).collect::<Vec<_>>().join(", ");
        let mut findings = counts.remove(&None).unwrap_or_default();
        for (folder, most) in MOST {
            let found = counts.remove(&Some(*folder)).unwrap_or_default();
            let file = "dev/xtask/src/tidy/openings.rs";
            if found.len() > *most {
                findings.extend(found);
            } else if found.len() < *most {
                let what = format!("{folder} has {} refused openings, and {most} are allowed", found.len());
                findings.push(Finding::new(file, 1, what, "lower the number in MOST"));
            }
        }
        (shown, findings)
    }

    fn check_file(&self, path: &str, text: &str) -> Vec<Finding> {
        let refused = |sentence: &sentences::Sentence| self.0.iter().any(|of| of.refuses(&sentence.text));
        let all = sentences::of_comments(text).into_iter().filter(refused);
        let finding = |sentence: sentences::Sentence| {
            let what = format!("a sentence begins in mid-air: {}", sentence.text);
            Finding::new(path, sentence.line, what, format!("name its subject; {LIST} has what is refused"))
        };
        all.map(finding).collect()
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_refused_and_sentences_are_not() {
        let openings = Openings::parse("# why\nOf\nAs [\nIn ...\n");
        let check = |text: &str| openings.check_file("a.rs", &format!("/// {text}\n")).len();
        for refused in ["Of the datagram.", "As [`write`].", "In a UDP header."] {
            assert_eq!(check(refused), 1, "{refused}");
        }
        for allowed in ["Offers are taken.", "As long as it waits.", "In a UDP header, it is 0.", "Inputs."] {
            assert_eq!(check(allowed), 0, "{allowed}");
        }
    }
}
