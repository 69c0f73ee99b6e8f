//! Datagrams at full speed, and a worker that is told to end while they come.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{
    case::{Case, Observation, Own},
    ejfat::{END, EjfatEnvironment, Flood, Setup, folder, listed, rose, segment},
    ejfat_honest::Manner,
    ejfat_worker::WorkerProcess,
};

pub(super) const CASES: &[Case] = &[
    Case::worker(
        "flood",
        "garbage, lies and events without end at full speed for a second; 2 s in a full run",
        "beyond_end, short, timed_out, evicted",
        &["beyond_end", "short", "evicted"],
        |env| {
            // Where the kernel has no room for a datagram, the sender has to repeat it.
            let manner = Manner { length: Some(1000), repeats: true, ..Manner::default() };
            flooded(env, Setup { manner, ..Setup::default() }, mixed)
        },
    )
    .p99(Duration::from_secs(5)),
    Case::worker(
        "flood of another port",
        "the same at one port of the worker, honest events at another",
        "beyond_end, short, timed_out, evicted",
        &["beyond_end", "short", "evicted"],
        |env| flooded(env, Setup { args: &["--ports", "2"], ..Setup::default() }, mixed),
    ),
    Case::worker(
        "flood in trains",
        "segments of 100 bytes that the kernel hands over 64 at once, each of an event of its own",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        |env| {
            let next = |n| segment(n, 0, 200, &[1; 100]);
            flooded(env, Setup { args: &["--ports", "2"], ..Setup::default() }, next)
        },
    ),
    Case::worker(
        "SIGTERM in a flood",
        "the same, and the worker is told to end: it has a second",
        "told in time",
        &["beyond_end", "short", "evicted"],
        |env| {
            let beside = env.beside(Setup { args: &["--ports", "2"], ..Setup::default() })?;
            let flood = env.flood(&beside)?;
            let mut observation = during_a_flood(flood, mixed, || beside.end_by_names("", &[]))?;
            observation.answer = "told in time".into();
            Ok(observation)
        },
    ),
    Case::worker(
        "SIGTERM in a flood of whole events",
        "events of one segment at full speed, for each of which a command runs",
        "told in time",
        &["delivered"],
        commands,
    ),
    Case::worker(
        "a command for each event",
        "1000 datagrams of 8 bytes, to a worker that gives its events to a command",
        "short 1000",
        &["short"],
        |env| {
            const COMMAND: &str = "f=$EJFAT_DATA_ID-$EJFAT_EVENT; cat > .$f && mv .$f $f";
            let beside = env.beside(Setup { args: &["--exec", COMMAND], ..Setup::default() })?;
            env.send(&beside, vec![vec![0; 8]; 1000])?;
            beside.end()
        },
    ),
];

/// The `n`th of a flood.
fn mixed(n: u64) -> Vec<u8> {
    match n % 4 {
        0 => vec![n as u8; (n / 4 % 20) as usize],
        1 => segment(n, 3000, 3000, &[1; 1000]),
        2 => segment(n, 0, 64 << 20, &[1; 1400]),
        _ => segment((1 << 40) + n / 400, (n % 400) as u32 * 100, 1 << 20, &[1; 100]),
    }
}

fn flooded(
    env: &mut EjfatEnvironment,
    setup: Setup<'_>,
    next: fn(u64) -> Vec<u8>,
) -> Result<Observation, String> {
    let beside = env.beside(setup)?;
    let time = Duration::from_secs(env.times(1, 2));
    let mut flood = env.flood(&beside)?;
    flood.send_for(time, next)?;
    let rate = flood.sent as f64 / time.as_secs_f64();
    beside.outlast();
    // Which of an event's segments come twice or late depends on what the kernel dropped.
    let chance = ["duplicate", "late", "overlap", "scattered"];
    beside.end_by_names(format!("{rate:.0} datagrams/s"), &chance)
}

/// Does something while datagrams come without end.
fn during_a_flood<T>(mut flood: Flood, next: fn(u64) -> Vec<u8>, what: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                flood.send_for(Duration::from_millis(10), next)?;
            }
            Ok::<_, String>(())
        });
        thread::sleep(Duration::from_millis(200));
        let done = what();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// No honest sender beside: its events would have their turn after thousands of the attacker's.
fn commands(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let folder = folder()?;
    let worker = WorkerProcess::start(env.address(false), &folder.0, &["--exec", "cat > /dev/null"])?;
    let flood = Flood::at(env.address(false), worker.addresses[0])?;
    let ended = during_a_flood(flood, |n| segment(n, 0, 8, &[7; 8]), || worker.end())?;
    let mut own = Own { rose: rose(&ended, 0), growth_kib: ended.growth_kib, ..Own::default() };
    if ended.took > END {
        own.why.push(format!("the worker took {:.1?} to end", ended.took));
    }
    let note = format!("{}, after {:.0?}", listed(&own.rose, &[], true), ended.took);
    Ok(Observation { own: Some(own), ..Observation::noted("told in time", note) })
}
