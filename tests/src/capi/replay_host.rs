//! A captured connection with this library's C host in the place of NAAICE's: a program does what NAAICE's did, this side
//! answers with what NAAICE's server answered, and every message of the host is held against the captured one.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use roce::{
    psn::Psn,
    wire::{
        ROCE_PORT,
        mad::{Answered, CmMessage as Cm, CommIds, Mad, Rej, Rep, Req},
    },
};

use super::{
    capture::{Assembler, Connection},
    captured::{Agreement, INTERNAL, Region, difference, requested},
    process::Process,
    raw_end::RawEnd,
};
use crate::hostile::{RawPeer, rej, rep};

/// How long the program may take for its next message.
const TIME_LIMIT: Duration = Duration::from_secs(10);
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);
const INVALID_MTU: u16 = 26;
/// NAAICE's server's, of the capture: path MTU 1024.
const MTU: u8 = 3;
const OUR_QPN: u32 = 0x11;
const FIRST_PSN: u32 = 0xff_fff8;

/// Takes a connection in, as the captured server did: the end that stands for that server, and the REQ.
fn accept(mut raw: RawPeer, host: IpAddr, connection: &Connection) -> Result<(RawEnd, Req), String> {
    // The address's owner by all that the host knows, so not of this project's stack.
    raw.guid = connection.server_guid;
    loop {
        let mad = raw.receive_mad(TIME_LIMIT)?.ok_or("the program does not connect")?;
        let Cm::Req(req) = mad.message else { continue };
        let ids = CommIds { local: 0x5a5a, remote: req.local_comm_id };
        if req.mtu > MTU {
            let mut ari = [0; 72];
            ari[0] = MTU << 4;
            let rej = Rej { ari_len: 1, ari, ..rej(ids, Answered::Req, INVALID_MTU) };
            raw.send_mad(host, &Mad::new(mad.tid, Cm::Rej(rej)))?;
            continue;
        }
        let first = Psn::new(FIRST_PSN);
        let rep = Rep { rnr_retry: 6, ..rep(ids, OUR_QPN, first, raw.guid) };
        raw.send_mad(host, &Mad::new(mad.tid, Cm::Rep(rep)))?;
        let end = RawEnd {
            raw,
            peer: SocketAddr::new(host, ROCE_PORT),
            qpn: OUR_QPN,
            remote_qpn: req.qpn,
            mtu: 128 << MTU,
            next: req.starting_psn,
            received: Assembler::new(true, first),
            count: 0,
        };
        return Ok((end, req));
    }
}

/// Entries must be the captured ones, but for where the program has its memory.
fn same_request(captured: &[Region], live: &[Region]) -> Result<(), String> {
    let without = |region: &Region| (region.flags, region.wanted, region.size);
    if captured.iter().map(without).ne(live.iter().map(without)) {
        return Err(format!("the AAR is {live:x?} instead of {captured:x?}"));
    }
    let internal = live.iter().find(|r| r.flags & INTERNAL != 0 && (r.addr, r.rkey) != (0, 0));
    internal.map_or(Ok(()), |region| Err(format!("an internal region tells of memory: {region:x?}")))
}

/// What the REQ says, as NAAICE's host says it.
fn same_asking(captured: &Req, live: &Req) -> Result<(), String> {
    let what = |req: &Req| {
        let private = &req.private_data[36..];
        (
            req.service_id,
            req.retry_count,
            req.rnr_retry,
            req.transport,
            req.p_key,
            req.srq,
            private.iter().all(|b| *b == 0),
        )
    };
    if what(captured) == what(live) {
        Ok(())
    } else {
        Err(format!("the REQ says {:?} instead of {:?}", what(live), what(captured)))
    }
}

/// Plays the connection with `command`, a program that is given its scenario.
pub(super) fn replay(
    connection: &Connection,
    command: &mut Command,
    folder: &std::path::Path,
    (server, host): (IpAddr, IpAddr),
) -> Result<String, String> {
    let raw = RawPeer::open(server, 77)?;
    let mut program = Process::start(command, folder)?;
    let played = exchange(connection, raw, host);
    let ended = program.succeed(PROGRAM_LIMIT);
    match (played, ended) {
        (Ok(count), Ok(_)) => Ok(format!("{count} messages alike")),
        (Err(why), Ok(_)) => Err(why),
        (Ok(_), Err(program)) => Err(format!("the program: {program}")),
        (Err(why), Err(program)) => Err(format!("{why}; the program: {program}")),
    }
}

fn exchange(connection: &Connection, raw: RawPeer, host: IpAddr) -> Result<usize, String> {
    let agreement = Agreement::of(connection)?;
    let (mut server, req) = accept(raw, host, connection)?;
    same_asking(&connection.req, &req)?;
    let mut live_regions = Vec::new();
    let mut alike = 0;
    for (number, message) in connection.messages.iter().enumerate() {
        let numbered = |why: String| format!("message {number}: {why}");
        if !message.from_host {
            let target = message.target.map(|target| {
                let index = agreement.on_host(target).ok_or("a captured WRITE to no region");
                index.map(|index: usize| {
                    let region: &Region = &live_regions[index];
                    (region.addr, region.rkey)
                })
            });
            server.say(message, target.transpose()?)?;
            continue;
        }
        let live = server.receive(TIME_LIMIT, |_| Ok(())).map_err(numbered)?;
        let live = live.ok_or_else(|| numbered("the program says no more".into()))?;
        if let Some(why) = difference(message, &live) {
            return Err(numbered(why));
        }
        if message.is_send() {
            live_regions = requested(&live.bytes).map_err(numbered)?;
            same_request(&agreement.requested, &live_regions).map_err(numbered)?;
        } else if live.target != message.target {
            return Err(numbered(format!("a WRITE to {:x?} instead of {:x?}", live.target, message.target)));
        }
        alike += 1;
    }
    disconnect(&mut server)?;
    Ok(alike)
}

/// The program ends by a DREQ; NAAICE's server never answers it, and neither does this one.
fn disconnect(server: &mut RawEnd) -> Result<(), String> {
    server.raw.polite = false;
    let end = Instant::now() + TIME_LIMIT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match server.raw.receive_mad(left)? {
            Some(mad) if matches!(mad.message, Cm::Dreq(dreq) if dreq.remote_qpn == OUR_QPN) => return Ok(()),
            Some(_) => {}
            None => return Err("no DREQ at the end".into()),
        }
    }
}
