//! Peers that are killed at random moments: the other side is told in time, and no result is wrong.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    process::{Process, at_once},
    programs,
    row::Row,
    run::Environment,
};

/// Most of a victim's time is waiting.
const AT_ONCE: usize = 40;
const TIMES: u64 = 30;
const TIMES_LONG: u64 = 1000;
/// More than the program allows itself.
const LIMIT: Duration = Duration::from_secs(60);

/// One kill, by a program that is its own judge; `seed` decides who, when, and by which functions it waits.
fn once(env: &Environment<'_>, seed: u64) -> Result<String, String> {
    let addresses = env.addresses();
    let mut command = programs::command(&env.options.programs.join("kill"), env.options, &addresses);
    command.arg(seed.to_string());
    let mut process = Process::start(&mut command, &env.folder.0)?;
    let output =
        process.succeed(LIMIT * env.options.slowness).map_err(|why| format!("seed {seed}: {why}"))?;
    let note = output.lines().rev().find_map(|line| line.strip_prefix("note: "));
    note.map(str::to_owned).ok_or_else(|| format!("seed {seed}: it says nothing of it"))
}

/// One row for each way of waiting, with the slowest answer.
pub(super) fn perform(env: &Environment<'_>, done: &(impl Fn(Row) + Sync)) {
    let start = Instant::now();
    let times = if env.options.long { TIMES_LONG } else { TIMES };
    let first = env.options.seed;
    println!("kills: seeds {first} to {}", first + times - 1);
    let results = Mutex::new(Vec::new());
    at_once(AT_ONCE, first..first + times, |seed| {
        let result = once(env, seed);
        results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut by_way: Vec<(String, u64, u64)> = Vec::new();
    for result in &results {
        match result {
            Ok(note) => {
                let (way, took) = note.rsplit_once(' ').unwrap_or((note, "0"));
                let took: u64 = took.parse().unwrap_or(0);
                match by_way.iter_mut().find(|(name, ..)| name == way) {
                    Some((_, count, slowest)) => {
                        *count += 1;
                        *slowest = took.max(*slowest);
                    }
                    None => by_way.push((way.to_owned(), 1, took)),
                }
            }
            Err(why) => done(Row::new("kills", "a peer is killed", start.elapsed(), Err(why.clone()))),
        }
    }
    by_way.sort();
    for (way, count, slowest) in by_way {
        let note = format!("{count} times, told after {slowest} ms at most, seeds from {first}");
        done(Row::new("kills", &way, start.elapsed(), Ok(note)));
    }
}
