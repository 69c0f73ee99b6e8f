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
    case::{Attack, Case, Latency, Outcome, Own, Seen},
    ejfat::Scene,
    stage::{Addresses, Stage},
    victim::{Report, Victim},
};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Cases whose group or name contain this.
    pub only: Option<String>,
    /// Fewer repetitions, and without the long cases.
    pub quick: bool,
    pub seed: u64,
}

/// The least the bystanders' p99 is allowed: the machine may be busy with other things.
const LEAST_P99: Duration = Duration::from_millis(20);
const BASELINE: Duration = Duration::from_secs(1);
/// A case runs at least this long, so that the bystanders' percentiles mean something.
const LEAST_TIME: Duration = Duration::from_millis(300);
/// A case that only disturbs the bystanders runs again, a while later: what the machine does besides seldom happens so
/// often.
const ATTEMPTS: u32 = 5;
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

/// The cases of a run.
pub fn list(options: &Options) -> Vec<Case> {
    let wanted = |case: &&Case| {
        let text = format!("{} {}", case.group, case.name);
        options.only.as_ref().is_none_or(|only| text.contains(only.as_str())) && !(options.quick && case.long)
    };
    CASES.iter().copied().flatten().filter(wanted).copied().collect()
}

/// Runs them, with progress on standard error. Returns the bystanders' baseline too, unless no case needs the server.
pub fn run(options: &Options) -> Result<(Latency, Vec<Outcome>), String> {
    let cases = list(options);
    let (of_workers, of_server): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.attacks_worker());
    let addresses = Addresses::new();
    let mut outcomes = Vec::new();
    let mut baseline = Latency::default();
    if !of_server.is_empty() {
        baseline = against_server(&of_server, cases.len(), addresses.clone(), options, &mut outcomes)?;
    }
    // Nobody disturbs the workers' senders then.
    let mut scene = Scene::new(addresses, options);
    for case in of_workers {
        outcomes.push(perform(case, LEAST_P99, || observe_worker(&mut scene, case)));
        tell(&outcomes, cases.len());
    }
    Ok((baseline, outcomes))
}

fn against_server(
    cases: &[&Case],
    of: usize,
    addresses: Addresses,
    options: &Options,
    outcomes: &mut Vec<Outcome>,
) -> Result<Latency, String> {
    let mut stage = set(addresses, options)?;
    let baseline = baseline(&stage)?;
    eprintln!("baseline: p50 {:?}, p99 {:?}", baseline.p50, baseline.p99);
    let bound = LEAST_P99.max(baseline.p99 * 10);
    for case in cases {
        let outcome = perform(case, bound, || observe(&mut stage, case));
        let dead = outcome.failed() && stage.victim.report().is_err();
        outcomes.push(outcome);
        tell(outcomes, of);
        if dead {
            let addresses = stage.addresses.clone();
            drop(stage);
            stage = set(addresses, options)?;
        }
    }
    Ok(baseline)
}

/// The last of those so far.
fn tell(outcomes: &[Outcome], of: usize) {
    let (n, Some(outcome)) = (outcomes.len(), outcomes.last()) else { return };
    let (verdict, seconds) = (outcome.result(), outcome.took.as_secs_f64());
    let Case { group, name, .. } = outcome.case;
    eprintln!("[{n}/{of}] {group} / {name}: {verdict} ({seconds:.1} s)");
}

fn set(mut addresses: Addresses, options: &Options) -> Result<Stage, String> {
    let victim = Victim::start(addresses.next(), addresses.next())?;
    let locals = [addresses.next(), addresses.next()];
    let bystanders = Bystanders::start(locals, victim.server, victim.target);
    thread::sleep(Duration::from_millis(300));
    Ok(Stage { victim, bystanders, quick: options.quick, random: Random::new(options.seed, 1), addresses })
}

fn baseline(stage: &Stage) -> Result<Latency, String> {
    stage.bystanders.begin();
    thread::sleep(BASELINE);
    let (latency, failures) = stage.bystanders.end();
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
        let late = outcome.bystander.p99 > bound;
        let unlucky = outcome.seen.own.as_ref().is_some_and(|own| own.lost > 0) && outcome.failed();
        if (late && !outcome.failed() || unlucky) && attempt < ATTEMPTS {
            thread::sleep(PAUSE * attempt);
            attempt += 1;
            continue;
        }
        if late {
            outcome.why.push(match outcome.bystander.p99 {
                NOTHING => "a bystander completed nothing".into(),
                p99 => format!("the bystanders' p99 was {p99:?}, more than {bound:?}"),
            });
        }
        return outcome;
    }
}

fn observe(stage: &mut Stage, case: &Case) -> Outcome {
    let Attack::Server(run) = case.attack else { unreachable!("of the server's cases") };
    let before = stage.victim.report();
    stage.bystanders.begin();
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(stage)));
    let took = start.elapsed();
    thread::sleep(LEAST_TIME.saturating_sub(took).max(Duration::from_millis(20)));
    let (bystander, mut why) = stage.bystanders.end();
    let after = stage.victim.report();
    let seen = answered(case, result, &mut why);
    let (mut rose, mut growth_kib) = (Vec::new(), 0);
    match (before, after) {
        (Ok(before), Ok(after)) => {
            rose = risen(&before, &after);
            growth_kib = after.rss_kib as i64 - before.rss_kib as i64;
            judge(case, &rose, growth_kib, &mut why);
        }
        (Err(error), _) | (_, Err(error)) => why.push(error),
    }
    Outcome { case: *case, seen, rose, bystander, growth_kib, took, why }
}

fn observe_worker(scene: &mut Scene, case: &Case) -> Outcome {
    let Attack::Worker(run) = case.attack else { unreachable!("of the workers' cases") };
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(scene)));
    let took = start.elapsed();
    let mut why = Vec::new();
    let seen = answered(case, result, &mut why);
    let Own { rose, bystander, growth_kib, why: more, .. } = seen.own.clone().unwrap_or_default();
    why.extend(more);
    if seen.own.is_some() {
        judge(case, &rose, growth_kib, &mut why);
    }
    Outcome { case: *case, seen, rose, bystander, growth_kib, took, why }
}

/// What a case saw, and what is wrong with that.
fn answered(case: &Case, result: thread::Result<Result<Seen, String>>, why: &mut Vec<String>) -> Seen {
    match result {
        Ok(Ok(seen)) => {
            if !seen.skipped && seen.answer != case.expected {
                why.push(format!("answered {:?} instead of {:?}", seen.answer, case.expected));
            }
            seen
        }
        Ok(Err(error)) => {
            why.push(error);
            Seen::default()
        }
        Err(_) => {
            why.push("the case panicked".into());
            Seen::default()
        }
    }
}

fn judge(case: &Case, rose: &[(String, u64)], growth_kib: i64, why: &mut Vec<String>) {
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
