//! Changes of tables as requests.

use std::{mem, net::IpAddr, ops::Range};

use ejfat::lb::{Forward, LbId, Member, Rule, RuleKey};
use proto::sn_p4::v2::{
    BatchOperation, BatchRequest, PipelineStatsRequest, TableRequest, TableRule, TableRuleRequest,
    batch_request,
};

use super::SmartNicError;
use crate::grpc::smartnic::{attach, encode};

/// The first device, with its first pipeline. With -1, which stands for all, there would be an answer from each.
const DEVICE: i32 = 0;
const PIPELINE: i32 = 0;

/// Rules of a request: those of a calendar fit into one.
const AT_ONCE: usize = 512;

/// A change of a SmartNIC's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// Adds a rule. There is none with its key.
    Insert(Rule),
    /// Puts a rule in the place of the one with its key. A card refuses if there is none; our data plane adds it then.
    Replace(Rule),
    /// Removes the rule with this key. The SmartNIC refuses the change if its table has no rule with this key.
    Delete(RuleKey),
}

impl RuleChange {
    /// Returns the key of the rule that is changed.
    pub fn key(&self) -> RuleKey {
        match self {
            Self::Insert(rule) | Self::Replace(rule) => rule.key(),
            Self::Delete(key) => *key,
        }
    }

    fn goes_with(&self, other: &Self) -> bool {
        mem::discriminant(self) == mem::discriminant(other) && self.key().table() == other.key().table()
    }
}

/// One request, which has one answer.
pub(super) struct Entry {
    /// The changes that it makes.
    pub(super) changes: Range<usize>,
    pub(super) request: BatchRequest,
}

/// Consecutive changes of one kind in one table are one request, up to [`AT_ONCE`] of them.
pub(super) fn entries(changes: &[RuleChange]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut begin = 0;
    for alike in changes.chunk_by(|one, next| one.goes_with(next)) {
        for some in alike.chunks(AT_ONCE) {
            entries.push(Entry { changes: begin..begin + some.len(), request: request(some) });
            begin += some.len();
        }
    }
    entries
}

fn request(changes: &[RuleChange]) -> BatchRequest {
    let op = match changes {
        [RuleChange::Delete(_), ..] => BatchOperation::BopDelete,
        _ => BatchOperation::BopInsert,
    };
    let rules = changes.iter().map(|change| match change {
        RuleChange::Insert(rule) => encode::rule(rule, false),
        RuleChange::Replace(rule) => encode::rule(rule, true),
        RuleChange::Delete(key) => encode::key(key),
    });
    batch(op, rules.collect())
}

fn batch(op: BatchOperation, rules: Vec<TableRule>) -> BatchRequest {
    let request = TableRuleRequest { dev_id: DEVICE, pipeline_id: PIPELINE, rules };
    BatchRequest { op: op.into(), item: Some(batch_request::Item::TableRule(request)) }
}

/// The request by which a SmartNIC takes frames to a MAC address and answers for addresses. Its tables take 64 rules each.
pub(super) fn attach(mac: [u8; 6], addresses: &[(LbId, IpAddr)]) -> Entry {
    let rules = attach::rules(mac, addresses);
    Entry { changes: 0..rules.len(), request: batch(BatchOperation::BopInsert, rules) }
}

/// An empty name stands for all tables.
pub(super) fn clear(table_name: &str) -> TableRequest {
    TableRequest { dev_id: DEVICE, pipeline_id: PIPELINE, table_name: table_name.into() }
}

pub(super) fn stats() -> PipelineStatsRequest {
    PipelineStatsRequest { dev_id: DEVICE, pipeline_id: PIPELINE, filters: None }
}

/// A SmartNIC asks no host for a next hop, so packets to members without one would be lost.
pub(super) fn check(plane: &str, changes: &[RuleChange]) -> Result<(), SmartNicError> {
    let lost = changes.iter().find(|change| match change {
        RuleChange::Insert(Rule::Member { member: Member::Forward(to), .. })
        | RuleChange::Replace(Rule::Member { member: Member::Forward(to), .. }) => {
            matches!(to, Forward { mac: None | Some([0, 0, 0, 0, 0, 0]), .. })
        }
        _ => false,
    });
    match lost {
        Some(change) => Err(SmartNicError::NoMac { plane: plane.to_owned(), what: named(&change.key()) }),
        None => Ok(()),
    }
}

/// What changes are of, for errors: the one, or the first and the last of several.
pub(super) fn named_all(changes: &[RuleChange]) -> String {
    match changes {
        [] => "nothing".into(),
        [change] => format!("{} ({})", named(&change.key()), change.key().table()),
        [first, .., last] => {
            let (table, many) = (first.key().table(), changes.len());
            let (first, last) = (named(&first.key()), named(&last.key()));
            format!("one of {many} rules of {table}, from {first} to {last}")
        }
    }
}

fn named(key: &RuleKey) -> String {
    match key {
        RuleKey::Destination { address } => format!("destination {address}"),
        RuleKey::Source { lb, address } => format!("source {address} of load balancer {}", lb.get()),
        RuleKey::Epoch { lb, ticks } => {
            format!("ticks {:#x}/{} of load balancer {}", ticks.first(), ticks.length(), lb.get())
        }
        RuleKey::Slot { lb, epoch, slot } => {
            format!("slot {slot} of epoch {epoch} of load balancer {}", lb.get())
        }
        RuleKey::Member { lb, ip, id } => {
            format!("member {id} of load balancer {} for IP{}", lb.get(), format!("{ip:?}").to_lowercase())
        }
    }
}
