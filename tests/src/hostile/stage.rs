//! What a case works with: the victim, the bystanders, addresses to attack from.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use simnet::Random;

use super::{
    bystander::Bystanders,
    raw::{Offer, RawPeer},
    victim::Victim,
    wire::Wire,
};

#[derive(Debug)]
pub struct Stage {
    // Before the victim: they say goodbye to it.
    pub bystanders: Bystanders,
    pub victim: Victim,
    /// Fewer repetitions.
    pub quick: bool,
    pub random: Random,
    pub(super) addresses: Addresses,
}

/// Loopback addresses that no other run is likely to use: runs that follow one another are far apart.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    net: u16,
    next: u16,
}

impl Addresses {
    const HOSTS: u16 = 250;

    pub(super) fn new() -> Self {
        Self { net: (std::process::id() as u16).reverse_bits(), next: 0 }
    }

    pub(super) fn next(&mut self) -> IpAddr {
        let [high, low] = self.net.wrapping_add(self.next / Self::HOSTS).to_be_bytes();
        let host = (self.next % Self::HOSTS + 1) as u8;
        self.next = self.next.wrapping_add(1);
        // 127.0 to 127.63 is left to other tests.
        Ipv4Addr::new(127, 64 | high & 0x3f, low, host).into()
    }
}

impl Stage {
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
