//! Runs the demonstration, from the start of the first process to the last event.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use naa_measure::TextTable;

use super::{
    Args,
    nodes::{Ended, EventProcess, WorkerProcess, now, start_sender},
    report::Report,
    site::{Reservation, Site, own},
    tables::TableHistory,
};
use crate::ejfat::status_line::StatusLine;

const LOOK: Duration = Duration::from_millis(20);
/// The longest wait until all workers are in the tables, and at the end until they have taken all events.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long a killed data plane, and a killed control plane, is away before it is started again.
const PLANE_AWAY: Duration = Duration::from_millis(300);
const DAEMON_AWAY: Duration = Duration::from_millis(700);

/// The steps in their order. Each begins when this many of a thousand events are sent, or later if the step before it has not shown
/// its effect yet.
const USUAL: &[(u64, Step)] = &[(350, Step::Kill), (550, Step::Drain), (650, Step::Add)];
const EVERYTHING: &[(u64, Step)] =
    &[(120, Step::Kill), (500, Step::Daemon), (620, Step::Drain), (630, Step::Add), (790, Step::Plane)];
/// After this many events it is certain that a new worker has a share, or that a data plane works again.
const SHOW: u64 = 100;

#[derive(Clone, Copy, Debug)]
enum Step {
    Kill,
    Drain,
    Add,
    Daemon,
    Plane,
}

/// What became of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Stays,
    /// The worker was dead at this tick.
    Killed(u64),
    Drained,
    Added,
}

/// A reservation with its workers and senders.
#[derive(Debug)]
struct Team {
    of: Reservation,
    from: IpAddr,
    /// Events in a second.
    rate: f64,
    workers: Vec<(WorkerProcess, Part)>,
    senders: Vec<EventProcess>,
}

/// A team after its last event, with all that its processes told.
#[derive(Debug)]
pub(super) struct EndedTeam {
    pub(super) of: Reservation,
    pub(super) from: IpAddr,
    pub(super) rate: f64,
    pub(super) workers: Vec<EndedWorker>,
    pub(super) sent: Vec<Ended>,
    /// The tables of its data plane, since that was started last.
    pub(super) tables: TableHistory,
    /// Packets that its data plane dropped since then, by cause.
    pub(super) drops: BTreeMap<String, u64>,
    pub(super) outage: Option<Outage>,
}

#[derive(Debug)]
pub(super) struct EndedWorker {
    pub(super) name: &'static str,
    pub(super) at: std::net::SocketAddr,
    pub(super) each: Duration,
    pub(super) part: Part,
    pub(super) ended: Ended,
}

/// The time in which a data plane was away: the ticks at which it was dead and ready again, and the tables that it had before.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) killed: u64,
    pub(super) ready: u64,
    pub(super) before: TableHistory,
}

impl Team {
    fn start(site: &Site, plane: usize, v6: bool, rate: f64) -> anyhow::Result<Self> {
        let of = site.reserve(plane)?;
        let from = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let mut team = Self { of, from, rate, workers: Vec::new(), senders: Vec::new() };
        // The second argument: how many times the rate of all events the worker could take.
        team.add("fast", 4.0, Part::Stays)?;
        team.add("medium", 1.0, Part::Stays)?;
        team.add("slow", 0.2, Part::Stays)?;
        Ok(team)
    }

    /// Starts a worker that could take `speed` times the rate of all events.
    fn add(&mut self, name: &'static str, speed: f64, part: Part) -> anyhow::Result<()> {
        let each = Duration::from_secs_f64(1.0 / (speed * self.rate));
        let worker = WorkerProcess::start(&self.of, own(self.from.is_ipv6())?, name, each)?;
        self.workers.push((worker, part));
        Ok(())
    }

    fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        for (worker, part) in self.workers.iter_mut().filter(|(worker, _)| worker.name == name) {
            *part = Part::Killed(worker.kill()?);
        }
        Ok(())
    }

    fn drain(&mut self, name: &str) -> anyhow::Result<()> {
        for (worker, part) in self.workers.iter_mut().filter(|(worker, _)| worker.name == name) {
            // The worker drains after SIGINT, as after Ctrl-C.
            worker.events.process.interrupt()?;
            *part = Part::Drained;
        }
        Ok(())
    }

    /// Whether the newest tables send any ticks to the worker of this name.
    fn reaches(&self, site: &Site, name: &str) -> bool {
        let newest = site.tables(self.of.plane).newest(self.of.lb, self.from);
        self.workers.iter().any(|(worker, _)| worker.name == name && newest.contains(&worker.at))
    }

    fn taken_by(&self, name: &str) -> u64 {
        self.workers.iter().filter(|(of, _)| of.name == name).map(|(worker, _)| worker.events.count()).sum()
    }

    fn taken(&self) -> u64 {
        self.workers.iter().map(|(worker, _)| worker.events.count()).sum()
    }

    fn is_draining(&self) -> bool {
        self.workers.iter().any(|(worker, part)| *part == Part::Drained && worker.events.is_busy())
    }
}

/// Prints a line for each change, and shows the progress in between.
struct Watch<'a> {
    table: &'a TextTable,
    events: u64,
    rate: f64,
    begin: Instant,
}

impl Watch<'_> {
    /// Waits until `is_so`, while events flow.
    ///
    /// # Errors
    /// If that takes longer than sending all events.
    fn until(&self, teams: &[Team], is_so: impl Fn(&[Team]) -> bool) -> anyhow::Result<()> {
        // The progress line is cleared when this function returns, before anything else is printed.
        let (mut line, begin) = (StatusLine::new(false), Instant::now());
        while !is_so(teams) {
            let limit = TIME_LIMIT + Duration::from_secs_f64(self.events as f64 / self.rate);
            ensure!(
                begin.elapsed() < limit,
                "the effect of the last step did not show within {limit:?}; set NAA_LOG=info to see what the processes say"
            );
            thread::sleep(LOOK);
            line.update(|| {
                let each = |(worker, _): &(WorkerProcess, Part)| {
                    format!("{} took {}", worker.name, worker.events.count())
                };
                let workers: Vec<_> = teams.iter().flat_map(|team| &team.workers).map(each).collect();
                let (seconds, sent) = (self.begin.elapsed().as_secs_f64(), sent(teams));
                format!("{seconds:.0} s: {sent} of {} events sent; {}", self.events, workers.join(", "))
            });
        }
        Ok(())
    }

    /// Waits until so many of a thousand events are sent.
    fn sent(&self, teams: &[Team], permille: u64) -> anyhow::Result<()> {
        self.until(teams, |teams| sent(teams) >= self.events * permille / 1000)
    }

    fn say(&mut self, what: &str) -> anyhow::Result<()> {
        self.table.line(&format!("{:4.1} s: {what}", self.begin.elapsed().as_secs_f64()))
    }
}

fn sent(teams: &[Team]) -> u64 {
    teams.iter().flat_map(|team| &team.senders).map(EventProcess::count).sum()
}

pub(super) fn run(args: &Args, table: &TextTable) -> anyhow::Result<Report> {
    let v6: &[bool] = if args.everything { &[false, true] } else { &[false] };
    let mut site = Site::start(v6)?;
    table.line(&site.name())?;
    let team = |plane: usize| Team::start(&site, plane, v6[plane], args.rate / v6.len() as f64);
    let mut teams = (0..v6.len()).map(team).collect::<anyhow::Result<Vec<_>>>()?;
    let count = teams.len();
    for n in 0..2_u16 {
        let team = &mut teams[usize::from(n) % count];
        let events = args.events / 2 + u64::from(u64::from(n) < args.events % 2);
        team.senders.push(start_sender(&team.of, n + 1, events, args.rate / 2.0, args.seed)?);
    }
    wait_for_tables(&site, &teams)?;
    let first = now();
    for sender in teams.iter_mut().flat_map(|team| &mut team.senders) {
        sender.process.begin()?;
    }
    let mut watch = Watch { table, events: args.events, rate: args.rate, begin: Instant::now() };
    watch.say("workers fast, medium and slow are in the tables; the senders begin")?;
    let (mut daemon_outage, mut outages) = (None, vec![None; v6.len()]);
    for (permille, step) in if args.everything { EVERYTHING } else { USUAL } {
        watch.sent(&teams, *permille)?;
        match step {
            Step::Kill => {
                teams.iter_mut().try_for_each(|team| team.kill("medium"))?;
                watch.say("worker medium is killed (SIGKILL)")?;
                watch.until(&teams, |teams| teams.iter().all(|team| !team.reaches(&site, "medium")))?;
                watch.say("the tables have noticed")?;
            }
            Step::Drain => {
                teams.iter_mut().try_for_each(|team| team.drain("slow"))?;
                watch.say("worker slow drains (SIGINT)")?;
                watch.until(&teams, |teams| teams.iter().all(|team| !team.reaches(&site, "slow")))?;
            }
            Step::Add => {
                teams.iter_mut().try_for_each(|team| team.add("new", 0.5, Part::Added))?;
                watch.say("worker new registers")?;
                watch.until(&teams, |teams| teams.iter().all(|team| team.taken_by("new") >= SHOW))?;
            }
            Step::Daemon => {
                let killed = site.kill_daemon()?;
                thread::sleep(DAEMON_AWAY);
                daemon_outage = Some((killed, site.start_daemon()?));
                watch.say("the control plane was killed, and is there again")?;
            }
            Step::Plane => {
                let plane = v6.len() - 1;
                let killed = site.kill_plane(plane)?;
                thread::sleep(PLANE_AWAY);
                let (ready, before) = site.start_plane(plane)?;
                outages[plane] = Some(Outage { killed, ready, before });
                watch.say("the data plane of IPv6 was killed, and is there again without tables")?;
                let before = teams[plane].taken();
                watch.until(&teams, |teams| teams[plane].taken() >= before + SHOW)?;
            }
        }
    }
    watch.sent(&teams, 1000)?;
    teams.iter_mut().flat_map(|team| &mut team.senders).for_each(|sender| sender.process.close_stdin());
    watch.until(&teams, |teams| !teams.iter().flat_map(|team| &team.senders).any(EventProcess::is_busy))?;
    watch.say("all events are sent")?;
    settle(&teams)?;
    let played = teams.into_iter().zip(outages).map(|(team, outage)| end(&site, team, outage));
    let played = played.collect::<anyhow::Result<Vec<_>>>()?;
    site.end()?;
    Ok(Report::new(first, &played, daemon_outage))
}

/// Waits until the newest tables of each data plane name all workers of its team.
fn wait_for_tables(site: &Site, teams: &[Team]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let is_there = |team: &Team| {
        let newest = site.tables(team.of.plane).newest(team.of.lb, team.from);
        team.workers.iter().all(|(worker, _)| newest.contains(&worker.at))
    };
    while !teams.iter().all(is_there) {
        ensure!(
            begin.elapsed() < TIME_LIMIT,
            "the tables do not name all workers after {TIME_LIMIT:?}; set NAA_LOG=info to see what the control plane says"
        );
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until the workers that drain have left, and no worker has told of an event for longer than one waits for the rest of an
/// event.
fn settle(teams: &[Team]) -> anyhow::Result<()> {
    const QUIET: Duration = Duration::from_millis(800);
    let (begin, mut quiet, mut seen) = (Instant::now(), Instant::now(), 0);
    while quiet.elapsed() < QUIET || teams.iter().any(Team::is_draining) {
        thread::sleep(LOOK);
        let taken = teams.iter().map(Team::taken).sum();
        if taken != seen {
            (seen, quiet) = (taken, Instant::now());
        }
        ensure!(
            begin.elapsed() < TIME_LIMIT,
            "the workers still take events, or drain, {TIME_LIMIT:?} after the last one was sent"
        );
    }
    Ok(())
}

fn end(site: &Site, team: Team, outage: Option<Outage>) -> anyhow::Result<EndedTeam> {
    let (tables, drops) = (site.tables(team.of.plane), site.drops(&team.of)?);
    let sent = team.senders.into_iter().map(EventProcess::end).collect::<anyhow::Result<Vec<_>>>()?;
    let work = |(worker, part): (WorkerProcess, Part)| -> anyhow::Result<EndedWorker> {
        let (name, at, each) = (worker.name, worker.at, worker.each);
        Ok(EndedWorker { name, at, each, part, ended: worker.end()? })
    };
    let workers = team.workers.into_iter().map(work).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(EndedTeam { of: team.of, from: team.from, rate: team.rate, workers, sent, tables, drops, outage })
}
