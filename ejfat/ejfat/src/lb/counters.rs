//! Counters of load balancers.

use super::DropCause;

/// The number of packets and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The number of dropped packets, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl Drops {
    pub fn of(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    pub fn of_any_cause(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, cause: DropCause) {
        self.0[cause as usize] += 1;
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, more)| *own += more);
    }
}

/// Creates the counters from numbers that were counted elsewhere. If a cause occurs several times, its last number
/// counts.
impl FromIterator<(DropCause, u64)> for Drops {
    fn from_iter<T: IntoIterator<Item = (DropCause, u64)>>(dropped: T) -> Self {
        let mut drops = Self::default();
        dropped.into_iter().for_each(|(cause, packets)| drops.0[cause as usize] = packets);
        drops
    }
}

/// The counters of one load balancer. Packets received = packets sent to its members + dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbCounters {
    pub received: Traffic,
    /// Packets from allowed source addresses, with an LB header of this version.
    pub v2: u64,
    pub v3: u64,
    /// Packets that were sent to all members, also to members that do not exist any more.
    pub sent: Traffic,
    pub dropped: Drops,
}

impl LbCounters {
    pub(super) fn absorb(&mut self, other: &Self) {
        self.received.absorb(other.received);
        self.v2 += other.v2;
        self.v3 += other.v3;
        self.sent.absorb(other.sent);
        self.dropped.absorb(&other.dropped);
    }

    /// Counts a packet. `version` is that of its LB header, if it has one. `sent` is the number of its bytes as sent,
    /// or the cause for which it was dropped.
    pub(super) fn add(&mut self, bytes: usize, version: Option<u8>, sent: Result<usize, DropCause>) {
        self.received.add(bytes);
        if sent != Err(DropCause::BlockedSrc) {
            self.v2 += u64::from(version == Some(2));
            self.v3 += u64::from(version == Some(3));
        }
        match sent {
            Ok(bytes) => self.sent.add(bytes),
            Err(cause) => self.dropped.add(cause),
        }
    }
}
