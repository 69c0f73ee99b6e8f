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
    /// The text has this number of bytes, which is more than a document of rules may have.
    #[error("the rules have {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
    /// The text is not YAML, or has other fields than a document of rules.
    #[error("the rules are not YAML as expected")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// A rule is not valid, or does not fit into its table.
    #[error("load balancer {lb}: {source}")]
    Rule {
        /// The number of the load balancer.
        lb: u8,
        /// The reason for which the rule was refused.
        #[source]
        source: RuleError,
    },
    /// A field of the document has a text that cannot be parsed, or a field is missing.
    #[error("load balancer {lb}: {problem}")]
    Text {
        /// The number of the load balancer.
        lb: u8,
        /// The fault, and a remedy, as text for people.
        problem: String,
    },
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The load balancers, each with all of its rules.
    pub load_balancers: Vec<Lb>,
}

/// The rules of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lb {
    /// The number of the load balancer, 0 to 63.
    pub lb: u8,
    /// The destination addresses of the packets that belong to the load balancer.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The source addresses from which the load balancer accepts packets.
    #[serde(default)]
    pub senders: Vec<IpAddr>,
    /// The epochs, with their ticks and calendars.
    #[serde(default)]
    pub epochs: Vec<EpochDocument>,
    /// The members to which the calendars refer.
    #[serde(default)]
    pub members: Vec<MemberDocument>,
}

/// An epoch of a load balancer as a document describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochDocument {
    /// The number of the epoch.
    pub id: u32,
    /// The ticks of the epoch: `all`, a range FIRST-LAST, or a prefix such as `0x4000000000000000/2`.
    #[serde(default)]
    pub ticks: Vec<String>,
    /// The calendar has 2^`slot_bits` calendar slots. The default is 9.
    #[serde(default = "nine")]
    pub slot_bits: u8,
    /// The bits of the slot select that are flipped.
    #[serde(default)]
    pub xor: u16,
    /// Members of the slots from 0 on. Epochs of one id have one calendar: the first of them has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub calendar: String,
}

/// A member of a load balancer as a document describes it: either with an address and a port, or with `drop`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberDocument {
    /// The number of the member.
    pub id: u16,
    /// The address to which packets of the member are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The first of the member's 2^`port_bits` UDP ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The number of entropy bits that choose one of the member's UDP ports. The default is 0, for one port.
    #[serde(default, skip_serializing_if = "is_default")]
    pub port_bits: u8,
    /// True if the member gets packets with their LB header. The default is false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_lb_header: bool,
    /// A MAC address in the form 02:00:00:00:00:01. If it is missing, the host looks it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The state for which packets of the member are dropped, or `None` if packets are sent to the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<Drop>,
    /// The IP version of the packets that are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ip>,
}

/// A state in which a member gets no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drop {
    /// The member is soft-evicted.
    SoftEvicted,
    /// The member is deregistered.
    Deregistered,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
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
    ///
    /// # Errors
    /// Fails with [`DocumentError::TooLong`] if the text is longer than 8 MiB, and with [`DocumentError::Yaml`] if the
    /// text is not a document of rules.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        if text.len() > MOST_BYTES {
            return Err(DocumentError::TooLong(text.len()));
        }
        Ok(serde_yaml_ng::from_str(text)?)
    }

    /// Returns the rules that the document describes.
    ///
    /// # Errors
    /// Fails with [`DocumentError::Rule`] if a rule is not valid or does not fit into its table, and with
    /// [`DocumentError::Text`] if a field cannot be parsed or is missing.
    pub fn rules(&self) -> Result<Rules, DocumentError> {
        read::rules(self)
    }

    /// The rules of a document that must be complete.
    ///
    /// # Errors
    /// Fails for the reasons for which [`Document::rules`] fails, and if a calendar has fewer slots than its epoch or
    /// names a member that is not defined. A calendar slot without a member is written as `-`.
    pub fn complete_rules(&self) -> Result<Rules, DocumentError> {
        let rules = self.rules()?;
        self.load_balancers.iter().try_for_each(gaps::check)?;
        Ok(rules)
    }

    /// What describes rules, in their canonical order.
    pub fn of(rules: &Rules) -> Self {
        write::document(rules)
    }

    /// Returns the document as YAML text.
    ///
    /// # Errors
    /// Fails with [`DocumentError::Yaml`] if the serializer fails.
    pub fn to_yaml(&self) -> Result<String, DocumentError> {
        Ok(serde_yaml_ng::to_string(self)?)
    }
}
