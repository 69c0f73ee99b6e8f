//! The interface to hardware that forwards packets instead of a [`DataPlane`]. The hardware gets tables from the data
//! plane and returns counters to it.
//!
//! ```text
//! DataPlane, changed ─► Image ─► Engine::load            before packets meet new tables
//! DataPlane::absorb ◄─ EngineCounters ◄─ Engine::take    before somebody looks at counters or at ticks
//! ```

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    BeyondHorizon, DataPlane, Drops, Image, ImageError, LbCounters, LbId, Traffic, sets::NO_HORIZON,
};

/// A data plane that forwards packets by an image of the tables, for example hardware.
pub trait Engine: std::fmt::Debug + Send {
    /// Replaces the current image by another image. The engine forwards each packet by only one of the two images.
    ///
    /// The guard of a load balancer is the lowest tick for which the two images may forward the load balancer's packets
    /// differently. The engine refuses the new image if it has forwarded a packet whose tick is at least the guard but
    /// not above the horizon. Packets that it forwarded before the last [`Engine::take`] do not cause a refusal. The
    /// guard and the horizon are those of the packet's load balancer. The refusal prevents the segments of one event
    /// from going to different workers. A load balancer that is not in `guards` has no guard and causes no refusal.
    ///
    /// # Errors
    /// Fails with [`EngineError::Late`] if the engine refuses the image. After a refusal, the previous image stays in
    /// use.
    fn load(&mut self, image: Image, guards: &BTreeMap<LbId, u64>) -> Result<(), EngineError>;

    /// Sets a load balancer's horizon. Forwarded packets with ticks above the horizon are counted in
    /// [`EngineCounters::beyond`].
    fn set_horizon(&mut self, lb: LbId, horizon: u64);

    /// Forwards a UDP datagram with the source address `from` and the destination address `to`. Returns the new
    /// destination and the bytes of the new datagram, or `None` if the datagram is dropped.
    fn forward(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Option<(SocketAddr, Vec<u8>)>;

    /// Returns what the engine has counted since the previous call of this function. In the returned counters, the
    /// numbers of bytes are lengths of UDP payloads.
    fn take(&mut self) -> EngineCounters;
}

/// The reason why an engine does not use new tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The tables do not fit into an image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The engine refused the new tables, because it had already forwarded a packet whose tick is at least the guard of
    /// the packet's load balancer (see [`Engine::load`]).
    #[error(
        "load balancer {} forwarded ticks that the new tables are for while they were loaded; try again with a later tick",
        .lb.get()
    )]
    Late {
        /// The load balancer to which the forwarded packet belonged.
        lb: LbId,
    },
}

/// What an engine has counted since the previous [`Engine::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// For each drop cause, the number of dropped packets that belong to no load balancer.
    pub unaddressed: Drops,
    /// The counters of each load balancer that got packets.
    pub lbs: BTreeMap<LbId, LbCounters>,
    /// The numbers of packets and bytes that were sent to each member. The key of a member is its load balancer and its
    /// member id.
    pub members: BTreeMap<(LbId, u16), Traffic>,
    /// The number of packets to which each set of tables applied. The key of a set is its load balancer and its first
    /// tick.
    pub sets: BTreeMap<(LbId, u64), SetCounters>,
    /// For each load balancer, the highest tick of its forwarded packets. Ticks above the horizon are ignored.
    pub newest: BTreeMap<LbId, u64>,
    /// For each load balancer, the number of forwarded packets whose ticks were above its horizon, and the lowest and
    /// the highest of these ticks.
    pub beyond: BTreeMap<LbId, BeyondHorizon>,
}

/// The number of packets to which a set of tables applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounters {
    /// The number of packets that were sent to members.
    pub routed: u64,
    /// The number of dropped packets with a valid LB header. A dropped packet is counted only if at least one set of
    /// the load balancer allows the packet's source address.
    pub dropped: u64,
}

impl DataPlane {
    /// Adds the counters of an engine to the counters of the data plane. After this call, the data plane has the same
    /// counters and routed ticks as if the data plane had routed the packets itself.
    pub fn absorb(&mut self, counted: &EngineCounters) {
        self.counters.absorb(&counted.unaddressed, &counted.lbs, &counted.members);
        for (&(lb, from), counters) in &counted.sets {
            let of = self.of_mut(lb);
            // If the data plane has removed the set with the first tick `from`, the packets are counted for the set
            // that now applies to the tick `from`.
            let at = of.sets.iter().position(|set| set.from == from).unwrap_or_else(|| of.at(from));
            of.sets[at].hits += counters.routed;
            of.sets[at].dropped += counters.dropped;
        }
        for (&lb, &newest) in &counted.newest {
            let of = self.of_mut(lb);
            of.newest = of.newest.max(Some(newest));
        }
        for (&lb, &beyond) in &counted.beyond {
            self.of_mut(lb).absorb_beyond(beyond);
        }
    }

    /// Returns the horizon of a load balancer, if it has one.
    pub fn horizon(&self, lb: LbId) -> Option<u64> {
        Some(self.of(lb).horizon).filter(|&horizon| horizon != NO_HORIZON)
    }

    /// Returns the lowest tick to which this data plane and the data plane `other` apply different tables of a load
    /// balancer. Returns `None` if the two data planes apply the same tables to all ticks.
    pub fn first_difference(&self, other: &Self, lb: LbId) -> Option<u64> {
        let [ours, theirs] = [self, other].map(|plane| &plane.of(lb).sets);
        let differ = |from: u64| {
            let [a, b] = [self, other].map(|plane| {
                let of = plane.of(lb);
                &of.sets[of.at(from)].tables
            });
            !Arc::ptr_eq(a, b)
        };
        // The tables of a load balancer change only at the first tick of a set. The first set also applies to all ticks
        // below its own first tick, so tick 0 is checked, too.
        let begins = ours.iter().chain(theirs.iter()).map(|set| set.from);
        std::iter::once(0).chain(begins).filter(|&from| differ(from)).min()
    }
}
