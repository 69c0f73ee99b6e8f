//! What became of each event, by what workers tell.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use naa_server::functions::sha256;

use crate::hex;

/// How often a bridge may deliver an event again, after the first time.
const MOST_AGAIN: u32 = 2;
/// Faults that are kept; all are counted.
const SHOWN: usize = 10;

type Digest = [u8; 32];
type Name = (u16, u64);

/// An event as a worker tells it, in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) name: Name,
    pub(super) digest: Digest,
    /// The bridge it came from.
    pub(super) instance: u64,
    /// Whether the bridge says that another worker had it.
    pub(super) delivered_again: bool,
}

#[derive(Debug)]
struct Entry {
    digest: Digest,
    len: u64,
    /// Whether it was taken without being marked as delivered again.
    first: bool,
    /// How often it was taken.
    times: u32,
}

#[derive(Debug, Default)]
struct State {
    events: HashMap<Name, Entry>,
    /// The number of events that were taken, by bridge instance.
    taken: HashMap<u64, u64>,
    faults: Vec<String>,
    fault_count: u64,
    /// How often an event was taken that had been taken before.
    twice: u64,
}

/// How many events and bytes were sent, and how many were taken by a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) sent: u64,
    pub(super) taken: u64,
    pub(super) sent_bytes: u64,
    pub(super) taken_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
    sent: AtomicU64,
    taken: AtomicU64,
    sent_bytes: AtomicU64,
    taken_bytes: AtomicU64,
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is sent, so that nobody can have it earlier.
    pub(super) fn sending(&self, name: Name, bytes: &[u8]) {
        let (digest, len) = (sha256::compute(bytes), bytes.len() as u64);
        self.state().events.insert(name, Entry { digest, len, first: false, times: 0 });
        self.sent.fetch_add(1, Relaxed);
        self.sent_bytes.fetch_add(len, Relaxed);
    }

    pub(super) fn taken(&self, who: &str, Taken { name, digest, instance, delivered_again }: Taken) {
        let mut state = self.state();
        // Several workers' lines are read in any order, so a marked delivery may come before the first one.
        let fault = match state.events.get_mut(&name) {
            None => "was never sent",
            Some(entry) if entry.digest != digest => "has other bytes than were sent",
            Some(entry) if !delivered_again && entry.first => {
                "came before, to it or another worker, and does not say so"
            }
            Some(entry) if entry.times > MOST_AGAIN => "came more often than it may",
            Some(entry) => {
                entry.first |= !delivered_again;
                entry.times += 1;
                if entry.times > 1 {
                    state.twice += 1;
                    return;
                }
                self.taken.fetch_add(1, Relaxed);
                self.taken_bytes.fetch_add(entry.len, Relaxed);
                *state.taken.entry(instance).or_default() += 1;
                return;
            }
        };
        state.fault(format!("{who}: event {} of data id {} {fault}", name.1, name.0));
    }

    pub(super) fn fault(&self, what: String) {
        self.state().fault(what);
    }

    pub(super) fn totals(&self) -> Totals {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Totals {
            sent: of(&self.sent),
            taken: of(&self.taken),
            sent_bytes: of(&self.sent_bytes),
            taken_bytes: of(&self.taken_bytes),
        }
    }

    /// How often an event was taken that had been taken before.
    pub(super) fn twice(&self) -> u64 {
        self.state().twice
    }

    /// Events taken of those that a bridge gave.
    pub(super) fn of_instance(&self, instance: u64) -> u64 {
        self.state().taken.get(&instance).copied().unwrap_or(0)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let state = self.state();
        match state.fault_count {
            0 => Ok(()),
            count => Err(format!("{count} faults: {}", state.faults.join("; "))),
        }
    }
}

impl State {
    fn fault(&mut self, what: String) {
        self.fault_count += 1;
        if self.faults.len() < SHOWN {
            self.faults.push(what);
        }
    }
}

impl Taken {
    pub(super) fn of(name: Name, bytes: &[u8], instance: u64, delivered_again: bool) -> Self {
        Self { name, digest: sha256::compute(bytes), instance, delivered_again }
    }

    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("EVENT ")?.split(' ');
        let name = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (digest, instance, delivered_again) =
            (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let digest = hex::decode(digest).ok()?.try_into().ok()?;
        words.next().is_none().then_some(Self { name, digest, instance, delivered_again })
    }
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name: (data_id, event), digest, instance, delivered_again } = self;
        write!(f, "EVENT {data_id} {event} {} {instance} {delivered_again}", hex::encode(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_written() {
        let taken = Taken::of((7, u64::MAX), b"some bytes", 3, true);
        assert_eq!(Taken::read(&taken.to_string()), Some(taken));
        for line in ["", "EVENT 1 2 ab 3 true", "EVENT 65536 1 0 0 false"] {
            assert_eq!(Taken::read(line), None);
        }
    }

    #[test]
    fn only_the_bytes_that_were_sent_once_are_right() {
        let ledger = Ledger::default();
        ledger.sending((1, 2), b"right");
        let right = Taken::of((1, 2), b"right", 9, false);
        ledger.taken("w", right);
        assert_eq!((ledger.check(), ledger.of_instance(9), ledger.totals().taken), (Ok(()), 1, 1));
        ledger.taken("w", right);
        ledger.taken("w", Taken::of((1, 2), b"wrong", 9, false));
        ledger.taken("w", Taken::of((1, 3), b"right", 9, false));
        let told = ledger.check().unwrap_err();
        for part in ["3 faults", "came before", "other bytes", "never sent"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(ledger.totals().taken, 1);
    }

    #[test]
    fn what_says_that_it_comes_again_may() {
        let ledger = Ledger::default();
        ledger.sending((1, 2), b"right");
        // Marked and unmarked deliveries may be read in any order.
        for delivered_again in [true, false, true] {
            ledger.taken("w", Taken::of((1, 2), b"right", 9, delivered_again));
        }
        assert_eq!((ledger.check(), ledger.totals().taken, ledger.twice()), (Ok(()), 1, 2));
        ledger.taken("w", Taken::of((1, 2), b"right", 9, true));
        assert!(ledger.check().unwrap_err().contains("more often"));
    }
}
