//! What a seed decides before anything runs.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use roce::{Config, QpAttr};
use simnet::{Bottleneck, Bursts, Faults, Random};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// What is special about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Everything completes.
    Plain,
    /// The network goes silent for less than the retries last: everything completes.
    ShortBlackout,
    /// The network goes silent for ever.
    LongBlackout,
    /// Node 1 stops posting receives and node 0 runs out of RNR retries.
    RnrExhausted,
    /// One work request of node 0 is refused by node 1.
    Refused(Refused),
    /// A memory region is withdrawn in mid-transfer.
    Revoked { what: Revoked, dereg: bool },
    /// Mutated packets with a right ICRC are injected: anything may happen within what is permitted.
    Hostile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    BadRkey,
    OutOfBounds,
    /// The region does not permit remote writes.
    ReadOnly,
    /// The region does not permit remote reads.
    WriteOnly,
    ForeignPd,
    /// The message is longer than the receive posted for it.
    TooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// Where node 0 writes to.
    Target,
    /// Where node 0 reads from.
    Shelf,
    /// Where node 0's own data lies.
    Source,
}

/// Everything a run depends on besides the traffic, which the same seed draws.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub scenario: Scenario,
    pub v6: bool,
    pub mtu: u32,
    pub(super) nodes: [NodePlan; 2],
    /// From node 0 to node 1, and back.
    pub(super) faults: [Faults; 2],
    pub(super) retry: u8,
    pub(super) rnr_retry: u8,
    pub(super) ack_timeout: u8,
    pub(super) depth: u8,
    /// When the region is withdrawn, or hostile packets begin.
    pub(super) event_at: u64,
    pub(super) uniform: bool,
    /// The connection manager connects; else both ends know their parameters.
    pub(super) by_cm: bool,
}

/// One end of the connection.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) config: Config,
    pub(super) psn: u32,
    /// Sends small IP identifications, as this stack's sockets do; else random ones.
    pub(super) embedded: bool,
    /// Takes acknowledgements along with what is sent next.
    pub(super) late_acks: bool,
    /// Receives super-packets whole.
    pub(super) gro: bool,
    pub(super) operations: usize,
    /// Bytes of payload, roughly.
    pub(super) budget: u64,
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    /// Work requests posted at once, and nanoseconds between.
    pub(super) post: (usize, u64),
    /// The same for receives.
    pub(super) receive: (usize, u64),
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let r = &mut Random::new(seed, 0);
        let scenario = draw_scenario(r);
        let mtu = r.pick(&[256, 512, 1024, 2048, 4096]);
        let clean = r.chance(250_000);
        let errors = !matches!(scenario, Scenario::Plain | Scenario::ShortBlackout | Scenario::Hostile);
        // At least 0.13 s, so that retries outlast all faults; infinite timeouts never notice a dead peer.
        let ack_timeout = if errors || r.chance(900_000) { r.range(15..=18) as u8 } else { 0 };
        let rnr = scenario == Scenario::RnrExhausted;
        let mut plan = Self {
            seed,
            scenario,
            v6: r.chance(300_000),
            mtu,
            nodes: [draw_node(r, mtu, rnr), draw_node(r, mtu, rnr)],
            faults: [draw_faults(r, clean), draw_faults(r, clean)],
            retry: r.range(5..=7) as u8,
            rnr_retry: if rnr { r.range(0..=3) as u8 } else { 7 },
            ack_timeout,
            depth: r.range(1..=16) as u8,
            event_at: r.range(0..=3 * MS),
            uniform: false,
            by_cm: false,
        };
        plan.set_blackouts(r);
        plan.choose_connection(r);
        plan
    }

    /// For a session, which is to be agreed on and used whatever the network does.
    pub(super) fn calls(seed: u64) -> Self {
        let r = &mut Random::new(seed, 4);
        let mtu = r.pick(&[256, 512, 1024, 2048, 4096]);
        let clean = r.chance(150_000);
        let mut plan = Self {
            seed,
            v6: r.chance(300_000),
            mtu,
            nodes: [draw_node(r, mtu, true), draw_node(r, mtu, true)],
            faults: [draw_faults(r, clean), draw_faults(r, clean)],
            ack_timeout: r.range(15..=18) as u8,
            by_cm: true,
            ..Self::lossless()
        };
        // As sessions ask for. Receives are posted in time, always.
        plan.rnr_retry = 6;
        plan.nodes.iter_mut().for_each(|node| node.embedded = true);
        plan
    }

    /// Node 0 has one WRITE of 256 KiB, and nothing disturbs it.
    pub(super) fn lossless() -> Self {
        let node = |operations| NodePlan {
            config: Config::default(),
            psn: 0,
            embedded: true,
            late_acks: false,
            gro: true,
            operations,
            budget: u64::MAX,
            max_send_wr: 64,
            max_recv_wr: 64,
            post: (64, 0),
            receive: (64, 0),
        };
        Self {
            seed: 0,
            scenario: Scenario::Plain,
            v6: false,
            mtu: 4096,
            nodes: [node(1), node(0)],
            faults: [0, 1].map(|_| Faults::default()),
            retry: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            depth: 16,
            event_at: 0,
            uniform: true,
            by_cm: false,
        }
    }

    /// Half of the runs connect by the connection manager, where the network is not to go silent meanwhile.
    fn choose_connection(&mut self, r: &mut Random) {
        let silent =
            matches!(self.scenario, Scenario::ShortBlackout | Scenario::LongBlackout | Scenario::Hostile);
        self.by_cm = !silent && r.chance(500_000);
        if self.by_cm {
            // It tells each end that the other is embedded.
            self.nodes.iter_mut().for_each(|node| node.embedded = true);
        }
    }

    fn set_blackouts(&mut self, r: &mut Random) {
        let from = self.event_at;
        let length = match self.scenario {
            // The last retry leaves no earlier than this after the first packet was lost. Faults would add to it.
            Scenario::ShortBlackout => {
                // Small packets are expensive.
                let budget = (4096u64 << self.ack_timeout) * u64::from(self.retry - 1);
                r.range(1..=if self.ack_timeout == 0 { SECOND } else { budget })
            }
            Scenario::LongBlackout => u64::MAX - from,
            _ => return,
        };
        for faults in &mut self.faults {
            faults.blackouts.push(from..from + length);
            faults.until = faults.until.min(from);
        }
    }

    pub(super) fn addr(&self, node: usize) -> SocketAddr {
        let last = node as u16 + 1;
        let port = 49_152 + (self.seed % 1000) as u16;
        if self.v6 {
            (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last), port).into()
        } else {
            (Ipv4Addr::new(10, 0, 0, last as u8), port).into()
        }
    }

    /// Connection parameters of `node`, given the peer's queue pair.
    pub(super) fn attr(&self, node: usize, remote_qpn: u32) -> QpAttr {
        let peer = 1 - node;
        let mut addr = self.addr(peer);
        addr.set_port(roce::wire::ROCE_PORT);
        QpAttr {
            peer: addr,
            remote_qpn,
            path_mtu: self.mtu,
            send_psn: self.nodes[node].psn,
            recv_psn: self.nodes[peer].psn,
            retry_count: self.retry,
            rnr_retry_count: self.rnr_retry,
            ack_timeout: self.ack_timeout,
            responder_resources: self.depth,
            initiator_depth: self.depth,
            embedded_peer: self.nodes[peer].embedded,
            offers_carried_acks: node < peer,
        }
    }

    /// Neither faults nor anything else disturbs the order of packets.
    pub(super) fn clean(&self) -> bool {
        self.faults.iter().all(Faults::harmless)
    }

    pub(super) fn faults_end(&self) -> u64 {
        let ends = |f: &Faults| {
            let blackouts = f.blackouts.iter().map(|b| b.end).filter(|&end| end < u64::MAX);
            blackouts.max().unwrap_or(0).max(f.until)
        };
        self.faults.iter().map(ends).max().unwrap_or(0)
    }

    /// Everything must be over by then. Generous: the longest RNR pause is 0.65 s and timeouts reach 1 s.
    pub(super) fn deadline(&self) -> u64 {
        self.faults_end() + 200 * SECOND
    }
}

fn draw_scenario(r: &mut Random) -> Scenario {
    match r.below(100) {
        0..70 => Scenario::Plain,
        70..74 => Scenario::ShortBlackout,
        74..77 => Scenario::LongBlackout,
        77..80 => Scenario::RnrExhausted,
        80..87 => Scenario::Refused(r.pick(&[
            Refused::BadRkey,
            Refused::OutOfBounds,
            Refused::ReadOnly,
            Refused::WriteOnly,
            Refused::ForeignPd,
            Refused::TooLong,
        ])),
        87..93 => {
            let what = r.pick(&[Revoked::Target, Revoked::Shelf, Revoked::Source]);
            Scenario::Revoked { what, dereg: what == Revoked::Source || r.chance(500_000) }
        }
        _ => Scenario::Hostile,
    }
}

fn draw_node(r: &mut Random, mtu: u32, prompt: bool) -> NodePlan {
    // Small packets are expensive.
    let budget = r.pick(&[20_000, 300_000, 1_000_000, 4_000_000]).min(u64::from(mtu) * 4000);
    let psn = if r.chance(600_000) { 0xff_ffff - r.below(300) as u32 } else { r.next_u32() & 0xff_ffff };
    let initial = r.pick(&[4, 8, 32, 64]) * 1024;
    NodePlan {
        config: Config {
            rnr_timer: r.pick(&[1, 6, 10, 12, 14, 18]),
            initial_window_bytes: initial,
            max_window_bytes: initial * r.pick(&[1, 2, 8]),
            burst: r.pick(&[1, 4, 64]),
            min_rto: Duration::from_millis(r.pick(&[4, 4, 20])),
            ..Config::default()
        },
        psn: psn & 0xff_ffff,
        embedded: r.chance(700_000),
        late_acks: r.chance(500_000),
        gro: r.chance(700_000),
        operations: {
            let most = r.pick(&[3, 40, 100, 300]);
            r.range(1..=most) as usize
        },
        budget,
        max_send_wr: r.pick(&[1, 2, 16, 64, 256]),
        max_recv_wr: if prompt { 256 } else { r.pick(&[1, 4, 16, 256]) },
        post: (r.range(1..=30) as usize, r.pick(&[0, 10 * US, 300 * US])),
        receive: if prompt { (256, 0) } else { (r.range(1..=40) as usize, r.pick(&[0, 20 * US, 2 * MS])) },
    }
}

pub(super) fn draw_faults(r: &mut Random, clean: bool) -> Faults {
    let latency = r.pick(&[US, 10 * US, 50 * US, 300 * US]);
    let jitter = r.pick(&[0, US, 100 * US]);
    if clean {
        return Faults { latency, jitter, ..Faults::default() };
    }
    let bursts = Bursts {
        enter: r.range(100..=5_000) as u32,
        leave: r.range(20_000..=300_000) as u32,
        loss: r.range(300_000..=1_000_000) as u32,
    };
    let bottleneck =
        Bottleneck { bytes_per_us: r.pick(&[125, 1250, 12_500]), buffer: r.pick(&[16, 64, 212]) * 1024 };
    let mut chance = |levels: &[u32]| r.pick(levels);
    let (loss, duplicate) = (chance(&[0, 1_000, 10_000, 50_000]), chance(&[0, 0, 5_000, 50_000]));
    let (reorder, corrupt) = (chance(&[0, 0, 5_000, 50_000]), chance(&[0, 1_000, 20_000]));
    Faults {
        latency,
        jitter,
        loss,
        duplicate,
        reorder,
        reorder_delay: r.pick(&[5 * US, 100 * US, 2 * MS, 30 * MS]),
        corrupt,
        bursts: r.chance(300_000).then_some(bursts),
        blackouts: Vec::new(),
        bottleneck: r.chance(300_000).then_some(bottleneck),
        until: r.pick(&[5 * MS, 50 * MS, 500 * MS]),
    }
}
