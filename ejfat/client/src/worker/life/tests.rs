//! A worker's life cycle in virtual time. A closure answers in place of a control plane.

use super::*;

const MS: Duration = Duration::from_millis(1);
const EVERY: Duration = Duration::from_millis(100);

/// A worker and its control plane, which answers each step by the function `answer`.
struct Site<A: FnMut(Duration, Step) -> StepAnswer> {
    life: Life,
    now: Duration,
    answer: A,
    /// All steps, each with its time.
    steps: Vec<(Duration, Step)>,
    notices: Vec<Notice>,
}

impl<A: FnMut(Duration, Step) -> StepAnswer> Site<A> {
    fn new(answer: A) -> Self {
        let life = Life::new(EVERY, 7);
        Self { life, now: Duration::ZERO, answer, steps: Vec::new(), notices: Vec::new() }
    }

    /// Runs until a time or until the life cycle ends. Each call takes one millisecond.
    fn run(&mut self, until: Duration) -> Option<Ending> {
        while self.now < until {
            match self.life.next(self.now) {
                Step::Over(ending) => return Some(ending),
                Step::Wait(at) => {
                    assert!(at > self.now, "it waits for what is over, at {:?}", self.now);
                    self.now = at.min(until);
                }
                step => {
                    self.steps.push((self.now, step));
                    self.now += MS;
                    let answer = (self.answer)(self.now, step);
                    self.notices.extend(self.life.answered(self.now, step, &answer));
                }
            }
        }
        None
    }

    fn count(&self, wanted: impl Fn(Step) -> bool) -> usize {
        self.steps.iter().filter(|(_, step)| wanted(*step)).count()
    }
}

fn away() -> StepAnswer {
    StepAnswer::Away("no answer".into())
}

#[test]
fn a_registered_worker_tells_its_state_every_period() {
    let mut site = Site::new(|_, _| StepAnswer::Done);
    assert_eq!(site.run(1000 * MS), None);
    assert_eq!(site.steps[0].1, Step::Register);
    assert_eq!(site.count(|step| step == Step::SendState { may_be_ready: true }), 10);
    assert!(site.notices.is_empty());
}

#[test]
fn a_first_registration_that_is_refused_is_the_end_and_taken_ports_are_waited_for() {
    for refusal in [away(), StepAnswer::Refused("no".into()), StepAnswer::Unknown("who?".into())] {
        let mut site = Site::new(|_, _| refusal.clone());
        assert_eq!(site.run(1000 * MS), Some(Ending::Refused));
        assert_eq!(site.steps.len(), 1, "{refusal:?}");
    }
    let taken = |until: Duration| {
        move |now: Duration, _| if now < until { StepAnswer::Taken("ports".into()) } else { StepAnswer::Done }
    };
    let mut site = Site::new(taken(2000 * MS));
    assert_eq!(site.run(6000 * MS), None);
    assert!(site.life.is_in());
    let mut site = Site::new(taken(60_000 * MS));
    assert_eq!(site.run(20_000 * MS), Some(Ending::Refused));
    assert!(site.now >= TAKEN && site.now < TAKEN + 3 * Backoff::MOST, "{:?}", site.now);
}

#[test]
fn an_outage_is_told_once_and_its_end_once() {
    let out = 1000 * MS..9000 * MS;
    let mut site = Site::new(|now, _| if out.contains(&now) { away() } else { StepAnswer::Done });
    assert_eq!(site.run(20_000 * MS), None);
    let [Notice::Lost(why), Notice::Back(after)] = &site.notices[..] else { panic!("{:?}", site.notices) };
    assert_eq!(why, "no answer");
    assert!(*after >= 7900 * MS && *after <= 8000 * MS + Backoff::MOST * 5 / 4, "{after:?}");
    let tries = site.steps.iter().filter(|(at, _)| out.contains(at)).count();
    assert!((5..15).contains(&tries), "{tries} tries in eight seconds");
    assert_eq!(site.count(|step| step == Step::Register), 1, "the session is still known");
}

#[test]
fn a_reservation_that_ended_is_the_end_and_an_outage_before_it_is_not() {
    let ends = 3000 * MS;
    let mut site = Site::new(move |now, step| match step {
        _ if now < ends => StepAnswer::Done,
        _ if now < 2 * ends => away(),
        _ => StepAnswer::Unknown("no such reservation".into()),
    });
    assert_eq!(site.run(20_000 * MS), Some(Ending::Gone));
    assert!(site.now < 2 * ends + 2 * Backoff::MOST * 5 / 4, "{:?}", site.now);
    assert_eq!(site.count(|step| step == Step::Register), 2, "it is refused once");
}

#[test]
fn a_session_that_is_forgotten_is_registered_again() {
    let (mut known, forgets) = (false, 3000 * MS);
    let mut forgotten = false;
    let mut site = Site::new(move |now, step| {
        if now >= forgets && !forgotten {
            (known, forgotten) = (false, true);
        }
        match step {
            Step::Register => known = true,
            _ if !known => return StepAnswer::Unknown("no session".into()),
            _ => {}
        }
        StepAnswer::Done
    });
    assert_eq!(site.run(6000 * MS), None);
    assert_eq!(site.count(|step| step == Step::Register), 2);
    assert_eq!(site.notices, [Notice::RegisteredAgain]);
    let second = site.steps.iter().rfind(|(_, step)| *step == Step::Register).unwrap().0;
    assert!(second < forgets + 300 * MS, "at {second:?}");
}

#[test]
fn a_control_plane_that_forgets_each_session_is_not_flooded() {
    let mut site = Site::new(|_, step| match step {
        Step::Register => StepAnswer::Done,
        _ => StepAnswer::Unknown("no session".into()),
    });
    site.run(60_000 * MS);
    let registrations = site.count(|step| step == Step::Register);
    assert!((20..45).contains(&registrations), "{registrations} in a minute");
}

/// Returns a control plane that gives a worker slots until it has been not ready for one second.
fn gives_up_slots() -> impl FnMut(Duration, Step) -> StepAnswer {
    let mut unready = None;
    move |now, step| match step {
        Step::SendState { may_be_ready: false } => {
            unready.get_or_insert(now);
            StepAnswer::Done
        }
        Step::Look => {
            StepAnswer::Slots(if unready.is_some_and(|at| now >= at + 1000 * MS) { 0 } else { 512 })
        }
        _ => StepAnswer::Done,
    }
}

#[test]
fn it_drains_before_it_leaves() {
    let mut site = Site::new(gives_up_slots());
    site.run(1050 * MS);
    site.life.drain(site.now, 10_000 * MS);
    let ending = site.run(20_000 * MS);
    assert_eq!(ending, Some(Ending::Left { drained: true, deregistered: true }));
    let since =
        site.steps.iter().find(|(_, step)| *step == Step::SendState { may_be_ready: false }).unwrap().0;
    assert!(since <= 1052 * MS, "told at once: {since:?}");
    let (left, last) = *site.steps.last().unwrap();
    assert_eq!(last, Step::Deregister);
    assert!(left >= since + 1000 * MS + LATE && left < since + 1500 * MS + LATE, "left at {left:?}");
    let after = site.steps.iter().filter(|(at, _)| *at >= since);
    assert!(after.clone().all(|(_, step)| *step != Step::SendState { may_be_ready: true }));
    assert!(site.count(|step| step == Step::Look) >= 6);
}

#[test]
fn who_cannot_see_its_slots_waits_for_three_seconds() {
    let mut site = Site::new(|_, step| match step {
        Step::Look => StepAnswer::Refused("no right".into()),
        _ => StepAnswer::Done,
    });
    site.run(1000 * MS);
    site.life.drain(site.now, 10_000 * MS);
    assert_eq!(site.run(20_000 * MS), Some(Ending::Left { drained: true, deregistered: true }));
    assert!((4000 * MS..4300 * MS).contains(&site.now), "{:?}", site.now);
}

#[test]
fn a_drain_ends_at_its_deadline() {
    for silent in [false, true] {
        let mut site = Site::new(move |now, step| match step {
            Step::Look => StepAnswer::Slots(100),
            _ if silent && now > 1000 * MS => away(),
            _ => StepAnswer::Done,
        });
        site.run(1000 * MS);
        site.life.drain(site.now, 2000 * MS);
        let ending = site.run(20_000 * MS);
        assert_eq!(ending, Some(Ending::Left { drained: false, deregistered: !silent }));
        assert!((3000 * MS..3100 * MS).contains(&site.now), "{:?}", site.now);
    }
}

#[test]
fn who_leaves_at_once_deregisters_only() {
    let mut site = Site::new(|_, _| StepAnswer::Done);
    site.run(1000 * MS);
    let before = site.steps.len();
    site.life.leave();
    assert_eq!(site.run(2000 * MS), Some(Ending::Left { drained: false, deregistered: true }));
    assert_eq!(site.steps[before..].iter().map(|(_, step)| *step).collect::<Vec<_>>(), [Step::Deregister]);
}

#[test]
fn who_has_no_session_leaves_without_a_call() {
    let mut site = Site::new(|_, _| StepAnswer::Taken("ports".into()));
    site.run(500 * MS);
    let before = site.steps.len();
    site.life.drain(site.now, 5000 * MS);
    assert!(matches!(site.run(2000 * MS), Some(Ending::Left { deregistered: true, .. })));
    assert_eq!(site.steps.len(), before);
}

/// Random numbers of a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    /// Returns a random answer, which is `Done` most of the time.
    fn answer(&mut self) -> StepAnswer {
        let why = || "because".to_owned();
        match self.below(20) {
            0 => StepAnswer::Unknown(why()),
            1 => StepAnswer::Taken(why()),
            2 | 3 => StepAnswer::Away(why()),
            4 => StepAnswer::Refused(why()),
            5 => StepAnswer::Slots(self.below(3) as u32),
            _ => StepAnswer::Done,
        }
    }
}

#[test]
fn whatever_is_answered_calls_are_few_and_a_drain_ends() {
    for seed in 1..=300 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let drain = Duration::from_millis(random.below(20_000));
        let mut first = true;
        let mut site = Site::new(move |_, step| match step {
            Step::Look => StepAnswer::Slots(random.below(2) as u32),
            _ if std::mem::take(&mut first) => StepAnswer::Done,
            _ => match (step, random.answer()) {
                // That would be the end.
                (Step::Register, StepAnswer::Unknown(why)) => StepAnswer::Away(why),
                (_, answer) => answer,
            },
        });
        assert_eq!(site.run(drain), None, "seed {seed}");
        let calls = site.steps.len() as u128;
        assert!(calls <= 3 + drain.as_millis() / 75, "seed {seed}: {calls} calls in {drain:?}");
        let lost = |notice: &Notice| matches!(notice, Notice::Lost(_));
        assert!(!site.notices.windows(2).any(|two| two.iter().all(lost)), "seed {seed}: {:?}", site.notices);
        let before = site.steps.len();
        site.life.drain(site.now, 4000 * MS);
        let ending = site.run(drain + 4100 * MS);
        assert!(matches!(ending, Some(Ending::Left { .. })), "seed {seed}: {ending:?}");
        let ready = |(_, step): &(Duration, Step)| *step == Step::SendState { may_be_ready: true };
        assert!(!site.steps[before..].iter().any(ready), "seed {seed}");
        assert!(!site.steps[before..].iter().any(|(_, step)| *step == Step::Register), "seed {seed}");
    }
}
