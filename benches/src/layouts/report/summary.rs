//! The targets, and what came of them.

use super::{
    look::Look,
    table::Table,
    text::{escape, number, percent, times},
    together::{self, Together},
    view::View,
};
use crate::{
    layouts::{
        fit::{
            contest::Kind,
            gains, judge,
            judge::{AIM, Gain, Judged},
        },
        point::Point,
        workload::bytes,
    },
    row::LEAST_REPEATS,
};

pub(super) fn html(points: &[Point], views: &[View<'_>]) -> String {
    let mut table =
        Table::new(&["target", "provider", "result", "aim", "verdict", "where, and why"], &[1, 4, 5]);
    let (judged, gains, compared) = (judge(points), gains(points), together::together(views));
    let repeats = points.iter().map(|point| point.repeats).max().unwrap_or(0);
    table.rows.extend(judged.iter().map(|(provider, judged)| auto(provider, judged, repeats)));
    table.rows.extend(gains.iter().map(|(provider, gain)| best(provider, gain)));
    table.rows.extend(gains.keys().map(|provider| several(provider, &compared)));
    let mut html = table.html();
    if judged.is_empty() && !gains.is_empty() {
        html += "<p class=\"note\"><code>auto</code> was not measured.</p>\n";
    }
    html + &each(&compared)
}

fn verdict(is_met: bool) -> String {
    let (class, text) = if is_met { ("met", "✓ met") } else { ("missed", "✗ missed") };
    format!("<span class=\"{class}\">{text}</span>")
}

/// Large parameters have fewer repeats than most.
fn auto(provider: &str, judged: &Judged, repeats: u32) -> Vec<String> {
    let Judged { points, worst, at, median, share, noise } = judged;
    let mut why =
        format!("{at}; median {median:.2}; at least {AIM} at {} of {points} points", percent(*share));
    if judged.below() > 0 {
        why += &format!(
            "; {noise} of the {} below are noise: the layout auto chose reached {AIM} when measured by itself, or repeats \
             differ by more than 20 %",
            judged.below()
        );
    }
    let row =
        ["auto beside the best layout, at the worst point".into(), escape(provider), format!("{worst:.2}")];
    let met = judged.is_met().filter(|_| repeats >= LEAST_REPEATS);
    if repeats < LEAST_REPEATS {
        why += &format!("; no verdict, for {repeats} repeats are fewer than {LEAST_REPEATS}");
    }
    let verdict = met.map_or("no verdict".into(), verdict);
    row.into_iter().chain([format!("≥ {AIM}"), verdict, escape(&why)]).collect()
}

fn best(provider: &str, gain: &Gain) -> Vec<String> {
    let Gain { points, won, largest, layout, at, median } = gain;
    let why = if *won == 0 {
        format!("no layout is faster by more than 3 % and the spread at any of {points} points")
    } else {
        format!(
            "{layout}, {at}; median of all points {}; faster by more than 3 % and the spread at {won} of {points} points",
            times(*median)
        )
    };
    let row =
        ["best layout beside symmetric, at most".into(), escape(provider), format!("{} ×", times(*largest))];
    row.into_iter().chain(["report".into(), String::new(), escape(&why)]).collect()
}

/// The worst view's best layout.
fn several(provider: &str, compared: &[Together]) -> Vec<String> {
    let here = compared.iter().filter(|together| together.provider == provider);
    let best = here.filter_map(|together| Some((together.best()?, together)));
    let worst = best.max_by(|a, b| a.0.1.total_cmp(&b.0.1));
    let name =
        format!("{} × {} B beside 1 × {} B, best layout", together::PARAMS, together::BYTES, together::ONE);
    let Some(((look, ratio), together)) = worst else {
        let cells = [name, escape(provider), "–".into(), "≤ 2".into(), String::new(), "not measured".into()];
        return cells.into();
    };
    let symmetric = together.of(Look::Layout(Kind::Symmetric)).map_or("–".into(), times);
    let why = format!("{}: {}; symmetric takes {symmetric} × as long", together.view, look.name());
    let row = [name, escape(provider), format!("{} ×", times(ratio)), format!("≤ {}", together::AIM)];
    row.into_iter().chain([verdict(ratio <= together::AIM), escape(&why)]).collect()
}

fn each(compared: &[Together]) -> String {
    let mut head = vec!["view", "one of 1984 B"];
    head.extend(Look::ALL.map(Look::name));
    let mut table = Table::new(&head, &[]);
    for together in compared {
        let mut row = vec![escape(&together.view), format!("{} µs", number(together.one_us))];
        row.extend(
            Look::ALL
                .map(|look| together.of(look).map_or("–".into(), |ratio| format!("{} ×", times(ratio)))),
        );
        table.rows.push(row);
    }
    let table = table.html();
    if table.is_empty() {
        return table;
    }
    format!(
        "<h3>31 parameters of 64 B beside one with as many bytes</h3>\n<p>How many times as long a call takes.{}</p>\n{table}",
        between(compared)
    )
}

fn between(compared: &[Together]) -> String {
    let mut intervals: Vec<_> = compared.iter().filter_map(|together| together.between).collect();
    intervals.sort_unstable();
    intervals.dedup();
    let text: Vec<_> =
        intervals.iter().map(|[from, to]| format!("{} and {}", bytes(*from), bytes(*to))).collect();
    if text.is_empty() {
        return String::new();
    }
    format!(
        " Where one parameter of {} B was not measured, its time is interpolated between those of {}.",
        together::ONE,
        text.join(", or ")
    )
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::fit::{contest::Contest, made_up};

    fn page(auto_us: f64, repeats: u32) -> String {
        let packed = |layout| matches!(layout, Layout::Packed { .. });
        let mut points = made_up::points(|_, layout| if packed(layout) { 10.0 } else { 20.0 });
        points.extend(made_up::autos(&points, "symmetric", auto_us));
        points.iter_mut().for_each(|point| point.repeats = repeats);
        let contests = Contest::all(&points);
        html(&points, &View::all(&contests))
    }

    #[test]
    fn targets_are_met_or_missed() {
        assert!(page(10.0, 15).contains("✓ met</span></td><td>embedded, spin: "), "{}", page(10.0, 15));
        assert!(page(20.0, 15).contains("0.50</td><td class=\"num\">≥ 0.95</td><td><span class=\"missed\">"));
        assert!(page(20.0, 14).contains("no verdict</td>"));
    }

    #[test]
    fn gains_and_many_small_parameters_are_told() {
        let page = page(10.0, 15);
        assert!(page.contains("2.00 ×</td><td class=\"num\">report</td>"), "{page}");
        assert!(page.contains("0.50 ×</td><td class=\"num\">≤ 2</td>"), "{page}");
        assert!(page.contains("interpolated between those of 1 KiB and 4 KiB."), "{page}");
    }
}
