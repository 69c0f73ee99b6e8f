//! Runs the cases one after the other, each judged by its answer, its counters, the bystanders and the memory.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use simnet::Random;

use super::{
    CASES,
    bystander::{Bystanders, NOTHING},
    case::{Attack, Case, Latency, Observation, Outcome, Own},
    ejfat::EjfatEnvironment,
    environment::{Addresses, Environment, Family},
    packets::silent,
    victim::{Report, Victim},
};

/// What to run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Cases whose group or name contain this.
    pub only: Option<String>,
    /// Fewer repetitions, and without the long cases.
    pub quick: bool,
    pub seed: u64,
    /// The IP versions over which cases run. IPv6 needs a network namespace of this run's own.
    pub families: Vec<Family>,
    /// Whether only the cases of `V6_SAMPLE` run over IPv6.
    pub sample: bool,
    /// Why there is no such namespace: the cases over IPv6 are skipped then.
    pub no_v6: Option<String>,
    /// A skipped case fails unless it is one of `MAY_SKIP`.
    pub strict: bool,
}

/// What a quick run has of IPv6, by group and name: a case of each way in which packets are built and programs started.
const V6_SAMPLE: &[(&str, &str)] = &[
    ("memory", "forged RKey"),
    ("packets", "pad longer than the payload"),
    ("opcodes", "packets of a wrong size"),
    ("replies", "never acknowledges"),
    ("flood", "garbage"),
    ("handshake", "REQ with nonsense identity"),
    ("half-open flood", "one address"),
    ("mrsp", "truncated"),
    ("calls", "unknown functions"),
    ("lying accelerator", "truncated"),
    ("resources", "no descriptors for a host"),
    ("holding on", "connected and silent"),
    ("coming and going", "devices"),
    ("ejfat", "offset beyond the length"),
    ("bridge", "credit for slots not given"),
    ("fairness", "worker hog"),
    ("fairness", "memory hog"),
    ("fairness", "idle seats"),
    ("control plane", "states of one worker"),
];
/// Cases that may be skipped where a skipped case fails otherwise, by group and name: what they need is a right that
/// machines for continuous integration may lack.
const MAY_SKIP: &[(&str, &str)] = &[("resources", "full disk")];

/// The least the bystanders' p99 is allowed: the machine may be busy with other things.
const LEAST_P99: Duration = Duration::from_millis(20);
const BASELINE: Duration = Duration::from_secs(1);
/// A case runs at least this long, so that the bystanders' percentiles mean something.
const LEAST_TIME: Duration = Duration::from_millis(300);
/// A case that only disturbs the bystanders runs again, a while later: what the machine does besides seldom happens so
/// often.
const ATTEMPTS: u32 = 5;
/// The same for a case that compares the bystander with itself: there what else the machine does is in both figures.
const ATTEMPTS_TO_COMPARE: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Counters that rise with the bystanders' traffic.
const ORDINARY: [&str; 10] = [
    "sent_pkts",
    "rcvd_pkts",
    "rdma_sends",
    "rdma_recvs",
    "calls",
    "turns",
    "bytes_in",
    "bytes_out",
    "send_errors",
    "sessions",
];

/// The cases of a run, and what each runs over.
pub fn list(options: &RunConfig) -> Vec<(Family, Case)> {
    let all = CASES.iter().flat_map(|&(group, cases)| cases.iter().map(move |case| Case { group, ..*case }));
    let wanted = |case: &Case| {
        let text = format!("{} {}", case.group, case.name);
        options.only.as_ref().is_none_or(|only| text.contains(only.as_str())) && !(options.quick && case.long)
    };
    let cases: Vec<_> = all.filter(wanted).collect();
    let over = |family: Family| {
        let sampled = move |case: &&Case| {
            family == Family::V4 || !options.sample || V6_SAMPLE.contains(&(case.group, case.name))
        };
        cases.iter().filter(sampled).map(move |case| (family, *case))
    };
    options.families.iter().flat_map(|family| over(*family)).collect()
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The server's bystanders with nobody besides; none if no case needs the server.
    pub baselines: Vec<(Family, Latency)>,
    pub outcomes: Vec<Outcome>,
}

/// Runs them, with progress on standard error.
pub fn run(options: &RunConfig) -> Result<Ran, String> {
    let all = list(options);
    let mut ran = Ran::default();
    for &family in &options.families {
        let cases: Vec<_> = all.iter().filter(|(of, _)| *of == family).map(|(_, case)| *case).collect();
        over(family, &cases, all.len(), options, &mut ran)?;
    }
    for outcome in ran.outcomes.iter_mut().filter(|outcome| options.strict && outcome.skipped()) {
        if !MAY_SKIP.contains(&(outcome.case.group, outcome.case.name)) {
            let note = &outcome.observation.note;
            outcome.why.push(format!("skipped, which this run does not permit: {note}"));
        }
    }
    Ok(ran)
}

fn over(family: Family, cases: &[Case], of: usize, options: &RunConfig, ran: &mut Ran) -> Result<(), String> {
    let meaningless = |case: &&Case| family == Family::V6 && case.only_v4.is_some();
    for case in cases.iter().filter(meaningless) {
        ran.outcomes.push(Outcome::untried(case, family, Observation::default()));
        report_last(&ran.outcomes, of);
    }
    let rest: Vec<_> = cases.iter().filter(|case| !meaningless(case)).collect();
    if let (Family::V6, Some(why)) = (family, &options.no_v6) {
        for case in rest {
            ran.outcomes.push(Outcome::untried(case, family, Observation::skipped(why)));
            report_last(&ran.outcomes, of);
        }
        return Ok(());
    }
    let (of_workers, of_server): (Vec<_>, Vec<_>) = rest.into_iter().partition(|case| case.attacks_worker());
    let addresses = Addresses::new(family);
    if !of_server.is_empty() {
        let baseline = against_server(&of_server, of, addresses.clone(), options, &mut ran.outcomes)?;
        ran.baselines.push((family, baseline));
    }
    // Nobody disturbs the workers' senders then. Their addresses are others than those used so far.
    let mut env = EjfatEnvironment::new(addresses.later(), options);
    for case in of_workers {
        ran.outcomes.push(perform(case, LEAST_P99, || observe_worker(&mut env, case, family)));
        report_last(&ran.outcomes, of);
    }
    Ok(())
}

fn against_server(
    cases: &[&Case],
    of: usize,
    addresses: Addresses,
    options: &RunConfig,
    outcomes: &mut Vec<Outcome>,
) -> Result<Latency, String> {
    let mut env = set(addresses, options)?;
    let baseline = baseline(&env)?;
    let family = env.addresses.family();
    eprintln!("baseline over IPv{}: p50 {:?}, p99 {:?}", family.number(), baseline.p50, baseline.p99);
    let bound = LEAST_P99.max(baseline.p99 * 10);
    for case in cases {
        let outcome = perform(case, bound, || observe(&mut env, case));
        let dead = outcome.failed() && env.victim.report().is_err();
        outcomes.push(outcome);
        report_last(outcomes, of);
        if dead {
            let addresses = env.addresses.clone();
            drop(env);
            env = set(addresses, options)?;
        }
    }
    Ok(baseline)
}

/// The last of those so far.
fn report_last(outcomes: &[Outcome], of: usize) {
    let (n, Some(outcome)) = (outcomes.len(), outcomes.last()) else { return };
    eprintln!("[{n}/{of}] {} ({:.1} s)", outcome.line(), outcome.took.as_secs_f64());
}

fn set(mut addresses: Addresses, options: &RunConfig) -> Result<Environment, String> {
    let victim = Victim::start(addresses.next(), addresses.next())?;
    let locals = [addresses.next(), addresses.next()];
    let bystanders = Bystanders::start(locals, victim.server, victim.target);
    thread::sleep(Duration::from_millis(300));
    let random = Random::new(options.seed, 1);
    Ok(Environment { victim, bystanders, quick: options.quick, random, addresses })
}

fn baseline(env: &Environment) -> Result<Latency, String> {
    env.bystanders.begin();
    thread::sleep(BASELINE);
    let (latency, failures) = env.bystanders.end();
    match latency.p99 {
        NOTHING => Err("a bystander completed nothing, with nobody besides".into()),
        _ if failures.is_empty() => Ok(latency),
        _ => Err(failures.join("; ")),
    }
}

fn perform(case: &Case, bound: Duration, mut observe: impl FnMut() -> Outcome) -> Outcome {
    let bound = case.p99.unwrap_or(bound);
    let mut attempt = 1;
    loop {
        let mut outcome = observe();
        let late = late(&outcome, bound);
        let unlucky = outcome.observation.own.as_ref().is_some_and(|own| own.lost > 0) && outcome.failed();
        let attempts = if outcome.quiet.is_some() { ATTEMPTS_TO_COMPARE } else { ATTEMPTS };
        if (late.is_some() && !outcome.failed() || unlucky) && attempt < attempts {
            let why = late.unwrap_or_else(|| outcome.result());
            eprintln!("attempt {attempt} of {attempts} at {} / {}: {why}", case.group, case.name);
            thread::sleep(PAUSE * attempt);
            attempt += 1;
            continue;
        }
        outcome.why.extend(late);
        return outcome;
    }
}

/// Why the bystanders took too long.
fn late(outcome: &Outcome, bound: Duration) -> Option<String> {
    match (outcome.bystander, outcome.quiet) {
        (Latency { p99: NOTHING, .. }, _) => Some("a bystander completed nothing".into()),
        (attacked, Some(quiet)) => attacked.unfair(quiet),
        (Latency { p99, .. }, None) if p99 > bound => {
            Some(format!("the bystanders' p99 was {p99:?}, more than {bound:?}"))
        }
        _ => None,
    }
}

fn observe(env: &mut Environment, case: &Case) -> Outcome {
    let before = env.victim.report();
    env.bystanders.begin();
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| match case.attack {
        Attack::Server(run) => run(env),
        Attack::Silently(send) => silent(env, send),
        Attack::Worker(_) => unreachable!("of the workers' cases"),
    }));
    let took = start.elapsed();
    thread::sleep(LEAST_TIME.saturating_sub(took).max(Duration::from_millis(20)));
    let (bystander, mut why) = env.bystanders.end();
    let after = env.victim.report();
    let observation = answered(case, result, &mut why);
    let (mut rose, mut growth_kib) = (Vec::new(), 0);
    match (before, after) {
        (Ok(before), Ok(after)) => {
            rose = risen(&before, &after);
            growth_kib = after.rss_kib as i64 - before.rss_kib as i64;
            check(case, &rose, growth_kib, &mut why);
        }
        (Err(error), _) | (_, Err(error)) => why.push(error),
    }
    let family = env.addresses.family();
    Outcome { case: *case, family, observation, rose, quiet: None, bystander, growth_kib, took, why }
}

fn observe_worker(env: &mut EjfatEnvironment, case: &Case, family: Family) -> Outcome {
    let Attack::Worker(run) = case.attack else { unreachable!("of the workers' cases") };
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(env)));
    let took = start.elapsed();
    let mut why = Vec::new();
    let observation = answered(case, result, &mut why);
    let own = observation.own.clone().unwrap_or_default();
    let Own { rose, quiet, bystander, growth_kib, why: more, .. } = own;
    why.extend(more);
    if observation.own.is_some() {
        check(case, &rose, growth_kib, &mut why);
    }
    Outcome { case: *case, family, observation, rose, quiet, bystander, growth_kib, took, why }
}

/// What a case saw, and what is wrong with that.
fn answered(
    case: &Case,
    result: thread::Result<Result<Observation, String>>,
    why: &mut Vec<String>,
) -> Observation {
    match result {
        Ok(Ok(observation)) => {
            if !observation.skipped && observation.answer != case.expected {
                why.push(format!("answered {:?} instead of {:?}", observation.answer, case.expected));
            }
            observation
        }
        Ok(Err(error)) => {
            why.push(error);
            Observation::default()
        }
        Err(_) => {
            why.push("the case panicked".into());
            Observation::default()
        }
    }
}

fn check(case: &Case, rose: &[(String, u64)], growth_kib: i64, why: &mut Vec<String>) {
    for counter in case.counters {
        if !rose.iter().any(|(name, _)| name == counter) {
            why.push(format!("{counter} did not rise"));
        }
    }
    if growth_kib > (case.growth_mib * 1024) as i64 {
        why.push(format!("the victim grew by {growth_kib} KiB, more than {} MiB", case.growth_mib));
    }
}

fn risen(before: &Report, after: &Report) -> Vec<(String, u64)> {
    let grown = after.counters.iter().filter_map(|(name, n)| {
        let more = n.saturating_sub(before.counters.get(name).copied().unwrap_or(0));
        (more > 0 && !ORDINARY.contains(&name.as_str())).then(|| (name.clone(), more))
    });
    grown.collect()
}
