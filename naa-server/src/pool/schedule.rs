//! Which call runs next: fair among peers, and no thread idle while a call waits.
//!
//! ```text
//! admit ─► waiting ─► next ─► running ─► finished
//!             │                  └─► gave_up ─► abandoned ─► returned
//!             └─► withdraw
//! ```
//!
//! - While fewer calls run than there are workers, the next is one of the peer with the fewest running calls, among those
//!   the peer that was served least.
//! - When all workers are taken, a peer of whose calls none runs still gets a thread, a guest's: a call cannot be
//!   interrupted in favour of another one.
//! - When all places are taken, a peer with fewer calls takes the place of the newest waiting call of the peer with most.
//! - The calls of one peer run in the order in which they came. A session has one call at a time, so its sessions take
//!   turns.
//!
//! Time is an argument, so that every order of events can be tried again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use verbs::peer::Peer;

use super::{Refusal, Settings, TaskId};

#[derive(Debug)]
pub(super) struct Schedule {
    settings: Settings,
    /// Peers that have a call.
    peers: BTreeMap<Peer, Share>,
    waiting: usize,
    running: usize,
    abandoned: usize,
}

/// What one peer has.
#[derive(Debug, Default)]
struct Share {
    waiting: VecDeque<TaskId>,
    running: usize,
    /// Calls that run though nobody waits for them.
    abandoned: usize,
    /// How long its calls ran. A peer begins with the least of those that are there, so that nobody saves up time by
    /// staying away.
    served: Duration,
}

impl Share {
    /// Calls that somebody waits for.
    fn wanted(&self) -> usize {
        self.waiting.len() + self.running
    }
}

/// How many calls of a peer there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub waiting: usize,
    pub running: usize,
    /// Calls past their time, or whose session ended, and that still run.
    pub abandoned: usize,
}

impl Schedule {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, peers: BTreeMap::new(), waiting: 0, running: 0, abandoned: 0 }
    }

    pub(super) fn calls(&self, peer: Peer) -> Calls {
        self.peers.get(&peer).map_or_else(Calls::default, |share| Calls {
            waiting: share.waiting.len(),
            running: share.running,
            abandoned: share.abandoned,
        })
    }

    /// Takes a call of `peer`, beside `done` calls that are not collected yet. Gives the waiting call that lost its place
    /// for it, if there is one.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn admit(&mut self, peer: Peer, id: TaskId, done: usize) -> Result<Option<TaskId>, Refusal> {
        let Settings { workers, queue, per_peer, quarantine, .. } = self.settings;
        let calls = self.calls(peer);
        if calls.waiting + calls.running + calls.abandoned >= per_peer {
            return Err(Refusal::Peer);
        }
        if calls.abandoned >= self.most_abandoned()
            || self.abandoned >= quarantine.max(1) && calls.abandoned > 0
        {
            return Err(Refusal::Quarantine);
        }
        if self.abandoned >= self.most_threads() {
            return Err(Refusal::Quarantine);
        }
        let mut displaced = None;
        if self.waiting + self.running + done >= workers.saturating_add(queue) {
            displaced = Some(self.displace(calls.waiting + calls.running).ok_or(Refusal::Busy)?);
        }
        let least = self.peers.values().map(|share| share.served).min().unwrap_or_default();
        let share = self.peers.entry(peer).or_insert_with(|| Share { served: least, ..Share::default() });
        share.waiting.push_back(id);
        self.waiting += 1;
        Ok(displaced)
    }

    /// Takes the place of the newest waiting call of the peer with most, for a peer that has `calls`.
    fn displace(&mut self, calls: usize) -> Option<TaskId> {
        let waiting = self.peers.values_mut().filter(|share| !share.waiting.is_empty());
        let most = waiting.max_by_key(|share| share.wanted()).filter(|share| share.wanted() > calls + 1)?;
        self.waiting -= 1;
        most.waiting.pop_back()
    }

    /// A call that waits is not to run.
    pub(super) fn withdraw(&mut self, peer: Peer, id: TaskId) -> bool {
        let Some(share) = self.peers.get_mut(&peer) else { return false };
        let Some(at) = share.waiting.iter().position(|waiting| *waiting == id) else { return false };
        share.waiting.remove(at);
        self.waiting -= 1;
        self.forget(peer);
        true
    }

    /// The call to run now, on one more thread than run calls that somebody waits for.
    pub(super) fn next(&mut self) -> Option<TaskId> {
        let peer = self.turn()?;
        let share = self.peers.get_mut(&peer)?;
        let id = share.waiting.pop_front()?;
        share.running += 1;
        self.waiting -= 1;
        self.running += 1;
        Some(id)
    }

    /// Whether a call could run now.
    pub(super) fn is_due(&self) -> bool {
        self.turn().is_some()
    }

    fn turn(&self) -> Option<Peer> {
        let Settings { workers, guests, .. } = self.settings;
        let free = self.running < workers;
        if self.waiting == 0 || !free && self.running >= workers.saturating_add(guests) {
            return None;
        }
        let waiting = self.peers.iter().filter(|(_, share)| !share.waiting.is_empty());
        // What a peer runs may be abandoned as well, so both count.
        let most = self.most_abandoned();
        let bounded =
            waiting.filter(|(_, share)| share.abandoned == 0 || share.abandoned + share.running < most);
        let may = bounded.filter(|(_, share)| free || share.running == 0);
        may.min_by_key(|(_, share)| (share.running, share.served)).map(|(peer, _)| *peer)
    }

    /// A call that ran for `time` is over.
    pub(super) fn finished(&mut self, peer: Peer, time: Duration) {
        let Some(share) = self.peers.get_mut(&peer) else { return };
        share.running -= 1;
        share.served += time;
        self.running -= 1;
        self.forget(peer);
    }

    /// Nobody waits any more for a call that ran for `time` and goes on.
    pub(super) fn gave_up(&mut self, peer: Peer, time: Duration) {
        let Some(share) = self.peers.get_mut(&peer) else { return };
        share.running -= 1;
        share.served += time;
        share.abandoned += 1;
        self.running -= 1;
        self.abandoned += 1;
    }

    /// A call that nobody waits for is over.
    pub(super) fn returned(&mut self, peer: Peer) {
        let Some(share) = self.peers.get_mut(&peer) else { return };
        share.abandoned -= 1;
        self.abandoned -= 1;
        self.forget(peer);
    }

    /// Calls of one peer that nobody waits for: half of the quarantine, so that others are not held up by them.
    fn most_abandoned(&self) -> usize {
        self.settings.quarantine.max(1).div_ceil(2)
    }

    /// Threads there may be at most.
    pub(super) fn most_threads(&self) -> usize {
        let Settings { workers, guests, quarantine, .. } = self.settings;
        workers.saturating_add(guests).saturating_add(quarantine)
    }

    fn forget(&mut self, peer: Peer) {
        if self.calls(peer) == Calls::default() {
            self.peers.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SETTINGS: Settings = Settings { workers: 2, queue: 16, per_peer: 12, guests: 2, quarantine: 4 };

    fn peer(number: u32) -> Peer {
        IpAddr::from(Ipv4Addr::from_bits(number)).into()
    }

    fn fill(schedule: &mut Schedule, of: Peer, ids: std::ops::Range<u64>) {
        for id in ids {
            assert_eq!(schedule.admit(of, TaskId(id), 0), Ok(None));
        }
    }

    #[test]
    fn a_peer_alone_has_all_workers_and_a_newcomer_is_served_at_once() {
        let mut schedule = Schedule::new(SETTINGS);
        fill(&mut schedule, peer(1), 0..6);
        let first: Vec<_> = std::iter::from_fn(|| schedule.next()).collect();
        assert_eq!(first, [TaskId(0), TaskId(1)]);
        // All workers compute for the first peer. A call of another one gets a thread all the same, a second waits.
        fill(&mut schedule, peer(2), 10..12);
        assert_eq!((schedule.next(), schedule.next()), (Some(TaskId(10)), None));
        // Both have one running call then, and the newcomer was served least.
        schedule.finished(peer(1), 100 * MS);
        assert_eq!(schedule.next(), None);
        schedule.finished(peer(2), MS);
        assert_eq!(schedule.next(), Some(TaskId(11)));
    }

    #[test]
    fn peers_that_want_all_get_equal_time_whatever_their_calls_take() {
        let mut schedule = Schedule::new(Settings { workers: 1, guests: 0, queue: 1000, ..SETTINGS });
        let (mut now, mut served, mut id) = (Duration::ZERO, [Duration::ZERO; 3], 0);
        let takes = [MS, 7 * MS, 40 * MS];
        while now < Duration::from_secs(60) {
            for number in 0..3 {
                while schedule.calls(peer(number)).waiting < 2 {
                    assert_eq!(schedule.admit(peer(number), TaskId(id * 3 + u64::from(number)), 0), Ok(None));
                    id += 1;
                }
            }
            let TaskId(next) = schedule.next().unwrap();
            let number = (next % 3) as usize;
            now += takes[number];
            served[number] += takes[number];
            schedule.finished(peer(number as u32), takes[number]);
        }
        for time in served {
            assert!(time.abs_diff(now / 3) <= 2 * takes[2], "{served:?}");
        }
    }

    #[test]
    fn a_peer_that_stays_away_saves_up_no_time() {
        let mut schedule = Schedule::new(Settings { workers: 1, guests: 0, ..SETTINGS });
        fill(&mut schedule, peer(1), 0..10);
        for _ in 0..4 {
            schedule.next().unwrap();
            schedule.finished(peer(1), 1000 * MS);
        }
        fill(&mut schedule, peer(2), 20..30);
        let order: Vec<_> = (0..4)
            .map(|_| {
                let TaskId(id) = schedule.next().unwrap();
                schedule.finished(peer(if id < 20 { 1 } else { 2 }), 1000 * MS);
                id >= 20
            })
            .collect();
        assert_eq!(order.iter().filter(|of_second| **of_second).count(), 2, "{order:?}");
    }

    #[test]
    fn a_full_queue_makes_room_for_a_peer_with_fewer_calls() {
        let settings = Settings { workers: 1, queue: 5, per_peer: 100, ..SETTINGS };
        let mut schedule = Schedule::new(settings);
        fill(&mut schedule, peer(1), 0..6);
        assert_eq!(schedule.admit(peer(1), TaskId(6), 0), Err(Refusal::Busy));
        // The newest of the peer with most goes, until both have as many.
        assert_eq!(schedule.admit(peer(2), TaskId(10), 0), Ok(Some(TaskId(5))));
        assert_eq!(schedule.admit(peer(2), TaskId(11), 0), Ok(Some(TaskId(4))));
        assert_eq!(schedule.admit(peer(2), TaskId(12), 0), Ok(Some(TaskId(3))));
        assert_eq!(schedule.admit(peer(2), TaskId(13), 0), Err(Refusal::Busy));
    }

    #[test]
    fn what_a_peer_abandons_counts_against_it_alone() {
        let mut schedule = Schedule::new(SETTINGS);
        fill(&mut schedule, peer(1), 0..2);
        for _ in 0..2 {
            schedule.next().unwrap();
            schedule.gave_up(peer(1), MS);
        }
        // Half of the quarantine is one peer's.
        assert_eq!(schedule.admit(peer(1), TaskId(9), 0), Err(Refusal::Quarantine));
        fill(&mut schedule, peer(2), 20..23);
        // Nor does it hold workers of others.
        assert_eq!(
            (schedule.next(), schedule.next(), schedule.next()),
            (Some(TaskId(20)), Some(TaskId(21)), None)
        );
        schedule.returned(peer(1));
        fill(&mut schedule, peer(1), 30..31);
        assert_eq!(schedule.calls(peer(1)), Calls { waiting: 1, running: 0, abandoned: 1 });
    }

    #[test]
    fn calls_that_waited_while_others_were_abandoned_take_no_more_threads() {
        let mut schedule = Schedule::new(Settings { per_peer: 100, queue: 100, ..SETTINGS });
        fill(&mut schedule, peer(1), 0..20);
        let mut abandoned = 0;
        while schedule.next().is_some() {
            schedule.gave_up(peer(1), MS);
            abandoned += 1;
        }
        assert_eq!(abandoned, SETTINGS.quarantine / 2);
        fill(&mut schedule, peer(2), 30..31);
        assert_eq!(schedule.next(), Some(TaskId(30)));
        // They go on when one returns.
        schedule.returned(peer(1));
        assert!(schedule.is_due());
    }

    #[test]
    fn a_peer_has_so_many_calls_and_no_more() {
        let mut schedule = Schedule::new(SETTINGS);
        fill(&mut schedule, peer(1), 0..12);
        assert_eq!(schedule.admit(peer(1), TaskId(12), 0), Err(Refusal::Peer));
        assert!(schedule.withdraw(peer(1), TaskId(11)));
        assert!(!schedule.withdraw(peer(1), TaskId(11)));
        fill(&mut schedule, peer(1), 12..13);
    }

    /// Any order of events keeps the books right, and no thread is idle while a call waits.
    #[test]
    fn no_order_of_events_loses_a_call_or_a_thread() {
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut schedule = Schedule::new(SETTINGS);
            let (mut waiting, mut running, mut abandoned) = (Vec::new(), Vec::new(), Vec::new());
            for id in 0..400 {
                let pick = |list: &mut Vec<(Peer, TaskId)>, random: &mut ChaCha8Rng| {
                    let at = random.next_u32() as usize % list.len().max(1);
                    (!list.is_empty()).then(|| list.swap_remove(at))
                };
                match random.next_u32() % 6 {
                    0..=2 => {
                        let of = peer(random.next_u32() % 4);
                        if let Ok(displaced) = schedule.admit(of, TaskId(id), 0) {
                            waiting.retain(|(_, id)| Some(*id) != displaced);
                            waiting.push((of, TaskId(id)));
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
                let most = SETTINGS.quarantine / 2;
                let of = |list: &[(Peer, TaskId)], peer| list.iter().filter(|(of, _)| *of == peer).count();
                let may =
                    |peer| of(&abandoned, peer) == 0 || of(&abandoned, peer) + of(&running, peer) < most;
                let due = waiting.iter().any(|(peer, _)| may(*peer));
                assert!(running.len() >= SETTINGS.workers || !due, "seed {seed}: a worker is idle");
                for number in 0..4 {
                    assert!(of(&abandoned, peer(number)) <= most, "seed {seed}: too many are abandoned");
                }
                for number in 0..4 {
                    let of =
                        |list: &[(Peer, TaskId)]| list.iter().filter(|(of, _)| *of == peer(number)).count();
                    let calls =
                        Calls { waiting: of(&waiting), running: of(&running), abandoned: of(&abandoned) };
                    assert_eq!(schedule.calls(peer(number)), calls, "seed {seed}");
                }
            }
        }
    }
}
