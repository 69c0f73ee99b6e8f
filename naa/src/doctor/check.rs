//! A check: its finding, its level, and its remedy.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// The finding is worth knowing, but nothing is wrong.
    Note,
    /// Something is slower than possible, or works only in part.
    Warn,
    /// A provider cannot be used because of this.
    Bad,
}

/// The heading of the report under which a check is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Rdma,
    Network,
    Machine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// The finding in one line.
    pub(super) finding: String,
    /// What to type or to do, if anything helps.
    pub(super) remedy: Option<String>,
    #[serde(skip)]
    pub(super) group: Group,
}

impl Group {
    pub(super) fn check(self, name: &'static str, level: Level, finding: impl Into<String>) -> Check {
        Check { name, level, finding: finding.into(), remedy: None, group: self }
    }
}

impl Check {
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
