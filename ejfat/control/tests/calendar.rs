//! Properties of calendars under random changes. A failure prints the seed.

use ejfat_control::calendar::{Calendar, CountError, Demand, MemberId, counts};
use simnet::Random;

const SLOTS: u32 = 512;

fn demand(member: MemberId, weight: f64) -> Demand {
    Demand { member, weight, least: 0, most: SLOTS }
}

fn wanted(demands: &[Demand]) -> Vec<(MemberId, u32)> {
    let counts = counts(SLOTS, demands).expect("demands that can be met");
    demands.iter().zip(counts).map(|(demand, count)| (demand.member, count)).collect()
}

fn has(calendar: &Calendar, wanted: &[(MemberId, u32)]) -> bool {
    let all: u32 = wanted.iter().map(|&(_, count)| count).sum();
    let filled = calendar.slots().iter().flatten().count() as u32;
    filled == all && wanted.iter().all(|&(member, count)| calendar.count(member) == count)
}

/// The number of slots that lead elsewhere than before.
fn moves(before: &Calendar, after: &Calendar) -> u32 {
    after.slots().iter().zip(before.slots()).filter(|(now, before)| now != before).count() as u32
}

/// The fewest slots that must change: each changed slot is one more for the member that gets it.
fn fewest_moves(before: &[(MemberId, u32)], after: &[(MemberId, u32)]) -> u32 {
    let of = |member| before.iter().find(|&&(other, _)| other == member).map_or(0, |&(_, count)| count);
    after.iter().map(|&(member, count)| count.saturating_sub(of(member))).sum()
}

/// The most slots that a member has more or less than its share in any arc of the circle.
fn discrepancy(calendar: &Calendar, wanted: &[(MemberId, u32)]) -> f64 {
    let of = |&(member, count): &(MemberId, u32)| {
        let share = f64::from(count) / f64::from(SLOTS);
        let (mut sum, mut least, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
        for slot in calendar.slots() {
            sum += f64::from(*slot == Some(member)) - share;
            (least, most) = (least.min(sum), most.max(sum));
        }
        most - least
    };
    wanted.iter().map(of).fold(0.0, f64::max)
}

/// A number from 0 to 1.
fn unit(random: &mut Random) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

fn random_weights(random: &mut Random, members: u16) -> Vec<Demand> {
    (0..members).map(|member| demand(member, 1.0 + 19.0 * unit(random))).collect()
}

#[test]
fn all_slots_are_divided_by_weight_within_bounds() {
    for seed in 0..2000 {
        let mut random = Random::new(seed, 0);
        let members = 1 + random.below(128) as u16;
        let mut demands = random_weights(&mut random, members);
        for demand in &mut demands {
            demand.least = random.below(6) as u32;
            demand.most = demand.least + random.below(100) as u32;
            demand.weight *= f64::from(random.below(4) != 0);
        }
        let (least, most): (u32, u32) =
            demands.iter().fold((0, 0), |(least, most), of| (least + of.least, most + of.most));
        match counts(SLOTS, &demands) {
            Err(CountError::TooMany { .. }) => assert!(least > SLOTS, "seed {seed}"),
            Err(CountError::TooFew { .. }) => assert!(most < SLOTS, "seed {seed}"),
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(counts) => {
                assert_eq!(counts.iter().sum::<u32>(), SLOTS, "seed {seed}");
                let fits = |(of, count): (&Demand, &u32)| (of.least..=of.most).contains(count);
                assert!(demands.iter().zip(&counts).all(fits), "seed {seed}");
                // A member with more weight and the same freedom has no fewer slots.
                for (a, &more) in demands.iter().zip(&counts) {
                    for (b, &less) in demands.iter().zip(&counts) {
                        let is_free = a.least < more && more < a.most && b.least < less && less < b.most;
                        assert!(!(is_free && a.weight > b.weight && more < less), "seed {seed}");
                    }
                }
            }
        }
    }
}

#[test]
fn demands_that_exclude_each_other_are_named() {
    let of = |least, most| Demand { member: 7, weight: 1.0, least, most };
    assert_eq!(counts(SLOTS, &[of(3, 2)]), Err(CountError::Bounds { member: 7, least: 3, most: 2 }));
    assert_eq!(counts(SLOTS, &[of(513, 600)]), Err(CountError::TooMany { least: 513, slots: SLOTS }));
    assert_eq!(counts(SLOTS, &[of(0, 100), of(0, 100)]), Err(CountError::TooFew { most: 200, slots: SLOTS }));
    assert_eq!(counts(SLOTS, &[]), Err(CountError::TooFew { most: 0, slots: SLOTS }));
    for weight in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(counts(SLOTS, &[demand(9, weight)]), Err(CountError::Weight { member: 9 }));
    }
}

#[test]
fn weights_may_be_as_unlike_as_numbers_can_be() {
    for weights in [[f64::MIN_POSITIVE, f64::MAX], [5e-324, 1.0], [0.0, 0.0], [0.0, 1e-300], [1e300, 1e300]] {
        let got = counts(SLOTS, &[demand(1, weights[0]), demand(2, weights[1])]).unwrap();
        assert_eq!(got.iter().sum::<u32>(), SLOTS, "{weights:?}");
        assert!(weights[0] < weights[1] || got == [256, 256], "{weights:?}: {got:?}");
    }
    let three = [demand(1, 5e-324), demand(2, 1.0), demand(3, 3.0)];
    assert_eq!(counts(SLOTS, &three), Ok(vec![0, 128, 384]));
    // The second may not have what the weights give it.
    let bounded = [demand(1, 0.0), Demand { most: 100, ..demand(2, 1.0) }];
    assert_eq!(counts(SLOTS, &bounded), Ok(vec![412, 100]));
}

#[test]
fn as_few_slots_as_possible_move_and_the_slots_of_a_member_stay_spread() {
    for (members, most) in [(2, 8.0), (8, 8.0), (32, 8.0), (128, 8.0)] {
        for seed in 0..4 {
            let mut random = Random::new(seed, members.into());
            let mut demands = random_weights(&mut random, members);
            let mut before = wanted(&demands);
            let mut calendar = Calendar::empty(SLOTS).unwrap().next(&before);
            let mut worst = discrepancy(&calendar, &before);
            assert!(worst <= 4.0, "the first calendar, {members} members, seed {seed}: {worst}");
            for change in 0..1000 {
                for demand in &mut demands {
                    demand.weight = (demand.weight * (0.95 + 0.1 * unit(&mut random))).clamp(1.0, 20.0);
                }
                let after = wanted(&demands);
                let next = calendar.next(&after);
                assert!(has(&next, &after), "seed {seed}, change {change}");
                assert_eq!(moves(&calendar, &next), fewest_moves(&before, &after), "seed {seed}");
                if change % 10 == 9 {
                    worst = worst.max(discrepancy(&next, &after));
                }
                (calendar, before) = (next, after);
            }
            println!("{members} members, seed {seed}: {worst:.1} of {most} slots");
            assert!(worst <= most, "{members} members, seed {seed}: {worst}");
        }
    }
}

#[test]
fn members_that_come_and_go_move_only_what_they_must() {
    for seed in 0..40 {
        let mut random = Random::new(seed, 1);
        let mut before = Vec::new();
        let mut calendar = Calendar::empty(SLOTS).unwrap();
        for change in 0..50 {
            let members = random.below(40) as u16;
            let mut demands = random_weights(&mut random, members);
            demands.retain(|_| random.below(4) != 0);
            let after = if demands.is_empty() { Vec::new() } else { wanted(&demands) };
            let next = calendar.next(&after);
            assert!(has(&next, &after), "seed {seed}, change {change}");
            let emptied = if after.is_empty() { calendar.slots().iter().flatten().count() as u32 } else { 0 };
            let fewest = fewest_moves(&before, &after) + emptied;
            assert_eq!(moves(&calendar, &next), fewest, "seed {seed}, change {change}");
            assert_eq!(calendar.next(&after), next, "the same arguments give the same calendar");
            (calendar, before) = (next, after);
        }
    }
}

#[test]
fn a_calendar_has_a_power_of_two_of_slots() {
    for slots in [0, 3, 513, 1 << 13, u32::MAX] {
        assert!(Calendar::empty(slots).is_none(), "{slots}");
    }
    let one = Calendar::empty(1).unwrap().next(&[(3, 1)]);
    assert_eq!(one.slots(), [Some(3)]);
    assert_eq!(one.next(&[(4, 1)]).slots(), [Some(4)]);
}
