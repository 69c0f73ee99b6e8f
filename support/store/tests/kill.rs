//! A process is killed at random moments under load: nothing acknowledged is lost, nothing half-done is seen.

mod common;

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use common::{
    TempFolder,
    load::{self, Acknowledged, WRITERS},
};
use naa_store::{Error, Revision, Store as _, Term};
use simnet::Random;

const STORE: &str = "NAA_STORE_OF_CHILD";
const SEED: &str = "NAA_STORE_SEED";

/// Starts this program again as a process that writes and says what was acknowledged.
fn start(path: &Path, seed: u64) -> Child {
    let own = env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.args(["--exact", "writes_until_it_is_killed", "--nocapture", "--quiet"]);
    command.env(STORE, path).env(SEED, seed.to_string()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The other process; in a run of the suite it does nothing.
#[test]
fn writes_until_it_is_killed() {
    let Ok(path) = env::var(STORE) else { return };
    let seed = env::var(SEED).unwrap().parse().unwrap();
    let store = common::open(Path::new(&path)).unwrap();
    match store.claim(Term(0), Term(1)) {
        Ok(()) | Err(Error::Stale { .. }) => {}
        Err(why) => panic!("{why}"),
    }
    let known = load::count(&store.load().unwrap());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, from) = (&store, known[writer as usize]);
            scope.spawn(move || {
                load::write(store, seed, writer, from, |number, revision| {
                    // One call, so that lines of several threads do not mix.
                    let line = format!("stored {writer} {number} {revision}\n");
                    io::stdout().write_all(line.as_bytes()).unwrap();
                });
            });
        }
    });
}

/// Notes what a line says that was acknowledged.
fn note(known: &mut Acknowledged, line: &str) {
    let mut words = line.split(' ');
    if words.next() != Some("stored") {
        return;
    }
    let mut number = || words.next()?.parse::<u64>().ok();
    let (Some(writer), Some(count), Some(revision)) = (number(), number(), number()) else {
        panic!("not a line of the process: {line}")
    };
    known.batches[writer as usize] = count;
    known.revision = known.revision.max(Revision(revision));
}

#[test]
fn what_was_acknowledged_outlives_the_process() {
    let kills = common::repetitions("NAA_KILLS", 50);
    let began = Instant::now();
    let mut random = Random::new(22, 0);
    let mut batches = 0;
    let mut kill = 0;
    while kill < kills {
        let (folder, seed) = (TempFolder::new(), random.next_u64());
        let mut known = Acknowledged::default();
        // Several in one store, so that what one left is what the next one goes on with.
        for _ in 0..5.min(kills - kill) {
            let mut child = start(&folder.store(), seed);
            let lines = BufReader::new(child.stdout.take().unwrap());
            let pause = Duration::from_micros(random.range(1_000..=80_000));
            let (stored, first) = mpsc::channel();
            let reader = thread::spawn(move || {
                let lines = lines.lines().map_while(Result::ok);
                lines
                    .inspect(|line| {
                        if line.starts_with("stored") {
                            // The receiver is gone after the first message.
                            let _ = stored.send(());
                        }
                    })
                    .collect::<Vec<_>>()
            });
            // Most are killed while they write, some while they start.
            if random.chance(800_000) {
                first
                    .recv_timeout(Duration::from_secs(60))
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
            thread::sleep(pause);
            child.kill().unwrap();
            child.wait().unwrap();
            // The last line may be cut short; no other is.
            for line in reader.join().unwrap() {
                note(&mut known, &line);
            }
            let store = common::open(&folder.store()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            known = load::check(seed, &store.load().unwrap(), &known);
            kill += 1;
        }
        batches += known.revision.0;
    }
    println!("{kills} kills, {batches} batches, {:?}", began.elapsed());
    assert!(batches > 0, "no process was fast enough to store anything");
}
