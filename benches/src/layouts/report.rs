//! The page that shows a run: one file that needs nothing else, and no script.
//!
//! | for | see |
//! |---|---|
//! | the paragraph that says which layout to use when | [`advice()`] |
//! | targets, costs, rules | `summary`, `together`, `costs`, `rules`, `table` |
//! | which workloads are shown together | `view` |
//! | what is drawn | `map`, `cross`, `plots`, `lines`, `scale`, `look` |
//! | the frame, the style, figures as text | `page`, `text` |

mod advice;
mod costs;
mod cross;
mod lines;
mod look;
mod map;
mod page;
mod plots;
mod rules;
mod scale;
mod summary;
mod table;
mod text;
mod together;
mod view;

use std::collections::BTreeSet;

use super::{
    fit::contest::Contest,
    point::{Direction, Run, Sizes},
};
pub(crate) use advice::advice;
use look::{Look, swatches};
use maud::{Markup, html};
use page::section;
use view::View;

const TITLE: &str = "Memory-region layouts: which is best when?";

/// A document.
pub(crate) fn html(run: &Run) -> String {
    let contests = Contest::all(&run.points);
    let views = View::all(&contests);
    let body = html! {
        (question())
        (paragraphs(&advice(&run.points)))
        (section("Targets", &summary::html(&run.points, &views)))
        (section("The best layout by count and size", &maps(&views)))
        (section("Time and goodput", &details(&views, plots::of_view)))
        (section("Set-up", &details(&both_directions(&views), plots::set_up)))
        (section("CPU time, registered memory and energy", &costs(&views)))
        (section(html! { "The rule of " code { "auto" } }, &rules(run)))
        (section("Machine", &machine(run)))
        (section("Method", &method(run)))
    };
    page::document(TITLE, &body).into_string()
}

fn question() -> Markup {
    html! {
        h1 { (TITLE) }
        p {
            "A call sends its parameters to the accelerator and gets results back by RDMA WRITEs. Where the parameters lie \
             there is a choice: a memory region each, which needs no copy and one WRITE per parameter; or regions in common, \
             which can be written by fewer. NAAICE's description of its API chose the first for being simpler, and left the \
             comparison open. This page makes it."
        }
        dl { @for look in Look::ALL { dt { (look::key(look)) } dd { (described(look)) } } }
    }
}

fn described(look: Look) -> &'static str {
    match look.name() {
        "symmetric" => "a region of the accelerator for each parameter, a WRITE each",
        "asymmetric" => "one region of the accelerator, a WRITE for each parameter",
        "gathered" => "one region, one WRITE that collects the parameters with a scatter-gather list",
        "packed" => {
            "one region; outputs of up to so many bytes are copied together and come in one WRITE, larger ones in one each; \
             inputs of up to a sixteenth are copied together, larger ones gathered with them"
        }
        _ => "one of these, by a rule from count and sizes of the parameters",
    }
}

/// Providers are set off, and what to do is.
fn paragraphs(advice: &str) -> Markup {
    html! {
        div class="advice" {
            @for line in advice.lines() {
                @match line.split_once(": ").filter(|_| advice.contains('\n')) {
                    Some((provider, rest)) => p { strong { (provider) ":" } " " (emphasised(rest)) },
                    None => p { (emphasised(line)) },
                }
            }
        }
    }
}

/// Emphasises the part before the colon in sentences that say what to use.
fn emphasised(paragraph: &str) -> Markup {
    html! {
        @for sentence in paragraph.split_inclusive(". ") {
            @match sentence.find(": ") {
                Some(at) if sentence[..at].to_lowercase().contains("use ") => {
                    strong { (&sentence[..at]) } (&sentence[at..])
                }
                _ => (sentence),
            }
        }
    }
}

fn maps(views: &[View<'_>]) -> Markup {
    let of = |sizes: Sizes| {
        let some: Vec<_> = views.iter().filter(|view| view.sizes == sizes).collect();
        html! {
            @for row in some.chunk_by(|a, b| (a.provider, a.wait) == (b.provider, b.wait)) {
                div class="maps" { @for view in row { (map::svg(view)) } }
            }
        }
    };
    let (equal, mixed) = (of(Sizes::Equal), of(Sizes::Mixed));
    if equal.0.is_empty() && mixed.0.is_empty() {
        return Markup::default();
    }
    html! {
        p class="note" {
            "A letter names the fastest layout where it is faster than symmetric by more than 3 % and the spread of both; \
             after = are those level with it, below is how many times as fast as symmetric it is. = alone is a tie: no \
             layout is faster than symmetric, and not all are slower. S: all others are slower. The line is where packed \
             stops being best: right of it, or where there is none, it is not. It is interpolated between the measured \
             sizes; packed is the best of its measured thresholds. Pointing at a cell tells the times."
        }
        (swatches())
        (equal)
        @if !mixed.0.is_empty() {
            h3 { "Mixed sizes" }
            p class="note" {
                "Sizes are averages: each has parameters from a sixteenth of it up, and most of the bytes in few."
            }
            (mixed)
        }
    }
}

/// The first view of each provider is open.
fn details(views: &[View<'_>], of: fn(&View<'_>) -> Markup) -> Markup {
    let is_first = |at: usize| at == 0 || views[at - 1].provider != views[at].provider;
    html! {
        @for (at, view) in views.iter().enumerate() {
            details open[is_first(at)] { summary { (view.title()) } (of(view)) }
        }
    }
}

fn both_directions<'a>(views: &[View<'a>]) -> Vec<View<'a>> {
    views.iter().filter(|view| view.direction == Direction::Both).cloned().collect()
}

fn costs(views: &[View<'_>]) -> Markup {
    if views.is_empty() {
        return Markup::default();
    }
    let energy = costs::energy(views);
    html! {
        h3 { "CPU time" }
        p class="note" { "Per call, host + server." }
        (costs::cpu(views))
        h3 { "Registered memory" }
        p class="note" { "Of a session's parameters, host + server." }
        (costs::registered(views))
        h3 { "Energy" }
        @if energy.0.is_empty() {
            p { "This machine has no energy counters." }
        } @else {
            p class="note" { "Millijoules per call, of all processor packages." }
            (energy)
        }
    }
}

fn rules(run: &Run) -> Markup {
    let table = rules::html(run);
    if table.0.is_empty() {
        return table;
    }
    html! {
        p class="note" {
            "The rule that auto used was given before this run; what it reached is judged here: of the best layout's time, \
             auto's share. The rule fitted to this run is the one that would have been best here; to be judged, it takes \
             another run."
        }
        (table)
    }
}

fn machine(run: &Run) -> Markup {
    html! {
        ul { @for line in &run.machine { li { (line) } } }
        p { "Made by " code { (run.command) } }
    }
}

fn method(run: &Run) -> Markup {
    let range = |of: fn(&super::point::Point) -> u32| {
        let [least, most] = [run.points.iter().map(of).min(), run.points.iter().map(of).max()];
        let [least, most] = [least.unwrap_or(0), most.unwrap_or(0)];
        if least == most { least.to_string() } else { format!("{least} to {most}") }
    };
    html! {
        p {
            "Host and server are processes of their own on this machine, with a function that does nothing; each point is a \
             layout at a workload, " (run.points.len()) " points with " (range(|point| point.repeats)) " repeats and "
            (range(|point| point.calls)) " calls each. A point's time is the median over the repeats of each one's median \
             call, and its spread the distance between the quartiles divided by the median. Differences of at most 3 %, or \
             within the spread of either point, count as none; symmetric, as the simplest, takes ties."
        }
    }
}

/// Each once, in order.
fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::fit::synthetic;

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let html = html(&synthetic::run(1));
        for outside in ["http:", "https:", "<script", "<link", "<img", "url(", "@import", "NaN", "inf\""] {
            assert!(!html.contains(outside), "{outside}");
        }
        for heading in
            ["Targets", "Time and goodput", "Set-up", "Machine", "Method", "Energy", "made-up.json"]
        {
            assert!(html.contains(heading), "{heading}");
        }
        for tag in ["svg", "g", "table", "details", "figure", "section", "div", "p", "text", "td"] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn the_advice_comes_before_everything_else() {
        let run = synthetic::run(2);
        let html = html(&run);
        let advice = advice(&run.points);
        let (what, why) = advice.split_once(": ").unwrap().1.split_once(": ").unwrap();
        assert!(what.starts_with("Use "), "{advice}");
        let at = html.find(&format!("<strong>{what}</strong>: {}", &why[..20])).expect("the advice");
        assert!(at < html.find("<h2>").unwrap());
    }

    #[test]
    fn little_or_nothing_is_no_reason_to_fail() {
        assert!(html(&Run::default()).contains("Nothing was measured."));
        let mut run = synthetic::run(1);
        run.points.truncate(1);
        run.points[0].joules = None;
        let html = html(&run);
        assert!(
            html.contains("there is nothing to compare") && html.contains("no energy counters"),
            "{html}"
        );
    }
}
