//! `naa lb serve` is killed at random moments under load. After a restart everything exists whose creation it acknowledged, and
//! nothing exists whose end it acknowledged.
//!
//! Each client has reservations, sessions, senders and tokens of its own. Before it asks for the end of one of them, it records that
//! the end is asked for: if no answer comes, the thing may exist afterwards or not.

#[path = "lb_kills/client.rs"]
mod client;
mod common;
#[path = "lb_kills/known.rs"]
mod known;

use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use client::Client;
use common::{TempFolder, naa};
use ejfat::uri::EjfatUri;
use ejfat_client::{Connection, Trust};
use known::Known;
use simnet::Random;

/// How many load balancers each client reserves at most.
const RESERVATIONS: usize = 2;
const CLIENTS: usize = 4;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const ADDRESS: &str = "127.0.81.1";
const PORT: u16 = 19_523;

/// Returns a configuration in which no session ends by itself while the test runs.
fn configuration() -> String {
    let lbs: Vec<_> = (1..=CLIENTS * RESERVATIONS).map(|n| format!("  - {{ipv4: 127.0.81.{n}}}\n")).collect();
    format!(
        "listen: ['{ADDRESS}:{PORT}']\nworkers: {{loopback: true}}\n\
         liveness: {{first_state: 30m, silent: 30m, ended: 60m}}\nload_balancers:\n{}",
        lbs.concat()
    )
}

fn start(folder: &TempFolder) -> Child {
    let (config, state) = (folder.file("site.yaml"), folder.file("state"));
    let arguments = ["lb", "serve", "--json", "--until-eof", "--config", &config, "--state", &state];
    naa(&arguments)
        .env("NAA_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn wait_until_ready(child: &mut Child, seed: u64) {
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("it speaks");
    assert!(line.contains("ready"), "seed {seed}: {line:?}, {:?}", child.wait());
}

fn connect() -> Connection {
    let uri = EjfatUri { token: Some(TOKEN.to_owned()), ..EjfatUri::new(ADDRESS, PORT) };
    Connection::open(&uri, &Trust::default()).expect("a connection")
}

fn repetitions() -> u64 {
    env::var("NAA_KILLS").map_or(50, |text| text.parse().expect("NAA_KILLS is a number"))
}

#[test]
fn what_was_acknowledged_outlives_the_daemon() {
    let kills = repetitions();
    let seed = env::var("NAA_SEED").map_or(23, |text| text.parse().expect("NAA_SEED is a number"));
    let (mut random, began) = (Random::new(seed, 0), Instant::now());
    let folder = TempFolder::new("lb-kills");
    folder.with("site.yaml", configuration().as_bytes());
    std::fs::create_dir_all(folder.file("state")).unwrap();
    let token = folder.with("state/admin-token", TOKEN.as_bytes());
    std::fs::set_permissions(token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut known: Vec<_> = (0..CLIENTS).map(|_| Known::default()).collect();
    let (ports, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    for kill in 0..kills {
        let mut child = start(&folder);
        // Some control planes are killed while they start.
        if random.chance(100_000) {
            thread::sleep(Duration::from_micros(random.range(0..=40_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            continue;
        }
        wait_until_ready(&mut child, seed);
        let admin = connect();
        known::check(&admin, &mut known, &format!("seed {seed}, kill {kill}"));
        let (is_killed, pause) = (AtomicBool::new(false), random.range(2_000..=150_000));
        thread::scope(|scope| {
            for (at, known) in known.iter_mut().enumerate() {
                let random = Random::new(random.next_u64(), at as u64);
                let (ports, is_killed, acknowledged) = (&ports, &is_killed, &acknowledged);
                scope.spawn(move || {
                    let mut client = Client { connection: connect(), random, known, ports };
                    let ended = loop {
                        match client.step() {
                            Ok(()) => acknowledged.fetch_add(1, Relaxed),
                            Err(why) => break why,
                        };
                    };
                    assert!(is_killed.load(Relaxed), "seed {seed}, kill {kill}: {ended}");
                });
            }
            thread::sleep(Duration::from_micros(pause));
            is_killed.store(true, Relaxed);
            child.kill().unwrap();
            child.wait().unwrap();
        });
    }
    let mut child = start(&folder);
    wait_until_ready(&mut child, seed);
    known::check(&connect(), &mut known, &format!("seed {seed}, at the end"));
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = acknowledged.into_inner();
    println!("{kills} kills, {acknowledged} acknowledged calls, {:?}", began.elapsed());
    assert!(acknowledged > kills, "only {acknowledged} calls were acknowledged");
}
