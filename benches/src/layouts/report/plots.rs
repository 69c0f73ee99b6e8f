//! The plots of a view.

use maud::{Markup, html};

use super::{
    lines::{Axis, Dot, Line, Plot},
    look::{Look, legend},
    text::parameters,
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
pub(super) fn of_view(view: &View<'_>) -> Markup {
    let (counts, sizes) = (view.chosen_counts(&COUNTS), view.chosen_sizes(&SIZES));
    html! {
        (legend(&looks(view)))
        (figure("Time per call, by size", &by_size(view, &counts, Axis::Time, time)))
        (figure("Speed beside symmetric, by size", &by_size(view, &counts, Axis::Times, time)))
        (figure("Time per call, by count", &by_count(view, &sizes, Axis::Time, time)))
        (figure("Goodput, by size", &by_size(view, &counts, Axis::Goodput, goodput)))
        (figure("Goodput, by count", &by_count(view, &sizes, Axis::Goodput, goodput)))
    }
}

/// Set-up and the first call, by count and size.
pub(super) fn set_up(view: &View<'_>) -> Markup {
    let sizes = view.chosen_sizes(&[4 << 10, 1 << 20]);
    let counts = view.chosen_counts(&[31]);
    let plots = |of: Figure, name| {
        let mut plots = by_count(view, &sizes, Axis::Time, of);
        plots.extend(by_size(view, &counts, Axis::Time, of));
        plots.iter_mut().for_each(|plot| plot.name = Some(name));
        plots
    };
    html! {
        (legend(&looks(view)))
        (figure(
            "Set-up: connecting, registering, agreeing on regions",
            &plots(|point| point.setup_us, "time of the set-up"),
        ))
        (figure("First call of a session", &plots(|point| point.first_us, "time of the first call")))
    }
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

fn figure(caption: &str, plots: &[Plot]) -> Markup {
    let plots = html! { @for plot in plots { (plot.svg()) } };
    html! {
        @if !plots.0.is_empty() {
            figure { figcaption { (caption) } div class="plots" { (plots) } }
        }
    }
}

fn by_size(view: &View<'_>, counts: &[u16], up: Axis, of: Figure) -> Vec<Plot> {
    let sizes = view.sizes();
    let plot = |&count: &u16| {
        let along = sizes.iter().filter_map(|&size| Some((size as f64, view.at(count, size)?)));
        drawn(parameters(count), [Axis::Bytes, up], &along.collect::<Vec<_>>(), of)
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
