//! The load balancer chooses the worker that gets a segment, and rewrites the packet.
//!
//! ```text
//! Rules ─► Tables ─► DataPlane::forward(packet): destination address ─► load balancer, source address allowed?
//!   │                  LB header: tick ─► epoch;  (select ^ xor) & mask ─► slot;  epoch, slot ─► member
//!   └ diff, iter       member ─► address and UDP port;  headers rewritten in place, LB header cut out
//! ```
//!
//! [`Rules`] can be edited, like the table rules of the P4 data plane. [`Tables`] are compiled from [`Rules`] and do
//! not change. A [`DataPlane`] may have several sets of tables for each load balancer. Each set of tables has a first
//! tick, and applies from this tick on until the next set begins. All segments of an event have the same tick, so they
//! are looked up in the same set. Each load balancer has sets of its own, because different load balancers serve
//! different experiments, whose ticks are independent of each other.
//!
//! # Source
//! The tables, the order of the checks and the names of the counters are those of ESnet's P4 data plane (udplb), whose
//! table sizes are [`Table::p4_limit`]. VLANs, ARP, ICMP and neighbour discovery are handled by the machine on which a
//! data plane runs.

mod addresses;
mod cause;
mod checksum;
mod compile;
mod counters;
mod data_plane;
mod engine;
mod error;
mod image;
mod packet;
mod packet_counters;
mod rewrite;
mod rule;
mod rules;
mod sets;
mod tables;
mod tick;

pub use cause::DropCause;
pub use counters::{Drops, LbCounters, Traffic};
pub use data_plane::DataPlane;
pub use engine::{Engine, EngineCounters, EngineError, SetCounters};
pub use error::RuleError;
pub use image::{Image, ImageEntry, ImageError, ImageTable};
pub use rewrite::{Forwarded, rewrite};
pub use rule::{Epoch, Forward, Member, Rule, RuleKey, Table, calendar};
pub use rules::{Changes, Rules, diff};
pub use sets::{BeyondHorizon, StageError, WithdrawError};
pub use tables::{LbTables, Route, Tables};
pub use tick::{TickPrefix, prefixes};

/// One of the load balancers that share the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LbId(u8);

impl LbId {
    /// The number of load balancers on our own data planes.
    pub const COUNT: usize = 64;
    /// The number of load balancers on ESnet's P4 data plane, where the id of a load balancer has three bits.
    pub const P4_COUNT: usize = 8;

    /// Creates the id of the load balancer with the number `id`.
    ///
    /// # Errors
    /// Fails with [`RuleError::LbId`] if `id` is not below [`LbId::COUNT`].
    pub fn new(id: u8) -> Result<Self, RuleError> {
        if usize::from(id) < Self::COUNT { Ok(Self(id)) } else { Err(RuleError::LbId(id)) }
    }

    /// Returns the number of the load balancer, which is below [`LbId::COUNT`].
    pub fn get(self) -> u8 {
        self.0
    }

    /// Returns the ids of all load balancers in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}
