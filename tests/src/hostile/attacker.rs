//! Attackers of the fairness cases, each a process at `SCHED_IDLE`: what is measured then is what the victim does for
//! them, and not what they take of the machine.

use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use mrsp::{
    RegionFlags, RegionRequest, RemoteRegion,
    builtin::{Arguments, BLOCK_BYTES, Element, FftDirection, SortOrder},
};
use roce::wire::{Packet, Syndrome};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{
    control_attackers,
    mrsp_talk::{entry, fill, immediate},
    raw::{Offer, RawPeer},
    resources_process::sibling,
    wire::{Answer, Wire},
};

const INPUT: RegionFlags = RegionFlags::INPUT;
const OUTPUT: RegionFlags = RegionFlags::OUTPUT;
/// An attacker that has not begun by then hangs.
const BEGIN: Duration = Duration::from_secs(20);
/// Bytes of a WRITE to the victim.
const CHUNK: usize = 1024;

/// What an attacker does until it is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One Fourier transform after the other of a length that is a large prime.
    PrimeFft,
    /// Twelve sessions that disconnect during each of their calls.
    CallAndLeave,
    /// Sixteen sessions that multiply matrices.
    Workers,
    /// Sessions that reserve all memory they get.
    Memory,
    /// Eight sessions that compress 14 KiB at level 19.
    Compressor,
    /// Sessions that fail one after the other.
    Failures,
    /// 200 TCP connections to each target that say nothing.
    #[value(name = "seats")]
    IdleConnections,
    /// Loads of tables over MRSP by a process each.
    Tables,
    /// Calls to a control plane with tokens that nobody has. The attacks below this one are against a control plane, too.
    Guesses,
    /// Calls whose replies are never read.
    SlowReaders,
    /// `SendState` of one worker session.
    States,
    /// Sync datagrams: malformed ones, a stranger's, and a sender's.
    Syncs,
    /// Streams of the health service.
    Watches,
    /// Requests of about a megabyte.
    LargeRequests,
    /// Workers that register and send no state.
    Registrations,
    /// `Timeseries` with many selectors and with long ones.
    LongSeries,
}

impl Kind {
    /// How long the attack lasts where there is time, in milliseconds.
    pub(super) const fn full_time(self) -> u64 {
        // Long enough for all its calls.
        if matches!(self, Self::CallAndLeave) { 20_000 } else { 5000 }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// An attacker, from outside.
#[derive(Debug)]
pub(super) struct Attacker {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Attacker {
    /// Returns when the attack is under way.
    pub(super) fn start(kind: Kind, local: IpAddr, targets: &[String]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(program).args(["attack", &kind.name(), &local.to_string()]);
        command.args(targets).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot run `chrt`: {e}; install util-linux"))?;
        let out = BufReader::new(child.stdout.take().ok_or("the attacker has no output")?);
        let mut attacker = Self { child, out };
        let mut line = String::new();
        attacker.out.read_line(&mut line).map_err(|e| format!("the attacker: {e}"))?;
        if line != "attacking\n" {
            return Err(format!("the attacker did not begin: {}", attacker.errors()?));
        }
        Ok(attacker)
    }

    /// Tells it to end, and returns what it counted.
    pub(super) fn end(mut self) -> Result<String, String> {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(|e| format!("the attacker: {e}"))?;
        match line.trim() {
            "" => Err(format!("the attack was cut short: {}", self.errors()?)),
            counted => Ok(counted.to_owned()),
        }
    }

    /// What it says until it has ended.
    fn errors(&mut self) -> Result<String, String> {
        let mut said = String::new();
        if let Some(errors) = &mut self.child.stderr {
            errors.read_to_string(&mut said).map_err(|e| format!("the attacker: {e}"))?;
        }
        Ok(said.trim().to_owned())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells an attack to end.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until told, or for so long.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_set() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5).min(time));
        }
    }
}

/// An attacker, from inside: attacks until its standard input ends, and prints what it counted.
///
/// # Errors
/// If the attack could not begin.
pub fn attack(kind: Kind, local: IpAddr, targets: &[String]) -> Result<(), String> {
    let stop = Stop(Arc::default());
    let told = stop.clone();
    thread::spawn(move || {
        // Whatever comes, its end is what matters.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.0.store(true, Ordering::Relaxed);
    });
    let first = targets.first().ok_or("an attacker needs a target")?;
    let target = || first.parse::<SocketAddr>().map_err(|e| format!("{first}: {e}"));
    let counted = match kind {
        Kind::PrimeFft => prime_fft(local, target()?, &stop)?,
        Kind::CallAndLeave => call_and_leave(local, target()?, &stop)?,
        Kind::Workers => workers(local, target()?, &stop)?,
        Kind::Memory => memory(local, target()?, &stop)?,
        Kind::Compressor => compressor(local, target()?, &stop)?,
        Kind::Failures => failures(local, target()?, &stop)?,
        Kind::IdleConnections => idle_connections(local, targets, &stop)?,
        Kind::Tables => tables(local, targets, &stop)?,
        _ => control_attackers::run(kind, local, targets, &stop)?,
    };
    say(&counted)
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| e.to_string())
}

pub(super) fn begun() -> Result<(), String> {
    say("attacking")
}

fn region(flags: RegionFlags, size: u64) -> RegionRequest {
    entry(flags.bits(), 0, 0x10_0000, size as u32)
}

/// Memory of the victim alone.
fn internal(size: u64) -> RegionRequest {
    let region = entry(RegionFlags::INTERNAL.bits(), 0, 0, size as u32);
    RegionRequest { host: RemoteRegion { rkey: 0, ..region.host }, ..region }
}

/// Regions of a built-in function: blocks, inputs and an output.
fn regions(inputs: &[u64], output: u64) -> Vec<RegionRequest> {
    let block = BLOCK_BYTES as u64;
    let inputs = inputs.iter().map(|size| region(INPUT, *size));
    let outputs = [region(OUTPUT, block), region(OUTPUT, output)];
    [region(INPUT, block)].into_iter().chain(inputs).chain(outputs).collect()
}

/// Regions of a built-in function that works in place.
fn in_place(bytes: u64) -> Vec<RegionRequest> {
    let block = BLOCK_BYTES as u64;
    vec![region(INPUT, block), region(OUTPUT, block), region(INPUT.union(OUTPUT), bytes)]
}

/// Sessions of one address. What they call works on memory as the victim gave it: nothing is sent but arguments.
struct ManySessions {
    peer: RawPeer,
    server: SocketAddr,
    wires: Vec<Wire>,
}

impl ManySessions {
    fn new(local: IpAddr, server: SocketAddr) -> Result<Self, String> {
        let mut peer = RawPeer::open(local, std::process::id())?;
        peer.polite = true;
        Ok(Self { peer, server, wires: Vec::new() })
    }

    fn add(&mut self, regions: &[RegionRequest]) -> Result<usize, String> {
        let wire = self.peer.session(self.server, &Offer::default(), regions)?;
        self.wires.push(wire);
        Ok(self.wires.len() - 1)
    }

    fn call(&mut self, at: usize, arguments: &Arguments) -> Result<(), String> {
        let wire = &mut self.wires[at];
        fill(&mut self.peer, wire, 0, &arguments.encode())?;
        immediate(&mut self.peer, wire, 0x80 | u32::from(arguments.function().get()))
    }

    /// The next session whose call was answered, and the answer's immediate. Acknowledges whatever comes.
    fn answered(&mut self, within: Duration) -> Result<Option<(usize, u32)>, String> {
        let deadline = Instant::now() + within;
        while let Some(bytes) = self.peer.receive_bytes(deadline.saturating_duration_since(Instant::now()))? {
            let Ok(packet) = Packet::decode(&bytes) else { continue };
            let found = self.wires.iter().position(|wire| wire.qpn == packet.bth.dest_qp);
            let Some(at) = found else { continue };
            let wire = &mut self.wires[at];
            let answer = wire.receive(&packet);
            if std::mem::take(&mut wire.owes_ack) {
                self.peer.acknowledge(wire, Syndrome::ACK)?;
            }
            if let Some(Answer::Write { imm: Some(imm), .. }) = answer {
                return Ok(Some((at, imm)));
            }
        }
        Ok(None)
    }

    /// Disconnects a session, without waiting for the confirmation.
    fn leave(&mut self, at: usize) -> Result<(), String> {
        let wire = self.wires.swap_remove(at);
        self.peer.send_mad(wire.to.ip(), &wire.disconnect_request())
    }

    fn leave_all(&mut self) -> Result<(), String> {
        while !self.wires.is_empty() {
            self.leave(0)?;
        }
        Ok(())
    }

    /// Each session calls again as soon as it was answered. Returns how many calls were.
    fn call_without_end(&mut self, arguments: &Arguments, stop: &Stop) -> Result<usize, String> {
        for at in 0..self.wires.len() {
            self.call(at, arguments)?;
        }
        begun()?;
        let mut calls = 0;
        while !stop.is_set() {
            if let Some((at, _)) = self.answered(Duration::from_millis(20))? {
                calls += 1;
                self.call(at, arguments)?;
            }
        }
        self.leave_all()?;
        Ok(calls)
    }
}

/// The next prime above 2^25. The plan's own memory is several times that of the numbers.
const PRIME: u64 = 33_554_467;

fn prime_fft(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    let arguments = Arguments::Fft { n: PRIME, direction: FftDirection::Forward };
    let mut sessions = ManySessions::new(local, server)?;
    let at = sessions.add(&in_place(PRIME * 16))?;
    sessions.call(at, &arguments)?;
    begun()?;
    let mut codes = Vec::new();
    let first = Instant::now() + BEGIN;
    // The attacker always waits for the first response, because the last step of the call may be the one that ends the
    // server.
    while !stop.is_set() || codes.is_empty() && Instant::now() < first {
        let Some((at, imm)) = sessions.answered(Duration::from_millis(20))? else { continue };
        codes.push(imm >> 8);
        // Calls are not made as fast as possible, because the case examines the effect of one such call.
        stop.wait(Duration::from_millis(50));
        sessions.call(at, &arguments)?;
    }
    sessions.leave_all()?;
    codes.dedup();
    Ok(match codes[..] {
        [] => "no answer".into(),
        [0] => "done".into(),
        [0x16] => "code 0x16".into(),
        _ => format!("codes {codes:x?}"),
    })
}

/// Rounds of the attack; in each, every one of [`LEAVERS`] sessions calls and leaves.
const ROUNDS: usize = 60;
const LEAVERS: usize = 12;

fn call_and_leave(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    const K: u64 = 1 << 16;
    let product = (regions(&[64 * K * 8, 64 * K * 8], 64 * 64 * 8), Arguments::Dgemm { m: 64, n: 64, k: K });
    let n = 1 << 21;
    let fft = (in_place(n * 16), Arguments::Fft { n, direction: FftDirection::Forward });
    let n = 1 << 22;
    let order = SortOrder::Ascending;
    let sort = (in_place(n * 8), Arguments::Sort { n, element: Element::U64, order });
    let work = [product, fft, sort];
    let mut sessions = ManySessions::new(local, server)?;
    let (mut calls, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        for n in 0..LEAVERS {
            let (regions, arguments) = &work[(round + n) % work.len()];
            match sessions.add(regions) {
                Ok(at) => {
                    sessions.call(at, arguments)?;
                    calls += 1;
                }
                Err(_) => refused += 1,
            }
            if round == 0 && n == 0 {
                begun()?;
            }
            if stop.is_set() {
                break;
            }
        }
        sessions.leave_all()?;
        sessions.peer.drain()?;
        if stop.is_set() {
            break;
        }
    }
    stop.wait(BEGIN);
    Ok(format!("{calls} calls left, {refused} sessions refused"))
}

fn workers(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    const K: u64 = 1 << 15;
    let arguments = Arguments::Dgemm { m: 64, n: 64, k: K };
    let mut sessions = ManySessions::new(local, server)?;
    for _ in 0..16 {
        sessions.add(&regions(&[64 * K * 8, 64 * K * 8], 64 * 64 * 8))?;
    }
    Ok(format!("{} products", sessions.call_without_end(&arguments, stop)?))
}

fn memory(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    const SESSIONS: usize = 200;
    let mut sessions = ManySessions::new(local, server)?;
    let mut reserved = 0;
    for size in [64, 16, 4, 1].map(|mib: u64| mib << 20).into_iter().chain([64 << 10, 4096]) {
        while sessions.wires.len() < SESSIONS {
            if sessions.add(&[region(INPUT, 64), internal(size)]).is_err() {
                break;
            }
            reserved += size;
        }
    }
    begun()?;
    while !stop.is_set() {
        // The victim's probes are answered.
        sessions.answered(Duration::from_millis(20))?;
    }
    sessions.leave_all()?;
    Ok(format!("{} MiB reserved", reserved >> 20))
}

fn compressor(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    const BYTES: u64 = 14 << 10;
    let arguments = Arguments::ZstdCompress { bytes: BYTES, level: 19 };
    let mut sessions = ManySessions::new(local, server)?;
    for _ in 0..8 {
        // All regions together are below 16 KiB.
        let at = sessions.add(&regions(&[BYTES], 1800))?;
        // Text of few letters, which repeats itself a little: much to look for.
        let text: Vec<u8> = (0..BYTES).map(|_| b'a' + sessions.peer.random.below(3) as u8).collect();
        let (peer, wire) = (&mut sessions.peer, &mut sessions.wires[at]);
        let input = *wire.regions.get(1).ok_or("no region for the input")?;
        for (n, chunk) in text.chunks(CHUNK).enumerate() {
            write(peer, wire, input.addr + (n * CHUNK) as u64, input.rkey, chunk)?;
        }
    }
    Ok(format!("{} calls", sessions.call_without_end(&arguments, stop)?))
}

fn write(peer: &mut RawPeer, wire: &mut Wire, addr: u64, rkey: u32, bytes: &[u8]) -> Result<(), String> {
    let mut packet = wire.next(roce::opcode::WRITE_ONLY);
    packet.reth = Some(roce::wire::Reth { addr, rkey, length: bytes.len() as u32 });
    packet.payload = bytes;
    peer.send(wire.peer, &packet)
}

fn failures(local: IpAddr, server: SocketAddr, stop: &Stop) -> Result<String, String> {
    let mut sessions = ManySessions::new(local, server)?;
    let (mut failed, mut refused) = (0, 0);
    begun()?;
    while !stop.is_set() {
        for _ in 0..16 {
            let Ok(mut wire) = sessions.peer.connect(server, &Offer::default()) else {
                refused += 1;
                break;
            };
            // No message of MRSP: the session fails.
            sessions.peer.send_message(&mut wire, &[9; 64])?;
            failed += 1;
        }
        sessions.peer.drain()?;
        // As a slow client would.
        stop.wait(Duration::from_millis(20));
    }
    Ok(format!("{failed} sessions that fail, {refused} refused"))
}

fn idle_connections(local: IpAddr, targets: &[String], stop: &Stop) -> Result<String, String> {
    const CONNECTIONS: usize = 200;
    let mut connections = Vec::new();
    for target in targets {
        let target: SocketAddr = target.parse().map_err(|e| format!("{target}: {e}"))?;
        for n in 0..CONNECTIONS {
            let made = connection(local, target).map_err(|e| format!("connection {n} to {target}: {e}"))?;
            connections.push(made);
        }
    }
    begun()?;
    stop.wait(Duration::from_secs(600));
    Ok(format!("{} connections", connections.len()))
}

/// A TCP connection that is on its way; the peer need not have taken it.
fn connection(local: IpAddr, target: SocketAddr) -> Result<OwnedFd, rustix::io::Errno> {
    use rustix::{io::Errno, net};
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::new(local, 0))?;
    match net::connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// `targets`: a file of tables and the place it is loaded to.
fn tables(local: IpAddr, targets: &[String], stop: &Stop) -> Result<String, String> {
    let [file, place] = targets else { return Err("tables need a file and a place".into()) };
    let (mut taken, mut refused) = (0, 0);
    begun()?;
    while !stop.is_set() {
        let mut command = Command::new(sibling("naa")?);
        command.args(["lb", "table", "load", file, place, "--from", "now"]);
        command.env(naa_host::LOCAL_IP_VARIABLE, local.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(|e| format!("cannot run naa: {e}"))?;
        if status.success() { taken += 1 } else { refused += 1 }
    }
    Ok(format!("{taken} tables taken, {}", if refused > 0 { "others refused" } else { "none refused" }))
}
