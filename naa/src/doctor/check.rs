//! What a check found, how bad it is, and what to type.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is slower, or works in part.
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
    /// One line.
    pub(super) finding: String,
    /// What to type, or do, where there is something.
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
