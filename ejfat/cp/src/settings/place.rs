//! Finds the line of a field in the file of a configuration, and the field of an error of YAML.

use std::path::PathBuf;

use serde::Deserialize as _;
use serde_yaml_ng::Value;

use super::PlaneSettings;

/// The file of a configuration, with its text.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl File {
    /// Returns the path and the line of a field such as `planes[1]` or `limits.workers`, each followed by a colon. If the
    /// field itself is not found, the line is that of the field that contains it.
    pub(super) fn place(&self, field: &str) -> String {
        let lines: Vec<_> = self.text.lines().collect();
        let mut line = None;
        for part in field.split('.') {
            let (key, index) = part.split_once('[').unwrap_or((part, ""));
            let begin = line.unwrap_or(0);
            let Some(found) = lines[begin..].iter().position(|line| has_key(line, key)) else { break };
            let found = begin + found;
            let item = index.trim_end_matches(']').parse::<usize>().ok();
            let items = (found + 1..lines.len()).filter(|at| lines[*at].trim_start().starts_with('-'));
            line = item.and_then(|item| items.into_iter().nth(item)).or(Some(found));
        }
        let path = self.path.display();
        line.map_or_else(|| format!("{path}: "), |line| format!("{path}:{}: ", line + 1))
    }
}

/// Adds to an error of the YAML's reader what it does not say: which data plane has the error, and that a field that is indented too
/// far is taken for the end of the text before it.
pub(super) fn explained(text: &str, why: &str) -> String {
    let mut why = why.to_owned();
    if why.starts_with("planes:") {
        let planes = serde_yaml_ng::from_str::<Value>(text).ok();
        let planes = planes.as_ref().and_then(|all| all.get("planes")?.as_sequence());
        let wrong = planes.into_iter().flatten().position(|plane| PlaneSettings::deserialize(plane).is_err());
        if let Some(at) = wrong {
            why = why.replacen("planes:", &format!("planes[{at}]:"), 1);
        }
    }
    let value = why.split_once("unknown variant `").and_then(|(_, rest)| rest.split('`').next());
    if value.is_some_and(|value| value.contains(' ')) {
        why += "; the next line is taken for a part of this value: check its indentation";
    }
    why
}

/// Returns whether a line of YAML begins with this key.
fn has_key(line: &str, key: &str) -> bool {
    let line = line.trim_start().trim_start_matches("- ");
    line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
}
