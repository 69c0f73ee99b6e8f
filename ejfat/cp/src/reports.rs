//! Keeps what is wrong with load balancers and workers for status replies, and writes reports to the log.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ejfat::{Time, lb::LbId};
use ejfat_control::{calendar::MemberId, capacity::Alarm, control::Report, plane::PlaneId, wall::WallTime};

use crate::series::push;

/// How long an alarm is kept after its last report. The control plane reports an alarm again and again while it lasts.
const HOLDS: Duration = Duration::from_millis(1500);
/// How long a status says that events may have been split.
const SPLIT_HOLDS: Duration = Duration::from_secs(60);
/// The most alarms that are kept.
const MOST_ALARMS: usize = 4096;
/// The most ranges of ticks that are kept.
const MOST_SPLITS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Alarm(Alarm),
    /// Events of the ticks from `from` to `to`, without `to`, may be split over two workers.
    MaySplit {
        from: u64,
        to: u64,
    },
}

/// Something that is wrong with a load balancer or a worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Issue {
    pub(crate) lb: LbId,
    what: What,
    /// When it was first reported.
    pub(crate) since: WallTime,
    /// When it was last reported.
    last: Time,
}

impl Issue {
    /// The member that has the issue, or `None` if the load balancer has it.
    pub(crate) fn member(&self) -> Option<MemberId> {
        match self.what {
            What::Alarm(
                Alarm::Stopped { member }
                | Alarm::StandsStill { member, .. }
                | Alarm::Contradicts { member, .. },
            ) => Some(member),
            What::Alarm(Alarm::LeastFactors | Alarm::GreatestFactors) | What::MaySplit { .. } => None,
        }
    }

    /// The name of the kind, for programs that read statuses.
    pub(crate) fn kind(&self) -> &'static str {
        match self.what {
            What::Alarm(Alarm::Stopped { .. }) => "receiver_stopped",
            What::Alarm(Alarm::StandsStill { .. }) => "receiver_packet_stall",
            What::Alarm(Alarm::Contradicts { .. }) => "receiver_counters_contradict",
            What::Alarm(Alarm::LeastFactors) => "least_factors_exceed_slots",
            What::Alarm(Alarm::GreatestFactors) => "greatest_factors_below_slots",
            What::MaySplit { .. } => "events_may_be_split",
        }
    }

    /// The description for people.
    pub(crate) fn text(&self) -> String {
        match self.what {
            What::Alarm(Alarm::Stopped { .. }) => {
                "it has a backlog and takes no events; it gets one slot until it takes some".to_owned()
            }
            What::Alarm(Alarm::StandsStill { packets, .. }) => format!(
                "data planes sent it {packets} packets, and neither its counters nor its fill level moved: see whether its address and ports can be reached from the data planes"
            ),
            What::Alarm(Alarm::Contradicts { ratio, others, .. }) => {
                format!("it counts {ratio:.3} events a packet, where most count {others:.3}")
            }
            What::Alarm(Alarm::LeastFactors) => {
                "the least factors of all workers come to more than all slots; they are lowered in proportion"
                    .to_owned()
            }
            What::Alarm(Alarm::GreatestFactors) => {
                "the greatest factors of all workers come to less than all slots; they are raised in proportion"
                    .to_owned()
            }
            What::MaySplit { from, to } => split(from, to),
        }
    }
}

/// The alarms and the ranges of ticks that were reported lately.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// The alarms by load balancer, member and kind.
    alarms: BTreeMap<(LbId, Option<MemberId>, &'static str), Issue>,
    splits: VecDeque<Issue>,
}

impl Reports {
    /// Keeps a report, if it is of something that is wrong. Returns whether it belongs in the log: senders whose syncs do not fit cause
    /// reports of ticks that the log has already.
    pub(crate) fn add(&mut self, wall: WallTime, now: Time, report: &Report) -> bool {
        match *report {
            Report::Alarm { lb, alarm } => self.add_alarm(wall, now, lb, alarm),
            Report::MaySplit { lb, from, to } => return self.add_split(wall, now, lb, (from, to)),
            _ => {}
        }
        true
    }

    /// Keeps ticks that may be split, together with those of the last report of the load balancer if there are none between. Returns
    /// whether it is a range of its own.
    fn add_split(&mut self, wall: WallTime, now: Time, lb: LbId, (from, to): (u64, u64)) -> bool {
        let last = self.splits.iter_mut().rfind(|issue| issue.lb == lb && now < issue.last + SPLIT_HOLDS);
        if let Some(Issue { what: What::MaySplit { from: first, to: end }, last, .. }) = last
            && from <= *end
            && *first <= to
        {
            (*first, *end, *last) = (from.min(*first), to.max(*end), now);
            return false;
        }
        let split = Issue { lb, what: What::MaySplit { from, to }, since: wall, last: now };
        push(&mut self.splits, MOST_SPLITS, split);
        true
    }

    fn add_alarm(&mut self, wall: WallTime, now: Time, lb: LbId, alarm: Alarm) {
        let mut issue = Issue { lb, what: What::Alarm(alarm), since: wall, last: now };
        let key = (lb, issue.member(), issue.kind());
        let present = self.alarms.get(&key);
        if let Some(present) = present.filter(|present| now < present.last + HOLDS) {
            issue.since = present.since;
        } else if present.is_none() && self.alarms.len() >= MOST_ALARMS {
            self.alarms.retain(|_, issue| now < issue.last + HOLDS);
            if self.alarms.len() >= MOST_ALARMS {
                return;
            }
        }
        self.alarms.insert(key, issue);
    }

    /// Returns what is wrong with a load balancer and its workers at `now`.
    pub(crate) fn issues(&self, lb: LbId, now: Time) -> Vec<Issue> {
        let alarms = self.alarms.values().filter(|issue| now < issue.last + HOLDS);
        let splits = self.splits.iter().filter(|issue| now < issue.last + SPLIT_HOLDS);
        alarms.chain(splits).filter(|issue| issue.lb == lb).cloned().collect()
    }
}

/// Which events may be split over two workers: those of the ticks from `from` to `to`, without `to`.
fn split(from: u64, to: u64) -> String {
    let split = "may be split over two workers";
    match (from, to) {
        (0, u64::MAX) => format!(
            "events that were on their way {split}; which ones is not known, because the rate of the senders was not known"
        ),
        (_, u64::MAX) => format!("events of ticks from {from} on {split}"),
        _ => format!("events of ticks {from} to {} {split}", to.saturating_sub(1)),
    }
}

/// Writes a report to the log.
pub(crate) fn log<'a>(report: &Report, name: impl Fn(PlaneId) -> &'a str) {
    match report {
        Report::Epoch { lb, number, from } => {
            tracing::debug!("load balancer {}: epoch {number} from tick {from} on", lb.get());
        }
        Report::MaySplit { lb, from, to } => {
            tracing::warn!("load balancer {}: {}", lb.get(), split(*from, *to));
        }
        Report::Alarm { lb, alarm } => tracing::debug!("load balancer {}: {alarm:?}", lb.get()),
        // The plane's handle logs these.
        Report::PlaneInUse(_) | Report::PlaneLost { .. } => {}
        Report::Refused { plane, lb, why } => {
            tracing::warn!("data plane {} refused tables of load balancer {}: {why}", name(*plane), lb.get());
        }
        Report::Replaced { plane } => tracing::error!(
            "data plane {} was programmed with a higher term than this control plane has, so this one changes nothing any more; stop \
             it if another control plane runs; if none does, its store is older than the one that was used last: restore a backup \
             by `naa lb restore`, which raises the term",
            name(*plane)
        ),
        Report::Followed { lb, sender, tick } => {
            tracing::warn!(
                "load balancer {}: the ticks of {sender} jumped to {tick}, and are followed",
                lb.get()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn an_alarm_holds_while_it_is_reported() {
        let (mut reports, lb) = (Reports::default(), LbId::new(0).unwrap());
        for second in 0..5 {
            let alarm = Alarm::Stopped { member: 3 };
            reports.add(WallTime(second * 1000), s(second), &Report::Alarm { lb, alarm });
        }
        let issues = reports.issues(lb, s(5));
        let members: Vec<_> = issues.iter().map(|of| (of.member(), of.since)).collect();
        assert_eq!(members, [(Some(3), WallTime(0))]);
        assert_eq!(reports.issues(lb, s(7)), []);
        reports.add(WallTime(9000), s(9), &Report::Alarm { lb, alarm: Alarm::Stopped { member: 3 } });
        assert_eq!(
            reports.issues(lb, s(9))[0].since,
            WallTime(9000),
            "an alarm that comes again is a new one"
        );
    }

    #[test]
    fn ticks_that_may_be_split_are_reported_for_a_minute() {
        let (mut reports, lb) = (Reports::default(), LbId::new(0).unwrap());
        for number in 0..MOST_SPLITS as u64 + 5 {
            let (from, to) = (2 * number, 2 * number + 1);
            reports.add(WallTime(0), s(0), &Report::MaySplit { lb, from, to });
        }
        assert_eq!(reports.issues(lb, s(59)).len(), MOST_SPLITS);
        assert_eq!(reports.issues(LbId::new(1).unwrap(), s(59)), []);
        assert_eq!(reports.issues(lb, s(60)), []);
    }

    #[test]
    fn ranges_of_ticks_without_a_gap_are_one_issue() {
        let (mut reports, lb) = (Reports::default(), LbId::new(0).unwrap());
        for (from, to) in [(10, 20), (20, 30), (5, 12), (100, u64::MAX)] {
            reports.add(WallTime(0), s(0), &Report::MaySplit { lb, from, to });
        }
        let texts: Vec<_> = reports.issues(lb, s(1)).iter().map(Issue::text).collect();
        let expected = ["events of ticks 5 to 29", "events of ticks from 100 on"];
        assert_eq!(texts, expected.map(|which| format!("{which} may be split over two workers")));
    }
}
