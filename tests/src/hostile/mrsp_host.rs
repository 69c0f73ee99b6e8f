//! What a lying accelerator can do to a host: an error that says what it did, and nothing else.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use mrsp::{ErrorCode, RemoteRegion, codec};
use naa_host::{Device, Param, Session, SessionConfig};
use roce::wire::mad::Message;
use verbs::RejectReason;

use super::{
    case::{Case, Seen},
    memory::same,
    mrsp_liar::{Liar, REGION, Script, betray},
    stage::Stage,
    unpredictable::refusal,
};

const GROUP: &str = "lying accelerator";

/// A case in which all scripts must end alike for the host.
macro_rules! case {
    ($name:literal, $sent:literal, $told:literal, [$($script:expr),* $(,)?]) => {
        Case::new(GROUP, $name, $sent, $told, &[], |stage| told(stage, &[$($script),*]))
    };
}

pub(super) const CASES: &[Case] = &[
    case!(
        "no regions for one",
        "an advertisement of 0 regions",
        "PEER: the accelerator announced 0 regions for 1 parameters; see what its port really serves, and its log",
        [|liar| answered(liar, |_| codec::encode_advertisement(&[]).unwrap_or_default())]
    ),
    case!(
        "too many regions",
        "an advertisement of 255 regions to a buffer for 1",
        "lost the accelerator PEER: the connection failed: local length error: a buffer was shorter than its message; \
         its log may say why",
        [|liar| answered(liar, |region| codec::encode_advertisement(&[region; 255]).unwrap_or_default())]
    ),
    case!(
        "truncated",
        "advertisements cut within and after the entry's first byte",
        "no MRSP message",
        [
            |liar| answered(liar, |region| cut(region, 0)),
            |liar| answered(liar, |region| cut(region, 3)),
            |liar| answered(liar, |region| cut(region, 4)),
            |liar| answered(liar, |region| cut(region, 19)),
        ]
    ),
    case!(
        "unknown types",
        "types 3, 77, 255 with an advertisement's body",
        "no MRSP message",
        [
            |liar| answered(liar, |region| typed(region, 3)),
            |liar| answered(liar, |region| typed(region, 77)),
            |liar| answered(liar, |region| typed(region, 255)),
        ]
    ),
    case!(
        "regions too small",
        "an advertisement of a region one byte shorter, and of none",
        "announced too few bytes",
        [
            |liar| answered(liar, |region| sized(region, REGION as u32 - 1)),
            |liar| answered(liar, |region| sized(region, 0)),
        ]
    ),
    case!(
        "a region that wraps",
        "an advertisement of a region that ends beyond 2^64",
        "PEER: the accelerator announced a region for parameter 0 that ends beyond 64-bit addresses; see what its \
         port really serves, and its log",
        [|liar| answered(liar, |region| {
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
            |liar| answered(liar, |region| spoiled(RemoteRegion { rkey: region.rkey ^ 1, ..region })),
            |liar| answered(liar, |region| spoiled(RemoteRegion { addr: region.addr + 1, ..region })),
        ]
    ),
    Case::new(
        GROUP,
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
            |liar| answered(liar, |_| codec::encode_error(ErrorCode::Memory).into()),
            |liar| answered(liar, |_| codec::encode_error(ErrorCode::Address).into()),
            |liar| answered(liar, |_| codec::encode_error(ErrorCode::TooManyRegions).into()),
            |liar| answered(liar, |_| codec::encode_error(ErrorCode::Other(77)).into()),
        ]
    ),
    case!(
        "silence",
        "nothing, to a request for regions",
        "PEER did not answer the request for regions within 400ms; see its load and its log",
        [|liar| liar.hear_request()]
    ),
    case!(
        "goodbye instead of regions",
        "DREQ",
        "lost the accelerator PEER: it ended the connection; it may have been stopped, its log says why",
        [|liar| {
            liar.hear_request()?;
            liar.disconnect()
        }]
    ),
    case!(
        "a second advertisement",
        "the same again, after the first",
        "PEER: the accelerator sent an advertisement while the session was ready; see what its port really serves, \
         and its log",
        [|liar| {
            liar.hear_request()?;
            let region = liar.region();
            liar.advertise(&[region])?;
            liar.advertise(&[region])
        }]
    ),
    case!(
        "an answer without a call",
        "immediates 0 and 0x1000 before the regions; once ready",
        "answered though",
        [
            |liar| {
                liar.hear_request()?;
                liar.write(0, 0, Some(0)).map(drop)
            },
            |liar| {
                liar.hear_request()?;
                liar.write(0, 0, Some(0x1000)).map(drop)
            },
            |liar| {
                liar.set_up()?;
                liar.write(0, 0, Some(0)).map(drop)
            },
        ]
    ),
    case!(
        "two answers to a call",
        "a second WRITE with immediate",
        "answered though",
        [|liar| {
            liar.set_up()?;
            liar.hear_call()?;
            liar.write(0, 0, Some(0))?;
            liar.write(0, 0, Some(0)).map(drop)
        }]
    ),
    case!(
        "an error message instead of an answer",
        "error 1 during a call",
        "refused",
        [|liar| {
            liar.set_up()?;
            liar.hear_call()?;
            liar.say(&codec::encode_error(ErrorCode::Memory))
        }]
    ),
    case!(
        "results beyond the region",
        "WRITEs of one byte more, one byte before, far outside, with immediate and without",
        "lost the accelerator PEER during the call of function 1 (increment): it sent what this side refuses, such as a \
         WRITE outside a call's outputs; its log may say why; its results are lost, so connect and call again",
        [
            |liar| outside(liar, 0, REGION + 1, None),
            |liar| outside(liar, u64::MAX, 8, None),
            |liar| outside(liar, REGION as u64 - 4, 8, Some(0)),
            |liar| outside(liar, 1 << 40, 8, Some(0)),
        ]
    ),
    case!(
        "a WRITE outside of calls",
        "WRITE to the region of a host that is in no call",
        "lost the accelerator PEER: it sent what this side refuses, such as a WRITE outside a call's outputs; its \
         log may say why",
        [|liar| {
            liar.set_up()?;
            refused(liar.write(0, 64, None)?)
        }]
    ),
    case!(
        "return codes of nobody",
        "0x03, 0x7f, 0xffffff",
        "own return code",
        [
            |liar| responded(liar, 0x03 << 8),
            |liar| responded(liar, 0x7f << 8),
            |liar| responded(liar, 0xffff_ffff),
        ]
    ),
];

/// A host asks again, from another queue pair each time, and not for ever.
fn stale(stage: &mut Stage) -> Result<Seen, String> {
    let mut peer = stage.attacker()?;
    let (to, local) = (SocketAddr::new(peer.address().ip(), 7), stage.address());
    let host = std::thread::spawn(move || {
        let device = Device::open(local)?;
        Session::connect(&device, to, &[Param::in_out(REGION)], &SessionConfig::default()).map(drop)
    });
    let mut queue_pairs = BTreeSet::new();
    while !host.is_finished() {
        let Some(mad) = peer.hear_mad(Duration::from_millis(5))? else { continue };
        if let Message::Req(req) = &mad.message {
            queue_pairs.insert(req.qpn);
            peer.send_mad(local, &refusal(&mad, req.local_comm_id, RejectReason::STALE_CONNECTION))?;
        }
    }
    let told = host.join().map_err(|_| "the host panicked")?;
    let error = told.err().ok_or("connected to nobody")?.to_string();
    if queue_pairs.len() < 2 {
        return Err(format!("asked from {} queue pairs only", queue_pairs.len()));
    }
    Ok(Seen::noted(error.replace(&to.to_string(), "PEER"), format!("{} queue pairs", queue_pairs.len())))
}

/// The variants of a case, in the words that they share.
fn told(stage: &mut Stage, scripts: &[Script]) -> Result<Seen, String> {
    let mut answers = Vec::new();
    for script in scripts {
        let answer = betray(stage, *script)?;
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
fn answered(liar: &mut Liar, message: fn(RemoteRegion) -> Vec<u8>) -> Result<(), String> {
    liar.hear_request()?;
    let message = message(liar.region());
    liar.say(&message)
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

fn outside(liar: &mut Liar, offset: u64, bytes: usize, imm: Option<u32>) -> Result<(), String> {
    liar.set_up()?;
    liar.hear_call()?;
    refused(liar.write(offset, bytes, imm)?)
}

fn refused(status: verbs::WcStatus) -> Result<(), String> {
    match status {
        verbs::WcStatus::RemoteAccessError => Ok(()),
        other => Err(format!("the host's region took it: {other}")),
    }
}

fn responded(liar: &mut Liar, imm: u32) -> Result<(), String> {
    liar.set_up()?;
    liar.hear_call()?;
    liar.write(0, 0, Some(imm)).map(drop)
}
