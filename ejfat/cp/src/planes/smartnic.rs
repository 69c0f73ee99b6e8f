//! The connection to a SmartNIC, which is programmed by `sn_p4.v2`.

use std::net::IpAddr;

use ejfat::lb::{LbId, Member, Rule};
use ejfat_control::{
    p4::Change,
    plane::{Call, Order, Outcome},
};
use ejfat_lb::grpc::{RuleChange, SmartNicClient, SmartNicError};
use naa_grpc::Credentials;

use super::{DEADLINE, Port};

pub(super) struct SmartNic {
    client: SmartNicClient,
    network: SmartNicNetwork,
}

/// Facts about its network that a SmartNIC cannot find out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmartNicNetwork {
    /// The MAC address of its port. It takes frames that are sent to this address.
    pub mac: [u8; 6],
    /// The MAC address of the next hop on the way to workers.
    pub next_hop: [u8; 6],
    /// The addresses of load balancers for which it answers ARP and neighbour requests.
    pub addresses: Vec<(LbId, IpAddr)>,
}

impl SmartNic {
    pub(super) fn connect(
        address: &str,
        credentials: &Credentials,
        network: SmartNicNetwork,
    ) -> Result<Self, String> {
        let mut client = SmartNicClient::connect_by(credentials, address).map_err(|why| why.to_string())?;
        client.set_deadline(DEADLINE);
        Ok(Self { client, network })
    }

    fn carry_out(&mut self, order: &Order) -> Result<Outcome, SmartNicError> {
        match order {
            // A SmartNIC reports neither ticks nor terms. All load balancers share its counters of members, by the member's id
            // modulo 1024, so they cannot be used for a single member.
            Order::Claim | Order::Look { .. } => return Ok(Outcome::State(Box::default())),
            Order::Clear => {
                self.client.clear(None)?;
                self.client.attach(self.network.mac, &self.network.addresses)?;
            }
            Order::Change(changes) => {
                let changes: Vec<_> = changes.iter().map(|change| self.changed(change)).collect();
                self.client.change(&changes)?;
            }
            Order::Stage(_) | Order::Withdraw { .. } | Order::Destinations(_) => {
                let why = "a SmartNIC has no table sets; its rules are changed one by one".to_owned();
                return Ok(Outcome::Refused { why });
            }
        }
        Ok(Outcome::Done { routed: None })
    }

    fn changed(&self, change: &Change) -> RuleChange {
        match *change {
            Change::Insert(rule) => RuleChange::Insert(self.with_next_hop(rule)),
            Change::Replace(rule) => RuleChange::Replace(self.with_next_hop(rule)),
            Change::Delete(key) => RuleChange::Delete(key),
        }
    }

    fn with_next_hop(&self, mut rule: Rule) -> Rule {
        if let Rule::Member { member: Member::Forward(forward), .. } = &mut rule {
            forward.mac.get_or_insert(self.network.next_hop);
        }
        rule
    }
}

impl Port for SmartNic {
    fn call(&mut self, call: &Call) -> Result<Outcome, String> {
        match self.carry_out(&call.order) {
            Ok(outcome) => Ok(outcome),
            Err(why @ (SmartNicError::Refused { .. } | SmartNicError::NoMac { .. })) => {
                Ok(Outcome::Refused { why: why.to_string() })
            }
            Err(why) => Err(why.to_string()),
        }
    }
}
