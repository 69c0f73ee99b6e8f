//! Workers that lie to a bridge, never give anything back, or are none.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use ejfat::ring::{BLOCK, Geometry};
use naa_host::{Device, FunctionCode, Session, SessionConfig};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};

use super::{
    bridge::{Beside, LOOK, open, params, subscription},
    case::{Case, Observation},
    ejfat::EjfatEnvironment,
};

pub(super) const CASES: &[Case] = &[
    Case::bridge(
        "credit for slots not given",
        "10 words of a ring that has no events",
        "wrong_credits 10",
        &["wrong_credits"],
        |env| {
            let beside = env.bridge(&[])?;
            let mut misbehaving = env.misbehaving_worker(&beside, 16)?;
            for slot in 0..10 {
                misbehaving.credit(slot, 1)?;
            }
            misbehaving.wait();
            drop(misbehaving);
            beside.end(&["wrong_credits"], "")
        },
    ),
    Case::bridge(
        "generations of the future and the past",
        "for one event: the next generation, one far away, its own, the one before; then one ahead of the next event",
        "wrong_credits 4, sent 2, released 1",
        &["wrong_credits", "sent", "released"],
        generations,
    ),
    Case::bridge(
        "credit at random",
        "2 000 random words in random slots, while events come",
        "undisturbed",
        &["wrong_credits"],
        |env| {
            let mut beside = env.bridge(&["--pressure", "drop-newest"])?;
            let mut misbehaving = env.misbehaving_worker(&beside, 64)?;
            for n in 0..env.times(400, 2000) {
                let (slot, word) = (env.random.below(64) as u32, env.random.below(6) as u32);
                misbehaving.credit(slot, word)?;
                if n % 50 == 0 {
                    beside.feed(env, 10)?;
                }
            }
            drop(misbehaving);
            let observation = beside.end(&["wrong_credits"], "")?;
            Ok(Observation { answer: "undisturbed".into(), ..observation })
        },
    ),
    Case::bridge(
        "never releases",
        "a ring of 4 slots, 100 events for it, 16 of which may wait",
        "held_by_ended 4, sent 4, no_credit 80, no_worker 16",
        &["no_credit", "no_worker", "sent", "held_by_ended"],
        |env| {
            let mut beside = env.bridge(&["--waiting", "16", "--hold", "0.5", "--max-event", "1M"])?;
            let mut misbehaving = env.misbehaving_worker(&beside, 4)?;
            beside.feed(env, 100)?;
            misbehaving.wait();
            drop(misbehaving);
            thread::sleep(Duration::from_millis(900));
            beside.end(&["held_by_ended", "sent", "no_credit", "no_worker"], "")
        },
    ),
    Case::bridge(
        "geometry that cannot be",
        "no slots, too many, of 0 and 65 bytes, of 4 GiB; a version, a name and data ids that are none; regions of other lengths",
        "all refused, refused 10",
        &["refused"],
        geometry,
    ),
    Case::bridge(
        "parameters in another order",
        "the answer's region where the one of credits is to be",
        "refused, refused 1",
        &["refused"],
        |env| {
            let beside = env.bridge(&[])?;
            let geometry = Geometry::new(4, 64).map_err(|e| e.to_string())?;
            let block = subscription(geometry);
            let mut params = params(&block, geometry);
            params.swap(1, 2);
            let opened = open(env.address(false), beside.bridge.workers, &params, 4);
            let answer = if opened.is_err() { "refused" } else { "taken" };
            let observation = beside.end(&["refused"], "")?;
            Ok(Observation { answer: format!("{answer}, {}", observation.answer), ..observation })
        },
    ),
    Case::bridge("a call after the subscription", "function 1 on the same session", "closed", &[], |env| {
        let beside = env.bridge(&[])?;
        let geometry = Geometry::new(4, 64).map_err(|e| e.to_string())?;
        let block = subscription(geometry);
        let device = Device::open_with(env.address(false), naa_events::ProviderChoice::Embedded);
        let device = device.map_err(|e| e.to_string())?;
        let config = SessionConfig {
            layout: naa_host::LayoutChoice::Fixed(naa_host::Layout::Symmetric),
            ..SessionConfig::default()
        };
        let session = Session::connect(&device, beside.bridge.workers, &params(&block, geometry), &config);
        let mut session = session.map_err(|e| e.to_string())?;
        session.call(mrsp::builtin::SUBSCRIBE).map_err(|e| e.to_string())?;
        let answer = match session.call(FunctionCode::constant(1)) {
            Err(naa_host::Error::PeerGone { .. }) => "closed",
            _ => "not closed",
        };
        Ok(Observation { answer: answer.into(), ..beside.end(&[], "")? })
    }),
    Case::bridge(
        "more workers than there may be",
        "9 where 8 may be, the honest one counted",
        "7 taken, 2 refused",
        &["refused"],
        |env| {
            let beside = env.bridge(&["--max-workers", "8"])?;
            let misbehaving_workers: Vec<_> = (0..9).map(|_| env.misbehaving_worker(&beside, 4)).collect();
            let (taken, refused): (Vec<_>, Vec<_>) = misbehaving_workers.into_iter().partition(Result::is_ok);
            let answer = format!("{} taken, {} refused", taken.len(), refused.len());
            drop(taken);
            Ok(Observation { answer, ..beside.end(&["refused"], "")? })
        },
    ),
    Case::bridge(
        "local: regions that shrink, or are written",
        "the files of a ring are truncated, and the one of events opened for writing",
        "cannot, cannot, cannot",
        &[],
        shrink,
    ),
    Case::bridge(
        "local: nonsense",
        "1, 63, 64 zero and 65 bytes; 40 connections that say nothing",
        "undisturbed",
        &["refused"],
        nonsense,
    ),
    Case::bridge(
        "local: rings of all the memory there is",
        "64 rings of 4 GiB",
        "some refused",
        &["refused"],
        |env| {
            let beside = env.bridge(&["--max-workers", "128"])?;
            let geometry = Geometry::new(1 << 16, 65_472).map_err(|e| e.to_string())?;
            let all = (0..64).map(|_| apply(&beside, &subscription(geometry)));
            let all = all.collect::<Result<Vec<_>, String>>()?;
            let refused = all.iter().any(|(_, _, files)| files.is_empty());
            let answer = if refused { "some refused" } else { "all taken" };
            Ok(Observation { answer: answer.into(), ..beside.end(&[], "")? })
        },
    ),
];

fn generations(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let mut beside = env.bridge(&[])?;
    let mut misbehaving = env.misbehaving_worker(&beside, 1)?;
    beside.feed(env, 1)?;
    misbehaving.wait();
    // The first generation of a slot is 1.
    for word in [2, 1000, 1, 0] {
        misbehaving.credit(0, word)?;
        misbehaving.wait();
    }
    // The next event's is what was seen and 1.
    misbehaving.credit(0, 1)?;
    misbehaving.wait();
    beside.feed(env, 1)?;
    misbehaving.wait();
    drop(misbehaving);
    beside.end(&["wrong_credits", "sent", "released"], "")
}

fn geometry(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.bridge(&[])?;
    let small = Geometry::new(4, 64).map_err(|e| e.to_string())?;
    let good = subscription(small);
    let with = |at: usize, bytes: &[u8]| {
        let mut block = good;
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block
    };
    let zero = 0u32.to_le_bytes();
    let blocks = [
        with(0, &[3]),
        with(4, &zero),
        with(4, &65_537u32.to_le_bytes()),
        with(8, &zero),
        with(8, &65u32.to_le_bytes()),
        with(8, &(1u32 << 31).to_le_bytes()),
        with(12, &[9, 0, 8, 0]),
        with(20, b"\n"),
        with(63, &[1]),
        // As long as others.
        with(4, &5u32.to_le_bytes()),
    ];
    let mut refused = 0;
    for block in blocks {
        match open(env.address(false), beside.bridge.workers, &params(&block, small), 4) {
            Err(naa_host::Error::Function { .. }) => refused += 1,
            Err(error) => return Err(format!("not refused by its function: {error}")),
            Ok(_) => {}
        }
    }
    let all = if refused == blocks.len() { "all refused" } else { "some taken" };
    let observation = beside.end(&["refused"], "")?;
    Ok(Observation { answer: format!("{all}, {}", observation.answer), ..observation })
}

/// A connection to the bridge's socket that said these bytes: its answer and files.
fn apply(beside: &Beside, said: &[u8]) -> Result<(OwnedFd, Vec<u8>, Vec<OwnedFd>), String> {
    let failed = |e: rustix::io::Errno| e.to_string();
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed)?;
    let deadline = Instant::now() + Duration::from_secs(3);
    let address = SocketAddrUnix::new(&beside.bridge.local).map_err(failed)?;
    while let Err(error) = connect(&socket, &address) {
        if Instant::now() > deadline {
            return Err(failed(error));
        }
        thread::sleep(Duration::from_millis(5));
    }
    if said.is_empty() {
        return Ok((socket, Vec::new(), Vec::new()));
    }
    send(&socket, said, SendFlags::NOSIGNAL).map_err(failed)?;
    let mut bytes = [0; BLOCK];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let read = recvmsg(&socket, &mut parts, &mut control, RecvFlags::empty()).map_err(failed)?.bytes;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    Ok((socket, bytes[..read].to_vec(), files))
}

fn shrink(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.bridge(&[])?;
    let geometry = Geometry::new(4, 4096).map_err(|e| e.to_string())?;
    let (_socket, _, files) = apply(&beside, &subscription(geometry))?;
    let [events, credits] = &files[..] else { return Err("there are no two files".into()) };
    let told = |can: bool| if can { "can" } else { "cannot" };
    let truncated = [events, credits].map(|file| rustix::fs::ftruncate(file, 0).is_ok());
    let written = rustix::io::pwrite(events.as_fd(), &[1], 0).is_ok() || region::map_file(events, 64).is_ok();
    let answer = [truncated[0], truncated[1], written].map(told).join(", ");
    Ok(Observation { answer, ..beside.end(&[], "")? })
}

fn nonsense(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.bridge(&[])?;
    let silent = (0..40).map(|_| apply(&beside, &[])).collect::<Result<Vec<_>, String>>();
    // Its queue is full, or they wait.
    drop(silent);
    thread::sleep(LOOK);
    for length in [1, 63, 64, 65] {
        let (_socket, answer, files) = apply(&beside, &vec![0; length])?;
        if !files.is_empty() || answer.get(4).is_none_or(|&refusal| refusal == 0) {
            return Err(format!("{length} bytes were taken: {answer:?}"));
        }
    }
    // A stream is no connection of whole messages.
    let stream = UnixStream::connect(&beside.bridge.local).is_ok();
    if stream {
        return Err("a stream was taken".into());
    }
    let observation = beside.end(&[], "")?;
    Ok(Observation { answer: "undisturbed".into(), ..observation })
}
