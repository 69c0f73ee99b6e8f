//! One peer takes all it can of a server; what others get of it meanwhile is compared with what they got before.

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use super::{
    attacker::{Attacker, Kind},
    bystander::Bystander,
    case::{Case, Observation, Own},
    ejfat::EjfatEnvironment,
    fairness_bystander::{Caller, newcomer},
    fairness_program::Program,
    raw::{Offer, RawPeer},
};

/// How soon after an attack processors must be free again, and memory.
const IDLE: Duration = Duration::from_secs(1);
const FREE: Duration = Duration::from_secs(5);
/// What a server may keep of memory that an attack made it use, in KiB: an allocator keeps some for the next time.
const KEPT: i64 = 256 << 10;
const SERVED: &str = "served";

pub(super) const CASES: &[Case] = &[
    Case::fairness(
        "worker hog",
        "matrix products in 16 sessions of one address, while another makes calls of 32 KiB",
        SERVED,
        |env| {
            let (victim, bystander) = serving(env, "true", &[], Caller::pooled)?;
            let attack = Attack { kind: Kind::Workers, victim, bystander };
            attack.run(env, |_, _| Ok(()), |_, _| Ok(SERVED.into()))
        },
    )
    .growth(2048),
    Case::fairness(
        "call-and-leave",
        "12 sessions of one address, 60 times: each disconnects during its call of tens of MiB",
        "served, all free again",
        call_and_leave,
    ),
    Case::fairness(
        "level-19 compressor",
        "zstd at level 19 of 14 KiB in 8 sessions of one address, while another makes calls of 64 bytes",
        SERVED,
        |env| {
            let (victim, bystander) = serving(env, "true", &[], Caller::inline)?;
            let attack = Attack { kind: Kind::Compressor, victim, bystander };
            attack.run(env, |_, _| Ok(()), |_, _| Ok(SERVED.into()))
        },
    ),
    Case::fairness(
        "prime FFT",
        "a transform of 33 554 467 numbers in place, at a server under `ulimit -v` of 4 GiB",
        "refused or done",
        |env| {
            let (victim, bystander) = serving(env, "ulimit -v 4194304", &[], Caller::pooled)?;
            let attack = Attack { kind: Kind::PrimeFft, victim, bystander };
            let check = |_: &mut Program, counted: &str| match counted {
                "code 0x16" | "done" => Ok("refused or done".into()),
                other => Err(format!("the transforms ended with {other}")),
            };
            attack.run(env, |_, _| Ok(()), check)
        },
    )
    .growth(3 << 10),
    Case::fairness(
        "memory hog",
        "sessions of one address that reserve all they get of 256 MiB, while others come",
        "three of three newcomers served",
        |env| {
            let args = ["--memory", "256", "--session-memory", "256"];
            let (victim, bystander) = serving(env, "true", &args, Caller::inline)?;
            let server = victim.at("address")?;
            let attack = Attack { kind: Kind::Memory, victim, bystander };
            let newcomers = |env: &mut EjfatEnvironment, _: &Program| {
                (0..3).try_for_each(|_| newcomer(env.address(false), server, 1 << 20))
            };
            attack.run(env, newcomers, |_, _| Ok("three of three newcomers served".into()))
        },
    ),
    Case::fairness(
        "log flood",
        "sessions of one address that fail one after the other, as fast as a slow client makes them",
        "few lines, the bystander's among them",
        log_flood,
    ),
];

/// `naa serve` on an address of its own, and a bystander on another.
pub(super) fn serving(
    env: &mut EjfatEnvironment,
    shell: &str,
    args: &[&str],
    connect: fn(IpAddr, std::net::SocketAddr) -> Result<Caller, String>,
) -> Result<(Program, Bystander), String> {
    let bind = env.address(false).to_string();
    let all = [&["serve", "--json", "--port", "0", "--bind", &bind][..], args].concat();
    let victim = Program::start(shell, &all)?;
    let (local, server) = (env.address(false), victim.at("address")?);
    Ok((victim, Bystander::start("calls", move || connect(local, server))))
}

/// An attack on a server, with a bystander that works already.
struct Attack {
    kind: Kind,
    victim: Program,
    bystander: Bystander,
}

impl Attack {
    /// Attacks [`Program::at`] `address` from an address of its own; `besides` is done meanwhile.
    fn run(
        self,
        env: &mut EjfatEnvironment,
        besides: impl FnOnce(&mut EjfatEnvironment, &Program) -> Result<(), String>,
        check: impl FnOnce(&mut Program, &str) -> Result<String, String>,
    ) -> Result<Observation, String> {
        let target = self.victim.at("address")?.to_string();
        let Self { kind, mut victim, bystander } = self;
        compare(env, &mut victim, &bystander, (kind, &[target]), besides, check)
    }
}

/// Measures the bystander in quiet and under attack, then asks `check` for the answer, which gets what the attacker
/// counted. Whatever happens the bystander must not lose anything.
pub(super) fn compare(
    env: &mut EjfatEnvironment,
    victim: &mut Program,
    bystander: &Bystander,
    (kind, targets): (Kind, &[String]),
    besides: impl FnOnce(&mut EjfatEnvironment, &Program) -> Result<(), String>,
    check: impl FnOnce(&mut Program, &str) -> Result<String, String>,
) -> Result<Observation, String> {
    let seconds = |quick, full| Duration::from_millis(env.times(quick, full));
    let (warm, quiet, attacked) = (seconds(150, 500), seconds(500, 2000), seconds(1000, kind.full_time()));
    thread::sleep(warm);
    drop(bystander.take());
    thread::sleep(quiet);
    let mut log = bystander.take();
    if let Some(failure) = log.failures.first() {
        return Err(format!("before the attack: {failure}"));
    }
    let mut own = Own { quiet: Some(log.latency()), ..Own::default() };
    let before = victim.held()?.rss_kib;
    let attacker = Attacker::start(kind, env.address(false), targets)?;
    let begun = Instant::now();
    own.why.extend(besides(env, victim).err());
    thread::sleep(attacked.saturating_sub(begun.elapsed()));
    let mut log = bystander.take();
    own.bystander = log.latency();
    own.why.append(&mut log.failures);
    let peak = victim.held().map_or(0, |held| held.rss_kib);
    own.growth_kib = peak - before;
    let counted = attacker.end();
    let answer = counted.clone().and_then(|counted| check(victim, &counted));
    let counted = counted.unwrap_or_default();
    // What it lost while the attacker ended.
    own.why.append(&mut bystander.take().failures);
    own.why.extend(victim.ended());
    own.why.sort();
    own.why.dedup();
    let answer = answer.unwrap_or_else(|why| {
        own.why.push(why);
        String::new()
    });
    Ok(Observation { own: Some(own), ..Observation::noted(answer, counted) })
}

fn call_and_leave(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let (victim, bystander) = serving(env, "true", &[], Caller::pooled)?;
    let before = victim.held()?.rss_kib;
    let attack = Attack { kind: Kind::CallAndLeave, victim, bystander };
    let free = |victim: &mut Program, _: &str| {
        let begin = Instant::now();
        loop {
            let (kept, cpu) = (victim.held()?.rss_kib - before, victim.cpu_seconds()?);
            thread::sleep(Duration::from_millis(100));
            // The bystander still calls, which takes little.
            let busy = victim.cpu_seconds()? - cpu > 0.06;
            match begin.elapsed() {
                _ if kept <= KEPT && !busy => return Ok("served, all free again".into()),
                elapsed if busy && elapsed > IDLE => {
                    return Err(format!("calls that were left still run after {IDLE:?}"));
                }
                elapsed if elapsed > FREE => {
                    return Err(format!("{} MiB more than before after {FREE:?}", kept >> 10));
                }
                _ => {}
            }
        }
    };
    let observation = attack.run(env, |_, _| Ok(()), free)?;
    // What it used meanwhile is its own affair, as long as it falls back.
    let own = observation.own.map(|own| Own { growth_kib: 0, ..own });
    Ok(Observation { own, ..observation })
}

fn log_flood(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    /// Lines of one peer: at once, and each second.
    const LINES: [f64; 2] = [16.0, 5.0];
    let (victim, bystander) = serving(env, "true", &[], Caller::inline)?;
    let server = victim.at("address")?;
    let unlucky = env.address(false);
    let seed = env.random.next_u32();
    let begin = Instant::now();
    let fail = move |_: &mut EjfatEnvironment, _: &Program| {
        // In the middle of the flood a bystander fails, too.
        thread::sleep(Duration::from_millis(500));
        let mut peer = RawPeer::open(unlucky, seed)?;
        let mut wire = peer.connect(server, &Offer::default())?;
        peer.send_message(&mut wire, &[9; 64])?;
        // The server refuses, and tells of it when the session is over.
        peer.receive(&mut wire, Duration::from_secs(2))?;
        peer.disconnect(&wire)
    };
    let check = move |victim: &mut Program, counted: &str| {
        let (said, seconds) = (victim.output(), begin.elapsed().as_secs_f64());
        let lines = said.lines().count();
        if lines as f64 > LINES[0] + LINES[1] * seconds {
            return Err(format!(
                "{lines} lines and {} bytes within {seconds:.1} s, of {counted}",
                said.len()
            ));
        }
        if !said.contains(&unlucky.to_string()) {
            return Err(format!("no line tells of the bystander that failed, {unlucky}: {said}"));
        }
        Ok("few lines, the bystander's among them".into())
    };
    Attack { kind: Kind::Failures, victim, bystander }.run(env, fail, check)
}
