//! How sentences of comments may not begin: `dev/xtask/openings.txt`.

use super::Finding;
use crate::sentences;
use anyhow::{Context, Result};
use std::{fs, path::Path};

const LIST: &str = "dev/xtask/openings.txt";

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

    /// Findings about sentences of a file of Rust that are refused.
    pub(super) fn check(&self, path: &str, text: &str) -> Vec<Finding> {
        let refused = |sentence: &sentences::Sentence| self.0.iter().any(|of| of.refuses(&sentence.text));
        let all = sentences::of_comments(text).into_iter().filter(refused);
        let finding = |sentence: sentences::Sentence| {
            let what = format!("a sentence begins in mid-air: {}", sentence.text);
            Finding::new(path, sentence.line, what, format!("name its subject; {LIST} has what is refused"))
        };
        all.map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_refused_and_sentences_are_not() {
        let openings = Openings::parse("# why\nOf\nAs [\nIn ...\n");
        let check = |text: &str| openings.check("a.rs", &format!("/// {text}\n")).len();
        for refused in ["Of the datagram.", "As [`write`].", "In a UDP header."] {
            assert_eq!(check(refused), 1, "{refused}");
        }
        for allowed in ["Offers are taken.", "As long as it waits.", "In a UDP header, it is 0.", "Inputs."] {
            assert_eq!(check(allowed), 0, "{allowed}");
        }
    }
}
