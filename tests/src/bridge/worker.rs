//! A worker's process: it tells each event before it gives it back.

use std::{
    io::{Write as _, stdout},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use naa_events::{BridgeAddress, Config, Event, Geometry, SessionConfig, Worker, WorkerName};
use naa_provider::ProviderChoice;

use super::{ledger::Taken, process};

/// Events that it has at a time.
const TOGETHER: usize = 16;
const SLOTS: u32 = 64;
const SLOT_BYTES: u32 = 64 << 10;
/// A bridge that died is missed that soon.
const PROBES: Duration = Duration::from_millis(250);
const RECONNECT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct WorkerProcessConfig {
    pub(super) source: BridgeAddress,
    pub(super) name: String,
    pub(super) local: Option<IpAddr>,
    pub(super) provider: ProviderChoice,
    /// A silent peer is given up after about eight times 4.096 us * 2^N.
    pub(super) ack_timeout: u8,
    /// Whether it asks for events that killed workers had.
    pub(super) redelivery: bool,
}

/// Takes events until standard input ends.
pub(super) fn run(settings: &WorkerProcessConfig) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    process::on_stdin_end(move || stopped.store(true, Relaxed));
    let config = Config {
        geometry: Geometry::new(SLOTS, SLOT_BYTES).map_err(|e| text(&e))?,
        name: WorkerName::from(&settings.name).map_err(|e| text(&e))?,
        again: settings.redelivery,
        session: SessionConfig {
            ack_timeout: settings.ack_timeout,
            probe_interval: Some(PROBES),
            ..SessionConfig::default()
        },
        local: settings.local,
        provider: Some(settings.provider),
        reconnect: Some(RECONNECT),
        ..Config::default()
    };
    let mut worker = open(&settings.source, &config)?;
    say(&format!("READY {}\n", worker.describe()))?;
    while !stop.load(Relaxed) {
        let soon = Instant::now() + Duration::from_millis(100);
        let Some(first) = worker.next_until(Some(soon)).map_err(|e| text(&e))? else { continue };
        let instance = worker.answer().instance;
        let mut lines = String::new();
        let mut together = vec![add_line(first, instance, &mut lines)];
        while together.len() < TOGETHER
            && let Some(event) = worker.try_next().map_err(|e| text(&e))?
        {
            // The bridge may be another one by now.
            together.push(add_line(event, worker.answer().instance, &mut lines));
        }
        // Events are printed before they are released, however this process ends.
        say(&lines)?;
        // Events are released in another order than they came.
        while let Some(event) = together.pop() {
            drop(event);
        }
    }
    say(&format!("END {}\n", worker.stats().events))
}

/// A bridge that is killed just now is there again soon.
fn open(source: &BridgeAddress, config: &Config) -> Result<Worker, String> {
    let begin = Instant::now();
    loop {
        match Worker::open(source, config) {
            Ok(worker) => return Ok(worker),
            Err(error) if begin.elapsed() > RECONNECT => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn add_line(event: Event, instance: u64, lines: &mut String) -> Event {
    let name = event.descriptor().name;
    let taken = Taken::of((name.data_id, name.event), &event.to_vec(), instance, event.delivered_again());
    lines.push_str(&format!("{taken}\n"));
    event
}

fn say(text: &str) -> Result<(), String> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string())
}
