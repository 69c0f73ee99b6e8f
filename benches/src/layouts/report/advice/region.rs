//! Where something holds: counts, sizes, directions and waits between bounds.

use std::collections::BTreeSet;

use crate::layouts::{
    point::{Direction, Workload},
    report::distinct,
};

/// Whether it holds at a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote<'a> {
    pub(super) workload: &'a Workload,
    pub(super) holds: bool,
}

/// The bounds are measured values, and are inside.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Region {
    pub(super) params: [u16; 2],
    pub(super) bytes: [u64; 2],
    /// Empty: all.
    pub(super) directions: Vec<Direction>,
    /// Empty: all.
    pub(super) waits: Vec<String>,
}

impl Region {
    pub(super) fn has(&self, workload: &Workload) -> bool {
        let [[fewest, most], [smallest, largest]] = [self.params.map(u64::from), self.bytes];
        (fewest..=most).contains(&workload.params.into())
            && (smallest..=largest).contains(&workload.bytes)
            && (self.directions.is_empty() || self.directions.contains(&workload.direction))
            && (self.waits.is_empty() || self.waits.contains(&workload.wait))
    }
}

/// What a point against a region weighs, for one that speaks for it: three of five must.
const AGAINST: f64 = 1.5;
/// How much better a region of some directions and waits must be than one of all.
const RESTRICTION: f64 = 1.2;
/// Points that must speak for a region, so that odd ones make none: fewer where little was measured.
const LEAST: usize = 3;
/// If there are many points, at least one in this many must speak for a region.
const PART: usize = 20;

/// The region that is best supported, if any is; of `all` points, some of which may be settled.
pub(super) fn find(votes: &[Vote<'_>], all: usize) -> Option<Region> {
    let mut best: Option<(f64, Region)> = None;
    for (directions, waits) in restrictions(votes) {
        let whole = Region { params: [0, u16::MAX], bytes: [0, u64::MAX], directions, waits };
        let inside: Vec<_> = votes.iter().filter(|vote| whole.has(vote.workload)).copied().collect();
        let found =
            rectangle(&inside).map(|(score, params, bytes)| (score, Region { params, bytes, ..whole }));
        let Some((score, region)) = found else { continue };
        if best.as_ref().is_none_or(|(least, _)| score > least * RESTRICTION) {
            best = Some((score, region));
        }
    }
    let (_, region) = best?;
    let support = votes.iter().filter(|vote| vote.holds && region.has(vote.workload)).count();
    (support >= LEAST.min(all.div_ceil(4)).max(all / PART)).then_some(region)
}

/// The restrictions to directions and waits; those that leave most workloads come first.
fn restrictions(votes: &[Vote<'_>]) -> Vec<(Vec<Direction>, Vec<String>)> {
    use Direction::{Both, In, Out};
    let directions =
        [vec![], vec![In, Both], vec![Out, Both], vec![In, Out], vec![In], vec![Out], vec![Both]];
    let each: BTreeSet<_> = votes.iter().map(|vote| vote.workload.wait.clone()).collect();
    let waits: Vec<_> = [vec![]].into_iter().chain(each.into_iter().map(|wait| vec![wait])).collect();
    waits.iter().flat_map(|waits| directions.iter().map(|some| (some.clone(), waits.clone()))).collect()
}

type Rectangle = (f64, [u16; 2], [u64; 2]);

/// The rectangle with the greatest sum. For any two counts, the best run of sizes is found.
fn rectangle(votes: &[Vote<'_>]) -> Option<Rectangle> {
    let counts: Vec<u16> = distinct(votes.iter().map(|vote| vote.workload.params));
    let sizes: Vec<u64> = distinct(votes.iter().map(|vote| vote.workload.bytes));
    let mut weights = vec![vec![0.0; sizes.len()]; counts.len()];
    for vote in votes {
        let row = counts.partition_point(|&count| count < vote.workload.params);
        let column = sizes.partition_point(|&size| size < vote.workload.bytes);
        weights[row][column] += if vote.holds { 1.0 } else { -AGAINST };
    }
    let mut best: Option<Rectangle> = None;
    for first in 0..counts.len() {
        let mut sums = vec![0.0; sizes.len()];
        for last in first..counts.len() {
            sums.iter_mut().zip(&weights[last]).for_each(|(sum, weight)| *sum += weight);
            let (sum, from, to) = run(&sums);
            if sum > best.map_or(0.0, |(sum, ..)| sum) {
                best = Some((sum, [counts[first], counts[last]], [sizes[from], sizes[to]]));
            }
        }
    }
    best
}

/// The consecutive values with the greatest sum (Kadane).
fn run(values: &[f64]) -> (f64, usize, usize) {
    let (mut best, mut sum, mut from) = ((0.0, 0, 0), 0.0, 0);
    for (to, value) in values.iter().enumerate() {
        if sum <= 0.0 {
            (sum, from) = (0.0, to);
        }
        sum += value;
        if sum > best.0 {
            best = (sum, from, to);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::fit::synthetic::{BYTES, COUNTS, workload};

    fn found(holds: impl Fn(&Workload) -> bool) -> Option<Region> {
        let ways = [Direction::In, Direction::Out, Direction::Both];
        let mut workloads = Vec::new();
        for (params, bytes) in COUNTS.into_iter().flat_map(|params| BYTES.map(|bytes| (params, bytes))) {
            workloads.extend(ways.map(|direction| Workload { direction, ..workload(params, bytes) }));
        }
        let votes: Vec<_> =
            workloads.iter().map(|workload| Vote { workload, holds: holds(workload) }).collect();
        find(&votes, votes.len())
    }

    fn region(params: [u16; 2], bytes: [u64; 2]) -> Option<Region> {
        Some(Region { params, bytes, directions: Vec::new(), waits: Vec::new() })
    }

    #[test]
    fn bounds_are_those_of_what_holds() {
        let holds = |workload: &Workload| (4..=31).contains(&workload.params) && workload.bytes <= 1024;
        assert_eq!(found(holds), region([4, 31], [64, 1024]));
        assert_eq!(found(|_| true), region([1, 255], [64, 1 << 20]));
        assert_eq!(found(|_| false), None);
    }

    #[test]
    fn odd_points_do_not_move_them() {
        for (params, bytes) in [(8, 256), (4, 64), (2, 64), (255, 1 << 20), (8, 4096)] {
            let odd = |workload: &Workload| (workload.params, workload.bytes) == (params, bytes);
            let holds =
                |workload: &Workload| (workload.params >= 4 && workload.bytes <= 1024) != odd(workload);
            assert_eq!(found(holds), region([4, 255], [64, 1024]), "{params} x {bytes}");
        }
        let one = |workload: &Workload| {
            workload.params == 255 && workload.bytes == 64 && workload.direction == Direction::In
        };
        assert_eq!(found(one), None);
    }

    #[test]
    fn directions_are_named_where_they_matter() {
        let inputs = |workload: &Workload| workload.params >= 4 && workload.direction != Direction::Out;
        let directions = vec![Direction::In, Direction::Both];
        assert_eq!(found(inputs), region([4, 255], [64, 1 << 20]).map(|all| Region { directions, ..all }));
    }
}
