//! What a bridge counts, and what must add up at any moment.

use std::{fmt, str::FromStr};

use ejfat::reassembly::SegmentDropCause;
use ejfat_bridge::Snapshot;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) opened: u64,
    pub(super) open: u64,
    pub(super) incomplete: u64,
    pub(super) lost: u64,
    pub(super) sent: u64,
    pub(super) released: u64,
    pub(super) held_by_ended: u64,
    pub(super) delivered_again: u64,
    /// The outstanding events of all workers that are subscribed.
    pub(super) outstanding: u64,
    pub(super) workers: u64,
    pub(super) wrong_credits: u64,
    pub(super) kernel_drops: u64,
    pub(super) segments: u64,
    /// Segments that were not used for any cause, those of them that were late, and events that got none for too long.
    pub(super) dropped: u64,
    pub(super) late: u64,
    pub(super) timed_out: u64,
}

impl Counts {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let events = &snapshot.events;
        Self {
            opened: events.opened,
            open: events.open,
            incomplete: events.incomplete,
            lost: events.lost_of_any_cause(),
            sent: events.sent,
            released: events.released,
            held_by_ended: events.held_by_ended,
            delivered_again: events.delivered_again,
            outstanding: snapshot.workers.iter().map(|its| u64::from(its.stats.outstanding)).sum(),
            workers: snapshot.workers.len() as u64,
            wrong_credits: events.wrong_credits,
            kernel_drops: snapshot.kernel_drops,
            segments: snapshot.reassembly.segments,
            dropped: snapshot.reassembly.dropped_of_any_cause(),
            late: snapshot.reassembly.dropped(SegmentDropCause::Late),
            timed_out: snapshot.reassembly.timed_out,
        }
    }

    /// What holds whoever is killed when. Workers here are honest: their credit is never wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let ends = self.open + self.sent + self.incomplete + self.lost;
        let deliveries = self.released + self.held_by_ended + self.outstanding;
        match () {
            () if self.opened != ends => {
                Err(format!("the bridge opened {} events of {ends}: {self}", self.opened))
            }
            () if self.sent + self.delivered_again != deliveries => {
                Err(format!("the bridge sent {} events of {deliveries}: {self}", self.sent))
            }
            () if self.wrong_credits > 0 => Err(format!("the bridge counts wrong credit: {self}")),
            () => Ok(()),
        }
    }

    /// Nothing is on its way or out.
    pub(super) fn is_done(&self) -> bool {
        self.open == 0 && self.outstanding == 0
    }

    fn numbers(&mut self) -> [(&'static str, &mut u64); 16] {
        [
            ("opened", &mut self.opened),
            ("open", &mut self.open),
            ("incomplete", &mut self.incomplete),
            ("lost", &mut self.lost),
            ("sent", &mut self.sent),
            ("released", &mut self.released),
            ("held_by_ended", &mut self.held_by_ended),
            ("delivered_again", &mut self.delivered_again),
            ("outstanding", &mut self.outstanding),
            ("workers", &mut self.workers),
            ("wrong_credits", &mut self.wrong_credits),
            ("kernel_drops", &mut self.kernel_drops),
            ("segments", &mut self.segments),
            ("dropped", &mut self.dropped),
            ("late", &mut self.late),
            ("timed_out", &mut self.timed_out),
        ]
    }
}

/// `COUNTS opened=5 open=0 ...`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("COUNTS")?;
        (*self).clone().numbers().iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("the bridge said {line:?}");
        let mut words = line.strip_prefix("COUNTS ").ok_or_else(wrong)?.split(' ');
        let mut counts = Self::default();
        for (name, value) in counts.numbers() {
            let (its, number) = words.next().and_then(|word| word.split_once('=')).ok_or_else(wrong)?;
            *value = number.parse().ok().filter(|_| its == name).ok_or_else(wrong)?;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_written() {
        let counts =
            Counts { opened: 9, sent: 7, incomplete: 2, released: 7, segments: 30, ..Counts::default() };
        assert_eq!(counts.to_string().parse(), Ok(counts));
        assert!("COUNTS opened=1".parse::<Counts>().is_err());
    }

    #[test]
    fn what_does_not_add_up_is_told() {
        let right = Counts { opened: 5, open: 1, sent: 4, released: 2, outstanding: 2, ..Counts::default() };
        assert_eq!(right.check(), Ok(()));
        assert!(Counts { opened: 6, ..right }.check().is_err());
        assert!(Counts { released: 1, ..right }.check().is_err());
        assert!(Counts { wrong_credits: 1, ..right }.check().is_err());
    }
}
