//! The rules of `auto`, and those that would be best here.

use maud::{Markup, Render as _, html};
use mrsp::layout::LayoutRule;

use super::{table::Table, text::percent};
use crate::layouts::{
    fit::{auto_ratios, fit},
    point::Run,
    workload::bytes,
};

pub(super) fn html(run: &Run) -> Markup {
    let (fitted, ratios) = (fit(&run.points), auto_ratios(&run.points));
    let head = ["provider", "rule", "in words", "worst point", "mean", "at least 0.95", "points"];
    let mut table = Table::new(&head, &[1, 2]);
    for (provider, fitted) in &fitted {
        let used = run.rules.iter().find(|used| used.provider == *provider);
        if let Some((used, ratios)) = used.zip(ratios.get(provider)) {
            table.rows.push(vec![
                html! { (provider) ": used by auto" },
                html! { code { (used.rule) } },
                in_words(&used.rule).render(),
                format_args!("{:.2}", ratios.worst).render(),
                format_args!("{:.2} (median)", ratios.median).render(),
                percent(ratios.share).render(),
                ratios.points.render(),
            ]);
        }
        let left_out = if fitted.noisy == 0 { String::new() } else { format!(", {} left out", fitted.noisy) };
        table.rows.push(vec![
            html! { (provider) ": fitted to this run" },
            html! { code { (fitted.rule.to_string()) } },
            in_words(&fitted.rule.to_string()).render(),
            format_args!("{:.2}", fitted.worst).render(),
            format_args!("{:.3}", fitted.mean).render(),
            percent(fitted.share).render(),
            html! { (fitted.points) (left_out) },
        ]);
    }
    table.html()
}

fn in_words(rule: &str) -> String {
    let Ok(LayoutRule { small, at_least, most, otherwise }) = rule.parse() else {
        return "not a rule".into();
    };
    let otherwise = format!("{otherwise}");
    if small == 0 {
        return format!("always {otherwise}");
    }
    let up_to = bytes(small.into());
    let many = if at_least == 1 { "a parameter has".into() } else { format!("{at_least} parameters have") };
    let bound = match most {
        LayoutRule::UNBOUNDED => String::new(),
        most => format!(", and {} at most together", bytes(most)),
    };
    format!("packed, copying up to {up_to}, where at least {many} up to {up_to}{bound}; else {otherwise}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_in_words() {
        assert_eq!(
            in_words("packed:4096:2,symmetric"),
            "packed, copying up to 4 KiB, where at least 2 parameters have up to 4 KiB; else symmetric"
        );
        assert_eq!(
            in_words("packed:4096:1:1048576,symmetric"),
            "packed, copying up to 4 KiB, where at least a parameter has up to 4 KiB, and 1 MiB at most together; \
             else symmetric"
        );
        assert_eq!(in_words("packed:0:255,gathered"), "always gathered");
        assert_eq!(in_words("?"), "not a rule");
    }
}
