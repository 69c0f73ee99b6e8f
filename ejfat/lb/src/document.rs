//! Rules as people write them: YAML, and JSON of the same shape.
//!
//! ```yaml
//! load_balancers:
//! - lb: 0                              # 0 to 63
//!   addresses: [10.0.0.1, "fd00::1"]   # packets to these are its
//!   senders: [10.0.0.5]                # it takes packets from these only
//!   epochs:
//!   - id: 0
//!     ticks: [all]                     # or FIRST-LAST, or a prefix such as 0x4000000000000000/2
//!     slot_bits: 9                     # 2^9 slots, as unless told
//!     xor: 0
//!     calendar: (1 2)x256              # slots 0, 1, 2 ... lead to members 1, 2, 1 ...; -x8: eight slots that have no member, on purpose
//!   members:
//!   - {id: 1, address: 10.0.0.9, port: 10000, port_bits: 2, keep_lb_header: false}
//!   - {id: 2, drop: soft_evicted, ip: v4}
//! ```

mod calendar;
mod gaps;
mod ranges;
mod read;
mod write;

use std::net::IpAddr;

use ejfat::lb::{RuleError, Rules};
use ranges::ranges;
use serde::{Deserialize, Serialize};

/// What no file of rules needs: with every rule there may be, some 20 bytes each.
const MOST_BYTES: usize = 8 << 20;

/// The reason why a text is not a document of rules.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the rules have {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
    #[error("the rules are not YAML as expected")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error("load balancer {lb}: {source}")]
    Rule {
        lb: u8,
        #[source]
        source: RuleError,
    },
    #[error("load balancer {lb}: {problem}")]
    Text { lb: u8, problem: String },
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub load_balancers: Vec<Lb>,
}

/// The rules of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lb {
    pub lb: u8,
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    #[serde(default)]
    pub senders: Vec<IpAddr>,
    #[serde(default)]
    pub epochs: Vec<EpochDocument>,
    #[serde(default)]
    pub members: Vec<MemberDocument>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochDocument {
    pub id: u32,
    #[serde(default)]
    pub ticks: Vec<String>,
    #[serde(default = "nine")]
    pub slot_bits: u8,
    #[serde(default)]
    pub xor: u16,
    /// Members of the slots from 0 on. Epochs of one id have one calendar: the first of them has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub calendar: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberDocument {
    pub id: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub port_bits: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_lb_header: bool,
    /// A MAC address in the form 02:00:00:00:00:01. If it is missing, the host looks it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<Drop>,
    /// The IP version of the packets that are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ip>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drop {
    SoftEvicted,
    Deregistered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ip {
    V4,
    V6,
}

/// Writes the members of consecutive calendar slots as a document does. `None` is a slot without a member.
pub fn calendar_text(slots: &[Option<u16>]) -> String {
    calendar::print(slots)
}

fn nine() -> u8 {
    9
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Document {
    /// Parses a document in YAML, or in JSON, which is a subset of YAML.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        if text.len() > MOST_BYTES {
            return Err(DocumentError::TooLong(text.len()));
        }
        Ok(serde_yaml_ng::from_str(text)?)
    }

    /// The rules it describes.
    pub fn rules(&self) -> Result<Rules, DocumentError> {
        read::rules(self)
    }

    /// The rules of a document that must be complete.
    ///
    /// # Errors
    /// Besides those of [`Document::rules`]: a calendar is shorter than its epochs' slots (a slot that is to have no member
    /// is `-`), or names members that are not defined.
    pub fn complete_rules(&self) -> Result<Rules, DocumentError> {
        let rules = self.rules()?;
        self.load_balancers.iter().try_for_each(gaps::check)?;
        Ok(rules)
    }

    /// What describes rules, in their canonical order.
    pub fn of(rules: &Rules) -> Self {
        write::document(rules)
    }

    pub fn to_yaml(&self) -> Result<String, DocumentError> {
        Ok(serde_yaml_ng::to_string(self)?)
    }
}
