//! The search for a rule: all of them.

use std::{cmp::Reverse, collections::BTreeSet};

use mrsp::layout::{Layout, LayoutRule};

use super::{
    Fitted,
    comparison::AIM,
    contest::{Contender, Contest, noise},
};

/// Counts of small parameters that may be enough.
const AT_LEAST: std::ops::RangeInclusive<u8> = 1..=16;

/// Bytes of small parameters together that may be too many.
const MOST: [u64; 5] = [LayoutRule::UNBOUNDED, 1 << 20, 2 << 20, 4 << 20, 8 << 20];

const OTHERWISE: [Layout; 3] = [Layout::Symmetric, Layout::Asymmetric, Layout::Gathered];

/// A rule is kept if it is within these margins of the best one: by its worst ratio, by its mean beyond noise, and by
/// its mean. The margin beyond noise is a difference of a tenth at one of 500 workloads.
const WORST: f64 = 0.01;
const MEAN_BEYOND_NOISE: f64 = 0.0002;
const MEAN: f64 = 0.003;

pub(super) fn best(contests: &[Contest<'_>]) -> Option<Fitted> {
    let calm: Vec<_> = contests.iter().filter(|contest| contest.is_calm()).collect();
    // If most contests are noisy, the calm ones may all have similar workloads. So the noisy ones are used, too.
    let used = if calm.len() * 2 < contests.len() { contests.iter().collect() } else { calm };
    let mut candidates: Vec<_> = rules(&used).into_iter().filter_map(|rule| Score::of(rule, &used)).collect();
    keep(&mut candidates, WORST, |score| score.worst_beyond_noise);
    keep(&mut candidates, MEAN_BEYOND_NOISE, |score| score.mean_beyond_noise);
    keep(&mut candidates, MEAN, |score| score.mean);
    let score = candidates.into_iter().min_by_key(|score| complexity(score.rule))?;
    let Score { rule, worst, mean, at, share, .. } = score;
    let noisy = contests.len() - used.len();
    let at = used[at].workload.clone();
    Some(Fitted { rule, worst, at, mean, share, points: used.len(), noisy })
}

/// Those within `margin` of the greatest value.
fn keep(candidates: &mut Vec<Score>, margin: f64, value: impl Fn(&Score) -> f64) {
    let greatest = candidates.iter().map(&value).fold(0.0, f64::max);
    candidates.retain(|score| value(score) >= greatest - margin);
}

/// Thresholds between two sizes that were measured do the same as the lower one.
fn rules(contests: &[&Contest<'_>]) -> Vec<LayoutRule> {
    let sizes = contests.iter().flat_map(|contest| &contest.sizes);
    let equal = |contest: &&&Contest<'_>| contest.sizes.first() == contest.sizes.last();
    let thresholds = contests.iter().flat_map(|contest| &contest.contenders).filter_map(threshold);
    let mut small: BTreeSet<u32> = thresholds.collect();
    small.extend(contests.iter().filter(equal).map(|contest| contest.workload.bytes).filter_map(as_u32));
    small.retain(|&small| sizes.clone().any(|&size| size <= small.into()));
    let packed = |otherwise| {
        let rule = move |small| {
            let counts = AT_LEAST.flat_map(|at_least| MOST.map(|most| (at_least, most)));
            counts.map(move |(at_least, most)| LayoutRule { small, at_least, most, otherwise })
        };
        small.iter().copied().flat_map(rule)
    };
    OTHERWISE.into_iter().flat_map(|otherwise| packed(otherwise).chain([never(otherwise)])).collect()
}

fn threshold(contender: &Contender<'_>) -> Option<u32> {
    match contender.point.layout.parse() {
        Ok(Layout::Packed { threshold }) => Some(threshold),
        _ => None,
    }
}

fn as_u32(bytes: u64) -> Option<u32> {
    bytes.try_into().ok()
}

/// Parameters have at least a byte.
fn never(otherwise: Layout) -> LayoutRule {
    LayoutRule { small: 0, at_least: u8::MAX, most: LayoutRule::UNBOUNDED, otherwise }
}

/// The simpler of two rules that do as well is the one with fewer layouts, the simpler ones, and that copies less.
fn complexity(rule: LayoutRule) -> (bool, bool, usize, u32, Reverse<u64>, Reverse<u8>) {
    let otherwise = OTHERWISE.iter().position(|&layout| layout == rule.otherwise);
    let is_bounded = rule.most != LayoutRule::UNBOUNDED;
    let otherwise = otherwise.unwrap_or(OTHERWISE.len());
    (rule.small > 0, is_bounded, otherwise, rule.small, Reverse(rule.most), Reverse(rule.at_least))
}

/// A rule's ratios, as they are and with the noise of the two points to its favour.
#[derive(Clone, Copy, Debug)]
struct Score {
    rule: LayoutRule,
    worst: f64,
    /// Where `worst` is, in the contests.
    at: usize,
    mean: f64,
    share: f64,
    worst_beyond_noise: f64,
    mean_beyond_noise: f64,
}

impl Score {
    fn of(rule: LayoutRule, contests: &[&Contest<'_>]) -> Option<Self> {
        let (ratios, beyond_noise): (Vec<_>, Vec<_>) =
            contests.iter().map(|contest| ratio(rule, contest)).unzip();
        let (at, &worst) = ratios.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
        let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
        Some(Self {
            rule,
            worst,
            at,
            mean: mean(&ratios),
            share: ratios.iter().filter(|ratio| **ratio >= AIM).count() as f64 / ratios.len() as f64,
            worst_beyond_noise: beyond_noise.iter().copied().fold(1.0, f64::min),
            mean_beyond_noise: mean(&beyond_noise),
        })
    }
}

/// The time of the best layout divided by the time of the rule's layout; and the same ratio, raised by the noise of
/// both to at most 1.
fn ratio(rule: LayoutRule, contest: &Contest<'_>) -> (f64, f64) {
    let best = contest.best();
    let picked = contest.measured(rule.choose(contest.sizes.iter().copied()));
    let picked = picked.unwrap_or_else(|| contest.slowest());
    let ratio = picked.times_as_fast_as(best);
    (ratio, (ratio * (1.0 + noise(best.point, picked.point))).min(1.0))
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use crate::layouts::{
        fit::{fit, synthetic},
        point::Point,
    };

    fn rule(points: &[Point]) -> String {
        fit(points)["embedded"].rule.to_string()
    }

    #[test]
    fn a_rule_that_made_the_numbers_is_found() {
        let points = synthetic::points(|workload, layout| match layout {
            Layout::Packed { .. } if workload.params >= 4 && workload.bytes < 4096 => 10.0,
            Layout::Packed { .. } if workload.bytes > 4096 => 40.0,
            _ => 20.0,
        });
        let fitted = &fit(&points)["embedded"];
        assert_eq!(fitted.rule.to_string(), "packed:1024:4,symmetric");
        assert_eq!((fitted.worst, fitted.noisy), (1.0, 0), "{fitted:?}");
    }

    #[test]
    fn without_a_difference_it_is_symmetric() {
        assert_eq!(rule(&synthetic::points(|_, _| 20.0)), "packed:0:255,symmetric");
    }

    #[test]
    fn one_layout_may_be_best_everywhere() {
        let points = synthetic::points(|_, layout| if layout == Layout::Gathered { 10.0 } else { 20.0 });
        assert_eq!(rule(&points), "packed:0:255,gathered");
    }

    #[test]
    fn a_noisy_point_counts_for_nothing() {
        let calm = synthetic::points(|_, layout| if layout == Layout::Gathered { 10.0 } else { 20.0 });
        let mut points = calm.clone();
        let gathered = |point: &&mut Point| point.layout == "gathered";
        let odd = points.iter_mut().filter(gathered).nth(7).unwrap();
        (odd.p50_us, odd.spread) = (500.0, 0.8);
        assert_eq!(rule(&points), rule(&calm));
        assert_eq!(fit(&points)["embedded"].noisy, 1);
    }

    #[test]
    fn mixed_sizes_count_small_parameters() {
        // Packed is better where eight parameters at least are below 300 bytes, whatever their average.
        let small = |sizes: &[u64]| sizes.iter().filter(|&&size| size <= 256).count();
        let points = synthetic::mixed(|sizes, layout| match layout {
            Layout::Packed { threshold: 256 } if small(sizes) >= 8 => 10.0,
            Layout::Packed { threshold } if sizes.iter().any(|&size| size <= threshold.into()) => 40.0,
            _ => 20.0,
        });
        let fitted = &fit(&points)["embedded"];
        // No workload here has 8 to 15 that small.
        assert_eq!((fitted.rule.to_string().as_str(), fitted.worst), ("packed:256:16,symmetric", 1.0));
    }

    #[test]
    fn a_layout_that_was_not_measured_is_not_chosen() {
        let mut points = synthetic::points(|_, layout| match layout {
            Layout::Gathered => 10.0,
            Layout::Asymmetric => 12.0,
            _ => 20.0,
        });
        points.retain(|point| point.layout != "gathered" || point.workload.params < 16);
        assert_eq!(rule(&points), "packed:0:255,asymmetric");
    }

    #[test]
    fn each_provider_has_its_rule() {
        let run = synthetic::run(1);
        let fitted = fit(&run.points);
        assert_eq!(fitted.keys().collect::<Vec<_>>(), ["embedded", "verbs"]);
        for fitted in fitted.values() {
            assert!(fitted.mean > 0.95 && fitted.rule.small > 0, "{fitted:?}");
        }
        assert!(fit(&[]).is_empty());
    }
}
