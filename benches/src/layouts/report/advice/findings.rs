//! Which layouts are better or worse than symmetric, and where.

use super::{
    region::{Region, Vote, find},
    words::Measured,
};
use crate::layouts::{
    fit::contest::{Contest, Kind},
    point::Sizes,
    report::distinct,
};

/// A layout, and where it is better or worse than symmetric.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) region: Region,
}

/// What holds for one way of spreading bytes over parameters.
#[derive(Clone, Debug)]
pub(super) struct Findings<'a> {
    pub(super) contests: Vec<&'a Contest<'a>>,
    pub(super) measured: Measured,
    /// Each for what those before it do not cover.
    pub(super) better: Vec<Finding>,
    pub(super) worse: Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub(super) fn of(contests: Vec<&'a Contest<'a>>) -> Option<Self> {
        let first = contests.first()?;
        let measured = Measured {
            counts: distinct(contests.iter().map(|contest| contest.workload.params)),
            sizes: distinct(contests.iter().map(|contest| contest.workload.bytes)),
            is_mixed: first.workload.sizes == Sizes::Mixed,
        };
        let (better, worse) = (better(&contests), worse(&contests));
        Some(Self { contests, measured, better, worse })
    }

    pub(super) fn others(&self) -> Vec<Kind> {
        let measured = |kind: &Kind| self.contests.iter().any(|contest| contest.kind(*kind).is_some());
        Kind::ALL.into_iter().skip(1).filter(measured).collect()
    }

    /// Neither faster nor slower than symmetric at nine of ten points.
    pub(super) fn idle(&self) -> Vec<Kind> {
        let is_idle = |kind: &Kind| {
            let pairs =
                self.contests.iter().filter_map(|contest| Some((contest.kind(*kind)?, contest.symmetric()?)));
            let pairs: Vec<_> = pairs.collect();
            let differ = pairs.iter().filter(|(a, b)| a.beats(b) || b.beats(a)).count();
            differ * 10 <= pairs.len()
        };
        self.others().into_iter().filter(is_idle).collect()
    }
}

/// How many times as fast as symmetric.
pub(super) fn gain(contest: &Contest<'_>, kind: Kind) -> Option<f64> {
    Some(contest.kind(kind)?.times_as_fast_as(contest.symmetric()?))
}

/// The layout with the most support first, and the next for what is left.
fn better(contests: &[&Contest<'_>]) -> Vec<Finding> {
    let (mut left, mut found) = (contests.to_vec(), Vec::new());
    while let Some(finding) = best_supported(&left, contests.len()) {
        left.retain(|contest| !finding.region.has(contest.workload));
        found.push(finding);
    }
    found
}

fn best_supported(contests: &[&Contest<'_>], all: usize) -> Option<Finding> {
    let others = Kind::ALL.into_iter().skip(1);
    let candidate = |kind: Kind| {
        let region = find(&votes(contests, kind, |contest| contest.is_won_by(kind)), all)?;
        let won = |contest: &&&Contest<'_>| region.has(contest.workload) && contest.is_won_by(kind);
        let support = contests.iter().filter(won).count();
        Some((support, Finding { kind, region }))
    };
    // If several candidates have the same support, the first one is taken, which is the simplest.
    let candidates =
        others.filter_map(candidate).reduce(|best, next| if next.0 > best.0 { next } else { best });
    candidates.map(|(_, finding)| finding)
}

fn worse(contests: &[&Contest<'_>]) -> Vec<Finding> {
    let others = Kind::ALL.into_iter().skip(1);
    let region =
        |kind: Kind| find(&votes(contests, kind, |contest| contest.is_lost_by(kind)), contests.len());
    others.filter_map(|kind| Some(Finding { kind, region: region(kind)? })).collect()
}

/// Where `kind` was measured.
fn votes<'a>(
    contests: &[&'a Contest<'a>],
    kind: Kind,
    holds: impl Fn(&Contest<'_>) -> bool,
) -> Vec<Vote<'a>> {
    let here = contests.iter().filter(|contest| contest.kind(kind).is_some());
    here.map(|contest| Vote { workload: contest.workload, holds: holds(contest) }).collect()
}
