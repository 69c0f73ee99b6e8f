//! Memory: what headers claim, what segments touch, and what must be remembered.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    case::{Case, Observation},
    ejfat::{Attacker, EjfatEnvironment, Setup, segment, with_tick},
    ejfat_honest::Manner,
};

/// MiB that a worker's pages of events may take beyond `--memory 64M`: those of events that are over.
const FULL: u64 = 64 + 32 + 16;

pub(super) const CASES: &[Case] = &[
    Case::worker(
        "claims of the longest event",
        "the first byte of 10 000 events of 64 MiB",
        // Claimed lengths may be 16 times the memory together. The honest event claims a part of that, so one event fewer
        // stays open.
        "timed_out 255, evicted 9745",
        &["timed_out", "evicted"],
        |env| claims(env, 10_000, &[], |event| segment(event, 0, 64 << 20, &[1])),
    ),
    Case::worker(
        "claims of 4 GiB that are allowed",
        "the last bytes of 1000 events of 2^32 - 1 bytes, to a worker that takes them",
        "timed_out 15, evicted 985",
        &["timed_out", "evicted"],
        |env| {
            let args = ["--max-event", "4294967295", "--memory", "4G"];
            claims(env, 1000, &args, |event| segment(event, u32::MAX - 2, u32::MAX, &[1; 2]))
        },
    ),
    Case::worker(
        "a million event numbers",
        "a segment each of 250 000 events of two; a million in a full run",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        million,
    ),
    Case::worker(
        "memory filled by one sender",
        "a segment for each page of 256 events, again and again, to a worker with 64 MiB",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        |env| filled(env, Manner::default()),
    )
    .growth(FULL),
    Case::worker(
        "memory filled by one sender, larger honest events",
        "the same beside events of 1 MiB, which are longer than the attacker's",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        |env| filled(env, Manner { length: Some(1 << 20), ..Manner::default() }),
    )
    .growth(FULL),
    Case::worker(
        "one name for many events",
        "2500 whole events of one name and 2500 ticks, which are written under names of their own",
        "delivered 2500",
        &["delivered"],
        |env| {
            let beside = env.beside(Setup::default())?;
            env.send(&beside, (0..2500).map(|tick| with_tick(tick, &segment(1, 0, 8, &[7; 8]))))?;
            beside.wait(2);
            beside.written()?;
            beside.end()
        },
    )
    .p99(Duration::from_secs(1)),
];

fn claims(
    env: &mut EjfatEnvironment,
    events: u64,
    args: &[&str],
    claim: impl Fn(u64) -> Vec<u8>,
) -> Result<Observation, String> {
    let beside = env.beside(Setup { args, ..Setup::default() })?;
    env.send(&beside, (0..events).map(claim))?;
    beside.outlast();
    beside.end()
}

/// The honest sender uses another port of the worker: what the kernel drops at one is no fault of the worker's.
fn million(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.beside(Setup { args: &["--ports", "2"], ..Setup::default() })?;
    let mut flood = env.flood(&beside)?;
    let events = env.times(250_000, 1_000_000);
    let begin = Instant::now();
    while flood.sent < events {
        flood.send(1000, |event| segment(event, 0, 200, &[1; 100]))?;
        // As many as most workers take.
        thread::sleep(Duration::from_millis(1));
    }
    let rate = flood.sent as f64 / begin.elapsed().as_secs_f64();
    beside.outlast();
    let mut observation = beside.end_by_names(format!("{events} events, {rate:.0}/s"), &[])?;
    if let Some(own) = &mut observation.own {
        let ended = own.rose.iter().map(|(_, n)| n).sum::<u64>();
        if own.lost == 0 && ended != events {
            own.why.push(format!("{ended} of {events} ended"));
        }
    }
    Ok(observation)
}

/// 80 pages of each event are more than there are for all: 64.
fn filled(env: &mut EjfatEnvironment, manner: Manner) -> Result<Observation, String> {
    let args = ["--memory", "64M", "--ports", "2"];
    let beside = env.beside(Setup { args: &args, manner, ..Setup::default() })?;
    let mut attacker = env.attacker(&beside)?;
    for round in 0..env.times(6, 12) {
        fill(&mut attacker, round)?;
    }
    beside.wait(1);
    beside.outlast();
    // Which segments of the attacker's find no memory, or come when their event has gone, is chance.
    beside.end_by_names("", &["duplicate", "late", "memory", "scattered"])
}

fn fill(attacker: &mut Attacker, round: u64) -> Result<(), String> {
    for page in 0..80u32 {
        for event in 0..256 {
            attacker.send(&segment(round << 32 | event, page * 4096, 1 << 20, &[1; 256]))?;
        }
    }
    Ok(())
}
