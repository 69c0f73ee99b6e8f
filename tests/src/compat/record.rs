//! New recordings of the wires of RoCEv2: today's programs are the hosts.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    HOST,
    description::{Description, Free, MessageIndex},
    pcap::{self, Datagram},
    relay::Relay,
    replayer,
    server::{ServerProcess, program},
    wires::Wire,
};
use crate::hostile::TempFolder;

/// Where the recorded programs have their device.
const PROGRAM: Ipv4Addr = Ipv4Addr::new(127, 193, 19, 3);
/// Until a worker has subscribed, and until an event is with it.
const SETTLED: Duration = Duration::from_millis(700);
/// Bytes of a ring's slot, and of an event that takes both slots of the ring.
const SLOT_BYTES: &str = "4096";
const EVENT_BYTES: &str = "5000";
const EVENTS: &str = "3";
/// Bytes that the recorded call is on: more than fit into a packet, and no multiple of four.
const CALL_BYTES: u32 = 6001;

/// The files' contents: the capture and its description.
pub(super) fn record(wire: Wire, from: String) -> Result<(Vec<u8>, Description), String> {
    let server = ServerProcess::start(wire.server())?;
    let relay = Relay::start()?;
    let done = host(wire);
    let written = relay.stop();
    drop(server);
    done?;
    let written = without_repeated(written?);
    let steps = replayer::steps(&written)?;
    let output = replayer::recorded(&steps);
    if output.is_empty() || output.iter().any(|output| output.messages.is_empty()) {
        return Err("nothing passed that could be replayed".into());
    }
    let mut description = Description {
        wire: wire.name().into(),
        recorded_from: from,
        what: wire.what().into(),
        free: Vec::new(),
        catalogue: None,
        instead: None,
    };
    match wire {
        Wire::Catalogue => description.catalogue = Some(MessageIndex { connection: 0, message: 1 }),
        Wire::Subscribe => description.free = free_of_subscribe(&output)?,
        _ => {}
    }
    Ok((pcap::write(&written)?, description))
}

/// A datagram that is sent again is the same bytes.
fn without_repeated(written: Vec<Datagram>) -> Vec<Datagram> {
    let mut kept: Vec<Datagram> = Vec::new();
    for datagram in written {
        let same =
            |k: &Datagram| (k.from, k.to, &k.payload) == (datagram.from, datagram.to, &datagram.payload);
        if !kept.iter().any(same) {
            kept.push(datagram);
        }
    }
    kept
}

/// The message that carries the answer's block has the bridge's instance; those that carry descriptors have times.
fn free_of_subscribe(output: &[super::ends::ServerOutput]) -> Result<Vec<Free>, String> {
    let [output] = output else { return Err(format!("{} connections, not one", output.len())) };
    let free = |message, bytes, what: &str| Free { connection: 0, message, bytes, what: what.into() };
    let blocks = output.messages.iter().enumerate().filter(|(_, message)| message.payload().len() == 64);
    let mut blocks = blocks.map(|(number, _)| number);
    let answer = blocks.next().ok_or("no answer to the subscription")?;
    let mut all = vec![free(answer, 16..24, "instance: another one after each start of the bridge")];
    for descriptor in blocks {
        all.push(free(descriptor, 40..48, "when the event's first segment came"));
        all.push(free(descriptor, 48..56, "how long it took until the last one came"));
    }
    Ok(all)
}

/// Runs the programs of this version as hosts that connect to the relay, and waits until they have ended.
fn host(wire: Wire) -> Result<(), String> {
    let server = HOST.to_string();
    let local = PROGRAM.to_string();
    match wire {
        Wire::Call => {
            let folder = std::env::temp_dir().join(format!("naa-compat-{}", std::process::id()));
            let folder = TempFolder::at(folder).map_err(|why| format!("cannot make {why}"))?;
            let data = folder.0.join("data");
            let bytes: Vec<u8> = (0..CALL_BYTES).map(|at| (at * at / 7) as u8).collect();
            fs::write(&data, bytes).map_err(|e| format!("cannot write {}: {e}", data.display()))?;
            let output = folder.0.join("digest");
            let paths = [data, output].map(|path| path.display().to_string());
            let words = [
                "call", "sha256", "--server", &server, "--local", &local, "--in", &paths[0], "--out",
                &paths[1],
            ];
            finish(naa(&words)?)
        }
        Wire::Catalogue => finish(naa(&["functions", "--server", &server, "--local", &local])?),
        Wire::Subscribe => subscribe(&server),
        Wire::Tables | Wire::Smartnic => Err("it is no wire of packets".into()),
    }
}

fn subscribe(bridge: &str) -> Result<(), String> {
    let ring = ["--slots", "2", "--slot-bytes", SLOT_BYTES, "--name", "recorded"];
    let words = [&["events", bridge, "--list", "--again", "--events", EVENTS], &ring[..]].concat();
    let mut command = Command::new(program()?);
    command.env("NAA_LOCAL_IP", PROGRAM.to_string());
    let worker = start(command, &words)?;
    thread::sleep(SETTLED);
    let segments = ["--mtu", "1500", "--sockets", "1", "--no-control-plane", "--data-id", "7"];
    let events = ["--size", EVENT_BYTES, "--events", EVENTS, "--first", "1000"];
    finish(naa(&[&["ejfat", "send", "--to", bridge], &events[..], &segments].concat())?)?;
    finish(worker)
}

fn naa(words: &[&str]) -> Result<Child, String> {
    start(Command::new(program()?), words)
}

fn start(mut command: Command, words: &[&str]) -> Result<Child, String> {
    command.args(words).env("NAA_PROVIDER", "embedded").stdin(Stdio::null());
    command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))
}

fn finish(mut child: Child) -> Result<(), String> {
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the host ended with {status}")) }
}

/// The commit of the checkout, for people.
pub(super) fn version(root: &Path) -> Result<String, String> {
    let output = Command::new("git")
        .args(["log", "-1", "--format=%h"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    let commit = String::from_utf8_lossy(&output.stdout);
    Ok(format!("naa {}, commit {}", env!("CARGO_PKG_VERSION"), commit.trim()))
}
