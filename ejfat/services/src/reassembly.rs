//! Reassembly that runs beside everything else, and puts events where an [`EventSink`] wants them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ejfat::reassembly::{Counters, Eviction, SegmentDropCause};
use ejfat_udp::{Error, Gauge, ReceivedEvent, Receiver, ReceiverConfig};

/// The time between two checks whether reassembly should end.
const TURN: Duration = Duration::from_millis(100);

/// How long the end of a reassembly waits for its thread. A sink of that thread may wait for a reader that reads no
/// more.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The same limit while the thread finishes its sink, because a disk may take long to write its data.
const DISK_TIMEOUT: Duration = Duration::from_secs(30);

/// Why an event could not be put away.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Where events go: files, a pipe, a command, a subscriber's memory.
pub trait EventSink: Send {
    /// Consumes an event. After this method has returned, the memory of the event's bytes is used for later events.
    ///
    /// # Errors
    /// Fails if the sink can consume no more events. After an error, the reassembly ends.
    fn event(&mut self, event: &ReceivedEvent<'_>) -> Result<(), SinkError>;

    /// Notifies the sink that no event follows. When this method returns, the consumed events must be safe from loss.
    ///
    /// # Errors
    /// Fails if a consumed event may be lost.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// What it did until a moment ago.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The counters of segments and events.
    pub counters: Counters,
    /// Incomplete yet.
    pub open: u32,
    /// Bytes of memory that segments have touched.
    pub memory: u64,
    /// Why it ended by itself.
    pub ended: Option<String>,
}

impl Snapshot {
    /// As services tell it.
    pub fn message(&self) -> proto::events::v1::ReassemblyCounters {
        message(&self.counters, self.open, self.memory, self.ended.clone())
    }
}

/// Counters as the message of a service. `open` is the number of incomplete events.
pub fn message(
    counters: &Counters,
    open: u32,
    memory: u64,
    ended: Option<String>,
) -> proto::events::v1::ReassemblyCounters {
    let dropped = SegmentDropCause::ALL.map(|cause| (cause.name().to_owned(), counters.dropped(cause)));
    proto::events::v1::ReassemblyCounters {
        segments: counters.segments,
        bytes: counters.bytes,
        placed_bytes: counters.placed_bytes,
        dropped: dropped.into_iter().collect(),
        opened: counters.opened,
        complete: counters.complete,
        timed_out: counters.timed_out,
        evicted: counters.evicted_for_any_reason(),
        evicted_by: Eviction::ALL.map(|by| (by.name().to_owned(), counters.evicted(by))).into(),
        abandoned: counters.abandoned,
        open,
        memory,
        ended,
    }
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Reassembly {
    addresses: Vec<SocketAddr>,
    /// The ports of ranges that another process holds, and that are left out.
    skipped: Vec<SocketAddr>,
    gauge: Gauge,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    /// The sink brings events to where they cannot be lost.
    finishing: AtomicBool,
    snapshot: Mutex<Snapshot>,
}

impl Reassembly {
    /// Binds the ports, and starts a thread that reassembles events and gives them to `sink`.
    ///
    /// # Errors
    /// Fails if a port cannot be bound, if the bounds of the reassembly exclude each other, or if the operating system
    /// starts no thread.
    pub fn start(config: ReceiverConfig, sink: Box<dyn EventSink>) -> Result<Self, Error> {
        let mut receiver = Receiver::new(config)?;
        let gauge = receiver.gauge()?;
        let (addresses, skipped) = (receiver.addresses(), receiver.skipped().to_vec());
        let state = Arc::<State>::default();
        let own = state.clone();
        let thread = std::thread::Builder::new().name("reassembly".into());
        let thread = thread.spawn(move || run(receiver, sink, &own));
        let thread = thread.map_err(|source| Error::Io { what: "start a thread".into(), source })?;
        Ok(Self { addresses, skipped, gauge, state, thread: Mutex::new(Some(thread)) })
    }

    /// Where segments come, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The ports of ranges that another process holds, and that are left out.
    pub fn skipped(&self) -> &[SocketAddr] {
        &self.skipped
    }

    /// Tells how full the receiver's memory for events is. It can be read while the sink takes an event.
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// Ends it and waits for its sink, but not for one that waits for a reader. Why it ended by itself, lost events or may
    /// have lost some, if so.
    pub fn end(&self) -> Option<String> {
        let left = self.stop();
        self.snapshot().ended.or(left)
    }

    /// Returns the counters and the state of the reassembly, which are a moment old.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why its thread was left behind, if it was.
    fn stop(&self) -> Option<String> {
        self.state.stop.store(true, Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = thread?;
        let begin = Instant::now();
        let limit = || if self.state.finishing.load(Relaxed) { DISK_TIMEOUT } else { END_TIMEOUT };
        while !thread.is_finished() && begin.elapsed() < limit() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            // It does not panic; and if it did, it said so.
            let _ = thread.join();
            return None;
        }
        let why =
            format!("whoever takes events did not finish within {:?}; the last events may be lost", limit());
        tracing::warn!("{why}; reassembly is left to end with the process");
        Some(why)
    }
}

impl Drop for Reassembly {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(mut receiver: Receiver, mut sink: Box<dyn EventSink>, state: &State) {
    let mut published = Instant::now();
    while !state.stop.load(Relaxed) {
        let mut refused = None;
        let deliver = |event: ReceivedEvent<'_>| {
            if refused.is_none() {
                refused = sink.event(&event).err();
            }
        };
        let polled = receiver.poll(TURN, deliver, |_| ());
        let ended = refused.map(|error| error.to_string()).or_else(|| Some(polled.err()?.to_string()));
        if ended.is_some() || published.elapsed() >= TURN {
            published = Instant::now();
            publish(&receiver, ended.clone(), state);
        }
        if let Some(why) = ended {
            tracing::error!("reassembly ended: {why}");
            finish(&mut *sink, state);
            return;
        }
    }
    if let Some(why) = finish(&mut *sink, state) {
        tracing::error!("{why}");
        publish(&receiver, Some(why), state);
    }
}

/// Why events may be lost, if they may.
fn finish(sink: &mut dyn EventSink, state: &State) -> Option<String> {
    state.finishing.store(true, Relaxed);
    sink.finish().err().map(|error| error.to_string())
}

fn publish(receiver: &Receiver, ended: Option<String>, state: &State) {
    let reassembler = receiver.reassembler();
    let snapshot = Snapshot {
        counters: reassembler.counters().clone(),
        open: reassembler.open_events(),
        memory: reassembler.touched_memory(),
        ended,
    };
    *state.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
}
