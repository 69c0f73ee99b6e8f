//! What layouts cost besides time: CPU time, registered memory, energy.

use maud::{Markup, Render as _, html};

use super::{
    look::Look,
    plots::{looks, point},
    table::Table,
    text::{number, size, us},
    view::View,
};
use crate::layouts::{
    fit::contest::Contest,
    point::{Direction, Point, Sizes},
    workload::bytes,
};

const COUNTS: [u16; 3] = [1, 31, 255];
const SIZES: [u64; 3] = [64, 4 << 10, 1 << 20];

/// A cell of a point.
type Cell = fn(&Point) -> Option<String>;

pub(super) fn cpu(views: &[View<'_>]) -> Markup {
    tables(&usual(views), |point| Some(sum(&us(point.host_cpu_us), &us(point.server_cpu_us))))
}

/// Waiting makes no difference to it.
pub(super) fn registered(views: &[View<'_>]) -> Markup {
    let mut usual = usual(views);
    usual.dedup_by_key(|view| view.provider);
    tables(&usual, |point| Some(sum(&size(point.host_registered), &size(point.server_registered))))
}

/// The tables of energy; empty if no machine counted it.
pub(super) fn energy(views: &[View<'_>]) -> Markup {
    let counted = |view: &&View<'_>| view.contests.values().any(|contest| has_energy(contest));
    let views: Vec<_> = usual(views).into_iter().filter(counted).collect();
    tables(&views, |point| point.joules.map(|joules| number(joules * 1e3)))
}

/// The two sizes with a plus sign between them; if both have the same unit, it is written only once.
fn sum(host: &str, server: &str) -> String {
    let [unit, other] = [host, server].map(|text| text.split_once(' '));
    match (unit, other) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} + {server}"),
        _ => format!("{host} + {server}"),
    }
}

fn has_energy(contest: &Contest<'_>) -> bool {
    contest.contenders.iter().any(|contender| contender.point.joules.is_some())
}

/// The views with equal sizes: those with data in both directions if there are any, otherwise all.
fn usual<'a, 'v>(views: &'v [View<'a>]) -> Vec<&'v View<'a>> {
    let equal: Vec<_> = views.iter().filter(|view| view.sizes == Sizes::Equal).collect();
    let both: Vec<_> = equal.iter().copied().filter(|view| view.direction == Direction::Both).collect();
    if both.is_empty() { equal } else { both }
}

fn tables(views: &[&View<'_>], cell: Cell) -> Markup {
    let tables = views
        .iter()
        .map(|view| (view.title(), table(view, cell)))
        .filter(|(_, table)| !table.rows.is_empty());
    let tables: Vec<_> = tables.collect();
    html! {
        @if !tables.is_empty() {
            div class="tables" { @for (title, table) in tables { div { h4 { (title) } (table.html()) } } }
        }
    }
}

fn table(view: &View<'_>, cell: Cell) -> Table {
    let looks: Vec<Look> = looks(view);
    let head: Vec<_> = ["parameters"].into_iter().chain(looks.iter().map(|look| look.name())).collect();
    let mut table = Table::new(&head, &[]);
    for count in view.chosen_counts(&COUNTS) {
        for size in view.chosen_sizes(&SIZES) {
            let Some(contest) = view.at(count, size) else { continue };
            let of = |look: &Look| point(contest, *look).and_then(cell).unwrap_or("–".into()).render();
            let name = format!("{count} × {}", bytes(size)).render();
            table.rows.push([name].into_iter().chain(looks.iter().map(of)).collect());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_unit_is_told_once() {
        assert_eq!(sum("1.5 µs", "20 µs"), "1.5 + 20 µs");
        assert_eq!(sum("64 B", "1 KiB"), "64 B + 1 KiB");
    }
}
