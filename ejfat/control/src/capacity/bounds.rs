//! The least and the most slots of each worker.

use super::Alarm;
use crate::calendar::Demand;

/// What factors of an even share come to in slots, and at least one. A greatest factor of 0 stands for all slots.
pub(super) fn bounds(slots: u32, even: f64, least_factor: f64, greatest_factor: f64) -> (u32, u32) {
    let least = ((even * least_factor).floor() as u32).clamp(1, slots);
    let most = if greatest_factor == 0.0 { slots } else { (even * greatest_factor).ceil() as u32 };
    (least, most.clamp(least, slots))
}

/// Loosens bounds that exclude each other, in proportion, with an alarm. Only the first `running` members' bounds are
/// loosened, of which there is one at least; the others are to have one slot each. There are no more members than
/// slots.
pub(super) fn loosen(slots: u32, demands: &mut [Demand], running: usize, alarms: &mut Vec<Alarm>) {
    let sum = |demands: &[Demand], of: fn(&Demand) -> u32| -> u64 {
        demands.iter().map(|demand| u64::from(of(demand))).sum()
    };
    let (least, count) = (sum(demands, |demand| demand.least), demands.len() as u64);
    if least > u64::from(slots) {
        alarms.push(Alarm::LeastFactors);
        // One slot each, and a part of what is left for those that are to have more.
        let (left, more) = (u64::from(slots) - count, least - count);
        for demand in &mut *demands {
            demand.least = 1 + (u64::from(demand.least - 1) * left / more) as u32;
        }
    }
    let probes = (demands.len() - running) as u64;
    let most = sum(&demands[..running], |demand| demand.most);
    let left = u64::from(slots) - probes;
    if most < left {
        alarms.push(Alarm::GreatestFactors);
        for demand in &mut demands[..running] {
            demand.most = (u64::from(demand.most) * left).div_ceil(most) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::counts;

    #[test]
    fn factors_come_to_slots() {
        assert_eq!(bounds(512, 64.0, 0.5, 2.0), (32, 128));
        assert_eq!(bounds(512, 64.0, 0.0, 0.0), (1, 512));
        assert_eq!(bounds(512, 170.7, 1.0, 1.0), (170, 171));
        assert_eq!(bounds(512, 64.0, 0.0, 0.001), (1, 1));
        assert_eq!(bounds(512, 64.0, 1e300, 1e301), (512, 512));
    }

    #[test]
    fn bounds_that_exclude_each_other_are_loosened_until_they_can_be_met() {
        for (running, probes) in [(1, 0), (2, 0), (3, 5), (7, 0), (100, 12), (512, 0), (1, 511)] {
            for (least, most) in [(1, 1), (1, 512), (200, 512), (512, 512), (1, 3), (2, 2)] {
                let of = |member, least, most| Demand { member, weight: 1.0, least, most };
                let mut demands: Vec<_> = (0..running).map(|member| of(member, least, most)).collect();
                demands.extend((0..probes).map(|probe| of(running + probe, 1, 1)));
                loosen(512, &mut demands, running.into(), &mut Vec::new());
                let got = counts(512, &demands);
                assert!(got.is_ok(), "{running} and {probes} with {least} to {most}: {got:?}");
                assert!(demands[running.into()..].iter().all(|probe| probe.most == 1));
            }
        }
    }
}
