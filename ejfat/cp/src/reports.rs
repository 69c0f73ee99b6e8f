//! What a person may want to know: the newest reports, and what is wrong with load balancers and workers now.

use std::{collections::VecDeque, time::Duration};

use ejfat::{Time, lb::LbId};
use ejfat_control::{calendar::MemberId, capacity::Alarm, control::Report, plane::PlaneId, wall::WallTime};

/// Reports that are kept.
const MOST: usize = 1024;
/// An alarm is told in each period in which it holds, and is over so long after the last.
const HOLDS: Duration = Duration::from_millis(2500);
/// Alarms of load balancers and members that are remembered at most.
const MOST_ISSUES: usize = 4096;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Issue {
    pub(crate) lb: LbId,
    pub(crate) alarm: Alarm,
    /// When it was told first, and last.
    pub(crate) since: WallTime,
    last: Time,
}

impl Issue {
    /// The member that it is about; `None`: the load balancer.
    pub(crate) fn member(&self) -> Option<MemberId> {
        match self.alarm {
            Alarm::Stopped { member }
            | Alarm::StandsStill { member, .. }
            | Alarm::Contradicts { member, .. } => Some(member),
            Alarm::LeastFactors | Alarm::GreatestFactors => None,
        }
    }

    /// A name for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self.alarm {
            Alarm::Stopped { .. } => "receiver_stopped",
            Alarm::StandsStill { .. } => "receiver_packet_stall",
            Alarm::Contradicts { .. } => "receiver_counters_contradict",
            Alarm::LeastFactors => "least_factors_exceed_slots",
            Alarm::GreatestFactors => "greatest_factors_below_slots",
        }
    }

    pub(crate) fn text(&self) -> String {
        match self.alarm {
            Alarm::Stopped { .. } => "it has a backlog and takes no events; it gets one slot until it takes some".to_owned(),
            Alarm::StandsStill { packets, .. } => format!(
                "data planes sent it {packets} packets, and neither its counters nor its fill level moved"
            ),
            Alarm::Contradicts { ratio, others, .. } => {
                format!("it counts {ratio:.3} events a packet, where most count {others:.3}")
            }
            Alarm::LeastFactors => {
                "the least factors of all workers come to more than all slots; they are lowered in proportion".to_owned()
            }
            Alarm::GreatestFactors => {
                "the greatest factors of all workers come to less than all slots; they are raised in proportion"
                    .to_owned()
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reports {
    newest: VecDeque<(WallTime, Report)>,
    issues: Vec<Issue>,
}

impl Reports {
    pub(crate) fn add(&mut self, wall: WallTime, now: Time, report: Report) {
        if let Report::Alarm { lb, alarm } = report {
            return self.add_issue(wall, now, lb, alarm);
        }
        if self.newest.len() == MOST {
            self.newest.pop_front();
        }
        self.newest.push_back((wall, report));
    }

    fn add_issue(&mut self, wall: WallTime, now: Time, lb: LbId, alarm: Alarm) {
        self.issues.retain(|issue| now < issue.last + HOLDS);
        let new = Issue { lb, alarm, since: wall, last: now };
        let same = |issue: &Issue| (issue.lb, issue.member(), issue.kind()) == (lb, new.member(), new.kind());
        if let Some(at) = self.issues.iter().position(same) {
            (self.issues[at].last, self.issues[at].alarm) = (now, alarm);
        } else if self.issues.len() < MOST_ISSUES {
            self.issues.push(new);
        }
    }

    pub(crate) fn newest(&self) -> Vec<(WallTime, Report)> {
        self.newest.iter().cloned().collect()
    }

    /// What is wrong with a load balancer now.
    pub(crate) fn issues(&self, lb: LbId, now: Time) -> Vec<Issue> {
        let holds = |issue: &&Issue| issue.lb == lb && now < issue.last + HOLDS;
        self.issues.iter().filter(holds).cloned().collect()
    }
}

/// Writes a report to the log.
pub(crate) fn log<'a>(report: &Report, name: impl Fn(PlaneId) -> &'a str) {
    match report {
        Report::Epoch { lb, number, from } => {
            tracing::debug!("load balancer {}: epoch {number} from tick {from} on", lb.get());
        }
        Report::MaySplit { lb, from, to } => {
            tracing::warn!(
                "load balancer {}: events of ticks {from} to {} may be split over two workers",
                lb.get(),
                to.saturating_sub(1)
            );
        }
        Report::Alarm { lb, alarm } => tracing::debug!("load balancer {}: {alarm:?}", lb.get()),
        Report::PlaneInUse(plane) => tracing::info!("data plane {} is in use", name(*plane)),
        Report::PlaneLost { plane, why } => tracing::warn!("data plane {} is lost: {why}", name(*plane)),
        Report::Refused { plane, lb, why } => {
            tracing::warn!("data plane {} refused tables of load balancer {}: {why}", name(*plane), lb.get());
        }
        Report::Replaced { plane } => tracing::error!(
            "another control plane programs {} with a higher term: this one changes nothing more; stop it",
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

    #[test]
    fn an_alarm_holds_while_it_is_told() {
        let (mut reports, lb) = (Reports::default(), LbId::new(0).unwrap());
        let s = |seconds| Time::default() + Duration::from_secs(seconds);
        for second in 0..5 {
            let alarm = Alarm::Stopped { member: 3 };
            reports.add(WallTime(second * 1000), s(second), Report::Alarm { lb, alarm });
        }
        let issues = reports.issues(lb, s(5));
        assert_eq!(
            issues.iter().map(|of| (of.member(), of.since)).collect::<Vec<_>>(),
            [(Some(3), WallTime(0))]
        );
        assert_eq!(reports.issues(lb, s(7)), []);
        assert_eq!(reports.newest(), [], "alarms are no news");
    }

    #[test]
    fn the_newest_reports_are_kept() {
        let (mut reports, lb) = (Reports::default(), LbId::new(0).unwrap());
        for number in 0..MOST as u64 + 5 {
            reports.add(WallTime(number), Time(0), Report::Epoch { lb, number, from: 0 });
        }
        assert_eq!(reports.newest().len(), MOST);
        assert_eq!(reports.newest()[0].0, WallTime(5));
    }
}
