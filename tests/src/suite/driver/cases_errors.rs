//! What a peer must be refused, and that nothing is touched then.

use super::{
    super::{
        case::{Case, doing, ensure},
        environment::Environment,
    },
    pair::{Pair, both_directions, connect, part, strangers, wr},
    wire::{AccessRequest, Connect, Op, Queue, Remote, Request},
};

pub(super) const CASES: &[Case] = &[
    Case::rest("seam: a wrong RKey is refused", |s| both_directions(s, wrong_rkey)),
    Case::rest("seam: WRITE beyond the end of a region is refused", |s| both_directions(s, write_beyond)),
    Case::rest("seam: READ beyond the end of a region is refused", |s| both_directions(s, read_beyond)),
    Case::rest("seam: WRITE before the start of a region is refused", |s| both_directions(s, write_before)),
    Case::rest("seam: WRITE to what may only be read is refused", |s| both_directions(s, read_only)),
    Case::rest("seam: READ from what may only be written is refused", |s| both_directions(s, write_only)),
    Case::rest("seam: a region of another protection domain is refused", |s| both_directions(s, foreign)),
    Case::rest("seam: a deregistered region is refused", |s| both_directions(s, deregistered)),
    Case::rest("seam: a SEND longer than the receive is refused", |s| both_directions(s, too_long)),
    Case::rest("seam: requests behind a refused one are flushed", |s| both_directions(s, flushed)),
    Case::rest("seam: a receive that never comes is given up", no_receive),
];

const LEN: usize = 10_000;
const REFUSED: &str = "RemoteAccessError";

/// `op` must be refused, and the region of the passive end stay as it is.
fn refused(pair: &mut Pair<'_>, op: Op, len: usize) -> Result<(), String> {
    pair.active.region(2 * LEN, AccessRequest::Local)?;
    pair.active.fill(part(0, 0, 2 * LEN), 1)?;
    pair.active.post(vec![wr(1, op, part(0, 0, len))])?;
    pair.active.completes(Queue::Send, 1, REFUSED)?;
    let untouched: bool = pair.passive.ask(Request::Untouched { part: part(0, 0, LEN) })?;
    ensure(untouched, || "the region was written all the same".into())
}

fn wrong_rkey(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::All)?;
    // The index of a key is its upper part, so that this is the same region under a key of the past.
    refused(pair, Op::Write(Remote { rkey: to.rkey ^ 0x55, ..to }), 100)
}

fn write_beyond(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::All)?;
    refused(pair, Op::Write(to.at(1)), LEN)
}

fn read_beyond(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::All)?;
    refused(pair, Op::Read(to.at(LEN as u64 - 1)), 2)
}

fn write_before(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::All)?;
    refused(pair, Op::Write(to.at(u64::MAX)), 10)
}

fn read_only(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::Read)?;
    refused(pair, Op::Write(to), 10)
}

fn write_only(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::Write)?;
    refused(pair, Op::Read(to), 10)
}

fn foreign(pair: &mut Pair<'_>) -> Result<(), String> {
    let request = Request::Region { len: LEN, access: AccessRequest::All, foreign: true };
    let to: Remote = pair.passive.ask(request)?;
    refused(pair, Op::Write(to), 10)
}

fn deregistered(pair: &mut Pair<'_>) -> Result<(), String> {
    pair.passive.region(LEN, AccessRequest::Local)?;
    let to = pair.passive.region(LEN, AccessRequest::All)?;
    pair.passive.ask::<()>(Request::Deregister { region: 1 })?;
    refused(pair, Op::Write(to), 10)
}

fn too_long(pair: &mut Pair<'_>) -> Result<(), String> {
    pair.active.region(LEN, AccessRequest::Local)?;
    pair.passive.region(LEN, AccessRequest::Local)?;
    pair.passive.receive(1, part(0, 0, 100))?;
    pair.active.post(vec![wr(1, Op::Send, part(0, 0, 101))])?;
    // NICs call the request invalid, soft-RoCE its own receive unfit; the receiver's names for it differ as well.
    let done = pair.active.done(Queue::Send)?;
    let refused = ["RemoteInvalidRequest", "RemoteOperationError"].contains(&done.status.as_str());
    ensure(refused, || format!("sent {done:?}"))?;
    let done = pair.passive.done(Queue::Receive)?;
    ensure(done.status != "Success", || format!("received {done:?}"))
}

fn flushed(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(LEN, AccessRequest::Read)?;
    pair.active.region(LEN, AccessRequest::Local)?;
    pair.active.receive(9, part(0, 0, 10))?;
    let wrs = (1..4).map(|id| wr(id, Op::Write(to), part(0, 0, 10)).unsignaled()).collect();
    pair.active.post(wrs)?;
    pair.active.completes(Queue::Send, 1, REFUSED)?;
    for id in 2..4 {
        pair.active.completes(Queue::Send, id, "WrFlushError")?;
    }
    pair.active.completes(Queue::Receive, 9, "WrFlushError").map(drop)
}

fn no_receive(env: &mut Environment) -> Result<String, String> {
    let (mut here, mut there, way) = strangers(env)?;
    // The retry count limits the peer's requests, as in librdmacm.
    connect(&mut here, &mut there, Connect { rnr_retry_count: 1, ..way })?;
    there.region(LEN, AccessRequest::Local)?;
    there.post(vec![wr(1, Op::Send, part(0, 0, 10))])?;
    doing("SEND", there.completes(Queue::Send, 1, "RnrRetryExceeded"))?;
    Ok(String::new())
}
