//! The host's end: tables of an accelerator, programmed over an ordinary session.

use std::net::SocketAddr;

use ejfat::lb::{Rule, RuleKey, Rules};
use ejfat_lb::{TableSet, When, message};
use mrsp::builtin;
use naa_host::Device;
use proto::lb::v1;

use crate::ask::{HostError, ServiceClient};

/// The load-balancer tables of an accelerator.
#[derive(Debug)]
pub struct LbTables(ServiceClient);

impl LbTables {
    /// Makes an object that programs the tables of the accelerator at `peer`. Each call connects over `device` anew.
    pub fn new(device: Device, peer: SocketAddr) -> Self {
        Self(ServiceClient { device, peer })
    }

    /// Replaces all rules. Returns the first tick to which the new rules apply.
    ///
    /// # Errors
    /// Fails if the session fails, the accelerator refuses the request, or the reply is not valid.
    pub fn load(&self, rules: &Rules, when: When) -> Result<u64, HostError> {
        let request = message::encode(&v1::LoadRequest {
            rules: message::of_rules(rules),
            when: Some(message::of_when(when)),
            ..v1::LoadRequest::default()
        });
        let reply: v1::LoadReply = self.0.ask(builtin::LB_LOAD, Some(&request))?;
        Ok(reply.from_tick)
    }

    /// Changes the rules that the next tick would have: removes the rules with the keys in `remove`, and inserts the
    /// rules in `insert`. After an error, no rule is changed. If a rule has the key of an existing rule, `replace` must
    /// be true, and the new rule replaces the existing one. Returns the first tick to which the changed rules apply.
    ///
    /// # Errors
    /// Fails if the session fails, the accelerator refuses the request, or the reply is not valid.
    pub fn edit(
        &self,
        remove: &[RuleKey],
        insert: &[Rule],
        replace: bool,
        when: When,
    ) -> Result<u64, HostError> {
        let request = v1::EditRequest {
            insert: insert.iter().map(message::of_rule).collect(),
            replace,
            remove: remove.iter().map(message::of_key).collect(),
            when: Some(message::of_when(when)),
            ..v1::EditRequest::default()
        };
        let reply: v1::EditReply = self.0.ask(builtin::LB_EDIT, Some(&message::encode(&request)))?;
        Ok(reply.from_tick)
    }

    /// Returns all table sets, the newest one last.
    ///
    /// # Errors
    /// Fails if the session fails, the accelerator refuses the request, or the reply is not valid.
    pub fn sets(&self) -> Result<Vec<TableSet>, HostError> {
        let reply: v1::GetReply = self.0.ask(builtin::LB_TABLES, None)?;
        message::sets(&reply).map_err(|error| self.0.unusable(error))
    }

    /// Returns the counters of the data plane.
    ///
    /// # Errors
    /// Fails if the session fails, the accelerator refuses the call, or the reply is not valid.
    pub fn counters(&self) -> Result<v1::GetCountersReply, HostError> {
        self.0.ask(builtin::LB_COUNTERS, None)
    }
}
