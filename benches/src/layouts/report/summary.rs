//! The targets, and what came of them.

use maud::{Markup, Render, html};

use super::{
    look::Look,
    table::Table,
    text::{number, percent, times},
    together::{self, Together},
    view::View,
};
use crate::{
    layouts::{
        fit::{
            auto_ratios,
            comparison::{AIM, AutoRatios, Gain},
            contest::Kind,
            gains,
        },
        point::Point,
        workload::bytes,
    },
    row::LEAST_REPEATS,
};

pub(super) fn html(points: &[Point], views: &[View<'_>]) -> Markup {
    let mut table =
        Table::new(&["target", "provider", "result", "aim", "verdict", "where, and why"], &[1, 4, 5]);
    let (ratios, gains, compared) = (auto_ratios(points), gains(points), together::together(views));
    let repeats = points.iter().map(|point| point.repeats).max().unwrap_or(0);
    table.rows.extend(ratios.iter().map(|(provider, ratios)| auto(provider, ratios, repeats)));
    table.rows.extend(gains.iter().map(|(provider, gain)| best(provider, gain)));
    table.rows.extend(gains.keys().map(|provider| several(provider, &compared)));
    html! {
        (table.html())
        @if ratios.is_empty() && !gains.is_empty() {
            p class="note" { code { "auto" } " was not measured." }
        }
        (each(&compared))
    }
}

fn verdict(is_met: bool) -> Markup {
    let (class, text) = if is_met { ("met", "✓ met") } else { ("missed", "✗ missed") };
    html! { span class=(class) { (text) } }
}

fn cells<const N: usize>(texts: [&dyn Render; N]) -> Vec<Markup> {
    texts.map(|text| html! { (text) }).into()
}

/// Large parameters have fewer repeats than most.
fn auto(provider: &str, ratios: &AutoRatios, repeats: u32) -> Vec<Markup> {
    let AutoRatios { points, worst, at, median, share, noise } = ratios;
    let mut why =
        format!("{at}; median {median:.2}; at least {AIM} at {} of {points} points", percent(*share));
    if ratios.below() > 0 {
        why += &format!(
            "; {noise} of the {} below are noise: the layout auto chose reached {AIM} when measured by itself, or repeats \
             differ by more than 20 %",
            ratios.below()
        );
    }
    let met = ratios.is_met().filter(|_| repeats >= LEAST_REPEATS);
    if repeats < LEAST_REPEATS {
        why += &format!("; no verdict, for {repeats} repeats are fewer than {LEAST_REPEATS}");
    }
    let verdict = met.map_or_else(|| "no verdict".render(), verdict);
    let name = "auto beside the best layout, at the worst point";
    cells([&name, &provider, &format!("{worst:.2}"), &format!("≥ {AIM}"), &verdict, &why])
}

fn best(provider: &str, gain: &Gain) -> Vec<Markup> {
    let Gain { points, won, largest, layout, at, median } = gain;
    let why = if *won == 0 {
        format!("no layout is faster by more than 3 % and the spread at any of {points} points")
    } else {
        format!(
            "{layout}, {at}; median of all points {}; faster by more than 3 % and the spread at {won} of {points} points",
            times(*median)
        )
    };
    let result = format!("{} ×", times(*largest));
    cells([&"best layout beside symmetric, at most", &provider, &result, &"report", &"", &why])
}

/// The worst view's best layout.
fn several(provider: &str, compared: &[Together]) -> Vec<Markup> {
    let here = compared.iter().filter(|together| together.provider == provider);
    let best = here.filter_map(|together| Some((together.best()?, together)));
    let worst = best.max_by(|a, b| a.0.1.total_cmp(&b.0.1));
    let name =
        format!("{} × {} B beside 1 × {} B, best layout", together::PARAMS, together::BYTES, together::ONE);
    let Some(((look, ratio), together)) = worst else {
        return cells([&name, &provider, &"–", &"≤ 2", &"", &"not measured"]);
    };
    let symmetric = together.of(Look::Layout(Kind::Symmetric)).map_or("–".into(), times);
    let why = format!("{}: {}; symmetric takes {symmetric} × as long", together.view, look.name());
    let (result, aim) = (format!("{} ×", times(ratio)), format!("≤ {}", together::AIM));
    cells([&name, &provider, &result, &aim, &verdict(ratio <= together::AIM), &why])
}

fn each(compared: &[Together]) -> Markup {
    let mut head = vec!["view", "one of 1984 B"];
    head.extend(Look::ALL.map(Look::name));
    let mut table = Table::new(&head, &[]);
    for together in compared {
        let times = |look| together.of(look).map_or("–".into(), |ratio| format!("{} ×", times(ratio)));
        let mut row = cells([&together.view, &format!("{} µs", number(together.one_us))]);
        row.extend(Look::ALL.map(|look| times(look).render()));
        table.rows.push(row);
    }
    html! {
        @if !table.rows.is_empty() {
            h3 { "31 parameters of 64 B beside one with as many bytes" }
            p { "How many times as long a call takes." (between(compared)) }
            (table.html())
        }
    }
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
    use crate::layouts::fit::{contest::Contest, synthetic};

    fn page(auto_us: f64, repeats: u32) -> String {
        let packed = |layout| matches!(layout, Layout::Packed { .. });
        let mut points = synthetic::points(|_, layout| if packed(layout) { 10.0 } else { 20.0 });
        points.extend(synthetic::autos(&points, "symmetric", auto_us));
        points.iter_mut().for_each(|point| point.repeats = repeats);
        let contests = Contest::all(&points);
        html(&points, &View::all(&contests)).into_string()
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
