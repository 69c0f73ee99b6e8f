//! A drawing of what each worker gets while workers and senders change.

use std::fmt::{Display, Write as _};

use super::S;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
/// The left margin of the drawing; the other three margins follow.
const LEFT: f64 = 56.0;
const TOP: f64 = 64.0;
const RIGHT: f64 = 120.0;
const BOTTOM: f64 = 44.0;
/// Colours that people with any sight can tell apart.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// Slots of each worker at a time.
pub(super) type Sample = (u64, Vec<u32>);

/// What is drawn.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) ends: u64,
    pub(super) most: u32,
    pub(super) samples: &'a [Sample],
    pub(super) names: &'a [&'a str],
    /// What happened when.
    pub(super) marks: &'a [(u64, &'a str)],
}

impl Plot<'_> {
    fn x(&self, at: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / self.ends as f64
    }

    fn y(&self, slots: u32) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * f64::from(slots) / f64::from(self.most)
    }

    pub(super) fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
            self.title
        );
        self.axes(&mut svg);
        for (n, (at, what)) in self.marks.iter().enumerate() {
            let (x, y) = (self.x(*at), TOP - 6.0 - 14.0 * (n % 2) as f64);
            let bottom = HEIGHT - BOTTOM;
            line(&mut svg, (x, y + 2.0), (x, bottom), "#888888\" stroke-dasharray=\"4 3");
            text(&mut svg, (x + 3.0, y), "fill=\"#444444\"", what);
        }
        let mut labels: Vec<_> =
            self.names.iter().enumerate().map(|(n, name)| (self.last(n), n, *name)).collect();
        labels.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut below = HEIGHT;
        for (y, n, name) in labels {
            self.steps(&mut svg, n);
            // Names stand at the ends of their lines, and not on each other.
            below = y.min(below - 14.0);
            let fill = format!("fill=\"{}\"", COLOURS[n % COLOURS.len()]);
            text(&mut svg, (WIDTH - RIGHT + 6.0, below + 4.0), &fill, name);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String) {
        for slots in (0..=self.most).step_by(128) {
            let y = self.y(slots);
            line(svg, (LEFT, y), (WIDTH - RIGHT, y), "#dddddd");
            text(svg, (LEFT - 6.0, y + 4.0), "text-anchor=\"end\"", slots);
        }
        for seconds in (0..=self.ends / S).step_by(10) {
            let x = self.x(seconds * S);
            text(svg, (x, HEIGHT - BOTTOM + 16.0), MIDDLE, seconds);
        }
        text(svg, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0), MIDDLE, "seconds");
        let y = HEIGHT / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"14\" y=\"{y:.1}\" transform=\"rotate(-90 14 {y:.1})\" {MIDDLE}>slots</text>"
        );
    }

    fn last(&self, n: usize) -> f64 {
        self.samples.last().map_or(0.0, |(_, slots)| self.y(slots[n]))
    }

    fn steps(&self, svg: &mut String, n: usize) {
        let mut points = String::new();
        let mut before = None;
        for (at, slots) in self.samples {
            let (x, y) = (self.x(*at), self.y(slots[n]));
            if before != Some(y) {
                if let Some(before) = before {
                    let _ = write!(points, "{x:.1},{before:.1} ");
                }
                let _ = write!(points, "{x:.1},{y:.1} ");
                before = Some(y);
            }
        }
        let end = self.samples.last().map_or(0, |(at, _)| *at);
        let _ = write!(points, "{:.1},{:.1}", self.x(end), before.unwrap_or(0.0));
        let colour = COLOURS[n % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
        );
    }
}

const MIDDLE: &str = "text-anchor=\"middle\"";

/// Text at a point, with an attribute.
fn text(svg: &mut String, (x, y): (f64, f64), attribute: &str, what: impl Display) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attribute}>{what}</text>");
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), stroke: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
    );
}
