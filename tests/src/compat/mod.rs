//! Recordings of the wires, one and more of each, and their replay against today's servers: a host of an earlier version
//! on the wire. docs/reference/compat.md tells what is compared.

mod catalogue;
mod compare;
mod description;
mod ends;
mod fields;
mod grpc;
mod grpc_record;
mod grpc_smartnic;
mod icrc;
pub(crate) mod pcap;
mod protobuf;
mod record;
mod relay;
mod replayer;
mod server;
mod wires;

use std::{
    fs::{self, File},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use compare::Sharpness;
use description::Description;
use wires::Wire;

/// The addresses of all recordings: with them, packets are the same bytes in a replay. No other test uses them.
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 193, 19, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(127, 193, 19, 2);
const WORKER_PORT: u16 = 12_345;
const SEGMENT_PORT: u16 = 19_522;
const GRPC_PORT: u16 = 18_010;
/// What callers of gRPC show.
const TOKEN: &str = "recorded";

/// A recording in the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recording {
    /// The wire and a number, such as `call-1`.
    pub name: String,
    /// The version and the commit that it was recorded with.
    pub recorded_from: String,
    /// What the recorded host does.
    pub what: String,
}

/// What came of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub name: String,
    /// The first difference that matters.
    pub failure: Option<String>,
    /// Bytes of the recorded answers any change of which would have been a failure, and those that differ by nature.
    pub compared: usize,
    pub free: usize,
    pub time: Duration,
}

/// Where recordings are in a checkout.
pub fn folder(root: &Path) -> PathBuf {
    root.join("tests/compat")
}

/// Holds the addresses of recordings, so that two checkouts on one machine do not disturb each other.
fn alone() -> Result<File, String> {
    let path = std::env::temp_dir().join("naa-compat.lock");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    file.lock().map_err(|e| format!("cannot lock {}: {e}", path.display()))?;
    Ok(file)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

fn parse<T: for<'a> serde::Deserialize<'a>>(path: &Path) -> Result<T, String> {
    serde_json::from_slice(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

/// The wire of a recording and its number.
fn split(name: &str) -> Option<(Wire, u32)> {
    let (wire, number) = name.rsplit_once('-')?;
    Some((Wire::named(wire)?, number.parse().ok()?))
}

/// The recordings of a folder whose names contain `only`, in the order of their names.
pub fn list(folder: &Path, only: Option<&str>) -> Result<Vec<Recording>, String> {
    #[derive(serde::Deserialize)]
    struct Head {
        recorded_from: String,
        what: String,
    }
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        split(&name).ok_or(format!("{} is named after no wire", path.display()))?;
        let Head { recorded_from, what } = parse(&path)?;
        all.push(Recording { name, recorded_from, what });
    }
    all.retain(|recording| only.is_none_or(|only| recording.name.contains(only)));
    all.sort();
    Ok(all)
}

/// Replays a recording against the server that it needs.
pub fn replay(folder: &Path, name: &str) -> Result<Outcome, String> {
    let (wire, _) = split(name).ok_or(format!("{name} is named after no wire"))?;
    let json = folder.join(format!("{name}.json"));
    let _alone = alone()?;
    let begin = Instant::now();
    let (failure, Sharpness { compared, free }) = if wire.is_packets() {
        let description: Description = parse(&json)?;
        let datagrams = pcap::read(&read(&json.with_extension("pcap"))?)?;
        let steps = replayer::steps(&datagrams)?;
        let server = server::ServerProcess::start(wire.server())?;
        let replayed = replayer::replay(&steps, description.instead.as_ref().map(|instead| instead.leave()))?;
        drop(server);
        let difference = compare::compare(&description, &replayed.recorded, &replayed.live).err();
        let sharpness = compare::sharpness(&description, &replayed.recorded);
        (both(replayed.fault, difference), sharpness)
    } else {
        let recording: grpc::Recording = parse(&json)?;
        let server = server::ServerProcess::start(wire.server())?;
        let live = grpc::replay(&recording.steps);
        drop(server);
        let failure = live.and_then(|live| grpc::compare(&recording.steps, &live)).err();
        (failure, grpc::sharpness(&recording.steps))
    };
    Ok(Outcome { name: name.into(), failure, compared, free, time: begin.elapsed() })
}

/// Why a replay ended early, and what differed up to there.
fn both(fault: Option<String>, difference: Option<String>) -> Option<String> {
    match (fault, difference) {
        (Some(fault), Some(difference)) => Some(format!("{difference}; {fault}")),
        (fault, difference) => fault.or(difference),
    }
}

/// Records a wire of today's programs under the next number; the names of the files.
pub fn record(root: &Path, wire: &str) -> Result<Vec<PathBuf>, String> {
    let names = Wire::ALL.map(Wire::name).join(", ");
    let wire = Wire::named(wire).ok_or(format!("{wire} is no wire; there are {names}"))?;
    let folder = folder(root);
    let numbers = list(&folder, None)?.into_iter().filter_map(|known| split(&known.name));
    let last = numbers.filter(|(of, _)| *of == wire).map(|(_, number)| number).max();
    let path = folder.join(format!("{}-{}.json", wire.name(), last.unwrap_or(0) + 1));
    let from = record::version(root)?;
    let _alone = alone()?;
    let (text, capture) = if wire.is_packets() {
        let (capture, description) = record::record(wire, from)?;
        (serde_json::to_string_pretty(&description), Some(capture))
    } else {
        (serde_json::to_string_pretty(&grpc_record::record(wire, from)?), None)
    };
    let text = text.map_err(|e| e.to_string())? + "\n";
    let write = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok::<_, String>(path)
    };
    let mut files = Vec::new();
    if let Some(capture) = capture {
        files.push(write(path.with_extension("pcap"), &capture)?);
    }
    files.push(write(path, text.as_bytes())?);
    Ok(files)
}

#[cfg(test)]
mod tests;
