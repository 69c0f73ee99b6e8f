//! A check: its finding, its level, and its remedy.

use serde::Serialize;

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckLevel {
    /// Everything is as it should be.
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
pub enum CheckGroup {
    /// What the verbs provider needs.
    Rdma,
    /// What the embedded provider needs.
    Network,
    /// What makes calls fast or slow with any provider.
    Machine,
}

/// A finding about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name, which several checks may have.
    pub name: &'static str,
    /// How good or bad the finding is.
    pub level: CheckLevel,
    /// The finding in one line.
    pub finding: String,
    /// What to type or to do, if anything helps.
    pub remedy: Option<String>,
    /// The heading under which the check is listed.
    #[serde(skip)]
    pub group: CheckGroup,
}

impl CheckGroup {
    pub(crate) fn check(self, name: &'static str, level: CheckLevel, finding: impl Into<String>) -> Check {
        Check { name, level, finding: finding.into(), remedy: None, group: self }
    }
}

impl Check {
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
