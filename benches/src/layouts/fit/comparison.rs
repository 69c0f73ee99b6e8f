//! How good `auto` was, and what the best layout gains.

use std::collections::BTreeMap;

use naa_measure::stats::median;

use super::contest::{Contest, MOST_SPREAD, by_provider};
use crate::layouts::point::{Point, Workload};

/// What `auto` is to reach of the best layout everywhere.
pub(crate) const AIM: f64 = 0.95;

/// `auto` beside the best layout: of the best one's time, `auto`'s share; 1 where `auto` itself was the fastest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AutoRatios {
    /// Workloads with `auto` and at least one layout.
    pub points: usize,
    pub worst: f64,
    pub at: Workload,
    pub median: f64,
    /// Points of at least 0.95, divided by all.
    pub share: f64,
    /// Points below 0.95 that say nothing about the choice: the layout that was chosen reached 0.95 when it was measured
    /// by itself, or repeats differ by more than 20 %.
    pub noise: usize,
}

impl AutoRatios {
    /// Points below 0.95.
    pub(crate) fn below(&self) -> usize {
        self.points - (self.share * self.points as f64).round() as usize
    }

    /// Whether 0.95 is reached everywhere; `None` where only noise says that it is not.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.below() {
            0 => Some(true),
            below if below > self.noise => Some(false),
            _ => None,
        }
    }
}

/// Compares `auto` with the best layout, for each provider with a workload at which `auto` was measured.
pub(crate) fn auto_ratios(points: &[Point]) -> BTreeMap<String, AutoRatios> {
    let providers = by_provider(points).into_iter();
    providers.filter_map(|(provider, contests)| Some((provider, auto_ratios_of(&contests)?))).collect()
}

fn auto_ratios_of(contests: &[Contest<'_>]) -> Option<AutoRatios> {
    let ratios: Vec<_> =
        contests.iter().filter_map(|contest| Some((auto_ratio(contest)?, contest))).collect();
    let (worst, at) = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let below: Vec<_> = ratios.iter().filter(|(ratio, _)| *ratio < AIM).collect();
    Some(AutoRatios {
        points: ratios.len(),
        worst: *worst,
        at: at.workload.clone(),
        median: median(&ratios.iter().map(|(ratio, _)| *ratio).collect::<Vec<_>>())?,
        share: 1.0 - below.len() as f64 / ratios.len() as f64,
        noise: below.iter().filter(|(_, contest)| is_noise(contest)).count(),
    })
}

fn auto_ratio(contest: &Contest<'_>) -> Option<f64> {
    Some((contest.best().us() / contest.auto?.p50_us).min(1.0))
}

fn is_noise(contest: &Contest<'_>) -> bool {
    let Some(auto) = contest.auto else { return false };
    let chosen = auto.used.parse().ok().and_then(|layout| contest.measured(layout));
    let best = contest.best();
    best.point.spread.max(auto.spread) > MOST_SPREAD
        || chosen.is_some_and(|chosen| chosen.times_as_fast_as(best) >= AIM)
}

/// The best layout beside symmetric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gain {
    /// Workloads with symmetric and another layout.
    pub points: usize,
    /// The workloads at which another layout is faster by more than 3 % and the spread.
    pub won: usize,
    /// How many times as fast as symmetric the best layout is, where this is most: of the points won, else of all.
    pub largest: f64,
    pub layout: String,
    pub at: Workload,
    /// The median over all points of how many times as fast as symmetric the best layout is.
    pub median: f64,
}

/// Compares the best layout with symmetric, for each provider with a workload at which symmetric and another layout were
/// measured.
pub(crate) fn gains(points: &[Point]) -> BTreeMap<String, Gain> {
    let providers = by_provider(points).into_iter();
    providers.filter_map(|(provider, contests)| Some((provider, gain(&contests)?))).collect()
}

fn gain(contests: &[Contest<'_>]) -> Option<Gain> {
    let compared = contests.iter().filter(|contest| contest.contenders.len() > 1);
    let times =
        compared.filter_map(|contest| Some((contest.best().times_as_fast_as(contest.symmetric()?), contest)));
    let times: Vec<_> = times.collect();
    let won: Vec<_> = times.iter().filter(|(_, contest)| !contest.winners().is_empty()).collect();
    let of_all = || times.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let (largest, at) = won.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)).or_else(of_all)?;
    Some(Gain {
        points: times.len(),
        won: won.len(),
        largest: *largest,
        layout: at.best().point.layout.clone(),
        at: at.workload.clone(),
        median: median(&times.iter().map(|(times, _)| *times).collect::<Vec<_>>())?,
    })
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::fit::synthetic;

    fn times(_: &Workload, layout: Layout) -> f64 {
        if matches!(layout, Layout::Packed { .. }) { 10.0 } else { 20.0 }
    }

    #[test]
    fn auto_is_compared_with_the_fastest_layout() {
        let mut points = synthetic::points(times);
        let autos = synthetic::autos(&points, "packed:4096", 10.0);
        let slow = autos.len() / 3;
        points.extend(autos);
        let at = points.len() - slow;
        (points[at].p50_us, points[at].used) = (16.0, "symmetric".into());
        let ratios = &auto_ratios(&points)["embedded"];
        assert_eq!((ratios.worst, ratios.median, ratios.below(), ratios.noise), (0.625, 1.0, 1, 0));
        assert_eq!((&ratios.at, ratios.is_met()), (&points[at].workload, Some(false)));
    }

    #[test]
    fn an_auto_slower_than_the_layout_it_chose_is_noise() {
        let mut points = synthetic::points(times);
        let mut autos = synthetic::autos(&points, "packed:4096", 10.0);
        autos[5].p50_us = 16.0;
        points.extend(autos);
        let ratios = &auto_ratios(&points)["embedded"];
        assert_eq!((ratios.worst, ratios.below(), ratios.noise, ratios.is_met()), (0.625, 1, 1, None));
    }

    #[test]
    fn without_auto_there_is_no_verdict() {
        assert!(auto_ratios(&synthetic::points(times)).is_empty());
    }

    #[test]
    fn the_gain_names_layout_and_workload() {
        let mut points = synthetic::points(times);
        let best = points.iter_mut().find(|point| point.layout == "packed:4096").unwrap();
        best.p50_us = 5.0;
        let at = best.workload.clone();
        let gain = &gains(&points)["embedded"];
        assert_eq!((gain.largest, gain.median, gain.layout.as_str()), (4.0, 2.0, "packed:4096"));
        assert_eq!((&gain.at, gain.won), (&at, gain.points));
    }
}
