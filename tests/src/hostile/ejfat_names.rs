//! Names of events: another's, and numbers that confuse who counts.

use std::{thread, time::Duration};

use super::{
    case::{Case, Observation},
    ejfat::{Attacker, COME, DATA_ID, EjfatEnvironment, Setup, bound, segment, segment_of, with_tick},
    ejfat_honest::{self, Manner},
};

/// A round of the honest sender of which an event is sent again.
const LOST: Duration = Duration::from_secs(2);
/// A round behind a thousand files that the worker writes.
const FILES: Duration = Duration::from_secs(1);
/// The most that are told apart, unless told.
const SENDERS: usize = 256;

pub(super) const CASES: &[Case] = &[
    Case::worker(
        "another's names",
        "beginnings of the honest sender's next 300 events, of other lengths, from another address",
        "timed_out 256, evicted 44",
        &["timed_out", "evicted"],
        |env| others_names(env, 500, "in the way"),
    ),
    Case::worker(
        "another's names, whole events",
        "the honest sender's next 300 events with other bytes, from another address",
        "delivered 300",
        &["delivered"],
        |env| others_names(env, 10, "in the way"),
    ),
    Case::worker(
        "from the honest sender's address, another length",
        "the beginning of its next event, from another port; UDP proves nothing: that event is lost, and never wrong",
        "conflict, timed_out",
        &["conflict", "timed_out"],
        |env| {
            from_its_address(env, |event| segment_of(ejfat_honest::DATA_ID, event, 0, 500, b"in the way"))
        },
    )
    .p99(LOST),
    Case::worker(
        "from the honest sender's address, another tick",
        "the same with the right length and a tick that is not its own",
        "conflict, timed_out",
        &["conflict", "timed_out"],
        |env| {
            let segment = |event| segment_of(ejfat_honest::DATA_ID, event, 0, 8000, b"in the way");
            from_its_address(env, |event| with_tick(1, &segment(event)))
        },
    )
    .p99(LOST),
    Case::worker(
        "random event numbers",
        "1000 whole events, where the numbers of events of which nothing came are counted",
        "delivered 1000",
        &["delivered"],
        |env| {
            let mut random = env.random.clone();
            numbered(env, &mut |_| random.next_u64())
        },
    )
    .p99(FILES),
    Case::worker(
        "event numbers that leap",
        "the same with a million more each time; nothing of the honest sender is missing",
        "delivered 1000",
        &["delivered"],
        |env| numbered(env, &mut |n| n << 20),
    )
    .p99(FILES),
    Case::worker(
        "made-up senders",
        "3 events opened from each of 400 addresses, 2000 in a full run",
        "timed_out, evicted",
        &["timed_out", "evicted"],
        many_senders,
    ),
    Case::worker(
        "all seats of senders taken",
        "a whole event from each of 300 addresses; then another honest sender comes",
        "delivered",
        &["delivered"],
        newcomer,
    )
    .p99(FILES),
];

fn others_names(
    env: &mut EjfatEnvironment,
    length: u32,
    payload: &'static str,
) -> Result<Observation, String> {
    let manner = Manner { shares_names: true, ..Manner::default() };
    let beside = env.beside(Setup { manner, ..Setup::default() })?;
    let first = beside.honest.delivered() + 8;
    let events = first..first + 300;
    let forged = events.map(|event| segment_of(ejfat_honest::DATA_ID, event, 0, length, payload.as_bytes()));
    env.send(&beside, forged)?;
    // As far as those.
    beside.wait(80);
    beside.outlast();
    beside.end()
}

/// One event of the honest sender is in the way of the attacker's, and is lost: under another name it comes through.
fn from_its_address(
    env: &mut EjfatEnvironment,
    forge: impl Fn(u64) -> Vec<u8>,
) -> Result<Observation, String> {
    let manner = Manner { repeats: true, ..Manner::default() };
    let beside = env.beside(Setup { manner, ..Setup::default() })?;
    let mut attacker = Attacker::at(beside.honest_at.ip(), beside.to())?;
    // Events with these numbers have 8000 bytes and the LB header.
    let target =
        (beside.honest.delivered() + 8..).find(|n| n % 8 == 4 && n % 3 != 2).ok_or("no such number")?;
    while beside.honest.delivered() < target && beside.honest.is_working() {
        attacker.send(&forge(target))?;
        thread::sleep(Duration::from_millis(1));
    }
    while beside.honest.delivered() == target && beside.honest.is_working() {
        thread::sleep(Duration::from_millis(1));
    }
    beside.outlast();
    // Where the machine was slow, the attacker's event was over before.
    beside.end_by_names("", &["duplicate", "late"])
}

fn numbered(env: &mut EjfatEnvironment, number: &mut dyn FnMut(u64) -> u64) -> Result<Observation, String> {
    let beside = env.beside(Setup { args: &["--consecutive"], ..Setup::default() })?;
    env.send(&beside, (0..1000).map(|n| segment(number(n), 0, 8, &[7; 8])))?;
    beside.wait(2);
    beside.written()?;
    beside.end()
}

fn many_senders(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    let senders = env.times(400, 2000);
    for n in 0..senders {
        let mut attacker = env.attacker(&beside)?;
        (3 * n..3 * n + 3).try_for_each(|event| attacker.send(&segment(event, 0, 1000, &[7; 100])))?;
    }
    beside.outlast();
    beside.end_by_names(format!("{senders} addresses"), &["late"])
}

fn newcomer(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    for n in 0..SENDERS + 44 {
        env.attacker(&beside)?.send(&segment(n as u64, 0, 8, &[7; 8]))?;
    }
    beside.wait(2);
    let written = beside.written()?.len();
    let socket = bound(env.address(false), beside.to())?;
    let manner = Manner { first: 1 << 20, ..Manner::default() };
    let newcomer = ejfat_honest::start(socket, beside.folder().to_owned(), manner);
    newcomer.rounds(10, COME)?;
    let outcome = newcomer.end();
    let mut observation =
        beside.end_by_names(format!("{} events of the newcomer", outcome.delivered), &[])?;
    if let Some(own) = &mut observation.own {
        own.why.extend(outcome.failures);
        if written != SENDERS + 44 {
            own.why.push(format!("{written} of {} events of data id {DATA_ID}", SENDERS + 44));
        }
    }
    Ok(observation)
}
