//! What a case against an EJFAT worker works with: a worker of its own, an honest sender beside, addresses to attack from.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use ejfat::wire::{LbHeader, ReHeader, Select};
use naa_udp::{Port, PortConfig, Rest, SendBatch};
use serde_json::Value;
use simnet::Random;

use super::{
    bystander::Bystander,
    case::{Observation, Own},
    ejfat_honest::{self, Manner},
    ejfat_worker::{Ended, TIMEOUT, WorkerProcess},
    environment::{Addresses, Family},
    resources_process::TempFolder,
    suite::RunConfig,
};

/// Bytes of buffer that the attacker lets the kernel fill before it pauses, by [`SKB`] more for each datagram.
const BURST: usize = 1 << 18;
const SKB: usize = 1024;
const BREATH: Duration = Duration::from_millis(1);
/// Rounds of the honest sender after an attack.
const ROUNDS: usize = 8;
/// What honest events must do.
pub(super) const COME: &str = "come through";
/// The time within which a worker that is told to end must have printed its counters.
pub(super) const END: Duration = Duration::from_secs(1);
/// The data id of the attackers.
pub(super) const DATA_ID: u16 = 666;

/// What the cases share.
#[derive(Debug)]
pub struct EjfatEnvironment {
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) random: Random,
    addresses: Addresses,
}

/// The settings of the worker and of the honest sender of a case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup<'a> {
    /// Arguments of the worker's command, besides the usual ones.
    pub(super) args: &'a [&'a str],
    /// Whether all processes use `::1` in a run over IPv4.
    pub(super) v6: bool,
    pub(super) manner: Manner,
}

/// A worker under attack and the sender beside.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) worker: WorkerProcess,
    pub(super) honest: Bystander,
    /// Where the honest sender sends from.
    pub(super) honest_at: SocketAddr,
    folder: TempFolder,
    v6: bool,
}

impl EjfatEnvironment {
    pub(super) fn new(addresses: Addresses, options: &RunConfig) -> Self {
        let random = Random::new(options.seed, 3);
        Self { quick: options.quick, seed: options.seed, random, addresses }
    }

    /// `full` times, or `quick` times in a quick run.
    pub(super) fn times(&self, quick: u64, full: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    pub(super) fn address(&mut self, v6: bool) -> IpAddr {
        let everybodys = v6 && self.addresses.family() == Family::V4;
        if everybodys { Ipv6Addr::LOCALHOST.into() } else { self.addresses.next() }
    }

    /// Both at work.
    pub(super) fn beside(&mut self, setup: Setup<'_>) -> Result<Beside, String> {
        let folder = folder()?;
        let worker = WorkerProcess::start(self.address(setup.v6), &folder.0, setup.args)?;
        // Further ports are away from the attacks.
        let to = worker.addresses[worker.addresses.len() - 1];
        let socket = bound(self.address(setup.v6), to)?;
        let honest_at = socket.local_addr().map_err(|e| e.to_string())?;
        let honest = ejfat_honest::start(socket, folder.0.clone(), setup.manner);
        honest.rounds(2, COME)?;
        Ok(Beside { worker, honest, honest_at, folder, v6: setup.v6 })
    }

    /// An attacker with an address of its own.
    pub(super) fn attacker(&mut self, beside: &Beside) -> Result<Attacker, String> {
        let address = self.address(beside.v6);
        Attacker::at(address, beside.to())
    }

    pub(super) fn flood(&mut self, beside: &Beside) -> Result<Flood, String> {
        Flood::at(self.address(beside.v6), beside.to())
    }

    /// Sends these from an address of its own.
    pub(super) fn send(
        &mut self,
        beside: &Beside,
        datagrams: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<u64, String> {
        let mut attacker = self.attacker(beside)?;
        datagrams.into_iter().try_for_each(|datagram| attacker.send(&datagram))?;
        Ok(attacker.sent)
    }
}

impl Beside {
    /// The port under attack.
    pub(super) fn to(&self) -> SocketAddr {
        self.worker.addresses[0]
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// Waits for so many honest rounds. If they do not come, [`Self::end`] says so.
    pub(super) fn wait(&self, rounds: usize) {
        let _ = self.honest.rounds(rounds, COME);
    }

    /// Waits until open events are given up.
    pub(super) fn outlast(&self) {
        thread::sleep(TIMEOUT + Duration::from_millis(80));
    }

    /// What the worker wrote that is not the honest sender's, by name; those are taken away.
    pub(super) fn written(&self) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let names = self.folder.names().into_iter();
        let strangers = names.filter(|name| name.split('-').next() == Some(&DATA_ID.to_string()));
        let read = |name: String| {
            let path = self.folder.0.join(&name);
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok((name, bytes))
        };
        strangers.map(read).collect()
    }

    /// The honest sender must get through at once; then all end. Answers with what was counted, in numbers.
    pub(super) fn end(self) -> Result<Observation, String> {
        self.finish(String::new(), |rose| listed(rose, &[], true))
    }

    /// With the names of the counters only, and without those that rise by chance: attacks at full speed cannot count on
    /// every datagram.
    pub(super) fn end_by_names(
        self,
        note: impl Into<String>,
        chance: &[&str],
    ) -> Result<Observation, String> {
        self.finish(note.into(), |rose| listed(rose, chance, false))
    }

    fn finish(
        self,
        mut note: String,
        listed: impl Fn(&[(String, u64)]) -> String,
    ) -> Result<Observation, String> {
        let mut own = Own::default();
        let stuck = self.honest.rounds(ROUNDS, COME).err();
        let mut log = self.honest.end();
        own.bystander = log.latency();
        own.why.extend(if log.failures.is_empty() { stuck.into_iter().collect() } else { log.failures });
        let ended = self.worker.end()?;
        if ended.took > END {
            own.why.push(format!("the worker took {:.1?} to end", ended.took));
        }
        if log.repeats > 0 {
            note += &format!(", {} of {} honest events repeated", log.repeats, log.delivered);
        }
        if ended.lost > 0 {
            note += &format!(", {} dropped by the kernel", ended.lost);
        }
        own.growth_kib = ended.growth_kib;
        own.lost = ended.lost;
        own.rose = rose(&ended, log.delivered + log.repeats);
        let missing = missing(&ended.report, self.honest_at.ip());
        if missing > 0 {
            own.why.push(format!("{missing} honest events are told to be missing"));
        }
        let noted = Observation::noted(listed(&own.rose), note.trim_start_matches(", "));
        Ok(Observation { own: Some(own.clone()), ..noted })
    }
}

/// Where the worker writes, in memory if that can be: a disk that others use takes milliseconds for each file.
pub(super) fn folder() -> Result<TempFolder, String> {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return TempFolder::new("ejfat");
    }
    TempFolder::at(memory.join(format!("naa-hostile-ejfat-{}", std::process::id())))
}

/// The worker's counters, without the honest sender's events. If an event was repeated, both copies may have arrived.
pub(super) fn rose(ended: &Ended, honest: u64) -> Vec<(String, u64)> {
    let of = |name: &str| (name.to_owned(), ended.report[name].as_u64().unwrap_or(0));
    let delivered = of("events").1.saturating_sub(honest);
    let dropped = ended.report["dropped"].as_object().into_iter().flatten();
    let dropped = dropped.map(|(cause, n)| (cause.clone(), n.as_u64().unwrap_or(0)));
    let ends = ["timed_out", "evicted", "open"].map(of);
    let all = [("delivered".to_owned(), delivered)].into_iter().chain(dropped).chain(ends);
    all.filter(|&(_, n)| n > 0).collect()
}

/// Events of a sender of which nothing came, as the worker counted. One that tells no senders apart may count others'.
fn missing(report: &Value, sender: IpAddr) -> u64 {
    let mut senders = report["senders"].as_array().into_iter().flatten();
    let its = senders.find(|its| its["address"] == sender.to_string().as_str());
    its.unwrap_or(report)["missing"].as_u64().unwrap_or(0)
}

pub(super) fn listed(rose: &[(String, u64)], without: &[&str], numbers: bool) -> String {
    let one = |(name, n): &(String, u64)| if numbers { format!("{name} {n}") } else { name.clone() };
    let shown = rose.iter().filter(|(name, _)| !without.contains(&name.as_str()));
    let all = shown.map(one).collect::<Vec<_>>().join(", ");
    if all.is_empty() { "nothing".into() } else { all }
}

pub(super) fn bound(ip: IpAddr, to: SocketAddr) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((ip, 0)).map_err(|e| format!("cannot bind {ip}: {e}"))?;
    socket.connect(to).map_err(|e| format!("cannot connect to {to}: {e}"))?;
    Ok(socket)
}

/// Sends datagrams, not faster than a worker takes them.
#[derive(Debug)]
pub(super) struct Attacker {
    socket: UdpSocket,
    at_once: usize,
    pub(super) sent: u64,
}

impl Attacker {
    pub(super) fn at(ip: IpAddr, to: SocketAddr) -> Result<Self, String> {
        Ok(Self { socket: bound(ip, to)?, at_once: 0, sent: 0 })
    }

    pub(super) fn send(&mut self, datagram: &[u8]) -> Result<(), String> {
        self.socket.send(datagram).map_err(|e| format!("cannot send {} bytes: {e}", datagram.len()))?;
        self.sent += 1;
        self.at_once += datagram.len() + SKB;
        if self.at_once > BURST {
            self.at_once = 0;
            thread::sleep(BREATH);
        }
        Ok(())
    }
}

/// Sends datagrams as fast as it goes: those of equal length that follow one another go as one to the kernel.
#[derive(Debug)]
pub(super) struct Flood {
    port: Port,
    batch: SendBatch,
    to: SocketAddr,
    pub(super) sent: u64,
}

impl Flood {
    const BATCH: usize = 256;

    pub(super) fn at(ip: IpAddr, to: SocketAddr) -> Result<Self, String> {
        let port = Port::bind((ip, 0).into(), &PortConfig::default()).map_err(|e| e.to_string())?;
        let batch = SendBatch::new(Self::BATCH, 1 << 20, port.gso());
        Ok(Self { port, batch, to, sent: 0 })
    }

    /// So many, the `n`th of which is `next(n)`.
    pub(super) fn send(&mut self, count: u64, mut next: impl FnMut(u64) -> Vec<u8>) -> Result<(), String> {
        for n in self.sent..self.sent + count {
            let datagram = next(n);
            if self.batch.segment(self.to, datagram.len()).is_none() {
                self.flush()?;
            }
            let mut segment =
                self.batch.segment(self.to, datagram.len()).ok_or("a datagram larger than a batch")?;
            segment.copy(&datagram);
            segment.finish(&[]);
        }
        self.sent += count;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), String> {
        while self.batch.flush(&self.port).map_err(|e| format!("cannot send: {e}"))?.rest != Rest::Empty {}
        Ok(())
    }

    pub(super) fn send_for(&mut self, time: Duration, next: impl Fn(u64) -> Vec<u8>) -> Result<(), String> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.send(Self::BATCH as u64, &next)?;
        }
        Ok(())
    }
}

/// A segment of the attackers' stream, without the load balancer's header.
pub(super) fn segment(event: u64, offset: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    segment_of(DATA_ID, event, offset, length, payload)
}

pub(super) fn segment_of(data_id: u16, event: u64, offset: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    let header = ReHeader { data_id, offset, length, event };
    [&header.encode()[..], payload].concat()
}

/// A segment with the LB header in front.
pub(super) fn with_tick(tick: u64, segment: &[u8]) -> Vec<u8> {
    let header = LbHeader { select: Select::V2 { entropy: 1 }, protocol: LbHeader::REASSEMBLY, tick };
    [&header.encode()[..], segment].concat()
}
