//! A sender of many small events, and workers that register and die.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use ejfat_udp::{Sender, SenderConfig, SyncSender};
use tokio::runtime::Runtime;
use tonic::metadata::AsciiMetadataValue;

use super::{
    DATA_PORT, SYNC_PORT, TOKEN, What,
    calls::{self, Client},
};
use crate::{
    side::{Effort, Measure, Work},
    sides::grpc,
};

/// The time between two events. A new worker, whose share begins at a sixteenth, gets an event every few milliseconds, which is
/// how exactly times are measured here.
const BETWEEN: Duration = Duration::from_micros(250);
/// The time between two states of a worker.
const STATES: Duration = Duration::from_millis(100);
/// A worker that sent no state for so long counts as dead: the control plane's default.
const SILENT: Duration = Duration::from_secs(2);
/// If a worker gets its last event this long before it counts as dead, it lost its events for another reason than its death.
const TOO_EARLY: Duration = Duration::from_millis(200);
/// The longest wait for the first event of a worker.
const LATEST: Duration = Duration::from_secs(10);
/// New workers wait for the control plane's next period, of one second, whose beginning is not known here. So in each repeat
/// workers register at this many times, spread evenly over a period, and the longest wait counts.
const PHASES: u32 = 4;
/// From repeat to repeat these times move by this part of the time between two of them, so that all times in a period are used.
const GOLDEN: f64 = 0.618;

/// A reservation with a sender and a worker, and the times of further workers.
pub(in crate::sides) struct Times {
    what: What,
    runtime: Runtime,
    client: Client,
    admin: AsciiMetadataValue,
    lb: String,
    /// A worker that is registered all the time, so that there is a worker for each event.
    stays: Worker,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    begin: Instant,
    repeats: u32,
}

struct Worker {
    socket: UdpSocket,
    session: String,
    bearer: AsciiMetadataValue,
}

impl Times {
    pub(in crate::sides) fn connect(what: What, to: SocketAddr) -> anyhow::Result<Self> {
        let runtime = grpc::runtime()?;
        let admin = calls::bearer(TOKEN)?;
        let (client, lb, stays) = runtime.block_on(async {
            let mut client = calls::connect(to).await?;
            let from: IpAddr = [127, 0, 0, 1].into();
            let lb = calls::reserve(&mut client, &admin, &[from]).await?.lb_id;
            let stays = worker(&mut client, &admin, &lb, to.ip()).await?;
            anyhow::Ok((client, lb, stays))
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, ip) = (stop.clone(), to.ip());
        let send = move || {
            if let Err(error) = send(ip, &ended) {
                eprintln!("naa: the sender of events: {error}");
            }
        };
        let sender = Some(thread::Builder::new().name("events".into()).spawn(send)?);
        let (begin, repeats) = (Instant::now(), 0);
        let mut times = Self { what, runtime, client, admin, lb, stays, stop, sender, begin, repeats };
        // The control plane knows the rate of the sender's ticks after this time.
        times.states_for(Duration::from_secs(5), None)?;
        Ok(times)
    }

    /// Sends states of the worker that stays, and of `other`, for a time.
    fn states_for(&mut self, time: Duration, other: Option<&Worker>) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.states(other)?;
            thread::sleep(STATES.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// The longest of the times of [`first_event`](Self::first_event), in seconds. If a worker registered each time at once after
    /// the one before it left, it would always be at the same time in a period.
    fn first_events(&mut self) -> anyhow::Result<f64> {
        let shift = f64::from(self.repeats) * GOLDEN;
        self.repeats += 1;
        let mut longest = 0.0_f64;
        for n in 0..PHASES {
            let at = (f64::from(n) + shift) / f64::from(PHASES);
            let wait = (at - self.begin.elapsed().as_secs_f64()).rem_euclid(1.0);
            self.states_for(Duration::from_secs_f64(wait), None)?;
            longest = longest.max(self.first_event()?);
        }
        Ok(longest)
    }

    /// Sends one state of the worker that stays, and one of `other`.
    fn states(&mut self, other: Option<&Worker>) -> anyhow::Result<()> {
        let Self { runtime, client, stays, .. } = self;
        runtime.block_on(async {
            for of in [&*stays].into_iter().chain(other) {
                client.send_state(calls::with(calls::state(&of.session, 0.0), &of.bearer)).await?;
            }
            Ok(())
        })
    }

    /// Seconds from the registration of a new worker to its first event.
    fn first_event(&mut self) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let Self { runtime, client, admin, lb, stays, .. } = self;
        let ip = stays.socket.local_addr()?.ip();
        let new = runtime.block_on(worker(client, admin, lb, ip))?;
        let mut next = Instant::now();
        let first = loop {
            if Instant::now() >= next {
                next = Instant::now() + STATES;
                self.states(Some(&new))?;
            }
            if new.socket.recv(&mut [0; 2048]).is_ok() {
                break begin.elapsed();
            }
            ensure!(begin.elapsed() < LATEST, "a worker got no event for {LATEST:?}");
        };
        self.leave(&new)?;
        Ok(first.as_secs_f64())
    }

    /// Milliseconds from the moment at which a silent worker counts as dead to the last event that it gets.
    fn last_event(&mut self) -> anyhow::Result<f64> {
        let Self { runtime, client, admin, lb, stays, .. } = self;
        let ip = stays.socket.local_addr()?.ip();
        let new = runtime.block_on(worker(client, admin, lb, ip))?;
        self.states_for(Duration::from_secs(3), Some(&new))?;
        self.states(Some(&new))?;
        let died = Instant::now();
        let (mut next, mut last) = (Instant::now(), None);
        while died.elapsed() < SILENT + Duration::from_millis(700) {
            if Instant::now() >= next {
                next = Instant::now() + STATES;
                self.states(None)?;
            }
            if new.socket.recv(&mut [0; 2048]).is_ok() {
                last = Some(died.elapsed());
            }
        }
        let last = last.context("a worker got no event after its last state")?;
        ensure!(
            last + TOO_EARLY > SILENT,
            "a worker got its last event {last:?} after its last state, before it counted as dead"
        );
        self.leave(&new)?;
        Ok((last.as_secs_f64() - SILENT.as_secs_f64()) * 1e3)
    }

    /// Deregisters a worker, and waits until the tables are without it.
    fn leave(&mut self, worker: &Worker) -> anyhow::Result<()> {
        let Self { runtime, client, admin, lb, .. } = self;
        runtime.block_on(calls::deregister(client, admin, lb, &worker.session))?;
        self.states_for(Duration::from_millis(500), None)
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(sender) = self.sender.take() {
            // A panic of the thread has been reported by its hook.
            let _ = sender.join();
        }
    }
}

/// Registers a worker that listens on a port of its own.
async fn worker(
    client: &mut Client,
    admin: &AsciiMetadataValue,
    lb: &str,
    ip: IpAddr,
) -> anyhow::Result<Worker> {
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    let registered = calls::register(client, admin, lb, socket.local_addr()?).await?;
    Ok(Worker { socket, session: registered.session_id, bearer: calls::bearer(&registered.token)? })
}

/// Sends events and syncs until it is told to end.
fn send(ip: IpAddr, ended: &AtomicBool) -> anyhow::Result<()> {
    let sync = SyncSender::new(SocketAddr::new(ip, SYNC_PORT), 1)?;
    let mut out =
        Sender::new(SenderConfig { sockets: 1, ..SenderConfig::new(SocketAddr::new(ip, DATA_PORT)) })?;
    let (mut synced, mut event) = (None::<Instant>, 0);
    while !ended.load(Relaxed) {
        if synced.is_none_or(|synced| synced.elapsed() >= Duration::from_secs(1)) {
            sync.send()?;
            synced = Some(Instant::now());
        }
        // An event that nobody takes yet is no error here.
        let _ = out.send(event, event as u16, &[0; 64]);
        event += 1;
        thread::sleep(BETWEEN);
    }
    Ok(())
}

impl Measure for Times {
    fn warm_up(&mut self, _: &Effort) -> anyhow::Result<String> {
        Ok("4000 events a second, states each 0.1 s".to_owned())
    }

    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let value = match self.what {
            What::FirstEvent => self.first_events()?,
            What::LastEvent => self.last_event()?,
        };
        Ok(Work { value, amount: 1.0 })
    }
}
