//! What a misbehaving accelerator can do to a host: an error that says what it did, and nothing else.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use mrsp::{ErrorCode, RemoteRegion, codec};
use naa_host::{Device, Param, Session, SessionConfig};
use roce::wire::mad::CmMessage;
use verbs::RejectReason;

use super::{
    case::{Case, Observation},
    environment::Environment,
    memory::same,
    mrsp_misbehaving::{Behaviour, MisbehavingAccelerator, REGION, observe_host},
    unpredictable::refusal,
};

/// A case in which all behaviours must end alike for the host.
macro_rules! case {
    ($name:literal, $sent:literal, $result:literal, [$($behaviour:expr),* $(,)?]) => {
        Case::new($name, $sent, $result, &[], |env| alike(env, &[$($behaviour),*]))
    };
}

pub(super) const CASES: &[Case] = &[
    case!(
        "no regions for one",
        "an advertisement of 0 regions",
        "PEER: the accelerator announced 0 regions for 1 parameters; see what its port really serves, and its log",
        [|peer| answered(peer, |_| codec::encode_advertisement(&[]).unwrap_or_default())]
    ),
    case!(
        "too many regions",
        "an advertisement of 255 regions to a buffer for 1",
        "lost the accelerator PEER: the connection failed: local length error: a buffer was shorter than its message; \
         its log may say why",
        [|peer| answered(peer, |region| codec::encode_advertisement(&[region; 255]).unwrap_or_default())]
    ),
    case!(
        "truncated",
        "advertisements cut within and after the entry's first byte",
        "no MRSP message",
        [
            |peer| answered(peer, |region| cut(region, 0)),
            |peer| answered(peer, |region| cut(region, 3)),
            |peer| answered(peer, |region| cut(region, 4)),
            |peer| answered(peer, |region| cut(region, 19)),
        ]
    ),
    case!(
        "unknown types",
        "types 3, 77, 255 with an advertisement's body",
        "no MRSP message",
        [
            |peer| answered(peer, |region| typed(region, 3)),
            |peer| answered(peer, |region| typed(region, 77)),
            |peer| answered(peer, |region| typed(region, 255)),
        ]
    ),
    case!(
        "regions too small",
        "an advertisement of a region one byte shorter, and of none",
        "announced too few bytes",
        [
            |peer| answered(peer, |region| sized(region, REGION as u32 - 1)),
            |peer| answered(peer, |region| sized(region, 0)),
        ]
    ),
    case!(
        "a region that wraps",
        "an advertisement of a region that ends beyond 2^64",
        "PEER: the accelerator announced a region for parameter 0 that ends beyond 64-bit addresses; see what its \
         port really serves, and its log",
        [|peer| answered(peer, |region| {
            let region = RemoteRegion { addr: 0xffff_ffff_ffff_fff8, ..region };
            codec::encode_advertisement(&[region]).unwrap_or_default()
        })]
    ),
    case!(
        "regions of nobody",
        "an advertisement of another RKey, of another address",
        "lost the accelerator PEER during the call of function 1 (increment): the connection failed: the peer refused \
         access: wrong RKey, bounds or permission; its log may say why; its results are lost, so connect and call again",
        [
            |peer| answered(peer, |region| spoiled(RemoteRegion { rkey: region.rkey ^ 1, ..region })),
            |peer| answered(peer, |region| spoiled(RemoteRegion { addr: region.addr + 1, ..region })),
        ]
    ),
    Case::new(
        "rejections as stale",
        "REJ 10 for every REQ, as if its queue pair were in use",
        "PEER refused the connection: stale connection (10); its log may say why",
        &[],
        stale,
    ),
    case!(
        "errors",
        "error messages 1, 2, 3, 77 instead of regions",
        "refused",
        [
            |peer| answered(peer, |_| codec::encode_error(ErrorCode::Memory).into()),
            |peer| answered(peer, |_| codec::encode_error(ErrorCode::Address).into()),
            |peer| answered(peer, |_| codec::encode_error(ErrorCode::TooManyRegions).into()),
            |peer| answered(peer, |_| codec::encode_error(ErrorCode::Other(77)).into()),
        ]
    ),
    case!(
        "silence",
        "nothing, to a request for regions",
        "PEER did not answer the request for regions within 400ms; see its load and its log",
        [|peer| peer.receive_request()]
    ),
    case!(
        "goodbye instead of regions",
        "DREQ",
        "lost the accelerator PEER: it ended the connection; it may have been stopped, its log says why",
        [|peer| {
            peer.receive_request()?;
            peer.disconnect()
        }]
    ),
    case!(
        "a second advertisement",
        "the same again, after the first",
        "PEER: the accelerator sent an advertisement while the session was ready; see what its port really serves, \
         and its log",
        [|peer| {
            peer.receive_request()?;
            let region = peer.region();
            peer.advertise(&[region])?;
            peer.advertise(&[region])
        }]
    ),
    case!(
        "an answer without a call",
        "immediates 0 and 0x1000 before the regions; once ready",
        "answered though",
        [
            |peer| {
                peer.receive_request()?;
                peer.write(0, 0, Some(0)).map(drop)
            },
            |peer| {
                peer.receive_request()?;
                peer.write(0, 0, Some(0x1000)).map(drop)
            },
            |peer| {
                peer.set_up()?;
                peer.write(0, 0, Some(0)).map(drop)
            },
        ]
    ),
    case!(
        "two answers to a call",
        "a second WRITE with immediate",
        "answered though",
        [|peer| {
            peer.set_up()?;
            peer.receive_call()?;
            peer.write(0, 0, Some(0))?;
            peer.write(0, 0, Some(0)).map(drop)
        }]
    ),
    case!(
        "an error message instead of an answer",
        "error 1 during a call",
        "refused",
        [|peer| {
            peer.set_up()?;
            peer.receive_call()?;
            peer.say(&codec::encode_error(ErrorCode::Memory))
        }]
    ),
    case!(
        "results beyond the region",
        "WRITEs of one byte more, one byte before, far outside, with immediate and without",
        "lost the accelerator PEER during the call of function 1 (increment): it sent what this side refuses, such as a \
         WRITE outside a call's outputs; its log may say why; its results are lost, so connect and call again",
        [
            |peer| outside(peer, 0, REGION + 1, None),
            |peer| outside(peer, u64::MAX, 8, None),
            |peer| outside(peer, REGION as u64 - 4, 8, Some(0)),
            |peer| outside(peer, 1 << 40, 8, Some(0)),
        ]
    ),
    case!(
        "a WRITE outside of calls",
        "WRITE to the region of a host that is in no call",
        "lost the accelerator PEER: it sent what this side refuses, such as a WRITE outside a call's outputs; its \
         log may say why",
        [|peer| {
            peer.set_up()?;
            refused(peer.write(0, 64, None)?)
        }]
    ),
    case!(
        "return codes of nobody",
        "0x03, 0x7f, 0xffffff",
        "own return code",
        [
            |peer| responded(peer, 0x03 << 8),
            |peer| responded(peer, 0x7f << 8),
            |peer| responded(peer, 0xffff_ffff),
        ]
    ),
];

/// A host asks again, from another queue pair each time, and not for ever.
fn stale(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let (to, local) = (SocketAddr::new(peer.address().ip(), 7), env.address());
    let host = std::thread::spawn(move || {
        let device = Device::open(local)?;
        Session::connect(&device, to, &[Param::in_out(REGION)], &SessionConfig::default()).map(drop)
    });
    let mut queue_pairs = BTreeSet::new();
    while !host.is_finished() {
        let Some(mad) = peer.receive_mad(Duration::from_millis(5))? else { continue };
        if let CmMessage::Req(req) = &mad.message {
            queue_pairs.insert(req.qpn);
            peer.send_mad(local, &refusal(&mad, req.local_comm_id, RejectReason::STALE_CONNECTION))?;
        }
    }
    let connected = host.join().map_err(|_| "the host panicked")?;
    let error = connected.err().ok_or("connected to nobody")?.to_string();
    if queue_pairs.len() < 2 {
        return Err(format!("asked from {} queue pairs only", queue_pairs.len()));
    }
    let note = format!("{} queue pairs", queue_pairs.len());
    Ok(Observation::noted(error.replace(&to.to_string(), "PEER"), note))
}

/// The variants of a case, in the words that they share.
fn alike(env: &mut Environment, behaviours: &[Behaviour]) -> Result<Observation, String> {
    let mut answers = Vec::new();
    for behaviour in behaviours {
        let answer = observe_host(env, *behaviour)?;
        if !answer.contains("PEER") {
            return Err(format!("{answer:?} does not name the peer"));
        }
        let shared = SHARED.iter().find(|(part, _)| answer.contains(part));
        answers.push(shared.map_or(answer, |(_, words)| (*words).to_owned()));
    }
    same(answers)
}

/// What errors that differ in a figure have in common.
const SHARED: [(&str, &str); 5] = [
    ("sent no MRSP message", "no MRSP message"),
    ("bytes for parameter 0 of 4096", "announced too few bytes"),
    ("refuses the regions", "refused"),
    (") though the session was ", "answered though"),
    ("the function's own return code", "own return code"),
];

/// Answers the request for regions with what `message` makes of the right one.
fn answered(peer: &mut MisbehavingAccelerator, message: fn(RemoteRegion) -> Vec<u8>) -> Result<(), String> {
    peer.receive_request()?;
    let message = message(peer.region());
    peer.say(&message)
}

fn spoiled(region: RemoteRegion) -> Vec<u8> {
    codec::encode_advertisement(&[region]).unwrap_or_default()
}

fn cut(region: RemoteRegion, len: usize) -> Vec<u8> {
    spoiled(region)[..len].to_vec()
}

fn typed(region: RemoteRegion, kind: u8) -> Vec<u8> {
    let mut message = spoiled(region);
    message[0] = kind;
    message
}

fn sized(region: RemoteRegion, size: u32) -> Vec<u8> {
    spoiled(RemoteRegion { size, ..region })
}

fn outside(
    peer: &mut MisbehavingAccelerator,
    offset: u64,
    bytes: usize,
    imm: Option<u32>,
) -> Result<(), String> {
    peer.set_up()?;
    peer.receive_call()?;
    refused(peer.write(offset, bytes, imm)?)
}

fn refused(status: verbs::WcStatus) -> Result<(), String> {
    match status {
        verbs::WcStatus::RemoteAccessError => Ok(()),
        other => Err(format!("the host's region took it: {other}")),
    }
}

fn responded(peer: &mut MisbehavingAccelerator, imm: u32) -> Result<(), String> {
    peer.set_up()?;
    peer.receive_call()?;
    peer.write(0, 0, Some(imm)).map(drop)
}
