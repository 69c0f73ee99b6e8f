//! Every way of waiting, on either side.

use std::time::{Duration, Instant};

use naa_host::{Param, Session, SessionConfig, U24};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    calls::{copied, copy_once, pattern},
    case::{Case, doing, ensure, same},
    control::{ServerConfig, Waiting},
    environment::Environment,
    functions::COPY,
};

pub(super) const CASES: &[Case] = &[
    Case::rest("waiting: spinning, sleeping, adaptive, on both sides", modes),
    Case::rest("waiting: asking again and again", asking),
    Case::rest("waiting: asleep on a descriptor", asleep),
];

fn modes(env: &mut Environment) -> Result<String, String> {
    use Waiting::{Adaptive, Block, Spin};
    let mut note = Vec::new();
    for (ours, theirs) in [(Block, Block), (Spin, Adaptive), (Adaptive, Spin), (Block, Adaptive)] {
        let settings = ServerConfig { waiting: theirs, ..ServerConfig::default() };
        let server = env.server_with(&settings)?;
        let config = SessionConfig { wait: ours.into(), ..SessionConfig::default() };
        let params = [Param::input(64), Param::output(64)];
        let mut session = doing("connect", env.connect(server, &params, &config)?)?;
        let start = Instant::now();
        for round in 0..20 {
            doing(&format!("{ours:?}, {theirs:?}"), copy_once(&mut session, round, [64, 64]))?;
        }
        note.push(format!("{ours:?}/{theirs:?} {:.0} us", start.elapsed().as_secs_f64() / 20.0 * 1e6));
    }
    Ok(note.join(", "))
}

fn asking(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(5000), Param::output(5000)])?;
    for round in 0..10 {
        let input = pattern(round, 5000);
        doing("write", session.write(0, 0, &input))?;
        doing("invoke", session.invoke(COPY, U24::ZERO))?;
        let end = Instant::now() + Duration::from_secs(20);
        while doing("test", session.test())?.is_none() {
            ensure(Instant::now() < end, || "no outcome in 20 s".into())?;
            std::thread::yield_now();
        }
        same("the output", &doing("bytes", session.bytes(1, ..))?, &copied(&[&input], 0, 0, 5000))?;
    }
    Ok(String::new())
}

/// Whether the session's descriptor was readable in time.
fn sleep(session: &mut Session) -> Result<bool, String> {
    let fd = doing("descriptor", session.descriptor())?;
    let time = Timespec { tv_sec: 20, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time));
    ready.map(|ready| ready > 0).map_err(|e| format!("poll: {e}"))
}

fn asleep(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(5000), Param::output(5000)])?;
    doing("descriptor", session.descriptor())?;
    let mut slept = 0;
    for round in 0..20 {
        let input = pattern(round, 5000);
        doing("write", session.write(0, 0, &input))?;
        doing("invoke", session.invoke(COPY, U24::ZERO))?;
        while doing("test", session.test())?.is_none() {
            slept += 1;
            ensure(sleep(&mut session)?, || "asleep for 20 s".into())?;
        }
        same("the output", &doing("bytes", session.bytes(1, ..))?, &copied(&[&input], 0, 0, 5000))?;
    }
    // The thread must not wake up again and again for nothing.
    ensure(slept <= 200, || format!("woken {slept} times by 20 calls"))?;
    Ok(format!("woken {slept} times by 20 calls"))
}
