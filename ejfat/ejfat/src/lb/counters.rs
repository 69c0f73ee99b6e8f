//! Counters of load balancers.

use super::DropCause;

/// The number of packets, and the number of bytes in these packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of packets.
    pub packets: u64,
    /// The number of bytes in the packets.
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

/// The number of dropped packets for each drop cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl Drops {
    /// Returns the number of packets that were dropped for one cause.
    pub fn of(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the number of all dropped packets.
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

/// Creates the counters from pairs of a cause and its number of dropped packets. If several pairs have the same cause,
/// the last pair counts.
impl FromIterator<(DropCause, u64)> for Drops {
    fn from_iter<T: IntoIterator<Item = (DropCause, u64)>>(dropped: T) -> Self {
        let mut drops = Self::default();
        dropped.into_iter().for_each(|(cause, packets)| drops.0[cause as usize] = packets);
        drops
    }
}

/// The counters of one load balancer. The number of received packets is the number of packets sent to members plus the
/// number of dropped packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbCounters {
    /// The numbers of packets and bytes that arrived for the load balancer's addresses, including dropped packets.
    pub received: Traffic,
    /// The number of packets that came from an allowed source address and have an LB header of version 2.
    pub v2: u64,
    /// The number of packets that came from an allowed source address and have an LB header of version 3.
    pub v3: u64,
    /// The numbers of packets and bytes that were sent to members, including members that do not exist any more.
    pub sent: Traffic,
    /// The number of dropped packets for each drop cause.
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

    /// Counts a packet of `bytes` bytes. `version` is the version of the packet's LB header, if the packet has an LB
    /// header. `sent` is the number of bytes that were sent, or the cause for which the packet was dropped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_added_up() {
        let mut all = Traffic { packets: 2, bytes: 300 };
        all.absorb(Traffic { packets: 5, bytes: 70 });
        assert_eq!(all, Traffic { packets: 7, bytes: 370 });
    }
}
