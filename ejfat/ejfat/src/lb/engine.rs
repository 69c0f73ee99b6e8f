//! The interface to hardware that takes the place of the balancer: its tables, and its counters.
//!
//! ```text
//! Balancer, changed ─► Image ─► Engine::load        before packets meet new tables
//! Balancer::absorb ◄─ Counted ◄─ Engine::take       before somebody looks at counters or at ticks
//! ```

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{Balancer, BeyondHorizon, Drops, Image, ImageError, LbCounters, LbId, Traffic, sets::NO_HORIZON};

/// A data plane that decides by images of tables, as hardware does.
pub trait Engine: std::fmt::Debug + Send {
    /// Replaces the image that is in use by another one, between two packets.
    ///
    /// A guard is the first tick of a load balancer whose packets the two images may treat differently. The engine refuses the image if
    /// it has forwarded that tick or a higher one since [`Engine::take`], because events could be split.
    ///
    /// # Errors
    /// [`EngineError::Late`] if the engine refuses the image. The previous image stays in use.
    fn load(&mut self, image: Image, guards: &BTreeMap<LbId, u64>) -> Result<(), EngineError>;

    /// Sets a load balancer's horizon. Forwarded packets with higher ticks are counted in [`Counted::beyond`].
    fn set_horizon(&mut self, lb: LbId, horizon: u64);

    /// Forwards a UDP datagram that came from the address `from` to the address `to`. Returns where it goes and the
    /// bytes of the new datagram, or `None` if it is dropped.
    fn forward(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Option<(SocketAddr, Vec<u8>)>;

    /// Returns the counters since the last call. Bytes are those of UDP datagrams.
    fn take(&mut self) -> Counted;
}

/// The reason why an engine does not use new tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(
        "load balancer {} forwarded ticks that the new tables are for while they were loaded; try again with a later tick",
        .lb.get()
    )]
    Late { lb: LbId },
}

/// The counters of an engine since the previous [`Engine::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that belong to no load balancer.
    pub unaddressed: Drops,
    pub lbs: BTreeMap<LbId, LbCounters>,
    pub members: BTreeMap<(LbId, u16), Traffic>,
    /// The packets that met each set of tables, by the first tick of the set.
    pub sets: BTreeMap<(LbId, u64), Met>,
    /// The highest tick at or below the horizon that was forwarded.
    pub newest: BTreeMap<LbId, u64>,
    pub beyond: BTreeMap<LbId, BeyondHorizon>,
}

/// The packets that met a set of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub routed: u64,
    /// Packets from addresses that no tables allow are not counted here.
    pub dropped: u64,
}

impl Balancer {
    /// Adds the counters of an engine. Afterwards the balancer is as if it had routed the same packets.
    pub fn absorb(&mut self, counted: &Counted) {
        self.tally.absorb(&counted.unaddressed, &counted.lbs, &counted.members);
        for (&(lb, from), met) in &counted.sets {
            let of = self.of_mut(lb);
            // The set may have been removed after the engine got its image. Then its ticks belong to the set before it.
            let at = of.sets.iter().position(|set| set.from == from).unwrap_or_else(|| of.at(from));
            of.sets[at].hits += met.routed;
            of.sets[at].dropped += met.dropped;
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

    /// Returns the lowest tick of a load balancer whose packets meet other tables here than in another balancer, or
    /// `None` if there is no such tick.
    pub fn first_difference(&self, other: &Self, lb: LbId) -> Option<u64> {
        let [ours, theirs] = [self, other].map(|balancer| &balancer.of(lb).sets);
        let differ = |from: u64| {
            let [a, b] = [self, other].map(|balancer| {
                let of = balancer.of(lb);
                &of.sets[of.at(from)].tables
            });
            !Arc::ptr_eq(a, b)
        };
        // The first set has all ticks before the second.
        let begins = ours.iter().chain(theirs.iter()).map(|set| set.from);
        std::iter::once(0).chain(begins).filter(|&from| differ(from)).min()
    }
}
