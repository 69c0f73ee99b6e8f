//! Threads that send events, so fast as workers take them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ejfat::segment::LbVersion;
use ejfat_udp::{Sender, SenderConfig};

use super::{contents::Contents, ledger::Ledger};

pub(super) const SENDERS: u16 = 3;
/// Sent and not taken, of all of them: as much as receive buffers of the usual size hold.
const BYTES: u64 = 1 << 20;
const EVENTS: u64 = 300;

/// How they send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Bits per second of each.
    pub(super) rate: f64,
    /// What nobody took for so long will not be taken by anybody.
    pub(super) limit: Duration,
    /// The longest packets, in bytes.
    pub(super) mtu: u16,
}

#[derive(Debug)]
pub(super) struct Senders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Sent, String>>>,
}

/// What a sender did, or all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) segments: u64,
    /// The longest time that sending one event took. It shows whether the machine stood still while an event was sent.
    pub(super) longest: Duration,
}

/// Events that were sent and that the test no longer waits for.
#[derive(Debug, Default)]
struct Forgiven {
    events: AtomicU64,
    bytes: AtomicU64,
}

impl Senders {
    /// Starts the senders, each with one data id. If `events` is set, they end by themselves after this many events of
    /// all together.
    pub(super) fn start(
        to: SocketAddr,
        contents: &Arc<Contents>,
        ledger: &Arc<Ledger>,
        events: Option<u64>,
        pace: Pace,
    ) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let forgiven = Arc::new(Forgiven::default());
        let mut threads = Vec::new();
        for data_id in 0..SENDERS {
            let (mtu, version) = match data_id {
                0 => (1500, LbVersion::V2),
                1 => (pace.mtu, LbVersion::V3),
                _ => (pace.mtu, LbVersion::V2),
            };
            let config =
                SenderConfig { mtu, version, data_id, rate: Some(pace.rate), ..SenderConfig::new(to) };
            let sender = Sender::new(config).map_err(|e| e.to_string())?;
            let (each, more) = (u64::from(SENDERS), u64::from(data_id));
            let events = events.map(|all| all / each + u64::from(more < all % each));
            let thread = Thread {
                sender,
                data_id,
                contents: contents.clone(),
                ledger: ledger.clone(),
                stop: stop.clone(),
                forgiven: forgiven.clone(),
                limit: pace.limit,
            };
            threads.push(thread::spawn(move || thread.send(events)));
        }
        Ok(Self { stop, threads })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.threads.iter().any(|thread| !thread.is_finished())
    }

    pub(super) fn end(self) -> Result<Sent, String> {
        self.stop.store(true, Relaxed);
        let join = |thread: JoinHandle<_>| thread.join().map_err(|_| "a sender panicked".to_owned())?;
        let mut all = Sent::default();
        for thread in self.threads {
            let sent: Sent = join(thread)?;
            all.segments += sent.segments;
            all.longest = all.longest.max(sent.longest);
        }
        Ok(all)
    }
}

struct Thread {
    sender: Sender,
    data_id: u16,
    contents: Arc<Contents>,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    forgiven: Arc<Forgiven>,
    limit: Duration,
}

impl Thread {
    fn send(mut self, events: Option<u64>) -> Result<Sent, String> {
        let (mut bytes, mut longest) = (Vec::new(), Duration::ZERO);
        for event in 0..events.unwrap_or(u64::MAX) {
            self.wait();
            if self.stop.load(Relaxed) {
                break;
            }
            self.contents.event(self.data_id, event, &mut bytes);
            self.ledger.sending((self.data_id, event), &bytes);
            let begin = Instant::now();
            self.sender.send(event, event as u16, &bytes).map_err(|e| e.to_string())?;
            longest = longest.max(begin.elapsed());
        }
        Ok(Sent { segments: self.sender.sent().segments, longest })
    }

    /// Until workers took enough of what was sent, or take nothing any more.
    fn wait(&self) {
        let mut since = Instant::now();
        let mut taken = self.ledger.totals().taken;
        while !self.stop.load(Relaxed) {
            let now = self.ledger.totals();
            let is_out = |sent: u64, taken: u64, of: &AtomicU64| {
                sent.saturating_sub(taken).saturating_sub(of.load(Relaxed))
            };
            if is_out(now.sent, now.taken, &self.forgiven.events) < EVENTS
                && is_out(now.sent_bytes, now.taken_bytes, &self.forgiven.bytes) < BYTES
            {
                return;
            }
            if now.taken != taken {
                (since, taken) = (Instant::now(), now.taken);
            } else if since.elapsed() > self.limit {
                self.forgiven.events.store(now.sent.saturating_sub(now.taken), Relaxed);
                self.forgiven.bytes.store(now.sent_bytes.saturating_sub(now.taken_bytes), Relaxed);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}
