//! Changes the tables, as a control plane does.

use anyhow::ensure;
use ejfat::lb::Rules;
use ejfat_lb::{
    When,
    document::{Document, EpochDocument, Lb, MemberDocument},
    grpc::Client,
};
use naa_host::{Device, ProviderChoice};
use naa_services::LbTables;
use proto::lb::v1::GetCountersReply as Counters;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

use super::{
    NETWORK,
    nodes::{Balancer, WorkerProcess},
};
use crate::demo::nodes::{Environment, Node};

const SLOTS: usize = 512;

pub(super) struct TableChanges {
    grpc: Client,
    mrsp: LbTables,
    lb: Lb,
    random: ChaCha8Rng,
    changes: u64,
    dealt: Dealt,
}

/// The worker of each calendar slot, with the first tick to which the assignment applies. The expected worker of an
/// event follows from this alone, without the data plane.
#[derive(Clone, Debug, Default)]
pub(super) struct Dealt(Vec<(u64, Vec<usize>)>);

impl Dealt {
    /// The worker that must get an event with this tick.
    pub(super) fn worker(&self, tick: u64) -> Option<usize> {
        let (_, slots) = self.0.iter().rev().find(|(from, _)| *from <= tick)?;
        slots.get((tick % SLOTS as u64) as usize).copied()
    }
}

impl TableChanges {
    pub(super) fn new(
        seed: u64,
        environment: &Environment,
        balancer: &Balancer,
        workers: &[WorkerProcess],
    ) -> anyhow::Result<Self> {
        let ips = |node| environment.at(node).map(|at| at.ip());
        let mut senders: Vec<_> = (0..NETWORK.senders).flat_map(|n| ips(Node::Sender(n))).collect();
        senders.sort();
        senders.dedup();
        let member = |(n, worker): (usize, &WorkerProcess)| {
            let at = worker.at.clone().into_iter();
            at.map(move |at| MemberDocument {
                id: n as u16,
                address: Some(at.ip()),
                port: Some(at.port()),
                port_bits: 0,
                keep_lb_header: false,
                mac: None,
                drop: None,
                ip: None,
            })
        };
        let members = workers.iter().enumerate().flat_map(member).collect();
        let addresses = ips(Node::Distributor).to_vec();
        let lb = Lb { lb: 0, addresses, senders, epochs: Vec::new(), members };
        let device = Device::towards_with(balancer.mrsp, ProviderChoice::Embedded)?;
        Ok(Self {
            grpc: Client::connect(&balancer.grpc.to_string(), None)?,
            mrsp: LbTables::new(device, balancer.mrsp),
            lb,
            random: ChaCha8Rng::seed_from_u64(seed ^ 0x7461_626c_6573),
            changes: 0,
            dealt: Dealt::default(),
        })
    }

    /// Assigns the slots anew. Each worker gets another share; the share may be zero.
    pub(super) fn change(&mut self) -> anyhow::Result<()> {
        let slots = self.deal();
        let rules = self.rules(&slots)?;
        let from = if self.changes.is_multiple_of(2) {
            self.grpc.load(&rules, When::Next)?
        } else {
            self.mrsp.load(&rules, When::Next)?
        };
        let last = self.dealt.0.last().map_or(0, |(from, _)| *from);
        ensure!(from >= last, "tables from tick {from} on came after those from {last}");
        self.dealt.0.push((from, slots));
        self.changes += 1;
        Ok(())
    }

    /// Draws a worker for each slot.
    fn deal(&mut self) -> Vec<usize> {
        let mut shares = [(); NETWORK.workers].map(|()| self.random.next_u32() % 4);
        shares[self.changes as usize % NETWORK.workers] += 1;
        let tickets: Vec<_> =
            (0..NETWORK.workers).flat_map(|n| std::iter::repeat_n(n, shares[n] as usize)).collect();
        (0..SLOTS).map(|_| tickets[self.random.next_u32() as usize % tickets.len()]).collect()
    }

    fn rules(&self, slots: &[usize]) -> anyhow::Result<Rules> {
        let calendar: Vec<_> = slots.iter().map(ToString::to_string).collect();
        let epoch = EpochDocument {
            id: (self.changes % 4) as u32,
            ticks: vec!["all".into()],
            slot_bits: 9,
            xor: 0,
            calendar: calendar.join(" "),
        };
        let lb = Lb { epochs: vec![epoch], ..self.lb.clone() };
        Ok(Document { load_balancers: vec![lb] }.rules()?)
    }

    pub(super) fn dealt(&self) -> &Dealt {
        &self.dealt
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Reads the counters over gRPC and over MRSP, and checks that they are the same.
    pub(super) fn counters(&mut self) -> anyhow::Result<Counters> {
        let (one, other) = (self.grpc.counters()?, self.mrsp.counters()?);
        ensure!(one == other, "counters over gRPC and MRSP differ: {one:?}, {other:?}");
        Ok(one)
    }
}
