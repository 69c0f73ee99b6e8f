//! The best layout over count and size, as a grid of cells with the line at which packed stops being best.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{
    cross::{Crossover, crossover},
    lines::tenth,
    look::{class, letter},
    text::{times, us},
    view::{View, direction},
};
use crate::layouts::{
    fit::contest::{Contest, Kind},
    workload::bytes,
};

const CELL: [f64; 2] = [46.0, 30.0];
const LEFT: f64 = 44.0;
const TOP: f64 = 24.0;
const BELOW: f64 = 38.0;
/// Gains are the stronger in colour up to this.
const STRONGEST: f64 = 3.0;

/// Few parameters at the bottom, small ones on the left.
pub(super) fn svg(view: &View<'_>) -> Markup {
    let (counts, sizes) = (view.counts(), view.sizes());
    let width = (LEFT + CELL[0] * sizes.len() as f64 + 8.0).max(300.0);
    let height = TOP + CELL[1] * counts.len() as f64 + BELOW;
    let title = format!("{}, {}, {}", view.provider, view.wait, direction(view.direction));
    let row = |row: usize| TOP + CELL[1] * row as f64;
    let column = |column: f64| LEFT + CELL[0] * column;
    let bottom = row(counts.len());
    let rows = || counts.iter().rev().enumerate();
    let places =
        rows().flat_map(|(y, count)| sizes.iter().enumerate().map(move |(x, size)| (x, y, *count, *size)));
    let cells: Vec<_> = places
        .filter_map(|(x, y, count, size)| Some(cell(view.at(count, size)?, column(x as f64), row(y))))
        .collect();
    html! {
        svg class="map" width=(width) height=(height) viewBox=(format_args!("0 0 {width} {height}")) role="img"
            aria-label={ "Best layout, " (title) } {
            text class="title" x=(LEFT) y="14" { (title) }
            @for (y, count) in rows() {
                text class="tick end" x=(tenth(LEFT - 6.0)) y=(tenth(row(y) + 19.0)) { (count) }
            }
            @for (rect, _) in &cells { (rect) }
            @for (x, size) in sizes.iter().enumerate() {
                text class="tick mid" x=(tenth(column(x as f64 + 0.5))) y=(tenth(bottom + 14.0)) { (bytes(*size)) }
            }
            // Text stands above the line, or it could not be read.
            (line(view, &counts, &sizes))
            @for (_, text) in &cells { (text) }
            text class="label mid" x=(tenth(column(sizes.len() as f64 / 2.0))) y=(tenth(bottom + 31.0)) {
                "bytes per parameter"
            }
            text class="label mid" transform=(format_args!("translate(11 {:.1}) rotate(-90)", (TOP + bottom) / 2.0)) {
                "parameters"
            }
        }
    }
}

/// The rectangle, and what is written on it.
fn cell(contest: &Contest<'_>, x: f64, y: f64) -> (Markup, Markup) {
    let text = |dy: f64, class: &str, text: &str| {
        let middle = x + CELL[0] / 2.0;
        html! { text class={ (class) " mid" } x=(tenth(middle)) y=(tenth(y + dy)) { (text) } }
    };
    let winners = contest.winners();
    let Some(first) = winners.first() else {
        return if is_best(contest) {
            (rect(contest, "sym", 0.3, [x, y]), text(19.0, "who", "S"))
        } else {
            (rect(contest, "tie", 1.0, [x, y]), text(19.0, "even", "="))
        };
    };
    let gain = contest.symmetric().map_or(1.0, |symmetric| first.times_as_fast_as(symmetric));
    let strength = (gain.ln() / STRONGEST.ln()).clamp(0.0, 1.0);
    // Packed may be there with several thresholds.
    let mut seen = BTreeSet::new();
    let kinds = winners.iter().map(|winner| winner.kind()).filter(|kind| seen.insert(*kind));
    let letters: Vec<_> = kinds.map(|kind| letter(kind).to_string()).collect();
    let letters = if letters.len() > 2 { letters.concat() } else { letters.join("=") };
    let texts = html! { (text(13.0, "who", &letters)) (text(25.0, "gain", &times(gain))) };
    (rect(contest, class(first.kind()), 0.2 + 0.5 * strength, [x, y]), texts)
}

fn rect(contest: &Contest<'_>, class: &str, opacity: f64, [x, y]: [f64; 2]) -> Markup {
    let [width, height] = CELL;
    html! {
        rect class={ "cell " (class) } x=(tenth(x + 1.0)) y=(tenth(y + 1.0)) width=(width - 2.0) height=(height - 2.0)
            rx="2" style=(format_args!("fill-opacity:{opacity:.2}")) { title { (hint(contest)) } }
    }
}

/// Symmetric is faster than every other layout, by more than noise.
fn is_best(contest: &Contest<'_>) -> bool {
    let others = || contest.contenders.iter().filter(|other| other.kind() != Kind::Symmetric);
    let Some(symmetric) = contest.symmetric() else { return false };
    others().count() > 0 && others().all(|other| symmetric.beats(other))
}

fn hint(contest: &Contest<'_>) -> String {
    let time =
        |layout: &str, time, spread: f64| format!("{layout} {} (spread {:.0} %)", us(time), spread * 100.0);
    let fixed =
        contest.contenders.iter().map(|other| time(&other.point.layout, other.us(), other.point.spread));
    let auto = contest.auto.map(|auto| time(&format!("auto: {}", auto.used), auto.p50_us, auto.spread));
    let lines: Vec<_> = [contest.workload.to_string()].into_iter().chain(fixed).chain(auto).collect();
    lines.join("\n")
}

/// In steps: up in the middle between rows, to the right at each row's own place.
fn line(view: &View<'_>, counts: &[u16], sizes: &[u64]) -> Markup {
    let mut steps = String::new();
    let mut is_drawn = false;
    let mut place_before: Option<f64> = None;
    for (row, count) in counts.iter().rev().enumerate() {
        let found = crossover(view, *count);
        is_drawn |= matches!(found, Some(Crossover::At(_) | Crossover::Beyond(_)));
        let Some(x) = found.map(|found| place(found, sizes)) else {
            place_before = None;
            continue;
        };
        let y = TOP + CELL[1] * row as f64;
        match place_before {
            Some(_) => steps += &format!("H{x:.1}"),
            None => steps += &format!("M{x:.1} {y:.1}"),
        }
        steps += &format!("V{:.1}", y + CELL[1]);
        place_before = Some(x);
    }
    html! { @if is_drawn { path class="cross-edge" d=(steps) {} path class="cross" d=(steps) {} } }
}

/// Cells have their size in the middle.
fn place(crossover: Crossover, sizes: &[u64]) -> f64 {
    let index = |value: f64| sizes.iter().position(|&size| size as f64 >= value).unwrap_or(sizes.len());
    let columns = match crossover {
        Crossover::Never => 0.0,
        Crossover::Beyond(size) => index(size as f64) as f64 + 1.0,
        Crossover::At(value) => match index(value) {
            0 => 0.5,
            above => {
                let [from, to] = [above - 1, above.min(sizes.len() - 1)].map(|at| sizes[at] as f64);
                let share = if to > from { (value / from).ln() / (to / from).ln() } else { 0.0 };
                above as f64 - 0.5 + share
            }
        },
    };
    LEFT + CELL[0] * columns
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::fit::synthetic;

    fn map(packed: f64, symmetric: f64) -> String {
        let points = synthetic::points(|workload, layout| match layout {
            Layout::Packed { .. } if workload.params >= 4 && workload.bytes < 4096 => packed,
            Layout::Packed { threshold } if workload.bytes <= threshold.into() => 40.0,
            Layout::Symmetric => symmetric,
            _ => 20.0,
        });
        let contests = Contest::all(&points);
        svg(&View::all(&contests)[0]).into_string()
    }

    #[test]
    fn cells_are_coloured_where_a_layout_wins() {
        let svg = map(10.0, 20.0);
        assert_eq!(svg.matches("class=\"cell pack\"").count(), 12, "{svg}");
        assert_eq!(svg.matches("class=\"cell tie\"").count(), 24);
        assert_eq!(svg.matches(">2.00</text>").count(), 12);
        assert!(svg.contains("class=\"cross\""));
    }

    #[test]
    fn what_is_within_noise_has_no_colour() {
        let svg = map(19.5, 20.0);
        assert_eq!(svg.matches("class=\"cell tie\"").count(), 36);
        assert!(!svg.contains("class=\"cross\""), "{svg}");
    }

    #[test]
    fn symmetric_alone_is_told_from_a_tie() {
        let svg = map(40.0, 10.0);
        assert_eq!(svg.matches("class=\"cell sym\"").count(), 36);
    }

    #[test]
    fn the_line_is_between_the_cells_sizes() {
        let sizes = [64, 256, 1024];
        let columns = |found| (place(found, &sizes) - LEFT) / CELL[0];
        assert_eq!(columns(Crossover::Never), 0.0);
        assert_eq!(columns(Crossover::Beyond(256)), 2.0);
        assert!((columns(Crossover::At(128.0)) - 1.0).abs() < 1e-9);
        assert!((columns(Crossover::At(256.0)) - 1.5).abs() < 1e-9);
        assert!((columns(Crossover::At(64.0)) - 0.5).abs() < 1e-9);
    }
}
