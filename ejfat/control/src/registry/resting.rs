//! Members' ids that rest: packets to their former members may still be on their way.

use std::collections::{BTreeMap, BTreeSet};

use ejfat::{Time, lb::LbId};

use crate::calendar::MemberId;

/// Until when ids are not given again, as long as there are others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resting {
    until: BTreeMap<(LbId, MemberId), Time>,
    /// The same by time.
    order: BTreeSet<(Time, LbId, MemberId)>,
}

impl Resting {
    pub(super) fn rest(&mut self, lb: LbId, member: MemberId, until: Time) {
        if let Some(before) = self.until.insert((lb, member), until) {
            self.order.remove(&(before, lb, member));
        }
        self.order.insert((until, lb, member));
    }

    /// Forgets ids that have rested long enough.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(&(until, lb, member)) = self.order.first().filter(|(until, ..)| *until <= now) {
            self.order.remove(&(until, lb, member));
            self.until.remove(&(lb, member));
        }
    }

    pub(super) fn rests(&self, lb: LbId, member: MemberId, now: Time) -> bool {
        self.until.get(&(lb, member)).is_some_and(|until| now < *until)
    }

    /// The id of a load balancer that has rested longest of those that fit.
    pub(super) fn longest(&self, lb: LbId, fits: impl Fn(MemberId) -> bool) -> Option<MemberId> {
        self.order.iter().find(|(_, of, member)| *of == lb && fits(*member)).map(|(.., member)| *member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lb(id: u8) -> LbId {
        LbId::new(id).expect("an id")
    }

    #[test]
    fn an_id_rests_until_its_time_and_a_later_time_counts() {
        let mut resting = Resting::default();
        resting.rest(lb(0), 7, Time(100));
        resting.rest(lb(0), 7, Time(200));
        resting.expire(Time(100));
        assert!(resting.rests(lb(0), 7, Time(199)));
        assert!(!resting.rests(lb(0), 7, Time(200)) && !resting.rests(lb(1), 7, Time(0)));
        resting.expire(Time(200));
        assert_eq!(resting, Resting::default());
    }

    #[test]
    fn the_id_that_has_rested_longest_is_found_among_those_that_fit() {
        let mut resting = Resting::default();
        for (of, member, until) in [(0, 1, 300), (0, 2, 200), (0, 3, 250), (1, 4, 100)] {
            resting.rest(lb(of), member, Time(until));
        }
        assert_eq!(resting.longest(lb(0), |_| true), Some(2));
        assert_eq!(resting.longest(lb(0), |member| member != 2), Some(3));
        assert_eq!(resting.longest(lb(2), |_| true), None);
    }
}
