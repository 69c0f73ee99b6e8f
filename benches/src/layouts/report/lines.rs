//! A plot of lines, drawn as SVG.

use maud::{Markup, Render, html};

use super::{
    look::Look,
    scale::Log,
    text::{number, us},
};
use crate::layouts::workload::bytes;

/// What an axis counts, for its labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    Bytes,
    Params,
    Time,
    Goodput,
    /// How many times as fast as symmetric.
    Times,
}

impl Axis {
    fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes per parameter",
            Self::Params => "parameters",
            Self::Time => "time per call",
            Self::Goodput => "goodput (GiB/s)",
            Self::Times => "times as fast as symmetric",
        }
    }

    fn tick(self, value: f64) -> String {
        match self {
            Self::Bytes => bytes(value as u64),
            Self::Params => format!("{value:.0}"),
            Self::Time => {
                let text = us(value);
                text.split_once(' ')
                    .map_or(text.clone(), |(number, unit)| format!("{} {unit}", trimmed(number)))
            }
            Self::Goodput | Self::Times => trimmed(&number(value)).into(),
        }
    }
}

/// The number without zeros at the end of its fraction.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The spread of `y`: the distance of its quartiles divided by its median.
    pub(super) spread: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) look: Look,
    pub(super) dots: Vec<Dot>,
}

#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) axes: [Axis; 2],
    /// The name of the vertical axis, if it is not the usual one.
    pub(super) name: Option<&'static str>,
    pub(super) lines: Vec<Line>,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 232.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 18.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = HEIGHT - 40.0;
/// The least distance between the labels of the horizontal axis.
const APART: f64 = 44.0;

impl Plot {
    fn label(&self) -> &'static str {
        self.name.unwrap_or(self.axes[1].label())
    }

    fn dots(&self) -> impl Iterator<Item = &Dot> {
        self.lines.iter().flat_map(|line| &line.dots)
    }

    /// The plot as SVG; empty if there is no dot.
    pub(super) fn svg(&self) -> Markup {
        let x = Log::around(self.dots().map(|dot| dot.x), 1.15, [LEFT, RIGHT]);
        // If the axis compares speeds, it always includes 1 and its surroundings.
        let one = (self.axes[1] == Axis::Times).then_some([0.8, 1.25]).into_iter().flatten();
        let y = Log::around(self.dots().map(|dot| dot.y).chain(one), 1.15, [BOTTOM, TOP]);
        let Some((x, y)) = x.zip(y) else { return Markup::default() };
        let label = format!("{}: {} by {}", self.title, self.label(), self.axes[0].label());
        html! {
            svg class="plot" viewBox=(format_args!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(label) {
                text class="title" x=(LEFT) y="14" { (self.title) }
                (self.grid(&x, &y))
                @for line in &self.lines { (drawn(line, &x, &y, self.axes)) }
            }
        }
    }

    fn grid(&self, x: &Log, y: &Log) -> Markup {
        let [along, up] = self.axes;
        let mut measured: Vec<f64> = self.dots().map(|dot| dot.x).collect();
        measured.sort_by(f64::total_cmp);
        measured.dedup();
        let named = x.apart(&measured, if along == Axis::Bytes { APART } else { APART / 2.0 });
        let [above, below] = [1.03, 1.0 / 1.03].map(|value| y.at(value));
        let (middle, upright) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        html! {
            @if up == Axis::Times {
                rect class="level" x=(LEFT) y=(tenth(above)) width=(RIGHT - LEFT) height=(tenth(below - above)) {}
            }
            @for tick in y.ticks(7) {
                path class="grid" d=(format_args!("M{LEFT} {:.1}H{RIGHT}", y.at(tick))) {}
                text class="tick end" x=(tenth(LEFT - 6.0)) y=(tenth(y.at(tick) + 3.5)) { (up.tick(tick)) }
            }
            @for value in &measured { path class="grid" d=(format_args!("M{:.1} {BOTTOM}v4", x.at(*value))) {} }
            @for value in named {
                text class="tick mid" x=(tenth(x.at(value))) y=(tenth(BOTTOM + 16.0)) { (along.tick(value)) }
            }
            path class="axis" d=(format_args!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}")) {}
            text class="label mid" x=(middle) y=(HEIGHT - 8.0) { (along.label()) }
            text class="label mid" transform=(format_args!("translate(11 {upright}) rotate(-90)")) { (self.label()) }
        }
    }
}

/// A number with one decimal.
pub(super) fn tenth(value: f64) -> impl Render {
    format!("{value:.1}")
}

fn drawn(line: &Line, x: &Log, y: &Log, axes: [Axis; 2]) -> Markup {
    let mut dots: Vec<_> = line.dots.iter().filter(|dot| dot.y > 0.0).collect();
    dots.sort_by(|a, b| a.x.total_cmp(&b.x));
    let places: Vec<_> = dots.iter().map(|dot| format!("{:.1} {:.1}", x.at(dot.x), y.at(dot.y))).collect();
    let whisker = |dot: &Dot| {
        let inside = |value: f64| y.at(value).clamp(TOP, BOTTOM);
        let ends = [1.0 - dot.spread / 2.0, 1.0 + dot.spread / 2.0];
        let [low, high] = ends.map(|part| inside(dot.y * part.max(0.01)));
        (low - high > 3.0).then(|| format!("M{:.1} {low:.1}V{high:.1}", x.at(dot.x)))
    };
    html! {
        g class=(line.look.class()) {
            path class="line" d={ "M" (places.join("L")) } {}
            @for dot in dots {
                @if let Some(whisker) = whisker(dot) { path class="whisker" d=(whisker) {} }
                path class="mark" d=(line.look.marker(x.at(dot.x), y.at(dot.y))) {
                    title { (line.look.name()) ", " (axes[0].tick(dot.x)) ": " (figure(dot.y, axes[1])) }
                }
            }
        }
    }
}

fn figure(value: f64, axis: Axis) -> String {
    match axis {
        Axis::Time => us(value),
        Axis::Goodput => format!("{} GiB/s", number(value)),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::fit::contest::Kind;

    fn plot(ys: &[f64]) -> Plot {
        let dots =
            ys.iter().enumerate().map(|(i, &y)| Dot { x: 64.0 * 4_f64.powi(i as i32), y, spread: 0.02 });
        let line = Line { look: Look::Layout(Kind::Packed), dots: dots.collect() };
        Plot { title: "31 < 255".into(), axes: [Axis::Bytes, Axis::Time], name: None, lines: vec![line] }
    }

    #[test]
    fn every_dot_has_a_marker_and_a_hint() {
        let svg = plot(&[12.0, 30.0, 2000.0]).svg().into_string();
        assert_eq!(svg.matches("class=\"mark\"").count(), 3);
        assert!(svg.contains("<title>packed, 256 B: 30.0 µs</title>"), "{svg}");
        assert!(svg.contains(">1 ms</text>") && svg.contains("31 &lt; 255"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(plot(&[]).svg().into_string(), "");
        assert_eq!(plot(&[0.0, f64::NAN]).svg().into_string(), "");
    }
}
