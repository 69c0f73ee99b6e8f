//! What was found, in sentences.

use naa_measure::stats::median;

use super::{
    findings::{Finding, Findings, gain},
    region::Region,
    words::{list, of, sentence, workload},
};
use crate::layouts::{
    fit::contest::{Contest, Kind},
    report::text::{parameters, times},
    workload::bytes,
};

impl Findings<'_> {
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all: Vec<_> =
            self.better.iter().enumerate().map(|(i, finding)| self.recommendation(i, finding)).collect();
        if all.is_empty() && self.worse.is_empty() && self.idle().len() == self.others().len() {
            return vec![self.no_difference()];
        }
        all.extend(self.elsewhere());
        all.extend(self.worse.iter().map(|finding| self.slower(finding)));
        all.extend(self.remaining());
        all
    }

    /// "Use packed:1024 for ...".
    fn recommendation(&self, index: usize, Finding { kind, region }: &Finding) -> String {
        let here = self.contests.iter().filter(|contest| {
            region.has(contest.workload)
                && !self.better[..index].iter().any(|before| before.region.has(contest.workload))
        });
        let here: Vec<_> = here.collect();
        let won: Vec<_> = here.iter().filter(|contest| contest.is_won_by(*kind)).collect();
        let gains: Vec<_> = won.iter().filter_map(|contest| Some((gain(contest, *kind)?, contest))).collect();
        let largest = gains.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let largest = largest.map_or_else(String::new, |(gain, contest)| {
            format!(", at most {} times ({})", times(*gain), workload(contest.workload))
        });
        let usual = median(&here.iter().filter_map(|contest| gain(contest, *kind)).collect::<Vec<_>>());
        format!(
            "{} {} for {}{}: it is the fastest there, or level with it, at {}; at the median {} times as fast as \
             symmetric{largest}.",
            if index == 0 { "Use" } else { "Else use" },
            self.name(*kind, region),
            self.measured.region(region),
            self.beyond(*kind, region),
            of(won.len(), here.len()),
            times(usual.unwrap_or(1.0)),
        )
    }

    /// The layout's name, with the threshold that copies the parameters of the region. For mixed sizes, it is the
    /// threshold that won most often.
    fn name(&self, kind: Kind, region: &Region) -> String {
        if kind != Kind::Packed {
            return kind.name().into();
        }
        if !self.measured.is_mixed {
            return format!("packed:{}", region.bytes[1]);
        }
        let won =
            self.contests.iter().filter(|contest| region.has(contest.workload) && contest.is_won_by(kind));
        let layouts: Vec<_> =
            won.filter_map(|contest| Some(contest.kind(kind)?.point.layout.as_str())).collect();
        let often = |layout: &&str| layouts.iter().filter(|other| *other == layout).count();
        layouts.iter().copied().max_by_key(often).unwrap_or("packed").into()
    }

    /// " (no longer at 4 KiB, not yet with 2 parameters)": the measured values next to the bounds.
    fn beyond(&self, kind: Kind, region: &Region) -> String {
        let larger = self.measured.sizes.iter().find(|&&size| size > region.bytes[1]);
        let smaller = self.measured.sizes.iter().rev().find(|&&size| size < region.bytes[0]);
        let fewer = self.measured.counts.iter().rev().find(|&&count| count < region.params[0]);
        let more = self.measured.counts.iter().find(|&&count| count > region.params[1]);
        let size = |&size: &u64| Region { bytes: [size; 2], ..region.clone() };
        let count = |&count: &u16| Region { params: [count; 2], ..region.clone() };
        let candidates = [
            larger.map(|at| (size(at), format!("no longer at {}", bytes(*at)))),
            smaller.map(|at| (size(at), format!("not yet at {}", bytes(*at)))),
            fewer.map(|at| (count(at), format!("not yet with {}", parameters(*at)))),
            more.map(|at| (count(at), format!("no longer with {}", parameters(*at)))),
        ];
        let fails = candidates.into_iter().flatten().filter(|(next, _)| self.fails(kind, next));
        let texts: Vec<_> = fails.map(|(_, text)| text).collect();
        if texts.is_empty() { String::new() } else { format!(" ({})", texts.join(", ")) }
    }

    /// It wins at less than half of what was measured there.
    fn fails(&self, kind: Kind, region: &Region) -> bool {
        let measured = |contest: &&&Contest<'_>| region.has(contest.workload) && contest.kind(kind).is_some();
        let here: Vec<_> = self.contests.iter().filter(measured).collect();
        let won = here.iter().filter(|contest| contest.is_won_by(kind)).count();
        !here.is_empty() && won * 2 < here.len()
    }

    fn elsewhere(&self) -> Option<String> {
        let covered =
            |contest: &Contest<'_>| self.better.iter().any(|better| better.region.has(contest.workload));
        let rest: Vec<_> = self.contests.iter().filter(|contest| !covered(contest)).collect();
        let without = rest.iter().filter(|contest| contest.winners().is_empty()).count();
        let place = if self.better.is_empty() { "everywhere" } else { "elsewhere" };
        if rest.is_empty() {
            return None;
        }
        if without * 3 < rest.len() * 2 {
            let faster = of(rest.len() - without, rest.len());
            let place = sentence(place).replace("Everywhere", "Here");
            return Some(format!(
                "{place} no rule is to be seen: another layout than symmetric is faster at {faster}."
            ));
        }
        Some(format!(
            "{} use symmetric, the simplest: at {} no layout is faster by more than 3 % and the spread.",
            sentence(place),
            of(without, rest.len())
        ))
    }

    fn slower(&self, Finding { kind, region }: &Finding) -> String {
        let here = self.contests.iter().filter(|contest| region.has(contest.workload));
        let here: Vec<_> = here.filter_map(|contest| Some((gain(contest, *kind)?, contest))).collect();
        let lost = here.iter().filter(|(_, contest)| contest.is_lost_by(*kind)).count();
        let usual = median(&here.iter().map(|(gain, _)| *gain).collect::<Vec<_>>()).unwrap_or(1.0);
        format!(
            "{} is slower than symmetric for {}: at {}, at the median {} of its speed.",
            sentence(kind.name()),
            self.measured.region(region),
            of(lost, here.len()),
            times(usual)
        )
    }

    /// Layouts of which nothing was said yet.
    fn remaining(&self) -> Option<String> {
        let said = |kind: &Kind| self.better.iter().chain(&self.worse).any(|finding| finding.kind == *kind);
        let idle: Vec<_> = self.idle().into_iter().filter(|kind| !said(kind)).map(Kind::name).collect();
        let make = if idle.len() == 1 { "makes" } else { "make" };
        (!idle.is_empty())
            .then(|| sentence(&format!("{} {make} no difference beside symmetric.", list(&idle))))
    }

    fn no_difference(&self) -> String {
        let without = self.contests.iter().filter(|contest| contest.winners().is_empty()).count();
        format!(
            "It makes no difference which layout is used: at {} no layout is faster than symmetric by more than 3 % and \
             the spread. Use symmetric, the simplest.",
            of(without, self.contests.len())
        )
    }

    /// One sentence about mixed sizes, after what was said about equal ones.
    pub(super) fn beside(&self, equal: &Self) -> String {
        let uses = |finding: &Finding| {
            format!(
                "{} for {}",
                self.name(finding.kind, &finding.region),
                self.measured.region(&finding.region)
            )
        };
        let uses: Vec<_> = self.better.iter().map(uses).collect();
        match (uses.is_empty(), equal.better.is_empty()) {
            (true, true) => "The same holds for mixed sizes.".into(),
            (true, false) => {
                let without = self.contests.iter().filter(|contest| contest.winners().is_empty()).count();
                let all = of(without, self.contests.len());
                format!("With mixed sizes use symmetric: at {all} no layout is faster.")
            }
            (false, _) => {
                let uses: Vec<_> = uses.iter().map(String::as_str).collect();
                format!("With mixed sizes use {}, else symmetric.", uses.join(", else "))
            }
        }
    }
}
