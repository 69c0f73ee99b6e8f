//! Events of mixed sizes through a bridge of this process to workers in processes of their own: each arrives once and whole.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Case, LOOK,
    contents::Contents,
    counts::Counts,
    far::WorkerProcess,
    ledger::{Ledger, Totals},
    senders::{Pace, Senders, Sent},
    serve::Serving,
};

/// Longer than an event is waited for, and than an emulated processor stands still.
const QUIET: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(3600);
const PACE: Pace = Pace { rate: 0.3e9, limit: Duration::from_secs(2), mtu: 9000 };

/// # Errors
/// What does not add up, or is not as it was sent.
pub fn stream(case: &Case, events: u64) -> Result<String, String> {
    let config = case.bridge("stream");
    let serving = Serving::start(&config)?;
    let ledger = Arc::<Ledger>::default();
    let mut workers = Vec::new();
    for (n, place) in case.workers.iter().enumerate() {
        let name = format!("w{n}");
        let asks = (case.ack_timeout, false);
        let mut worker = WorkerProcess::new(name, place.clone(), &case.program, asks, &ledger);
        worker.start(&config)?;
        workers.push(worker);
    }
    workers.iter_mut().try_for_each(WorkerProcess::await_ready)?;
    let begin = Instant::now();
    let contents = Arc::new(Contents::new(case.seed));
    let senders = Senders::start(config.segments(), &contents, &ledger, Some(events), PACE)?;
    let counts = watch(&serving, &senders, &ledger, &mut workers)?;
    let seconds = begin.elapsed().as_secs_f64();
    let sent = senders.end()?;
    workers.iter_mut().try_for_each(WorkerProcess::end)?;
    let why = serving.why().to_owned();
    serving.end();
    ledger.check()?;
    check(ledger.totals(), counts, sent, &workers)?;
    let bytes = ledger.totals().taken_bytes as f64;
    let each: Vec<_> = workers.iter().map(|worker| worker.events().to_string()).collect();
    let (each, rate, longest) = (each.join(" + "), bytes / seconds * 1e-6, sent.longest.as_secs_f64());
    Ok(format!("{each} events of each worker, {rate:.1} MB/s, {longest:.2} s to send the slowest, {why}"))
}

/// Until everything is taken, or nothing has been for long. All counts that the bridge tells meanwhile add up.
fn watch(
    serving: &Serving,
    senders: &Senders,
    ledger: &Ledger,
    workers: &mut [WorkerProcess],
) -> Result<Counts, String> {
    let (begin, mut quiet, mut taken) = (Instant::now(), Instant::now(), 0);
    loop {
        std::thread::sleep(LOOK);
        let (counts, totals) = (serving.counts(), ledger.totals());
        counts.check()?;
        if let Some(over) = workers.iter_mut().find_map(|its| its.is_over().then_some(&its.name)) {
            return Err(format!("{over} ended; standard error has more"));
        }
        if totals.taken != taken {
            (taken, quiet) = (totals.taken, Instant::now());
        }
        let is_sent = !senders.is_busy();
        if is_sent && counts.is_done() && (totals.taken == totals.sent && counts.released == totals.sent) {
            return Ok(counts);
        }
        if quiet.elapsed() > QUIET && is_sent {
            return Ok(counts);
        }
        if begin.elapsed() > LIMIT {
            return Err(format!("not done after {LIMIT:?}: {totals:?}, {counts}"));
        }
    }
}

/// Checks the counts at the end. No process was killed, so only segments that the Linux kernel dropped may be lost.
fn check(totals: Totals, counts: Counts, sent: Sent, workers: &[WorkerProcess]) -> Result<(), String> {
    let all = || format!("{totals:?}, {sent:?}, {counts}");
    if counts.segments + counts.kernel_drops != sent.segments {
        return Err(format!("segments do not add up: {}", all()));
    }
    if counts.kernel_drops == 0 && (counts.opened != totals.sent || totals.taken != totals.sent) {
        return Err(format!("events are missing: {}", all()));
    }
    // What nobody took ended in a way that is counted, or never began.
    let unseen = totals.sent.checked_sub(counts.opened);
    let missing = totals.sent - totals.taken;
    if unseen.map(|unseen| unseen + counts.incomplete + counts.lost) != Some(missing) {
        return Err(format!("missing events are not those that are counted: {}", all()));
    }
    if !counts.is_done() || counts.sent != totals.taken || counts.held_by_ended > 0 {
        return Err(format!("workers got other events than the bridge sent: {}", all()));
    }
    match workers.iter().find(|worker| worker.events() == 0) {
        Some(idle) => Err(format!("{} got no event", idle.name)),
        None => Ok(()),
    }
}
