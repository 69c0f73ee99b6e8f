//! A sender of many small events, and workers that come and die.

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
use tokio::runtime::{Builder, Runtime};
use tonic::metadata::AsciiMetadataValue;

use super::{
    DATA_PORT, SYNC_PORT, TOKEN, What,
    calls::{self, Client},
};
use crate::side::{Effort, Measure, Work};

/// From event to event: a worker of two has one in half a millisecond.
const BETWEEN: Duration = Duration::from_micros(250);
/// Workers send their state so often.
const STATES: Duration = Duration::from_millis(100);
/// A worker that is silent for so long counts as dead.
const SILENT: Duration = Duration::from_secs(2);
/// Nothing takes so long.
const LATEST: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(in crate::sides) struct Times {
    what: What,
    runtime: Runtime,
    client: Client,
    admin: AsciiMetadataValue,
    lb: String,
    /// A worker that stays, so that every event has one.
    stays: Worker,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

struct Worker {
    socket: UdpSocket,
    session: String,
    bearer: AsciiMetadataValue,
}

impl Times {
    pub(in crate::sides) fn connect(what: What, to: SocketAddr) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
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
        let mut times = Self { what, runtime, client, admin, lb, stays, stop, sender };
        // Until the senders' rate is known.
        times.states_for(Duration::from_secs(5), None)?;
        Ok(times)
    }

    /// Sends states of the worker that stays, and of another one, for so long.
    fn states_for(&mut self, time: Duration, other: Option<&Worker>) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.states(other)?;
            thread::sleep(STATES);
        }
        Ok(())
    }

    fn states(&mut self, other: Option<&Worker>) -> anyhow::Result<()> {
        let Self { runtime, client, stays, .. } = self;
        runtime.block_on(async {
            for of in [&*stays].into_iter().chain(other) {
                client.send_state(calls::with(calls::state(&of.session, 0.0), &of.bearer)).await?;
            }
            Ok(())
        })
    }

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
        let last = last.context("a worker got no event")?;
        self.leave(&new)?;
        Ok((last.as_secs_f64() - SILENT.as_secs_f64()) * 1e3)
    }

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
            // Who panicked there has said so.
            let _ = sender.join();
        }
    }
}

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
        // Nobody may take it yet.
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
            What::FirstEvent => self.first_event()?,
            What::LastEvent => self.last_event()?,
        };
        Ok(Work { value, amount: 1.0 })
    }
}
