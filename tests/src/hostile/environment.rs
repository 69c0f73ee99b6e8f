//! What a case works with: the victim, the bystanders, addresses to attack from.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use simnet::Random;

use super::{
    bystander::Bystanders,
    namespace,
    raw::{Offer, RawPeer},
    victim::Victim,
    wire::Wire,
};

#[derive(Debug)]
pub struct Environment {
    // Bystanders are dropped before the victim, because they disconnect from it.
    pub bystanders: Bystanders,
    pub victim: Victim,
    /// Fewer repetitions.
    pub quick: bool,
    pub random: Random,
    pub(super) addresses: Addresses,
}

/// Which of the two Internet protocols a case runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}

/// Addresses of the loopback interface that no other run is likely to use. Each IPv6 address has a /64 network of its
/// own.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    family: Family,
    net: u16,
    next: u16,
}

impl Addresses {
    /// Addresses of one network of IPv4.
    const HOSTS: u16 = 250;
    /// Addresses of IPv6 that the interface gets at once.
    const BATCH: u16 = 64;

    /// Chooses a network by the process ID, so that runs which follow one another are far apart. The process must be in
    /// a network namespace of its own if the family is IPv6.
    pub(super) fn new(family: Family) -> Self {
        Self { family, net: (std::process::id() as u16).reverse_bits(), next: 0 }
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn next(&mut self) -> IpAddr {
        let n = self.next;
        self.next = self.next.wrapping_add(1);
        match self.family {
            Family::V4 => self.v4(n).into(),
            Family::V6 => {
                if n.is_multiple_of(Self::BATCH) {
                    // If an address is missing, the process that binds it fails with an error that says so.
                    if let Err(why) = namespace::add((n..n.saturating_add(Self::BATCH)).map(|n| self.v6(n))) {
                        eprintln!("no more addresses of IPv6: {why}");
                    }
                }
                self.v6(n).into()
            }
        }
    }

    /// Addresses that `self` does not reach for long.
    pub(super) fn later(&self) -> Self {
        Self { family: self.family, net: self.net.wrapping_add(0x2000), next: 0 }
    }

    fn v4(&self, n: u16) -> Ipv4Addr {
        let [high, low] = self.net.wrapping_add(n / Self::HOSTS).to_be_bytes();
        // 127.0 to 127.63 is left to other tests.
        Ipv4Addr::new(127, 64 | high & 0x3f, low, (n % Self::HOSTS + 1) as u8)
    }

    fn v6(&self, n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x4e41, self.net, n, 0, 0, 0, 1)
    }
}

impl Environment {
    /// An address to attack from, used by nobody else.
    pub fn address(&mut self) -> IpAddr {
        self.addresses.next()
    }

    /// An attacker on an address of its own.
    pub fn attacker(&mut self) -> Result<RawPeer, String> {
        let ip = self.address();
        RawPeer::open(ip, self.random.next_u32())
    }

    /// An attacker with a connection to a bare queue pair.
    pub fn connected(&mut self) -> Result<(RawPeer, Wire), String> {
        let mut peer = self.attacker()?;
        let wire = peer.connect(self.target(), &Offer::default())?;
        Ok((peer, wire))
    }

    /// The naa server under attack.
    pub fn server(&self) -> SocketAddr {
        self.victim.server
    }

    /// The bare queue pairs under attack, in the server's process; see `target.rs`.
    pub fn target(&self) -> SocketAddr {
        self.victim.target
    }

    /// `full` times, or `quick` times in a quick run.
    pub fn times(&self, quick: u32, full: u32) -> u32 {
        if self.quick { quick } else { full }
    }

    /// Waits for what the victim does after it has answered.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_millis(20));
    }
}
