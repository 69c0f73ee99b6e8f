//! The scheduler of the pool chooses the call that runs next. The scheduler divides the threads fairly among source
//! networks ([`SourceNetwork`]), and leaves no pool thread idle while a call waits that may run.
//!
//! ```text
//! admit ─► waiting ─► next ─► running ─► finished
//!             │                  └─► gave_up ─► abandoned ─► returned
//!             └─► withdraw
//! ```
//!
//! - If the number of running calls is below the number of pool threads, the next call comes from the source network
//!   with the fewest running calls. Among source networks with equally many running calls, the one that was served for
//!   the shortest time is chosen. Source networks that were served for equal times take turns.
//! - Each source network has a time for which it was served. The schedule's clock is the time for which an imaginary
//!   source network was served. Since the start of the pool, this source network has always got as much of the threads'
//!   time as every other source network with calls. When a source network makes its first call, its time is set to the
//!   clock. When it has no waiting or running call any more, the schedule stores the difference between its time and
//!   the clock. The schedule stores only the 256 largest differences, and deletes them when no call waits or runs.
//! - When all pool threads are taken, a source network without a running call still gets an extra thread. The scheduler
//!   cannot interrupt a running call to free a thread for this source network.
//! - When the pool is full, a new call can take the place of a waiting call. Among the source networks with a waiting
//!   call, the one with the most calls then loses its newest waiting call. This source network must have at least two
//!   calls more than the source network of the new call.
//! - The calls of one source network run in the order in which they came. A session has at most one call at a time. The
//!   next call of a session waits behind the earlier calls of other sessions of the same source network, so these
//!   sessions are served in turn.
//!
//! Time is an argument of the methods, so that tests can repeat any order of calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Add,
    time::Duration,
};

use verbs::source_network::SourceNetwork;

use super::{CallId, PoolConfig, PoolRefusal};

#[derive(Debug)]
pub(super) struct Schedule {
    config: PoolConfig,
    /// The source networks that have a waiting, running or abandoned call.
    peers: BTreeMap<SourceNetwork, SourceCalls>,
    /// The time for which an imaginary source network was served. Since the start of the pool, this source network has
    /// always got as much of the threads' time as every other source network with calls.
    clock: Duration,
    absent: Absent,
    /// A counter that rises by 1 when a call starts, and when a source network without waiting or running calls makes a
    /// call. [`SourceCalls::last_turn`] of the source network is then set to the counter's new value.
    turns: u64,
    waiting: usize,
    running: usize,
    abandoned: usize,
}

/// The calls of one source network, and the time for which it was served.
#[derive(Debug, Default)]
struct SourceCalls {
    waiting: VecDeque<CallId>,
    running: usize,
    /// The number of abandoned calls that still run.
    abandoned: usize,
    /// The time for which this source network was served. When a source network makes its first call, its `served` is
    /// set to [`Schedule::clock`], so the source network gains nothing from the time before this call. When a call of
    /// this source network ends or is abandoned, its running time is added to `served`. The time is added only if a
    /// call of another source network is waiting at this moment and may run. The difference between `served` and
    /// [`Schedule::clock`] is at most [`MOST_OWED`].
    served: Duration,
    /// The value to which a call of this source network last raised [`Schedule::turns`]. If two source networks have
    /// equally many running calls and were served for equal times, the one with the smaller `last_turn` is next.
    last_turn: u64,
}

impl SourceCalls {
    /// The number of calls of this source network that wait or run and are not abandoned.
    fn wanted(&self) -> usize {
        self.waiting.len() + self.running
    }
}

/// The source networks that have no waiting or running call, and whose [`SourceCalls::served`] differed from
/// [`Schedule::clock`] when they were added.
#[derive(Debug, Default)]
struct Absent {
    /// Each duration is the absolute difference between the source network's [`SourceCalls::served`] and
    /// [`Schedule::clock`] when the source network was added to this map. The duration does not change later.
    peers: BTreeMap<SourceNetwork, (Duration, Difference)>,
    by_size: BTreeSet<(Duration, SourceNetwork)>,
}

/// Says whether [`SourceCalls::served`] of a source network was greater or less than [`Schedule::clock`] when the
/// source network was added to [`Absent`].
#[derive(Clone, Copy, Debug)]
enum Difference {
    /// [`SourceCalls::served`] of the source network was greater than [`Schedule::clock`]. The value of this variant is
    /// not the difference, but the [`SourceCalls::served`] of the source network when it was added to [`Absent`]. When
    /// the source network makes its next call, its [`SourceCalls::served`] becomes this value or [`Schedule::clock`],
    /// whichever is greater.
    More(Duration),
    /// [`SourceCalls::served`] of the source network was less than [`Schedule::clock`]. When the source network makes
    /// its next call, its [`SourceCalls::served`] becomes [`Schedule::clock`] minus the difference that
    /// [`Absent::peers`] stores.
    Less,
}

/// The maximum number of source networks in [`Absent`]. If one more source network is added, the one with the
/// smallest stored difference from the schedule's clock is removed.
const MOST_ABSENT: usize = 256;
/// The maximum difference between [`SourceCalls::served`] and [`Schedule::clock`]. The whole running time of a long
/// call is added to [`SourceCalls::served`], even if other source networks waited only at the end of this call. Without
/// the maximum, the source network of such a call would wait too long for its next call, because source networks with a
/// smaller `served` would be chosen first.
const MOST_OWED: Duration = Duration::from_secs(10);
/// The time that a pool thread needs between two calls. The scheduler adds this time to the time of each call.
const HAND_OVER: Duration = Duration::from_micros(1);

impl Absent {
    fn insert(&mut self, peer: SourceNetwork, served: Duration, clock: Duration) {
        let size = served.abs_diff(clock);
        if size.is_zero() {
            return;
        }
        let difference = if served > clock { Difference::More(served) } else { Difference::Less };
        self.peers.insert(peer, (size, difference));
        self.by_size.insert((size, peer));
        if self.by_size.len() > MOST_ABSENT
            && let Some((_, peer)) = self.by_size.pop_first()
        {
            self.peers.remove(&peer);
        }
    }

    /// Removes `peer` from [`Absent`], because `peer` makes a call. Returns the new value for [`SourceCalls::served`]
    /// of `peer`. The result is `clock` if `peer` was not in [`Absent`].
    fn remove(&mut self, peer: SourceNetwork, clock: Duration) -> Duration {
        let Some((size, difference)) = self.peers.remove(&peer) else { return clock };
        self.by_size.remove(&(size, peer));
        match difference {
            Difference::More(served) => served.max(clock),
            Difference::Less => clock.saturating_sub(size),
        }
    }
}

impl Add for Calls {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            running: self.running + other.running,
            abandoned: self.abandoned + other.abandoned,
        }
    }
}

/// How many calls of one source network are waiting, running and abandoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The number of calls that wait for a thread.
    pub waiting: usize,
    /// The number of calls that run on a thread and are not abandoned.
    pub running: usize,
    /// The number of calls that still run although their time is over or their session ended.
    pub abandoned: usize,
}

impl Schedule {
    pub(super) fn new(config: PoolConfig) -> Self {
        Self {
            config,
            peers: BTreeMap::new(),
            clock: Duration::ZERO,
            absent: Absent::default(),
            turns: 0,
            waiting: 0,
            running: 0,
            abandoned: 0,
        }
    }

    pub(super) fn calls(&self, peer: SourceNetwork) -> Calls {
        self.peers.get(&peer).map_or_else(Calls::default, |source| Calls {
            waiting: source.waiting.len(),
            running: source.running,
            abandoned: source.abandoned,
        })
    }

    /// Accepts a call of `peer`. `done` is the number of ended calls that [`Pool::next_done`](super::Pool::next_done)
    /// has not returned yet; these calls still take up places in the pool. If the pool is full and a waiting call loses
    /// its place to the new call, the result is this waiting call.
    ///
    /// # Errors
    /// Fails with the reason of the refusal if the call is refused.
    pub(super) fn admit(
        &mut self,
        peer: SourceNetwork,
        id: CallId,
        done: usize,
    ) -> Result<Option<CallId>, PoolRefusal> {
        let PoolConfig { pool_threads, queue, per_peer, quarantine, .. } = self.config;
        let calls = self.calls(peer);
        if calls.waiting + calls.running + calls.abandoned >= per_peer {
            return Err(PoolRefusal::Peer);
        }
        if calls.abandoned >= self.most_abandoned()
            || self.abandoned >= quarantine.max(1) && calls.abandoned > 0
        {
            return Err(PoolRefusal::Quarantine);
        }
        if self.abandoned >= self.most_threads() {
            return Err(PoolRefusal::Quarantine);
        }
        let mut displaced = None;
        if self.waiting + self.running + done >= pool_threads.saturating_add(queue) {
            displaced = Some(self.displace(calls.waiting + calls.running).ok_or(PoolRefusal::Busy)?);
        }
        let source = self.peers.entry(peer).or_default();
        if source.wanted() == 0 {
            self.turns += 1;
            source.last_turn = self.turns;
            source.served = self.absent.remove(peer, self.clock);
        }
        source.waiting.push_back(id);
        self.waiting += 1;
        Ok(displaced)
    }

    /// Finds the source network with the most calls among the source networks with a waiting call. Removes and returns
    /// its newest waiting call. The caller gives the place of the removed call to another source network, which has
    /// `calls` calls. If no call waits, or if the source network that was found has fewer than `calls + 2` calls, no
    /// call is removed, and the result is `None`.
    fn displace(&mut self, calls: usize) -> Option<CallId> {
        let waiting = self.peers.values_mut().filter(|source| !source.waiting.is_empty());
        let most =
            waiting.max_by_key(|source| source.wanted()).filter(|source| source.wanted() > calls + 1)?;
        self.waiting -= 1;
        most.waiting.pop_back()
    }

    /// Removes a waiting call, so that this call never runs. Returns false if the call does not wait.
    pub(super) fn withdraw(&mut self, peer: SourceNetwork, id: CallId) -> bool {
        let Some(source) = self.peers.get_mut(&peer) else { return false };
        let Some(at) = source.waiting.iter().position(|waiting| *waiting == id) else { return false };
        source.waiting.remove(at);
        self.waiting -= 1;
        self.wants_less(peer);
        true
    }

    /// Returns the call to start now, and counts it as running. Returns `None` if no call may start now.
    pub(super) fn next(&mut self) -> Option<CallId> {
        let peer = self.turn()?;
        let source = self.peers.get_mut(&peer)?;
        let id = source.waiting.pop_front()?;
        self.turns += 1;
        source.last_turn = self.turns;
        source.running += 1;
        self.waiting -= 1;
        self.running += 1;
        Some(id)
    }

    /// Returns true if a waiting call may start now.
    pub(super) fn is_due(&self) -> bool {
        self.turn().is_some()
    }

    fn turn(&self) -> Option<SourceNetwork> {
        let PoolConfig { pool_threads, extra_threads, .. } = self.config;
        let free = self.running < pool_threads;
        if self.waiting == 0 || !free && self.running >= pool_threads.saturating_add(extra_threads) {
            return None;
        }
        let waiting = self.peers.iter().filter(|(_, source)| !source.waiting.is_empty());
        let may = waiting.filter(|(_, source)| self.may_run(source) && (free || source.running == 0));
        may.min_by_key(|(_, source)| (source.running, source.served, source.last_turn)).map(|(peer, _)| *peer)
    }

    /// Returns true if one more call of a source network may run. If the source network has abandoned calls, the number
    /// of its abandoned and running calls must be below [`Self::most_abandoned`]. The running calls count because they
    /// may be abandoned later.
    fn may_run(&self, source: &SourceCalls) -> bool {
        source.abandoned == 0 || source.abandoned + source.running < self.most_abandoned()
    }

    /// Records the end of a call that ran for `time`.
    pub(super) fn finished(&mut self, peer: SourceNetwork, time: Duration) {
        self.served(peer, time);
        let Some(source) = self.peers.get_mut(&peer) else { return };
        source.running -= 1;
        self.running -= 1;
        self.wants_less(peer);
    }

    /// Records that a call is abandoned after it ran for `time`. An abandoned call continues to run until its function
    /// returns.
    pub(super) fn gave_up(&mut self, peer: SourceNetwork, time: Duration) {
        self.served(peer, time);
        let Some(source) = self.peers.get_mut(&peer) else { return };
        source.running -= 1;
        source.abandoned += 1;
        self.running -= 1;
        self.abandoned += 1;
        self.wants_less(peer);
    }

    /// Records the end of an abandoned call.
    pub(super) fn returned(&mut self, peer: SourceNetwork) {
        let Some(source) = self.peers.get_mut(&peer) else { return };
        source.abandoned -= 1;
        self.abandoned -= 1;
        self.forget(peer);
    }

    /// Returns the limit on the abandoned calls of one source network. The limit is half of the quarantine, rounded up,
    /// so that the other half is left for other source networks. A source network that has reached the limit on
    /// abandoned calls can make no calls.
    fn most_abandoned(&self) -> usize {
        self.config.quarantine.max(1).div_ceil(2)
    }

    /// Returns the maximum number of threads: pool threads, extra threads, and threads of abandoned calls.
    pub(super) fn most_threads(&self) -> usize {
        let PoolConfig { pool_threads, extra_threads, quarantine, .. } = self.config;
        pool_threads.saturating_add(extra_threads).saturating_add(quarantine)
    }

    /// Records that a call of `peer` ran for `time`. The method does this only if another source network has a waiting
    /// call that may run; otherwise, it does nothing. The duration `time` is added to [`SourceCalls::served`] of
    /// `peer`. The schedule's clock advances by `time` divided by the number of source networks that compete for
    /// threads. A source network competes for threads if it has a running call, or if it has a waiting call that may
    /// run.
    fn served(&mut self, peer: SourceNetwork, time: Duration) {
        let waits = |(of, source): (&SourceNetwork, &SourceCalls)| {
            *of != peer && !source.waiting.is_empty() && self.may_run(source)
        };
        if !self.peers.iter().any(waits) {
            return;
        }
        // The `clamp` below keeps `SourceCalls::served` between `clock - MOST_OWED` and `clock + MOST_OWED`. A call
        // counts at most for the width of this range, which is `2 * MOST_OWED`.
        let time = (time + HAND_OVER).min(MOST_OWED * 2);
        let wants =
            |source: &&SourceCalls| source.running > 0 || !source.waiting.is_empty() && self.may_run(source);
        let number = self.peers.values().filter(wants).count();
        self.clock += time / u32::try_from(number).unwrap_or(u32::MAX).max(1);
        let (least, most) = (self.clock.saturating_sub(MOST_OWED), self.clock + MOST_OWED);
        for (of, source) in &mut self.peers {
            let more = if *of == peer { time } else { Duration::ZERO };
            source.served = (source.served + more).clamp(least, most);
        }
    }

    /// Adds `peer` to [`Absent`] if `peer` has no waiting or running call any more. This method is called after a call
    /// of `peer` ended, was abandoned or was withdrawn.
    fn wants_less(&mut self, peer: SourceNetwork) {
        if let Some(source) = self.peers.get(&peer)
            && source.wanted() == 0
        {
            self.absent.insert(peer, source.served, self.clock);
        }
        // When no call waits or runs, no source network competes for threads. The differences in `self.absent` are then
        // deleted, so that `served` of each source network begins at the clock when it makes its next call.
        if self.waiting + self.running == 0 {
            self.absent = Absent::default();
        }
        self.forget(peer);
    }

    fn forget(&mut self, peer: SourceNetwork) {
        if self.calls(peer) == Calls::default() {
            self.peers.remove(&peer);
        }
    }
}

#[cfg(test)]
mod fairness;
#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;

    pub(super) const MS: Duration = Duration::from_millis(1);
    pub(super) const CONFIG: PoolConfig =
        PoolConfig { pool_threads: 2, queue: 16, per_peer: 12, extra_threads: 2, quarantine: 4 };

    pub(super) fn peer(number: u32) -> SourceNetwork {
        IpAddr::from(Ipv4Addr::from_bits(number)).into()
    }

    pub(super) fn fill(schedule: &mut Schedule, of: SourceNetwork, ids: std::ops::Range<u64>) {
        for id in ids {
            assert_eq!(schedule.admit(of, CallId(id), 0), Ok(None));
        }
    }

    #[test]
    fn a_full_queue_makes_room_for_a_peer_with_fewer_calls() {
        let config = PoolConfig { pool_threads: 1, queue: 5, per_peer: 100, ..CONFIG };
        let mut schedule = Schedule::new(config);
        fill(&mut schedule, peer(1), 0..6);
        assert_eq!(schedule.admit(peer(1), CallId(6), 0), Err(PoolRefusal::Busy));
        // Each of the first three calls of the second source network takes the place of the newest waiting call of the
        // first source network.
        assert_eq!(schedule.admit(peer(2), CallId(10), 0), Ok(Some(CallId(5))));
        assert_eq!(schedule.admit(peer(2), CallId(11), 0), Ok(Some(CallId(4))));
        assert_eq!(schedule.admit(peer(2), CallId(12), 0), Ok(Some(CallId(3))));
        // A waiting call loses its place only to a source network with at least two calls fewer. Both source networks
        // have three calls, so the fourth call of the second source network is refused.
        assert_eq!(schedule.admit(peer(2), CallId(13), 0), Err(PoolRefusal::Busy));
    }

    #[test]
    fn what_a_peer_abandons_counts_against_it_alone() {
        let mut schedule = Schedule::new(CONFIG);
        fill(&mut schedule, peer(1), 0..2);
        for _ in 0..2 {
            schedule.next().unwrap();
            schedule.gave_up(peer(1), MS);
        }
        // The abandoned calls of one source network may take at most half of the quarantine, rounded up.
        assert_eq!(schedule.admit(peer(1), CallId(9), 0), Err(PoolRefusal::Quarantine));
        fill(&mut schedule, peer(2), 20..23);
        // Abandoned calls do not take pool threads from other source networks.
        assert_eq!(
            (schedule.next(), schedule.next(), schedule.next()),
            (Some(CallId(20)), Some(CallId(21)), None)
        );
        schedule.returned(peer(1));
        fill(&mut schedule, peer(1), 30..31);
        assert_eq!(schedule.calls(peer(1)), Calls { waiting: 1, running: 0, abandoned: 1 });
    }

    #[test]
    fn calls_that_waited_while_others_were_abandoned_take_no_more_threads() {
        let mut schedule = Schedule::new(PoolConfig { per_peer: 100, queue: 100, ..CONFIG });
        fill(&mut schedule, peer(1), 0..20);
        let mut abandoned = 0;
        while schedule.next().is_some() {
            schedule.gave_up(peer(1), MS);
            abandoned += 1;
        }
        assert_eq!(abandoned, CONFIG.quarantine / 2);
        fill(&mut schedule, peer(2), 30..31);
        assert_eq!(schedule.next(), Some(CallId(30)));
        // When an abandoned call of the first source network returns, a waiting call of this source network may start.
        schedule.returned(peer(1));
        assert!(schedule.is_due());
    }

    #[test]
    fn a_peer_has_so_many_calls_and_no_more() {
        let mut schedule = Schedule::new(CONFIG);
        fill(&mut schedule, peer(1), 0..12);
        assert_eq!(schedule.admit(peer(1), CallId(12), 0), Err(PoolRefusal::Peer));
        assert!(schedule.withdraw(peer(1), CallId(11)));
        assert!(!schedule.withdraw(peer(1), CallId(11)));
        fill(&mut schedule, peer(1), 12..13);
    }

    /// After any order of admissions and ends of calls, the schedule counts the calls correctly, and no pool thread is
    /// idle while a call waits that may run.
    #[test]
    fn no_order_of_events_loses_a_call_or_a_thread() {
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut schedule = Schedule::new(CONFIG);
            let (mut waiting, mut running, mut abandoned) = (Vec::new(), Vec::new(), Vec::new());
            for id in 0..400 {
                let pick = |list: &mut Vec<(SourceNetwork, CallId)>, random: &mut ChaCha8Rng| {
                    let at = random.next_u32() as usize % list.len().max(1);
                    (!list.is_empty()).then(|| list.swap_remove(at))
                };
                match random.next_u32() % 6 {
                    0..=2 => {
                        let of = peer(random.next_u32() % 4);
                        if let Ok(displaced) = schedule.admit(of, CallId(id), 0) {
                            waiting.retain(|(_, id)| Some(*id) != displaced);
                            waiting.push((of, CallId(id)));
                        }
                    }
                    3 => {
                        if let Some((of, _)) = pick(&mut running, &mut random) {
                            schedule.finished(of, MS * (random.next_u32() % 50));
                        }
                    }
                    4 => {
                        if let Some((of, id)) = pick(&mut running, &mut random) {
                            schedule.gave_up(of, MS);
                            abandoned.push((of, id));
                        } else if let Some((of, id)) = pick(&mut waiting, &mut random) {
                            assert!(schedule.withdraw(of, id), "seed {seed}");
                        }
                    }
                    _ => {
                        if let Some((of, _)) = pick(&mut abandoned, &mut random) {
                            schedule.returned(of);
                        }
                    }
                }
                while let Some(id) = schedule.next() {
                    let at = waiting.iter().position(|(_, waits)| *waits == id);
                    running.push(waiting.swap_remove(at.unwrap_or_else(|| panic!("seed {seed}"))));
                }
                let most = CONFIG.quarantine / 2;
                let of = |list: &[(SourceNetwork, CallId)], peer| {
                    list.iter().filter(|(of, _)| *of == peer).count()
                };
                let may =
                    |peer| of(&abandoned, peer) == 0 || of(&abandoned, peer) + of(&running, peer) < most;
                let due = waiting.iter().any(|(peer, _)| may(*peer));
                assert!(running.len() >= CONFIG.pool_threads || !due, "seed {seed}: a worker is idle");
                for number in 0..4 {
                    assert!(of(&abandoned, peer(number)) <= most, "seed {seed}: too many are abandoned");
                }
                for number in 0..4 {
                    let of = |list: &[(SourceNetwork, CallId)]| {
                        list.iter().filter(|(of, _)| *of == peer(number)).count()
                    };
                    let calls =
                        Calls { waiting: of(&waiting), running: of(&running), abandoned: of(&abandoned) };
                    assert_eq!(schedule.calls(peer(number)), calls, "seed {seed}");
                }
            }
        }
    }
}
