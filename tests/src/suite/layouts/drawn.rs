//! Random parameters of a session.

use naa_host::{Param, Part};
use simnet::Random;

/// As many parameters as every accelerator takes.
const MOST: u64 = 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Input,
    Output,
    InOut,
    Once,
    OnceAndBack,
    Idle,
    Internal,
}

const SHARED: [Kind; 8] = [
    Kind::Input,
    Kind::Input,
    Kind::Output,
    Kind::Output,
    Kind::InOut,
    Kind::Once,
    Kind::OnceAndBack,
    Kind::Idle,
];

impl Kind {
    pub(super) fn is_output(self) -> bool {
        matches!(self, Self::Output | Self::InOut | Self::OnceAndBack)
    }

    /// It goes with a call, the session's first or another.
    pub(super) fn is_sent(self, first: bool) -> bool {
        match self {
            Self::Input | Self::InOut => true,
            Self::Once | Self::OnceAndBack => first,
            Self::Output | Self::Idle | Self::Internal => false,
        }
    }

    pub(super) fn is_ever_sent(self) -> bool {
        self.is_sent(true)
    }

    /// Functions find it among their inputs. One that is idle can still be read.
    pub(super) fn is_read(self) -> bool {
        !matches!(self, Self::Output | Self::Internal)
    }
}

/// A parameter, or an internal region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) kind: Kind,
    pub(super) len: usize,
}

impl Drawn {
    /// Starting as a copy of `content`.
    pub(super) fn param(self, content: &[u8]) -> Param<'_> {
        let len = self.len;
        let param = match self.kind {
            Kind::Input => Param::input(len),
            Kind::Output => Param::output(len),
            Kind::InOut => Param::in_out(len),
            Kind::Once => Param::input(len).single_send(),
            Kind::OnceAndBack => Param::in_out(len).single_send(),
            Kind::Idle => Param::idle(len),
            Kind::Internal => Param::internal(len),
        };
        param.holding(content)
    }
}

/// 1 to 31, at least one of them on both sides.
pub(super) fn params(random: &mut Random) -> Vec<Drawn> {
    let most = random.pick(&[2, 8, MOST]);
    let count = random.range(1..=most);
    let mut drawn: Vec<_> = (0..count).map(|_| param(random)).collect();
    if drawn.iter().all(|param| param.kind == Kind::Internal) {
        drawn[0].kind = Kind::InOut;
    }
    drawn
}

fn param(random: &mut Random) -> Drawn {
    let internal = random.chance(100_000);
    Drawn { kind: if internal { Kind::Internal } else { random.pick(&SHARED) }, len: len(random) }
}

fn len(random: &mut Random) -> usize {
    let len = match random.below(10) {
        0 => 0,
        1 => 1,
        2 | 3 => 64 * random.range(1..=20),
        4 | 5 => random.range(2..=200),
        6 | 7 => random.range(1..=5000),
        8 => random.range(1..=20_000),
        _ => random.range(1..=150_000),
    };
    len as usize
}

/// Some of a parameter of `len` bytes; mostly all.
pub(super) fn part(random: &mut Random, len: usize) -> Option<Part> {
    let len = len as u64;
    let offset = random.range(0..=len);
    let bytes = random.range(0..=len - offset);
    random.chance(250_000).then_some(Part { offset, bytes })
}

pub(super) fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
