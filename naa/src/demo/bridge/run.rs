//! Runs the demonstration, from the first process to the last counter.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use naa_measure::TextTable;
use proto::events::v1::BridgeStatus;

use super::{
    Args, NETWORK,
    nodes::{Bridge, WorkerProcess, start_sender, start_streams},
    report::{EndedWorker, Gathered, Report},
};
use crate::{
    demo::nodes::{Environment, EventProcess, Node},
    ejfat::status_line::StatusLine,
};

/// The percentages of all events after which the worker is killed and another one is started.
const KILLED: u64 = 30;
const REPLACED: u64 = 60;
/// Workers at the end.
const WORKERS: usize = 3;
/// Time limit of a wait. The bridge notices a killed worker within about 2 s, an idle one within 4 more.
const TIME_LIMIT: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(args: &Args, environment: &Environment, table: &TextTable) -> anyhow::Result<Report> {
    let bridge = Bridge::start(environment, &args.placing)?;
    let stays = WorkerProcess::start(environment, &bridge, Node::Worker(0), "stays")?;
    let dies = WorkerProcess::start(environment, &bridge, Node::Worker(1), "is killed")?;
    let local = WorkerProcess::start(environment, &bridge, Node::Distributor, "is local")?;
    table.line(&format!(
        "{}: bridge at {}, workers by RDMA at {} and {}, one at {}; {} senders",
        environment.name(),
        bridge.workers,
        environment.ip(Node::Worker(0)),
        environment.ip(Node::Worker(1)),
        bridge.local,
        NETWORK.senders
    ))?;
    let begin = Instant::now();
    let per_sender = |n: usize| args.events / 2 + u64::from((n as u64) < args.events % 2);
    let senders = (0..NETWORK.senders)
        .map(|n| start_sender(environment, &bridge, n, per_sender(n), args))
        .chain([start_streams(environment, &bridge, args)])
        .collect::<anyhow::Result<Vec<_>>>()?;
    let watch = Watch { args, senders: &senders[..NETWORK.senders], begin };
    watch.until(KILLED, &[&stays, &dies, &local]);
    let killed = EndedWorker { name: dies.name, ready: dies.ready.clone(), ended: dies.kill()? };
    let at = Instant::now();
    table.line(&format!("a worker is killed after {} events of {}", watch.sent(), args.events))?;
    watch.until(REPLACED, &[&stays, &local]);
    let follows = WorkerProcess::start(environment, &bridge, Node::Worker(1), "follows")?;
    table.line(&format!("another one starts in its place after {}", watch.sent()))?;
    watch.until(100, &[&stays, &follows, &local]);
    let sent = senders.into_iter().map(EventProcess::end).collect::<anyhow::Result<Vec<_>>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    let status = settle(&bridge)?;
    table.line(&format!("the bridge has settled {:.1} s after the kill", at.elapsed().as_secs_f64()))?;
    let live = [stays, follows, local].map(|worker| {
        let WorkerProcess { events, name, ready } = worker;
        events.end().map(|ended| EndedWorker { name, ready, ended })
    });
    let live = live.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let gathered = Gathered { sent, live, killed, status };
    let report = Report::new(environment.name(), seconds, gathered, &bridge)?;
    bridge.end()?;
    Ok(report)
}

/// Prints the progress while events are sent.
struct Watch<'a> {
    args: &'a Args,
    senders: &'a [EventProcess],
    begin: Instant,
}

impl Watch<'_> {
    fn sent(&self) -> u64 {
        self.senders.iter().map(EventProcess::count).sum()
    }

    /// Waits until `percent` of all events are sent, or all senders have ended.
    fn until(&self, percent: u64, workers: &[&WorkerProcess]) {
        // The progress line is cleared when this function returns, before anything else is printed.
        let mut line = StatusLine::new(false);
        let enough = self.args.events * percent / 100;
        while self.senders.iter().any(EventProcess::is_busy) && (percent == 100 || self.sent() < enough) {
            thread::sleep(LOOK);
            let (sent, seconds) = (self.sent(), self.begin.elapsed().as_secs_f64());
            line.update(|| {
                let worker =
                    |its: &&WorkerProcess| format!("worker that {} took {}", its.name, its.events.count());
                let workers: Vec<_> = workers.iter().map(worker).collect();
                format!("{seconds:.0} s: {sent} of {} events sent; {}", self.args.events, workers.join(", "))
            });
        }
    }
}

/// Waits until the bridge has noticed the death of the worker and has no event any more that is open, waits, or was not
/// released.
fn settle(bridge: &Bridge) -> anyhow::Result<BridgeStatus> {
    let begin = Instant::now();
    let mut before = bridge.status()?;
    loop {
        // The counters of a bridge may be a tenth of a second old.
        thread::sleep(Duration::from_millis(250));
        let status = bridge.status()?;
        let segments = |of: &BridgeStatus| of.reassembly.as_ref().map(|counters| counters.segments);
        let is_quiet = segments(&status) == segments(&before) && status.sent == before.sent;
        let is_done = status.open == 0 && status.sent == status.released + status.held_by_ended;
        if is_quiet && is_done && status.workers.len() == WORKERS {
            return Ok(status);
        }
        ensure!(begin.elapsed() < TIME_LIMIT, "the bridge is not done after {TIME_LIMIT:?}: {status:?}");
        before = status;
    }
}
