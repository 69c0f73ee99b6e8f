//! The work both nodes do, with all data known in advance.

use simnet::Random;
use verbs::SendFlags;

use super::plan::{Plan, Refused, Scenario};

/// Memory regions of a node, by position.
pub(super) const SOURCE: usize = 0;
/// What the peer may read; never changes.
pub(super) const SHELF: usize = 1;
/// The region that the peer may write and read back.
pub(super) const TARGET: usize = 2;
/// The region into which READs and receives write.
pub(super) const LOCAL: usize = 3;
/// The region in another protection domain.
pub(super) const FOREIGN: usize = 4;
pub(super) const REGIONS: usize = 5;

pub(super) const MAX_SGE: u32 = 6;
const MAX_INLINE: u64 = 512;

/// A run of bytes in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) region: usize,
    pub(super) offset: u64,
    pub(super) len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
}

/// A send work request; its number is its position.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) imm: Option<u32>,
    pub(super) flags: SendFlags,
    pub(super) inline: bool,
    /// Where the data is, or is read to.
    pub(super) local: Vec<Span>,
    /// WRITE and READ: where in the peer's memory.
    pub(super) remote: Option<Span>,
    pub(super) data: Vec<u8>,
    pub(super) poison: Option<Refused>,
    /// A later WRITE goes to the same place.
    overwritten: bool,
    read_back: bool,
}

impl Operation {
    pub(super) fn takes_receive(&self) -> bool {
        self.kind == Kind::Send || self.kind == Kind::Write && self.imm.is_some()
    }

    /// The bytes at `remote` stay what this WRITE made them.
    pub(super) fn is_final(&self) -> bool {
        !self.overwritten
    }
}

/// A receive work request; its number is its position.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) local: Vec<Span>,
    /// The operation of the peer that consumes it.
    pub(super) operation: usize,
}

/// What one node sends, and what the other has to post for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    pub(super) operations: Vec<Operation>,
    pub(super) receives: Vec<Receive>,
}

/// The contents of a node's regions.
pub(super) type Images = [Vec<u8>; REGIONS];

pub(super) fn draw(plan: &Plan) -> ([Traffic; 2], [Images; 2]) {
    let mut builder = Builder { plan, random: Random::new(plan.seed, 1), images: Default::default() };
    let traffic = [0, 1].map(|from| builder.direction(from));
    for image in builder.images.iter_mut().flatten() {
        append(&mut builder.random, image, 64);
    }
    let (mut traffic, images) = (traffic, builder.images);
    place_out_of_bounds(&mut traffic[0], &images[1]);
    (traffic, images)
}

/// Starts or ends one byte too far, now that sizes are known.
fn place_out_of_bounds(traffic: &mut Traffic, peer: &Images) {
    for op in &mut traffic.operations {
        if let (Some(Refused::OutOfBounds), Some(remote)) = (op.poison, &mut op.remote) {
            let size = peer[remote.region].len() as u64;
            remote.offset = match op.data[0] % 3 {
                0 => (size + 1).saturating_sub(remote.len.into()),
                1 => u64::MAX,
                _ => size,
            };
        }
    }
}

fn append(random: &mut Random, image: &mut Vec<u8>, len: usize) {
    let start = image.len();
    image.resize(start + len, 0);
    random.fill(&mut image[start..]);
}

struct Builder<'a> {
    plan: &'a Plan,
    random: Random,
    images: [Images; 2],
}

impl Builder<'_> {
    fn direction(&mut self, from: usize) -> Traffic {
        let node = &self.plan.nodes[from];
        let (count, mut budget) = (node.operations, node.budget);
        let poison = match self.plan.scenario {
            Scenario::Refused(refused) if from == 0 => {
                Some((self.random.below(count as u64) as usize, refused))
            }
            _ => None,
        };
        let mut traffic = Traffic::default();
        for n in 0..count {
            let refused = poison.filter(|(at, _)| *at == n).map(|(_, refused)| refused);
            let last = n + 1 == count;
            let mut op = match refused {
                Some(refused) => self.poisoned(from, refused),
                None if last && self.plan.scenario == Scenario::RnrExhausted => self.send(from, 10),
                None if self.plan.uniform => self.write(from, 256 * 1024, &mut traffic),
                None => self.operation(from, &mut budget, &mut traffic),
            };
            op.flags.signaled |= last;
            if op.takes_receive() {
                let receive = self.receive(1 - from, n, &op);
                traffic.receives.push(receive);
            }
            traffic.operations.push(op);
        }
        traffic
    }

    fn operation(&mut self, from: usize, budget: &mut u64, traffic: &mut Traffic) -> Operation {
        let len = self.size(*budget);
        *budget -= len.min(*budget);
        match self.random.below(10) {
            0..3 => self.send(from, len),
            3..6 => self.write(from, len, traffic),
            6..9 => self.read(from, len, traffic),
            _ => self.forward(from, traffic),
        }
    }

    fn size(&mut self, budget: u64) -> u64 {
        let mtu = u64::from(self.plan.mtu);
        let len = match self.random.below(12) {
            0 => 0,
            1 => 1,
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 | 6 => self.random.range(2..=200),
            7 | 8 => mtu * self.random.range(2..=8),
            9 | 10 => self.random.range(1..=12 * mtu),
            _ => self.random.range(1..=256 * 1024),
        };
        len.min(budget)
    }

    /// An operation that carries `data` from `local`.
    fn make(&mut self, kind: Kind, local: Vec<Span>, data: Vec<u8>) -> Operation {
        let r = &mut self.random;
        let flags = SendFlags {
            signaled: r.chance(600_000),
            solicited: kind != Kind::Read && r.chance(300_000),
            fence: r.chance(150_000),
        };
        let imm = (kind != Kind::Read && r.chance(300_000)).then(|| r.next_u32());
        let inline = local.is_empty() && !data.is_empty();
        let (remote, poison) = (None, None);
        Operation {
            kind,
            imm,
            flags,
            inline,
            local,
            remote,
            data,
            poison,
            overwritten: false,
            read_back: false,
        }
    }

    fn outgoing(&mut self, from: usize, kind: Kind, len: u64) -> Operation {
        let mut data = vec![0; len as usize];
        self.random.fill(&mut data);
        let inline = len <= MAX_INLINE && self.random.chance(300_000);
        let local = if inline { Vec::new() } else { self.scatter(from, SOURCE, len) };
        let mut rest = &data[..];
        for span in &local {
            let (head, tail) = rest.split_at(span.len as usize);
            self.images[from][span.region][span.offset as usize..][..head.len()].copy_from_slice(head);
            rest = tail;
        }
        self.make(kind, local, data)
    }

    fn send(&mut self, from: usize, len: u64) -> Operation {
        self.outgoing(from, Kind::Send, len)
    }

    fn write(&mut self, from: usize, len: u64, traffic: &mut Traffic) -> Operation {
        let mut op = self.outgoing(from, Kind::Write, len);
        let place = self.random.chance(200_000).then(|| self.earlier_write(traffic)).flatten();
        op.remote = Some(match place {
            Some(earlier) if traffic.operations[earlier].data.len() as u64 >= len && len > 0 => {
                let earlier = &mut traffic.operations[earlier];
                earlier.overwritten = true;
                let remote = earlier.remote.expect("WRITEs have one");
                Span { len: len as u32, ..remote }
            }
            _ => self.alloc(1 - from, TARGET, len),
        });
        op
    }

    /// A WRITE with data whose bytes nothing depends on yet.
    fn earlier_write(&mut self, traffic: &Traffic) -> Option<usize> {
        let n = self.random.below(traffic.operations.len() as u64) as usize;
        let op = traffic.operations.get(n)?;
        let free = op.kind == Kind::Write && op.poison.is_none() && !op.overwritten && !op.read_back;
        (free && !op.data.is_empty()).then_some(n)
    }

    fn read(&mut self, from: usize, len: u64, traffic: &mut Traffic) -> Operation {
        let back = self.random.chance(300_000).then(|| self.earlier_write(traffic)).flatten();
        let (remote, data) = match back {
            Some(n) => {
                let written = &mut traffic.operations[n];
                written.read_back = true;
                (written.remote.expect("WRITEs have one"), written.data.clone())
            }
            None => {
                let span = self.alloc(1 - from, SHELF, len);
                let image = &self.images[1 - from][SHELF];
                (span, image[span.offset as usize..][..len as usize].to_vec())
            }
        };
        let local = self.scatter(from, LOCAL, data.len() as u64);
        let mut op = self.make(Kind::Read, local, data);
        op.remote = Some(remote);
        op
    }

    /// Sends on what an earlier READ brings: a fence makes that safe.
    fn forward(&mut self, from: usize, traffic: &mut Traffic) -> Operation {
        let read = traffic.operations.iter().rfind(|op| op.kind == Kind::Read && op.poison.is_none());
        let Some(read) = read.filter(|read| !read.data.is_empty()) else { return self.send(from, 1) };
        let (local, data) = (read.local.clone(), read.data.clone());
        let kind = self.random.pick(&[Kind::Send, Kind::Write]);
        let len = data.len() as u64;
        let mut op = self.make(kind, local, data);
        op.flags.fence = true;
        if kind == Kind::Write {
            op.remote = Some(self.alloc(1 - from, TARGET, len));
        }
        op
    }

    fn poisoned(&mut self, from: usize, refused: Refused) -> Operation {
        let len = self.size(u64::MAX).max(1);
        let write = match refused {
            Refused::ReadOnly => true,
            Refused::WriteOnly => false,
            _ => self.random.chance(500_000),
        };
        let region = match refused {
            Refused::ReadOnly => SHELF,
            Refused::WriteOnly => LOCAL,
            Refused::ForeignPd => FOREIGN,
            _ => TARGET,
        };
        let mut op = if refused == Refused::TooLong {
            self.send(from, len)
        } else {
            let remote = self.alloc(1 - from, region, len);
            let mut op = if write {
                self.outgoing(from, Kind::Write, len)
            } else {
                let local = self.scatter(from, LOCAL, len);
                self.make(Kind::Read, local, vec![0; len as usize])
            };
            op.remote = Some(remote);
            op
        };
        op.poison = Some(refused);
        op
    }

    fn receive(&mut self, node: usize, operation: usize, op: &Operation) -> Receive {
        let len = op.data.len() as u64;
        let room = match (op.kind, op.poison) {
            (Kind::Send, Some(Refused::TooLong)) => self.random.below(len),
            (Kind::Send, _) => len + self.random.pick(&[0, 0, 1, 300]),
            _ => self.random.pick(&[0, 0, 50]),
        };
        Receive { local: self.scatter(node, LOCAL, room), operation }
    }

    /// `len` bytes in pieces; some may be empty.
    fn scatter(&mut self, node: usize, region: usize, len: u64) -> Vec<Span> {
        if len == 0 && self.random.chance(500_000) {
            return Vec::new();
        }
        let pieces = if self.plan.uniform { 1 } else { self.random.pick(&[1, 1, 2, 3, 5]) };
        let mut cuts: Vec<u64> = (1..pieces).map(|_| self.random.range(0..=len)).collect();
        cuts.sort_unstable();
        cuts.push(len);
        let mut start = 0;
        let mut spans = Vec::new();
        for cut in cuts {
            spans.push(self.alloc(node, region, cut - start));
            start = cut;
        }
        spans
    }

    /// New bytes behind a gap that nothing may touch.
    fn alloc(&mut self, node: usize, region: usize, len: u64) -> Span {
        let gap = self.random.range(1..=40);
        let image = &mut self.images[node][region];
        let offset = image.len() as u64 + gap;
        append(&mut self.random, image, (gap + len) as usize);
        Span { region, offset, len: len as u32 }
    }
}
