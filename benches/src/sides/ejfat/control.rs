//! The requests of the near end to the far end, over TCP. A request and its answer are a line of JSON each.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::time::{ClockId, clock_gettime};
use roce_udp::free_loopback;
use serde::{Deserialize, Serialize};

use crate::{cpu, side::parse, sides::spawn};

/// If a receiver gets nothing for this time, the events that are missing are lost.
const SILENCE: Duration = Duration::from_millis(40);
/// The longest wait for events that an earlier run left incomplete.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Events are sent from now on. The receiver receives them as the value says, if it has a choice.
    Begin(Manner),
    /// This number of events was sent.
    End { events: u64 },
    /// The far end relays to this address.
    To(SocketAddr),
    /// The answer is the CPU time and the memory that were used so far.
    Look,
    /// The answer is the same, and the times that events took through a bridge since it started.
    Latencies,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SinkReport {
    /// The number of complete events since the receiver started.
    pub(super) events: u64,
    /// The time by [`clock`] at which the last of them was complete; 0 if there was none.
    pub(super) last: u64,
    /// The times until events were delivered, if the request asks for them and they are known.
    pub(super) latencies: Option<Latencies>,
    /// The CPU seconds that were used so far.
    pub(super) cpu: f64,
    pub(super) resident_kib: f64,
}

/// The times until events are known to have been delivered, in microseconds. Each time has a p50 and a p99.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latencies {
    pub(super) since_first_segment: [f64; 2],
    pub(super) since_last_segment: [f64; 2],
}

/// The way in which a buffer receives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Manner {
    /// The number of datagrams that one system call receives.
    pub(super) batch: u32,
    /// True if the receiver polls for a while before it sleeps.
    pub(super) spin: bool,
}

/// The counts of a receiver.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of complete events.
    events: AtomicU64,
    /// The time by [`clock`] at which the last event was complete.
    last: AtomicU64,
    /// The number of incomplete events.
    open: AtomicU32,
    batch: AtomicU32,
    spin: AtomicBool,
}

/// Nanoseconds of a clock that all processes share.
pub(super) fn clock() -> u64 {
    // It cannot fail on Linux.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// So many are there now.
    pub(super) fn count(&self, events: u64) {
        if self.events.load(Ordering::Relaxed) != events {
            self.last.store(clock(), Ordering::Relaxed);
            self.events.store(events, Ordering::Release);
        }
    }

    pub(super) fn set_open(&self, events: u32) {
        self.open.store(events, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    pub(super) fn set_manner(&self, manner: Manner) {
        self.batch.store(manner.batch, Ordering::Relaxed);
        self.spin.store(manner.spin, Ordering::Relaxed);
    }

    pub(super) fn manner(&self) -> Manner {
        let (batch, spin) = (self.batch.load(Ordering::Relaxed), self.spin.load(Ordering::Relaxed));
        Manner { batch, spin }
    }

    /// Waits until no event that was sent before is incomplete. Returns the number of events so far.
    pub(super) fn settled(&self) -> u64 {
        let begin = Instant::now();
        while self.open.load(Ordering::Relaxed) > 0 && begin.elapsed() < SETTLED {
            thread::sleep(Duration::from_millis(1));
        }
        self.events.load(Ordering::Relaxed)
    }

    /// Until so many events came since there were `before`, or no more do. Gives their number.
    pub(super) fn arrived(&self, before: u64, events: u64) -> u64 {
        let (mut seen, mut last) = (0, Instant::now());
        while last.elapsed() < SILENCE {
            let now = self.events.load(Ordering::Acquire) - before;
            if now >= events {
                return now;
            }
            if now > seen {
                (seen, last) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        seen
    }
}

/// Answers one near end. The UDP port is the same as the TCP port, which is returned.
pub(super) fn answer_at(
    state: Arc<State>,
    mut relay: impl FnMut(SocketAddr) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<SocketAddr> {
    let mut before = 0;
    answer_with(move |ask| {
        let mut report = SinkReport::now()?;
        match ask {
            Ask::Begin(manner) => {
                state.set_manner(manner);
                before = state.settled();
            }
            Ask::End { events } => report.events = state.arrived(before, events),
            Ask::To(address) => relay(address)?,
            Ask::Look | Ask::Latencies => {}
        }
        report.last = state.last();
        Ok(report)
    })
}

impl SinkReport {
    /// What processes know of themselves.
    pub(super) fn now() -> anyhow::Result<Self> {
        let resident_kib = cpu::resident_kib(std::process::id())?;
        Ok(Self { events: 0, last: 0, latencies: None, cpu: cpu::time()?, resident_kib })
    }
}

/// Answers one near end at a TCP port, which is returned.
pub(super) fn answer_with(
    mut answer: impl FnMut(Ask) -> anyhow::Result<SinkReport> + Send + 'static,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((free_loopback()?, 0))?;
    let address = listener.local_addr()?;
    spawn("control", "the end that receives events", move || {
        let (stream, _) = listener.accept()?;
        all(&stream, &mut answer)
    })?;
    Ok(address)
}

fn all(stream: &TcpStream, answer: &mut impl FnMut(Ask) -> anyhow::Result<SinkReport>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    for line in BufReader::new(stream).lines() {
        let report = answer(parse(&line?)?)?;
        writeln!(&mut &*stream, "{}", serde_json::to_string(&report)?)?;
    }
    Ok(())
}

/// The near end's.
#[derive(Debug)]
pub(super) struct Control(BufReader<TcpStream>);

impl Control {
    pub(super) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(far)?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(super) fn ask(&mut self, ask: Ask) -> anyhow::Result<SinkReport> {
        writeln!(self.0.get_mut(), "{}", serde_json::to_string(&ask)?)?;
        let mut line = String::new();
        self.0.read_line(&mut line).context("the end that receives events has gone")?;
        parse(line.trim_end())
    }
}
