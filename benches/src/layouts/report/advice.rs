//! Which layout to use when: one paragraph for each provider, from nothing but the points.

mod findings;
mod region;
mod sentences;
mod words;

use naa_measure::stats::median;

use super::text::us;
use crate::layouts::{
    fit::{
        comparison::{AutoRatios, auto_ratios},
        contest::{Contest, Kind, MOST_SPREAD, by_provider},
    },
    point::{Point, Sizes},
};
use findings::Findings;
use words::{of, sentence, workload};

/// In plain text, a line for each provider. A layout is better where it is faster than symmetric by more than 3 % and the
/// spread of both; where no layout is, symmetric is to be used as the simplest.
pub(crate) fn advice(points: &[Point]) -> String {
    let providers = by_provider(points);
    let several = providers.len() > 1;
    let paragraph = |(provider, contests): (&String, &Vec<Contest<'_>>)| {
        let text = of_provider(points, provider, contests);
        if several { format!("{}: {text}", sentence(provider)) } else { text }
    };
    let paragraphs: Vec<_> = providers.iter().map(paragraph).collect();
    if paragraphs.is_empty() { "Nothing was measured.".into() } else { paragraphs.join("\n") }
}

fn of_provider(points: &[Point], provider: &str, contests: &[Contest<'_>]) -> String {
    let compared: Vec<_> = contests.iter().filter(|contest| is_comparison(contest)).collect();
    let (equal, mixed): (Vec<_>, Vec<_>) =
        compared.iter().partition(|contest| contest.workload.sizes == Sizes::Equal);
    let main = if equal.is_empty() { Findings::of(mixed.clone()) } else { Findings::of(equal.clone()) };
    let Some(main) = main else {
        return "Symmetric was measured nowhere beside another layout: there is nothing to compare.".into();
    };
    let mut sentences = main.sentences();
    if let Some(mixed) = Findings::of(mixed).filter(|_| !equal.is_empty()) {
        sentences.push(mixed.beside(&main));
    }
    sentences.extend(set_up(&compared, main.better.first().map(|finding| finding.kind)));
    sentences.extend(auto_ratios(points).get(provider).map(auto));
    sentences.extend(caution(points, provider));
    sentences.join(" ")
}

fn is_comparison(contest: &Contest<'_>) -> bool {
    contest.symmetric().is_some() && contest.contenders.len() > 1
}

/// What connecting costs with most parameters, where that differs: with `kind`, or the layout where it is least.
fn set_up(contests: &[&Contest<'_>], kind: Option<Kind>) -> Option<String> {
    let most = contests.iter().map(|contest| contest.workload.params).max()?;
    let here: Vec<_> = contests.iter().filter(|contest| contest.workload.params == most).collect();
    let usual = |kind: Kind| {
        let times = here.iter().filter_map(|contest| Some(contest.kind(kind)?.point.setup_us));
        median(&times.collect::<Vec<_>>()).filter(|us| *us > 0.0).map(|us| (kind, us))
    };
    let least = || Kind::ALL.into_iter().skip(1).filter_map(usual).min_by(|a, b| a.1.total_cmp(&b.1));
    let (_, symmetric) = usual(Kind::Symmetric)?;
    let (kind, other) = kind.and_then(usual).or_else(least)?;
    (symmetric > 1.5 * other || other > 1.5 * symmetric).then(|| {
        let ([symmetric, other], name) = ([symmetric, other].map(us), kind.name());
        format!("Setting up a session of {most} parameters takes {symmetric} with symmetric and {other} with {name}.")
    })
}

fn auto(ratios: &AutoRatios) -> String {
    let worst = format!("{:.2}", ratios.worst);
    if ratios.below() == 0 {
        return format!(
            "auto does this by itself: it reaches at least {worst} of the best layout at {}.",
            of(ratios.points, ratios.points)
        );
    }
    let reached = of(ratios.points - ratios.below(), ratios.points);
    format!("auto reaches 0.95 of the best layout at {reached}, at worst {worst} ({}).", workload(&ratios.at))
}

/// Where there is so much noise that it matters.
fn caution(points: &[Point], provider: &str) -> Option<String> {
    let here: Vec<_> = points.iter().filter(|point| point.workload.provider == provider).collect();
    let noisy = here.iter().filter(|point| point.spread > MOST_SPREAD).count();
    (noisy * 10 > here.len()).then(|| {
        format!("Take this with care: repeats differ by more than 20 % at {}.", of(noisy, here.len()))
    })
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::{fit::synthetic, point::Workload};

    /// Packed is twice as fast below 4 KiB from 4 parameters on, else all is equal.
    fn small_ones(workload: &Workload, layout: Layout) -> f64 {
        let better = matches!(layout, Layout::Packed { .. }) && workload.params >= 4 && workload.bytes < 4096;
        if better { 10.0 } else { 20.0 }
    }

    #[test]
    fn packed_for_many_small_ones() {
        assert_eq!(
            advice(&synthetic::points(small_ones)),
            "Use packed:1024 for 4 to 255 parameters of up to 1 KiB (no longer at 4 KiB, not yet with 2 parameters): it is the \
             fastest there, or level with it, at all 12 points; at the median 2.00 times as fast as symmetric, at most \
             2.00 times (255 x 1 KiB out, spin). Elsewhere use symmetric, the simplest: at all 24 points no layout is \
             faster by more than 3 % and the spread. Asymmetric and gathered make no difference beside symmetric."
        );
    }

    #[test]
    fn without_a_difference_it_says_so() {
        assert_eq!(
            advice(&synthetic::points(|_, _| 20.0)),
            "It makes no difference which layout is used: at all 36 points no layout is faster than symmetric by more \
             than 3 % and the spread. Use symmetric, the simplest."
        );
        assert_eq!(advice(&[]), "Nothing was measured.");
    }

    #[test]
    fn differences_within_the_spread_are_none() {
        let mut points = synthetic::points(small_ones);
        points.iter_mut().filter(|point| point.layout == "symmetric").for_each(|point| point.spread = 1.1);
        let text = advice(&points);
        assert!(text.starts_with("It makes no difference which layout is used: at all 36 points"), "{text}");
        assert!(
            text.ends_with("Take this with care: repeats differ by more than 20 % at 36 of 180 points."),
            "{text}"
        );
    }

    #[test]
    fn one_layout_everywhere() {
        let text = advice(&synthetic::points(|workload, layout| match layout {
            Layout::Gathered => 10.0,
            Layout::Packed { threshold }
                if workload.bytes >= 4096 && u64::from(threshold) >= workload.bytes =>
            {
                40.0
            }
            _ => 20.0,
        }));
        assert!(text.starts_with("Use gathered for 1 to 255 parameters of 64 B to 1 MiB: it is"), "{text}");
        assert!(text.contains("at all 36 points; at the median 2.00 times"), "{text}");
        assert!(!text.contains("lsewhere"), "{text}");
        let slower = "Packed is slower than symmetric for 1 to 255 parameters of 4 KiB to 1 MiB: at all 18 points, at the median 0.50";
        assert!(text.contains(slower), "{text}");
    }

    #[test]
    fn an_odd_point_changes_nothing() {
        let calm = advice(&synthetic::points(small_ones));
        let (rule, _) = calm.split_once(": it is").unwrap();
        for (params, bytes, us) in
            [(8, 256, 200.0), (4, 64, 30.0), (255, 1 << 20, 3.0), (1, 64, 3.0), (8, 4096, 3.0)]
        {
            let mut points = synthetic::points(small_ones);
            let here = synthetic::workload(params, bytes);
            let packed =
                points.iter_mut().filter(|point| point.workload == here && point.layout == "packed:1048576");
            packed.for_each(|point| point.p50_us = us);
            let same =
                points.iter_mut().filter(|point| point.workload == here && point.layout == "packed:4096");
            same.filter(|_| bytes <= 4096).for_each(|point| point.p50_us = us);
            let text = advice(&points);
            assert!(text.starts_with(rule), "{params} x {bytes}: {text}");
            assert!(text.contains("Elsewhere use symmetric") && !text.contains("slower"), "{text}");
        }
    }

    #[test]
    fn providers_directions_and_mixed_sizes_are_told_apart() {
        let mut points = synthetic::points(small_ones);
        points.extend(synthetic::mixed(|_, _| 20.0));
        for mut point in synthetic::points(small_ones) {
            point.workload.direction = crate::layouts::point::Direction::In;
            point.p50_us = 20.0;
            points.push(point);
        }
        let verbs = synthetic::points(|_, _| 20.0).into_iter().map(|mut point| {
            point.workload.provider = "verbs".into();
            point
        });
        points.extend(verbs);
        let text = advice(&points);
        let [embedded, verbs] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(
            embedded.starts_with(
                "Embedded: Use packed:1024 for 4 to 255 parameters of up to 1 KiB that are outputs"
            ),
            "{text}"
        );
        assert!(
            embedded.contains("With mixed sizes use symmetric: at all 36 points no layout is faster."),
            "{text}"
        );
        assert!(verbs.starts_with("Verbs: It makes no difference"), "{text}");
    }

    #[test]
    fn what_auto_reaches_is_told() {
        let mut points = synthetic::points(small_ones);
        points.extend(synthetic::autos(&points, "symmetric", 20.0));
        let text = advice(&points);
        let auto = "auto reaches 0.95 of the best layout at 24 of 36 points, at worst 0.50 (";
        assert!(text.contains(auto), "{text}");
    }

    #[test]
    fn a_plausible_run_has_a_plausible_advice() {
        let text = advice(&synthetic::run(1).points);
        for paragraph in text.lines() {
            assert!(paragraph.contains("se packed:"), "{text}");
            assert!(
                paragraph.contains("Packed is slower than symmetric for 1 to 255 parameters of"),
                "{text}"
            );
        }
    }
}
