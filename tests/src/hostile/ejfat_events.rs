//! Segments that are in order each for itself, of events that never can be.

use std::{thread, time::Instant};

use super::{
    case::{Case, Observation},
    ejfat::{EjfatEnvironment, Setup, segment, with_tick},
    ejfat_worker::TIMEOUT,
};

pub(super) const CASES: &[Case] = &[
    Case::worker(
        "lengths that change",
        "one event as of 24 bytes, then of 8, in 8 segments",
        "delivered 1, conflict 2, duplicate 2, overlap 1",
        &["conflict", "overlap", "duplicate"],
        |env| {
            let datagrams = [
                segment(1, 0, 24, &[1; 8]),
                segment(1, 0, 8, &[2; 8]),
                segment(1, 0, 8, &[2; 8]),
                segment(1, 7, 24, &[3; 8]),
                segment(1, 1, 24, &[3; 6]),
                segment(1, 15, 24, &[3; 9]),
                segment(1, 0, 24, &[4; 8]),
                segment(1, 8, 24, &[4; 7]),
            ];
            let whole = [&[1; 8][..], &[4; 7], &[3; 9]].concat();
            comes_out(env, datagrams, &[("666-1", whole)])
        },
    ),
    Case::worker(
        "ticks that change",
        "an event's halves with two ticks of the LB header, then the second with the first tick",
        "delivered 1, conflict 1",
        &["conflict"],
        |env| {
            let (first, second) = (segment(1, 0, 8, &[1; 4]), segment(1, 4, 8, &[2; 4]));
            let datagrams = [with_tick(7, &first), with_tick(8, &second), with_tick(7, &second)];
            comes_out(env, datagrams, &[("666-1", vec![1, 1, 1, 1, 2, 2, 2, 2])])
        },
    ),
    Case::worker(
        "duplicates in place of what is missing",
        "of 4 segments the first, the second and 50 times both again; later the others",
        "duplicate 100, late 2, timed_out 1",
        &["duplicate", "late", "timed_out"],
        duplicates,
    ),
    Case::worker(
        "repeated first segments",
        "an event of 64 MiB whose first segment comes 40 times, and 40 such events",
        "duplicate 39, timed_out 41",
        &["duplicate", "timed_out"],
        |env| {
            let one = (0..40).map(|_| segment(1, 0, 64 << 20, &[1; 1400]));
            let more = (2..42).map(|event| segment(event, 0, 64 << 20, &[1; 1400]));
            never(env, one.chain(more).collect())
        },
    ),
    Case::worker(
        "first segment again after others",
        "40 events of 64 MiB, a later segment before the first, and both again",
        "duplicate 80, timed_out 40",
        &["duplicate", "timed_out"],
        |env| {
            let parts = |event| {
                let (first, later) =
                    (segment(event, 0, 64 << 20, &[1; 1400]), segment(event, 1400, 64 << 20, &[1; 1400]));
                [later.clone(), first.clone(), later, first]
            };
            never(env, (0..40).flat_map(parts).collect())
        },
    ),
    Case::worker(
        "first segment last",
        "20 events of 200 segments, backwards",
        "delivered 20",
        &["delivered"],
        |env| {
            let event = |n: u64| {
                (0..200_000u32).map(move |at| (u64::from(at) * (n + 3) / 16) as u8).collect::<Vec<_>>()
            };
            let backwards = (0..20).flat_map(|n| {
                let bytes = event(n);
                let parts = (0..200usize)
                    .rev()
                    .map(move |at| segment(n, at as u32 * 1000, 200_000, &bytes[at * 1000..(at + 1) * 1000]));
                parts.collect::<Vec<_>>()
            });
            let names = (0..20).map(|n| format!("666-{n}")).collect::<Vec<_>>();
            let whole: Vec<_> = names.iter().map(String::as_str).zip((0..20).map(event)).collect();
            comes_out(env, backwards, &whole)
        },
    ),
    Case::worker(
        "overlaps of one byte",
        "10 events of 20 segments that each begin with the last byte of the one before",
        "overlap 100, timed_out 10",
        &["overlap", "timed_out"],
        |env| {
            let parts =
                |event| (0..20).map(move |at| segment(event, at * 99, 19 * 99 + 100, &[at as u8; 100]));
            never(env, (0..10).flat_map(parts).collect())
        },
    ),
    Case::worker(
        "segments of many sizes",
        "an event of 64 MiB in pieces of 1 to 3 bytes, none next to another",
        "scattered 976, timed_out 1",
        &["scattered", "timed_out"],
        |env| {
            let parts = (0..1000u32).map(|at| segment(1, at * 5, 64 << 20, &vec![1; 1 + at as usize % 3]));
            never(env, parts.collect())
        },
    ),
    Case::worker(
        "events kept open",
        "200 from each of three addresses, of each a byte more every 50 ms, for a second",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        slowly,
    ),
];

/// Exactly these events come out.
fn comes_out(
    env: &mut EjfatEnvironment,
    datagrams: impl IntoIterator<Item = Vec<u8>>,
    events: &[(&str, Vec<u8>)],
) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    env.send(&beside, datagrams)?;
    beside.wait(2);
    let written = beside.written()?;
    let right = events.iter().all(|(name, bytes)| written.get(*name) == Some(bytes));
    if written.len() != events.len() || !right {
        return Err(format!("what came out is not what was sent: {:?}", written.keys().collect::<Vec<_>>()));
    }
    beside.end()
}

/// No event comes out.
fn never(env: &mut EjfatEnvironment, datagrams: Vec<Vec<u8>>) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    env.send(&beside, datagrams)?;
    beside.outlast();
    match beside.written()?.keys().next() {
        Some(name) => Err(format!("{name} came out, with a hole")),
        None => beside.end(),
    }
}

fn duplicates(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let part = |at: u32| with_tick(9, &segment(1, at * 100, 400, &[at as u8; 100]));
    let beside = env.beside(Setup::default())?;
    let mut attacker = env.attacker(&beside)?;
    for at in std::iter::repeat_n([0, 1], 51).flatten() {
        attacker.send(&part(at))?;
    }
    beside.outlast();
    attacker.send(&part(2))?;
    attacker.send(&part(3))?;
    match beside.written()?.keys().next() {
        Some(name) => Err(format!("{name} came out, with a hole")),
        None => beside.end(),
    }
}

fn slowly(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    let attackers = (0..3).map(|_| env.attacker(&beside));
    let mut attackers = attackers.collect::<Result<Vec<_>, _>>()?;
    let (begin, mut byte) = (Instant::now(), 0);
    while begin.elapsed() < TIMEOUT * 5 {
        for event in 0..200 {
            for attacker in &mut attackers {
                attacker.send(&segment(event, byte, 1000, &[1]))?;
            }
        }
        byte += 1;
        thread::sleep(TIMEOUT / 4);
    }
    beside.outlast();
    // Which of their segments come too late is chance.
    beside.end_by_names(format!("{byte} bytes of each"), &["late"])
}
