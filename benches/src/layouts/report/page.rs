//! The frame of the page: nothing from outside, no scripts.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

/// Light and dark; what is drawn takes its colours from here.
const STYLE: &str = "
:root { --bg: #ffffff; --fg: #1b1e23; --muted: #5c636e; --grid: #e3e6ea; --card: #f6f7f9; --edge: #d5d9df;
  --sym: #50565f; --asym: #d98200; --gath: #0072b2; --pack: #009e73; --auto: #b04a8a; --bad: #b3261e; --good: #00704f;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #14171b; --fg: #e6e8eb; --muted: #9aa3ae; --grid: #2b3037; --card: #1c2026; --edge: #3a414b;
    --sym: #b9c0c9; --asym: #f0a63a; --gath: #5ab4ec; --pack: #2cc59a; --auto: #e292c6; --bad: #ff8a80; --good: #5fd6ae; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg); font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', Roboto,
  'Helvetica Neue', 'DejaVu Sans', sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -.01em; }
h2 { font-size: 21px; margin: 48px 0 10px; padding-top: 14px; border-top: 1px solid var(--edge); }
h3 { font-size: 16px; margin: 28px 0 6px; }
h4 { font-size: 14px; margin: 18px 0 4px; color: var(--muted); font-weight: 600; }
p, ul, dl { max-width: 92ch; margin: 8px 0; }
.advice { background: var(--card); border-left: 4px solid var(--gath); border-radius: 4px; padding: 12px 20px; margin: 20px 0; }
.advice p { max-width: 104ch; margin: 6px 0; }
.note, figcaption, .legend { color: var(--muted); font-size: 14px; }
code { font: .92em ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
.wide { overflow-x: auto; }
.tables { display: flex; flex-wrap: wrap; gap: 4px 44px; } .tables > div { max-width: 100%; } .tables table { font-size: 13px; } .tables th, .tables td { padding-right: 10px; }
table { border-collapse: collapse; font-size: 14px; margin: 8px 0; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid); font-weight: 400; }
thead th { color: var(--muted); border-bottom: 1px solid var(--edge); white-space: nowrap; }
.num { text-align: right; white-space: nowrap; }
.met { color: var(--good); white-space: nowrap; font-weight: 600; }
.missed { color: var(--bad); white-space: nowrap; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; font-size: 15px; }
dt { font-weight: 600; } dd { margin: 0; }
dt svg { vertical-align: -1px; margin-right: 8px; }
figure { margin: 18px 0; }
figcaption { font-weight: 600; margin-bottom: 4px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr)); gap: 8px 12px; }
.plots svg { width: 100%; max-width: 400px; height: auto; }
.maps { display: flex; flex-wrap: wrap; gap: 20px 28px; align-items: flex-start; margin: 14px 0 22px; }
.maps svg { max-width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; align-items: center; margin: 8px 0; }
.legend span { display: inline-flex; align-items: center; gap: 6px; } .swatch { width: 14px; height: 14px; border-radius: 2px; background: var(--c); opacity: .7; }
details { border-top: 1px solid var(--grid); padding: 6px 0; }
summary { cursor: pointer; font-weight: 600; font-size: 15px; }
svg text { font-family: inherit; fill: var(--fg); }
svg .title { font-size: 12.5px; font-weight: 600; }
svg .tick { font-size: 10.5px; fill: var(--muted); } svg .label { font-size: 11px; fill: var(--muted); }
svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--grid); fill: none; } svg .axis { stroke: var(--muted); fill: none; }
svg .level { fill: var(--muted); opacity: .16; }
.sym { --c: var(--sym); } .asym { --c: var(--asym); } .gath { --c: var(--gath); } .pack { --c: var(--pack); } .auto { --c: var(--auto); }
svg .line { stroke: var(--c); stroke-width: 1.8; fill: none; stroke-linejoin: round; }
svg .mark { fill: var(--c); stroke: var(--c); stroke-width: 1; } svg .whisker { stroke: var(--c); stroke-width: 1; opacity: .55; }
svg .sym .line, .key.sym .line { stroke-width: 3; opacity: .55; }
svg .sym .mark, .key.sym .mark { fill: var(--bg); stroke-width: 1.6; }
svg .asym .line, .key.asym .line { stroke-dasharray: 6 3; }
svg .gath .line, .key.gath .line { stroke-dasharray: 2 2.5; }
svg .auto .line, .key.auto .line { stroke-dasharray: 9 3 2 3; stroke-width: 1.2; }
svg .auto .mark, .key.auto .mark { fill: none; stroke-width: 1.6; }
svg .cell { fill: var(--c); } svg .tie { fill: var(--card); }
svg .who, svg .gain, svg .even { pointer-events: none; }
svg .who { font-size: 11.5px; font-weight: 700; } svg .gain { font-size: 10px; } svg .even { font-size: 12px; fill: var(--muted); }
svg .cross { stroke: var(--bg); stroke-width: 2.4; fill: none; } svg .cross-edge { stroke: var(--fg); stroke-width: 4.4; fill: none; opacity: .6; }
@media print { details { break-inside: avoid; } h2 { break-after: avoid; } }
";

/// A document of its own.
pub(super) fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    }
}

/// A section with a heading; empty if the body is empty.
pub(super) fn section(heading: impl Render, body: &Markup) -> Markup {
    html! { @if !body.0.is_empty() { section { h2 { (heading) } (body) } } }
}
