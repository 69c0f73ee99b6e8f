//! The load balancer: it chooses the worker that gets a segment, and rewrites the packet.
//!
//! ```text
//! Rules ─► Tables ─► Balancer::forward(packet):  destination address ─► load balancer, source address allowed?
//!   │                  LB header: tick ─► epoch;  (select ^ xor) & mask ─► slot;  epoch, slot ─► member
//!   └ diff, iter       member ─► address and UDP port;  headers rewritten in place, LB header cut out
//! ```
//!
//! [`Rules`] are edited, like the table rules of the P4 data plane; [`Tables`] are compiled from them and do not
//! change. A [`Balancer`] holds several sets of tables of each load balancer, each from a tick on, so that all segments
//! of an event meet the same set. Load balancers serve different experiments, whose ticks are independent of each
//! other.
//!
//! # Source
//! ESnet's P4 data plane (udplb): its tables, their sizes, the order of its checks and the names of its counters.
//! VLANs, ARP, ICMP and neighbour discovery are left to the host.

mod addresses;
mod balancer;
mod cause;
mod checksum;
mod compile;
mod counters;
mod engine;
mod error;
mod image;
mod packet;
mod rewrite;
mod rule;
mod rules;
mod sets;
mod tables;
mod tally;
mod tick;

use std::net::IpAddr;

pub use balancer::Balancer;
pub use cause::DropCause;
pub use counters::{Drops, LbCounters, Traffic};
pub use engine::{Counted, Engine, EngineError, Met};
pub use error::RuleError;
pub use image::{Image, ImageEntry, ImageError, ImageTable};
pub use rewrite::{Forwarded, rewrite};
pub use rule::{Epoch, Forward, Member, Rule, RuleKey, Table, calendar};
pub use rules::{Changes, Rules, diff};
pub use sets::{BeyondHorizon, StageError, WithdrawError};
pub use tables::{LbTables, Route, Tables};
pub use tick::{TickPrefix, prefixes};

use crate::segment::IpVersion;

/// One of the load balancers that share the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LbId(u8);

impl LbId {
    /// The number of load balancers on our own data planes.
    pub const COUNT: usize = 64;
    /// The number of load balancers on ESnet's P4 data plane, which has three bits for their ids.
    pub const P4_COUNT: usize = 8;

    pub fn new(id: u8) -> Result<Self, RuleError> {
        if usize::from(id) < Self::COUNT { Ok(Self(id)) } else { Err(RuleError::LbId(id)) }
    }

    pub fn get(self) -> u8 {
        self.0
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

fn version(address: IpAddr) -> IpVersion {
    match address {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    }
}
