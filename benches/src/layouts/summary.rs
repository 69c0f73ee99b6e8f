//! What a run comes to: a line for each workload, and rows as the other benches have them.

use std::collections::BTreeMap;

use naa_measure::{
    Column, TextTable, number,
    row::{
        LEAST_REPEATS, Row,
        Target::{self, AtLeast, AtMost, Report},
    },
};

use super::{
    fit::{
        AutoRatios, Gain, auto_ratios,
        contest::{Contender, Contest},
        gains,
    },
    grid::TOGETHER,
    point::{Direction, Point, Sizes, Workload},
};

/// What `auto` shall reach of the best layout everywhere.
const AUTO: Target = AtLeast(0.95);
/// What many small parameters may take beside one with as many bytes.
const APART: Target = AtMost(2.0);

const HEAD: [&str; 8] =
    ["workload", "symmetric us", "best layout", "us", "times as fast", "auto takes", "auto/best", ""];

/// Best, symmetric and `auto` at each workload, in the order in which they were measured.
pub(crate) fn table(points: &[Point]) -> String {
    use Column::{Left, Right};
    let mut table = TextTable::new([Left(0), Right(0), Left(0), Right(0), Right(0), Left(0), Right(0)]);
    table.whole(HEAD, in_order(points).iter().map(cells))
}

fn in_order(points: &[Point]) -> Vec<Contest<'_>> {
    let mut contests = Contest::all(points);
    contests.sort_by_key(|contest| points.iter().position(|point| point.workload == *contest.workload));
    contests
}

fn cells(contest: &Contest<'_>) -> [String; 8] {
    let (best, symmetric) = (contest.best(), contest.symmetric());
    let none = || "-".to_owned();
    [
        contest.workload.to_string(),
        symmetric.map_or_else(none, |symmetric| number(symmetric.us())),
        best.point.layout.clone(),
        number(best.us()),
        symmetric.map_or_else(none, |symmetric| format!("{:.2}", best.times_as_fast_as(symmetric))),
        contest.auto.map_or_else(none, |auto| auto.used.clone()),
        auto_ratio(contest).map_or_else(none, |ratio| format!("{ratio:.2}")),
        if contest.is_calm() { "" } else { "spread over 20 %" }.to_owned(),
    ]
}

fn auto_ratio(contest: &Contest<'_>) -> Option<f64> {
    Some(contest.best().us() / contest.auto?.p50_us)
}

/// Verdicts first, then a row for each figure of [`table`].
pub(crate) fn rows(points: &[Point]) -> Vec<Row> {
    let contests = in_order(points);
    let row = |(provider, ratios): (String, AutoRatios)| auto_row(&provider, &ratios, &contests);
    let ratios = auto_ratios(points).into_iter().map(row);
    let gained = gains(points).into_iter().map(|(provider, gain)| gain_row(&provider, &gain, &contests));
    let details = contests.iter().flat_map(details);
    ratios.chain(gained).chain(apart(&contests)).chain(details).collect()
}

fn calls_per_second(us: f64) -> f64 {
    1e6 / us
}

fn at<'a>(contests: &'a [Contest<'_>], workload: &Workload) -> Option<&'a Contest<'a>> {
    contests.iter().find(|contest| contest.workload == workload)
}

/// A verdict rests on the workloads that are below and no noise.
fn auto_row(provider: &str, ratios: &AutoRatios, contests: &[Contest<'_>]) -> Row {
    let AutoRatios { points, worst, median, .. } = ratios;
    let name = format!("auto vs the best layout, lowest of {points} workloads, {provider}");
    let contest = at(contests, &ratios.at);
    let auto = contest.and_then(|contest| contest.auto);
    let pair = contest
        .zip(auto)
        .map(|(contest, auto)| (calls_per_second(auto.p50_us), calls_per_second(contest.best().us())));
    // Large parameters have fewer.
    let repeats = contests.iter().flat_map(|contest| contest.auto).map(|auto| auto.repeats).max();
    let enough = repeats >= Some(LEAST_REPEATS);
    let spread = contest.zip(auto).map(|(contest, auto)| contest.best().point.spread.max(auto.spread));
    let (below, noise) = (ratios.below(), ratios.noise);
    let remark =
        format!("at {}; median {median:.2}; {below} of {points} below, {noise} of them noise", ratios.at);
    let row = Row::compared(name, "calls/s", AUTO, pair.as_slice());
    Row { ratio: Some(*worst), spread, pass: ratios.is_met().filter(|_| enough), ..row }.remarked(remark)
}

fn gain_row(provider: &str, gain: &Gain, contests: &[Contest<'_>]) -> Row {
    let Gain { points, won, layout, median, .. } = gain;
    let name = format!("the best layout vs symmetric, most of {points} workloads, {provider}");
    let pair = at(contests, &gain.at).and_then(best_and_symmetric);
    let remark =
        format!("{layout} at {}; median {median:.2}; another is faster at {won} of {points}", gain.at);
    Row::compared(name, "calls/s", Report, pair.as_slice()).remarked(remark)
}

fn best_and_symmetric(contest: &Contest<'_>) -> Option<(f64, f64)> {
    let (best, symmetric) = (contest.best(), contest.symmetric()?);
    Some((calls_per_second(best.us()), calls_per_second(symmetric.us())))
}

/// 31 parameters of 64 B beside one with as many bytes, for each provider and way of waiting.
fn apart(contests: &[Contest<'_>]) -> Vec<Row> {
    let has = |contest: &Contest<'_>, params, bytes| {
        let Workload { sizes, direction, .. } = contest.workload;
        (contest.workload.params, contest.workload.bytes) == (params, bytes)
            && (*sizes, *direction) == (Sizes::Equal, Direction::Both)
    };
    let ends = |contest: &Contest<'_>| (contest.workload.provider.clone(), contest.workload.wait.clone());
    let mut together = BTreeMap::new();
    for one in contests.iter().filter(|contest| has(contest, 1, TOGETHER)) {
        together.insert(ends(one), one.symmetric().unwrap_or(one.best()));
    }
    let many = contests.iter().filter(|contest| has(contest, 31, 64));
    let compared = many.filter_map(|many| Some((many, *together.get(&ends(many))?)));
    compared.map(|(many, one)| apart_row(many, one)).collect()
}

fn apart_row(many: &Contest<'_>, one: &Contender<'_>) -> Row {
    let (provider, wait) = (&many.workload.provider, &many.workload.wait);
    let best = many.best();
    let name = format!("31 parameters of 64 B vs one of 1984 B, {provider}, {wait}");
    let remark = format!("{} and {}", best.point.layout, one.point.layout);
    let spread = Some(best.point.spread.max(one.point.spread));
    let row = Row::compared(name, "us", Report, &[(best.us(), one.us())]);
    Row { spread, ..row }.aiming(Some(APART)).remarked(remark)
}

fn details(contest: &Contest<'_>) -> Vec<Row> {
    let workload = contest.workload;
    let row = |name: String, pair: Option<(f64, f64)>, spread: f64| {
        let row = Row::compared(name, "calls/s", Report, pair.as_slice());
        Row { spread: Some(spread), ..row }.detail()
    };
    let best = contest.best();
    let auto = contest.auto.map(|auto| {
        let pair = (calls_per_second(auto.p50_us), calls_per_second(best.us()));
        row(format!("{workload}: auto vs best"), Some(pair), auto.spread.max(best.point.spread))
    });
    let symmetric = contest.symmetric().map(|symmetric| {
        let spread = symmetric.point.spread.max(best.point.spread);
        row(format!("{workload}: best vs symmetric"), best_and_symmetric(contest), spread)
    });
    auto.into_iter().chain(symmetric).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::fit::synthetic::{point, workload},
        *,
    };

    /// Symmetric, packed and auto, in microseconds.
    fn points(params: u16, bytes: u64, [symmetric, packed, auto]: [f64; 3]) -> Vec<Point> {
        let workload = Workload { direction: Direction::Both, ..workload(params, bytes) };
        let auto = Point { used: "symmetric".into(), ..point(&workload, "auto", auto) };
        vec![point(&workload, "symmetric", symmetric), point(&workload, "packed:1024", packed), auto]
    }

    fn all(auto: f64) -> Vec<Point> {
        [points(31, 64, [100.0, 40.0, auto]), points(1, TOGETHER, [25.0, 25.0, 25.0])].concat()
    }

    #[test]
    fn a_line_names_the_best() {
        let table = table(&all(50.0));
        let lines: Vec<_> = table.lines().skip(1).collect();
        let words: Vec<_> = lines[0].split_whitespace().collect();
        assert!(lines[0].starts_with("embedded, spin: 31 x 64 B in and out  "), "{lines:?}");
        assert_eq!(words[9..], ["100", "packed:1024", "40.0", "2.50", "symmetric", "0.80"], "{lines:?}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn auto_is_held_against_the_best() {
        let verdict = |auto| rows(&all(auto)).remove(0);
        let (met, missed) = (verdict(41.0), verdict(60.0));
        assert_eq!((met.verdict(), met.target), ("pass", AUTO));
        assert_eq!(missed.verdict(), "MISSED");
        assert!((missed.ratio.unwrap() - 2.0 / 3.0).abs() < 1e-9, "{missed:?}");
        assert!(missed.remark.starts_with("at embedded, spin: 31 x 64 B in and out;"), "{missed:?}");
    }

    #[test]
    fn few_repeats_and_noise_are_no_verdict() {
        let of = |change: fn(&mut Point)| {
            let mut points = all(60.0);
            points.iter_mut().for_each(change);
            rows(&points).remove(0).verdict()
        };
        assert_eq!(of(|point| point.repeats = 3), "no verdict");
        assert_eq!(of(|point| point.spread = 0.5), "no verdict");
    }

    #[test]
    fn many_small_parameters_are_held_against_one() {
        let rows = rows(&all(40.0));
        let apart = &rows[2];
        assert_eq!(apart.measure, "31 parameters of 64 B vs one of 1984 B, embedded, spin");
        assert_eq!((apart.ours, apart.reference, apart.aim), (Some(40.0), Some(25.0), Some(APART)));
        assert!((rows[1].ratio.unwrap() - 2.5).abs() < 1e-9, "{:?}", rows[1]);
        assert_eq!(rows[3..].iter().filter(|row| row.is_detail).count(), 4);
    }
}
