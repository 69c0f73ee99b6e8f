//! What a case against a bridge works with: a bridge of its own, an honest sender and worker beside, and a worker that lies.

use std::{
    io::{BufRead, BufReader, Read},
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ejfat::ring::{BLOCK, Filter, Geometry, Subscription, WorkerName, call::Parameter};
use mrsp::builtin;
use naa_events::{BridgeAddress, Config, Worker};
use naa_host::{Device, Error, Param, SessionConfig, StreamingCall, StreamingLimits, Writer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    bystander::{Bystander, Log, lock},
    case::{Observation, Own},
    ejfat::{DATA_ID, EjfatEnvironment, bound, segment_of},
    resources_process::{TempFolder, sibling},
};

/// The data id of the honest sender, which the honest worker subscribes to.
const HONEST_ID: u16 = 4321;
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The pause between rounds, so that the attacker and the bridge have most of the machine's CPU time.
const PAUSE: Duration = Duration::from_millis(1);
/// The rounds of the honest sender after an attack.
const ROUNDS: usize = 50;
/// The time in which a bridge looks at all credit words, and a little more.
pub(super) const LOOK: Duration = Duration::from_millis(80);

/// The bridge's process.
#[derive(Debug)]
pub(super) struct BridgeProcess {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(super) segments: SocketAddr,
    pub(super) workers: SocketAddr,
    pub(super) local: PathBuf,
    rss_kib: i64,
    _folder: TempFolder,
}

impl BridgeProcess {
    fn start(ip: IpAddr, args: &[&str]) -> Result<Self, String> {
        let folder = TempFolder::new("bridge")?;
        let local = folder.0.join("socket");
        let mut command = Command::new(sibling("naa")?);
        command.args(["bridge", "--json", "--route", "data-id", "--provider", "embedded", "--until-eof"]);
        command.args(["--listen", &SocketAddr::new(ip, 0).to_string(), "--bind", &ip.to_string()]);
        command.arg("--local").arg(&local).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("cannot start a bridge: {e}"))?;
        let mut out = BufReader::new(child.stdout.take().ok_or("the bridge has no output")?);
        let mut line = String::new();
        out.read_line(&mut line).map_err(|e| e.to_string())?;
        let ready: Value = serde_json::from_str(&line).map_err(|_| "the bridge did not start")?;
        let address = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let segments = address(&ready["segments"][0]).ok_or("no address for segments")?;
        let workers = address(&ready["workers"]).ok_or("no address for workers")?;
        let rss_kib = memory_of(child.id(), "VmRSS:")?;
        Ok(Self { child, out, segments, workers, local, rss_kib, _folder: folder })
    }

    /// Ends it by SIGTERM. It must be alive until then. What it counted, and KiB that it grew by.
    fn end(mut self) -> Result<(Value, i64), String> {
        if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("the bridge ended with {status}"));
        }
        let growth = memory_of(self.child.id(), "VmHWM:")? - self.rss_kib;
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|e| e.to_string())?;
        let begin = Instant::now();
        while self.child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if begin.elapsed() > TIME_LIMIT {
                return Err("the bridge does not end by SIGTERM".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        self.out.read_to_string(&mut said).map_err(|e| e.to_string())?;
        let last = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let last = last.filter(|last| last["event"] == "end").ok_or("the bridge has no last word")?;
        Ok((last, growth))
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A sender and a worker that do all as they should, in one thread: each event must arrive, to the byte.
fn honest(socket: UdpSocket, bridge: SocketAddr, local: IpAddr) -> Bystander {
    Bystander::spawn(move |log, stop| {
        if let Err(why) = work(&socket, bridge, local, log, stop) {
            lock(log).failures.push(format!("the honest worker: {why}"));
        }
    })
}

fn config(local: IpAddr, data_id: u16, slots: u32) -> Config {
    Config {
        geometry: Geometry::new(slots, 16 << 10).expect("a ring of some KiB can be"),
        filter: Filter { data_ids: (data_id, data_id), member: None },
        local: Some(local),
        provider: Some(naa_events::ProviderChoice::Embedded),
        reconnect: None,
        ..Config::default()
    }
}

fn work(
    socket: &UdpSocket,
    bridge: SocketAddr,
    local: IpAddr,
    log: &Mutex<Log>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let opened = Worker::open(&BridgeAddress::Remote(bridge), &config(local, HONEST_ID, 16));
    let mut worker = opened.map_err(|e| e.to_string())?;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let length = [1u32, 100, 30_000, 1400, 8_000, 1401][number as usize % 6];
        let byte =
            |at: u32| (u64::from(at).wrapping_mul(2_654_435_761).wrapping_add(number * 40_503) >> 13) as u8;
        let sent: Vec<_> = (0..length).map(byte).collect();
        let begin = Instant::now();
        for (at, payload) in sent.chunks(1400).enumerate() {
            let segment = segment_of(HONEST_ID, number, at as u32 * 1400, length, payload);
            socket.send(&segment).map_err(|e| format!("cannot send: {e}"))?;
        }
        let event = worker.next_until(Some(begin + TIME_LIMIT)).map_err(|e| e.to_string())?;
        let event = event.ok_or_else(|| format!("event {number} of {length} bytes did not arrive"))?;
        if event.descriptor().name.event != number || event.to_vec() != sent {
            return Err(format!("event {number} is another one: {:?}", event.descriptor()));
        }
        drop(event);
        lock(log).rounds.push(begin.elapsed());
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// A bridge under attack, and who uses it well.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) bridge: BridgeProcess,
    honest: Bystander,
    sent: u64,
}

impl EjfatEnvironment {
    pub(super) fn bridge(&mut self, args: &[&str]) -> Result<Beside, String> {
        let bridge = BridgeProcess::start(self.address(false), args)?;
        let socket = bound(self.address(false), bridge.segments)?;
        let honest = honest(socket, bridge.workers, self.address(false));
        honest.rounds(2, "arrive")?;
        Ok(Beside { bridge, honest, sent: 0 })
    }

    /// A worker that lies, for the attackers' data id.
    pub(super) fn misbehaving_worker(
        &mut self,
        beside: &Beside,
        slots: u32,
    ) -> Result<MisbehavingWorker, String> {
        MisbehavingWorker::subscribe(self.address(false), beside.bridge.workers, slots)
    }
}

impl Beside {
    /// So many events of the attackers' data id, of one segment each.
    pub(super) fn feed(&mut self, env: &mut EjfatEnvironment, events: u64) -> Result<(), String> {
        let mut attacker = super::ejfat::Attacker::at(env.address(false), self.bridge.segments)?;
        for event in self.sent..self.sent + events {
            attacker.send(&segment_of(DATA_ID, event, 0, 8, &event.to_le_bytes()))?;
        }
        self.sent += events;
        Ok(())
    }

    /// The honest must get through at once; then all end. What the bridge counted of these, in this order.
    pub(super) fn end(self, told: &[&str], note: impl Into<String>) -> Result<Observation, String> {
        let stuck = self.honest.rounds(ROUNDS, "arrive").err();
        let mut log = self.honest.end();
        let mut own = Own { bystander: log.latency(), ..Own::default() };
        own.why.extend(if log.failures.is_empty() { stuck.into_iter().collect() } else { log.failures });
        let (report, growth_kib) = self.bridge.end()?;
        own.growth_kib = growth_kib;
        own.rose = counters(&report, own.bystander.calls as u64);
        let all = own.rose.iter().filter(|(name, _)| told.contains(&name.as_str()));
        let answer = all.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ");
        let answer = if answer.is_empty() { "nothing".into() } else { answer };
        Ok(Observation { own: Some(own), ..Observation::noted(answer, note) })
    }
}

/// The bridge's counters, without the honest worker's events.
fn counters(report: &Value, honest: u64) -> Vec<(String, u64)> {
    let of = |name: &str| (name.to_owned(), report[name].as_u64().unwrap_or(0));
    let less = |name: &str| {
        let (name, count) = of(name);
        (name, count.saturating_sub(honest))
    };
    let lost = report["lost"].as_object().into_iter().flatten();
    let lost = lost.map(|(cause, n)| (cause.clone(), n.as_u64().unwrap_or(0)));
    let all = [of("wrong_credits"), of("refused"), of("incomplete"), of("held_by_ended")];
    let all = all.into_iter().chain([less("sent"), less("released")]).chain(lost);
    all.filter(|&(_, n)| n > 0).collect()
}

/// KiB, by the kernel's name.
fn memory_of(pid: u32, what: &str) -> Result<i64, String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| "the bridge is gone".into())
}

/// The regions of a subscription, in order.
pub(super) fn params(block: &[u8], geometry: Geometry) -> [Param<'_>; 5] {
    Parameter::ALL.map(|parameter| match parameter {
        Parameter::Subscription => Param::data(block),
        _ if parameter.is_input() => Param::input(parameter.bytes(geometry)),
        _ => Param::output(parameter.bytes(geometry)),
    })
}

pub(super) fn subscription(geometry: Geometry) -> [u8; BLOCK] {
    let filter = Filter { data_ids: (DATA_ID, DATA_ID), member: None };
    let name = WorkerName::from("liar").expect("short");
    Subscription { geometry, filter, name, redelivery: false }.encode()
}

/// Subscribes as it should, and then writes credit as it likes.
pub(super) struct MisbehavingWorker {
    pub(super) stream: StreamingCall,
    writer: Writer,
    geometry: Geometry,
    count: u32,
}

impl MisbehavingWorker {
    fn subscribe(local: IpAddr, bridge: SocketAddr, slots: u32) -> Result<Self, String> {
        let geometry = Geometry::new(slots, 64).map_err(|e| e.to_string())?;
        let (stream, writer) = open(local, bridge, &params(&subscription(geometry), geometry), slots)
            .map_err(|e| e.to_string())?;
        Ok(Self { stream, writer, geometry, count: 0 })
    }

    /// Writes a slot's word, and that something changed.
    pub(super) fn credit(&mut self, slot: u32, word: u32) -> Result<(), String> {
        let failed = |e: Error| e.to_string();
        let at = self.geometry.credit_at(slot);
        self.count = self.count.wrapping_add(1);
        let parts = [(at, &word.to_le_bytes()[..]), (0, &self.count.to_le_bytes())];
        // Acknowledgements of earlier ones make room.
        let deadline = Instant::now() + TIME_LIMIT;
        while self.writer.room() < parts.len() && Instant::now() < deadline {
            self.stream.wait(Some(deadline)).map_err(failed)?;
        }
        self.writer.write(Parameter::Credits.number(), &parts).map(drop).map_err(failed)
    }

    /// The bridge looks at what was written.
    pub(super) fn wait(&mut self) {
        let until = Instant::now() + LOOK;
        while Instant::now() < until {
            let _ = self.stream.wait(Some(until));
        }
    }
}

pub(super) fn open(
    local: IpAddr,
    bridge: SocketAddr,
    params: &[Param<'_>],
    immediates: u32,
) -> Result<(StreamingCall, Writer), Error> {
    let device = Device::open_with(local, naa_events::ProviderChoice::Embedded)?;
    let room = StreamingLimits { immediates: immediates + 1, writes: 64 };
    let config = SessionConfig { setup_timeout: TIME_LIMIT, ..SessionConfig::default() };
    StreamingCall::open(&device, bridge, params, &config, builtin::SUBSCRIBE, room)
}
