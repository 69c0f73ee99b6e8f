//! Processes killed at any moment: the other side hears of it in time, gets no wrong result, and keeps nothing.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    ops::Range,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use naa_host::{Device, Error, FunctionCode, Param, Session, SessionConfig};
use naa_udp::{Port, PortConfig};
use roce::wire::ROCE_PORT;
use simnet::Random;

use super::{
    case::{Case, Observation},
    environment::Environment,
    resources_process::{Held, TempFolder, shared_memory, sibling},
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const SIGKILL: i32 = 9;
/// A connection that was never confirmed is given up after 10 s, a silent one after about 7; and room for a busy
/// machine.
const NOTICED: Duration = Duration::from_secs(15);
/// When a process is killed at the latest, from its start: after its first calls.
const LATEST: u64 = 40_000;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "hosts",
        "SIGKILL at a random moment of a host's life",
        "nothing left",
        &["sessions_accepted", "sessions_failed"],
        hosts,
    ),
    Case::new("servers", "SIGKILL at a random moment, under a host that calls", "told in time", &[], servers)
        // Processes start all the time on the bystander's cores.
        .p99(Duration::from_millis(100)),
];

struct PeerProcess(Child);

impl PeerProcess {
    fn start(args: &[&str], folder: &TempFolder) -> Result<Self, String> {
        let mut command = Command::new(sibling("actor")?);
        command.args(args).env("TMPDIR", &folder.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self(command.spawn().map_err(|e| format!("{command:?}: {e}"))?))
    }

    fn says(&mut self) -> Result<String, String> {
        let out = self.0.stdout.as_mut().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line.trim().to_owned())
    }

    /// Kills it; it must not have ended before.
    fn kill(mut self) -> Result<(), String> {
        self.0.kill().map_err(|e| e.to_string())?;
        let output = self.0.wait_with_output().map_err(|e| e.to_string())?;
        match output.status.signal() {
            Some(SIGKILL) => Ok(()),
            _ => Err(format!("ended by itself: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// The address of a process that was killed can be had at once.
fn is_free(ip: IpAddr) -> Result<(), String> {
    Port::bind((ip, ROCE_PORT).into(), &PortConfig::default()).map(drop).map_err(|e| e.to_string())
}

fn hosts(env: &mut Environment) -> Result<Observation, String> {
    const AT_ONCE: usize = 3;
    let folder = TempFolder::new("kills")?;
    let (server, pid) = (env.server().to_string(), env.victim.pid());
    let shared = shared_memory();
    let before = (in_use(env)?, Held::by(pid)?);
    let kills = env.times(30, 500) as usize;
    // Several for each, so that no address has more sessions than one may before the dead are noticed.
    let locals: Vec<_> = (0..24).map(|_| env.address()).collect();
    let work: Vec<_> = (0..AT_ONCE).map(|n| (n, env.random.next_u64())).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = work
            .into_iter()
            .map(|(worker, seed)| {
                let (folder, server, locals) = (&folder, &server, &locals);
                scope.spawn(move || -> Result<(), String> {
                    let mut random = Random::new(seed, 1);
                    for n in (worker..kills).step_by(AT_ONCE) {
                        // A worker's addresses are its own.
                        let local = locals[n % (locals.len() / AT_ONCE) * AT_ONCE + worker];
                        let host = PeerProcess::start(&["host", server, &local.to_string()], folder)?;
                        thread::sleep(Duration::from_micros(random.range(0..=LATEST)));
                        host.kill()
                            .and_then(|()| is_free(local))
                            .map_err(|why| format!("host {n}: {why}"))?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let start = Instant::now();
    while in_use(env)? != before.0 {
        if start.elapsed() > NOTICED {
            let left = in_use(env)?;
            return Err(format!("{left:?} sessions and bytes after {NOTICED:?}, {:?} before", before.0));
        }
        thread::sleep(Duration::from_millis(100));
    }
    let noticed = start.elapsed();
    Held::by(pid)?.check(before.1, "the server", 4096)?;
    if shared_memory() != shared || !folder.names().is_empty() {
        return Err("files were left".into());
    }
    Ok(Observation::noted("nothing left", format!("{kills} times, sessions gone after {noticed:.1?}")))
}

/// Sessions, and bytes of their regions.
fn in_use(env: &mut Environment) -> Result<(u64, u64), String> {
    let report = env.victim.report()?;
    Ok((report.counters.get("sessions").copied().ok_or("no counter")?, report.memory))
}

fn servers(env: &mut Environment) -> Result<Observation, String> {
    const AT_ONCE: usize = 10;
    const ROUNDS: usize = 4;
    let folder = TempFolder::new("kills")?;
    let kills = env.times(30, 500) as usize;
    let shared = shared_memory();
    let work: Vec<_> =
        (0..AT_ONCE).map(|n| (n, env.address(), env.address(), env.random.next_u64())).collect();
    let worst = Mutex::new(Duration::ZERO);
    let kill = |numbers: Range<usize>| {
        thread::scope(|scope| {
            let threads: Vec<_> = work
                .iter()
                .map(|&(worker, server, local, seed)| {
                    let (folder, worst, numbers) = (&folder, &worst, numbers.clone());
                    scope.spawn(move || -> Result<(), String> {
                        let mut random = Random::new(seed, numbers.start as u64);
                        let device = Device::open(local).map_err(|e| e.to_string())?;
                        for n in numbers.skip(worker).step_by(AT_ONCE) {
                            let after = Duration::from_micros(random.range(0..=LATEST));
                            let took = server_killed(folder, &device, server, after)
                                .map_err(|why| format!("server {n}, killed after {after:?}: {why}"))?;
                            let mut worst = worst.lock().map_err(|_| "a thread panicked")?;
                            *worst = took.max(*worst);
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })
    };
    let round = kills / 2;
    kill(0..round)?;
    let mut before = Held::by(std::process::id())?;
    // A leak grows in every round. What the allocator keeps for so many threads grows in some.
    for number in 1..=ROUNDS {
        kill(number * round..(number + 1) * round)?;
        let after = Held::by(std::process::id())?;
        match after.check(before, "the host", 4096) {
            Ok(()) => break,
            Err(why) if number == ROUNDS => return Err(why),
            Err(_) => before = after,
        }
    }
    if shared_memory() != shared || !folder.names().is_empty() {
        return Err("files were left".into());
    }
    let worst = worst.into_inner().map_err(|_| "a thread panicked")?;
    Ok(Observation::noted("told in time", format!("{kills} times or more, the slowest after {worst:.1?}")))
}

/// How long after the kill the host knew.
fn server_killed(
    folder: &TempFolder,
    device: &Device,
    ip: IpAddr,
    after: Duration,
) -> Result<Duration, String> {
    let mut server = PeerProcess::start(&["server", &SocketAddr::new(ip, 0).to_string()], folder)?;
    let said = server.says()?;
    let address = said.strip_prefix("ready ").and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| format!("the server said {said:?}"))?;
    thread::scope(|scope| {
        let host = scope.spawn(move || work(device, address));
        thread::sleep(after);
        let killed = Instant::now();
        server.kill()?;
        is_free(ip)?;
        let (error, at) = host.join().map_err(|_| "the host panicked")??;
        let took = at.checked_duration_since(killed).ok_or_else(|| format!("too early: {error}"))?;
        let told =
            matches!(error, Error::PeerGone { .. } | Error::Unreachable { .. } | Error::SetupTimedOut { .. });
        match told && took < NOTICED {
            true => Ok(took),
            false => Err(format!("{error} after {took:?}")),
        }
    })
}

/// Calls until that fails.
fn work(device: &Device, address: SocketAddr) -> Result<(Error, Instant), String> {
    // About 1 s until a dead peer is given up, not 4.
    let config = SessionConfig {
        setup_timeout: Duration::from_secs(2),
        ack_timeout: 15,
        probe_interval: Some(Duration::from_millis(500)),
        ..SessionConfig::default()
    };
    let mut session = match Session::connect(device, address, &[Param::in_out(20_000)], &config) {
        Ok(session) => session,
        Err(error) => return Ok((error, Instant::now())),
    };
    for round in 1u64.. {
        match session.call(INCREMENT) {
            Ok(()) if session.slice(0).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == round as u8)) => {}
            Ok(()) => return Err(format!("call {round} gave a wrong result")),
            Err(error) => return Ok((error, Instant::now())),
        }
    }
    Err("it was never killed".into())
}
