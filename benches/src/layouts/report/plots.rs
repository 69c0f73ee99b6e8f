//! The plots of a view.

use super::{
    lines::{Axis, Dot, Line, Plot},
    look::{Look, legend},
    text::escape,
    view::View,
};
use crate::layouts::{
    fit::contest::{Contest, Kind},
    point::Point,
    workload::bytes,
};

const COUNTS: [u16; 4] = [1, 8, 31, 255];
const SIZES: [u64; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

/// What a plot shows of a point.
type Figure = fn(&Point) -> f64;

/// Time and goodput by size and count.
pub(super) fn of_view(view: &View<'_>) -> String {
    let (counts, sizes) = (view.chosen_counts(&COUNTS), view.chosen_sizes(&SIZES));
    let mut html = legend(&looks(view));
    html += &figure("Time per call, by size", by_size(view, &counts, Axis::Time, time));
    html += &figure("Speed beside symmetric, by size", by_size(view, &counts, Axis::Times, time));
    html += &figure("Time per call, by count", by_count(view, &sizes, Axis::Time, time));
    html += &figure("Goodput, by size", by_size(view, &counts, Axis::Goodput, goodput));
    html + &figure("Goodput, by count", by_count(view, &sizes, Axis::Goodput, goodput))
}

/// Set-up and the first call, by count and size.
pub(super) fn set_up(view: &View<'_>) -> String {
    let sizes = view.chosen_sizes(&[4 << 10, 1 << 20]);
    let counts = view.chosen_counts(&[31]);
    let mut html = legend(&looks(view));
    html += &figure("Set-up: connecting, registering, agreeing on regions", {
        let mut plots = by_count(view, &sizes, Axis::Time, |point| point.setup_us);
        plots.extend(by_size(view, &counts, Axis::Time, |point| point.setup_us));
        named(plots, "time of the set-up")
    });
    html + &figure("First call of a session", {
        let mut plots = by_count(view, &sizes, Axis::Time, |point| point.first_us);
        plots.extend(by_size(view, &counts, Axis::Time, |point| point.first_us));
        named(plots, "time of the first call")
    })
}

fn named(plots: Vec<Plot>, name: &'static str) -> Vec<Plot> {
    plots.into_iter().map(|plot| Plot { name: Some(name), ..plot }).collect()
}

/// Those the view has.
pub(super) fn looks(view: &View<'_>) -> Vec<Look> {
    let has = |look: &Look| view.contests.values().any(|contest| point(contest, *look).is_some());
    Look::ALL.into_iter().filter(has).collect()
}

/// The fastest with this look.
pub(super) fn point<'a>(contest: &Contest<'a>, look: Look) -> Option<&'a Point> {
    match look {
        Look::Layout(kind) => contest.kind(kind).map(|contender| contender.point),
        Look::Auto => contest.auto,
    }
}

fn time(point: &Point) -> f64 {
    point.p50_us
}

fn goodput(point: &Point) -> f64 {
    point.goodput
}

fn figure(caption: &str, plots: Vec<Plot>) -> String {
    let plots: String = plots.iter().map(Plot::svg).collect();
    if plots.is_empty() {
        return String::new();
    }
    format!(
        "<figure><figcaption>{}</figcaption><div class=\"plots\">\n{plots}</div></figure>\n",
        escape(caption)
    )
}

fn by_size(view: &View<'_>, counts: &[u16], up: Axis, of: Figure) -> Vec<Plot> {
    let sizes = view.sizes();
    let plot = |&count: &u16| {
        let along = sizes.iter().filter_map(|&size| Some((size as f64, view.at(count, size)?)));
        let title = if count == 1 { "1 parameter".into() } else { format!("{count} parameters") };
        drawn(title, [Axis::Bytes, up], &along.collect::<Vec<_>>(), of)
    };
    counts.iter().map(plot).collect()
}

fn by_count(view: &View<'_>, sizes: &[u64], up: Axis, of: Figure) -> Vec<Plot> {
    let counts = view.counts();
    let plot = |&size: &u64| {
        let along = counts.iter().filter_map(|&count| Some((f64::from(count), view.at(count, size)?)));
        drawn(format!("{} each", bytes(size)), [Axis::Params, up], &along.collect::<Vec<_>>(), of)
    };
    sizes.iter().map(plot).collect()
}

fn drawn(title: String, axes: [Axis; 2], along: &[(f64, &Contest<'_>)], of: Figure) -> Plot {
    let dot = |x: f64, contest: &Contest<'_>, look: Look| {
        let point = point(contest, look)?;
        let y = if axes[1] == Axis::Times { of(contest.symmetric()?.point) / of(point) } else { of(point) };
        // The spread is that of the time.
        let spread = if axes[1] == Axis::Goodput || of(point) == point.p50_us { point.spread } else { 0.0 };
        y.is_finite().then_some(Dot { x, y, spread })
    };
    let line = |look: Look| {
        let dots = along.iter().filter_map(|(x, contest)| dot(*x, contest, look)).collect();
        Line { look, dots }
    };
    let is_base = |look: &Look| axes[1] == Axis::Times && *look == Look::Layout(Kind::Symmetric);
    let lines = Look::ALL.into_iter().filter(|look| !is_base(look)).map(line);
    let lines = lines.filter(|line| !line.dots.is_empty()).collect();
    Plot { title, axes, name: None, lines }
}
