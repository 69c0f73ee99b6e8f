//! Lists of mutants that no test can find, with the reason of each: `fpga/mutants.txt` and `dev/mutants.txt`.

use anyhow::{Context, Result, ensure};
use std::{collections::BTreeMap, fs, path::Path};

/// The reason of each mutant. A mutant has the name that is printed when the mutant survives.
#[derive(Debug)]
pub(crate) struct Explained(BTreeMap<String, String>);

impl Explained {
    /// Reads the list. Each mutant has two lines: itself, and the reason, which is indented. Empty lines and lines that begin with `#` do not
    /// count.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut reasons = BTreeMap::new();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        while let Some(mutant) = lines.next() {
            let reason = lines.next().filter(|line| line.starts_with("    "));
            let reason = reason.with_context(|| format!("{mutant}: no reason follows"))?;
            let before = reasons.insert(mutant.to_owned(), reason.trim().to_owned());
            ensure!(before.is_none(), "{mutant}: it has two reasons");
        }
        Ok(Self(reasons))
    }

    pub(crate) fn reason(&self, mutant: &str) -> Option<&str> {
        self.0.get(mutant).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_has_one_reason() {
        let list = Explained::parse("# A list.\n\na: -mode inv\n    equivalent: b\n").unwrap();
        assert_eq!(list.0["a: -mode inv"], "equivalent: b");
        assert!(Explained::parse("a: -mode inv\nb: -mode inv\n    reason\n").is_err());
        assert!(Explained::parse("a\n    b\na\n    c\n").is_err());
    }
}
