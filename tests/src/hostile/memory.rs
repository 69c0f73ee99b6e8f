//! Keys, bounds and access: what a peer may reach.

use mrsp::{
    FunctionCode, NaaAddress, RegionFlags, RegionRequest, RemoteRegion, U24, immediate::RequestImmediate,
};
use roce::{opcode, wire::Reth};

use super::{
    bare_qp_server::{FOREIGN, LEN, READ_ONLY, RW, WRITE_ONLY},
    case::{Case, Observation, Run, Text},
    environment::Environment,
    raw::{Offer, RawPeer},
    wire::{NAK_ACCESS, NAK_INVALID, Wire},
};
use crate::slow::SLOW;

const INVALID: &[&str] = &["send_invalid_request"];

const fn denied(name: Text, sent: Text, run: Run) -> Case {
    Case::new(name, sent, NAK_ACCESS, &["send_access_err"], run)
}

pub(super) const CASES: &[Case] = &[
    denied("forged RKey", "WRITE, READ with the RKey plus 1, xor 0x80000000, 0, 0xffffffff", |env| {
        let forgeries: [fn(u32) -> u32; 4] = [|k| k.wrapping_add(1), |k| k ^ 1 << 31, |_| 0, |_| u32::MAX];
        all(env, forgeries.iter().map(|forge| at(|r| Reth { rkey: forge(r[RW].rkey), ..whole(&r[RW]) })))
    }),
    denied("guessed RKeys", "READ with random RKeys, a connection each", guesses),
    denied("RKey of another protection domain", "WRITE, READ at the bystander's region", |env| {
        all(env, [at(|r| whole(&r[FOREIGN]))])
    }),
    denied("RKey of an ended session", "WRITE with the region of the session before", ended),
    denied("RKey after deregistration", "WRITE, READ with the former RKey", deregistered),
    denied("access revoked within a message", "WRITE LAST after the region was closed", revoked),
    denied("WRITE during a call", "WRITE into the function's input while it runs", |env| {
        let (mut peer, mut wire) = calling(env)?;
        let reth = whole(&wire.regions[0]);
        write(&mut peer, &mut wire, reth, &[7; 64])?;
        Ok(peer.verdict(&mut wire)?.into())
    }),
    denied("bounds wrap", "8 and 16 bytes at 0xfffffffffffffff8", |env| {
        let wrap = |length| at(move |r| Reth { addr: u64::MAX - 7, length, rkey: r[RW].rkey });
        all(env, [wrap(8), wrap(16)])
    }),
    denied("one byte beyond the end", "WRITE, READ of 4 bytes, the last beyond the region", |env| {
        all(env, [at(|r| Reth { addr: r[RW].addr + LEN as u64 - 3, length: 4, rkey: r[RW].rkey })])
    }),
    denied("one byte before the start", "WRITE, READ of 4 bytes, the first before the region", |env| {
        all(env, [at(|r| Reth { addr: r[RW].addr - 1, length: 4, rkey: r[RW].rkey })])
    }),
    denied("READ of write-only memory", "READ at a region without remote read", |env| {
        refused(env, [at(|r| whole(&r[WRITE_ONLY]))], false)
    }),
    denied("READ of the server's region", "READ at what a host may only write", |env| {
        let mut peer = env.attacker()?;
        let mut wire = peer.session(env.server(), &Offer::default(), &[region(4096)])?;
        let reth = whole(&wire.regions[0]);
        read(&mut peer, &mut wire, reth)?;
        Ok(peer.verdict(&mut wire)?.into())
    }),
    denied("WRITE to read-only memory", "WRITE at a region without remote write", |env| {
        refused(env, [at(|r| whole(&r[READ_ONLY]))], true)
    }),
    denied("length beyond the region", "RETH length one more than the region, 2^20, 2^31", |env| {
        let long = |length| at(move |r| Reth { length, ..whole(&r[RW]) });
        all(env, [long(LEN as u32 + 1), long(1 << 20), long(1 << 31)])
    }),
    Case::new("length over 2^31", "RETH length 2^31 + 1, 0xffffffff", NAK_INVALID, INVALID, |env| {
        let long = |length| at(move |r| Reth { length, ..whole(&r[RW]) });
        all(env, [long(1 << 31 | 1), long(u32::MAX)])
    }),
    Case::new(
        "no bytes with a forged RKey",
        "WRITE of 0 bytes, whose key is not looked at",
        "ACK",
        &[],
        |env| {
            let reth = at(|_| Reth { addr: 5, rkey: 5, length: 0 });
            refused(env, [reth], true)
        },
    ),
];

/// The region a request names, from those advertised.
type RegionChoice<'a> = Box<dyn Fn(&[RemoteRegion]) -> Reth + 'a>;

fn at<'a>(place: impl Fn(&[RemoteRegion]) -> Reth + 'a) -> RegionChoice<'a> {
    Box::new(place)
}

fn whole(region: &RemoteRegion) -> Reth {
    Reth { addr: region.addr, rkey: region.rkey, length: region.size.min(64) }
}

/// A WRITE of as many bytes as the RETH says and a packet holds.
fn write(peer: &mut RawPeer, wire: &mut Wire, reth: Reth, bytes: &[u8]) -> Result<(), String> {
    let fits = reth.length as usize <= wire.mtu;
    let mut packet = wire.next(if fits { opcode::WRITE_ONLY } else { opcode::WRITE_FIRST });
    packet.reth = Some(reth);
    packet.payload = &bytes[..wire.mtu.min(reth.length as usize).min(bytes.len())];
    peer.send(wire.peer, &packet)
}

fn read(peer: &mut RawPeer, wire: &mut Wire, reth: Reth) -> Result<(), String> {
    let mut packet = wire.next(opcode::READ_REQUEST);
    packet.reth = Some(reth);
    peer.send(wire.peer, &packet)
}

/// WRITE and READ at each place, on a connection each. All must be answered alike, and no byte may change.
fn all<'a>(
    env: &mut Environment,
    places: impl IntoIterator<Item = RegionChoice<'a>>,
) -> Result<Observation, String> {
    let places: Vec<_> = places.into_iter().collect();
    let written = attempts(env, &places, true)?;
    let was_read = attempts(env, &places, false)?;
    unchanged(env)?;
    same(written.into_iter().chain(was_read))
}

fn refused<'a>(
    env: &mut Environment,
    places: impl IntoIterator<Item = RegionChoice<'a>>,
    writes: bool,
) -> Result<Observation, String> {
    let places: Vec<_> = places.into_iter().collect();
    let answers = attempts(env, &places, writes)?;
    unchanged(env)?;
    same(answers)
}

fn attempts(env: &mut Environment, places: &[RegionChoice<'_>], writes: bool) -> Result<Vec<String>, String> {
    let mut answers = Vec::new();
    let mut peer = env.attacker()?;
    for place in places {
        let mut wire = peer.connect(env.target(), &Offer::default())?;
        let reth = place(&wire.regions);
        if writes {
            write(&mut peer, &mut wire, reth, &[0xee; 4096])?;
        } else {
            read(&mut peer, &mut wire, reth)?;
        }
        answers.push(peer.verdict(&mut wire)?);
    }
    Ok(answers)
}

/// One answer for many attempts.
pub(super) fn same(answers: impl IntoIterator<Item = String>) -> Result<Observation, String> {
    let mut answers: Vec<_> = answers.into_iter().collect();
    let count = answers.len();
    answers.sort();
    answers.dedup();
    Ok(Observation::noted(answers.join(", "), format!("{count} attempts")))
}

/// Checks that no byte of the target's memory changed.
pub(super) fn unchanged(env: &mut Environment) -> Result<(), String> {
    let changed = env.victim.changed()?;
    if changed.inside + changed.outside > 0 {
        return Err(format!("memory was changed: {changed:?}"));
    }
    Ok(())
}

fn guesses(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut answers = Vec::new();
    for _ in 0..env.times(500, 100_000) {
        let mut wire = peer.connect(env.target(), &Offer::default())?;
        let reth = Reth { rkey: peer.random.next_u32(), ..whole(&wire.regions[RW]) };
        read(&mut peer, &mut wire, reth)?;
        answers.push(peer.verdict(&mut wire)?);
        peer.drain()?;
    }
    unchanged(env)?;
    same(answers)
}

/// A region of an AAR, sent and returned.
pub(super) fn region(bytes: u32) -> RegionRequest {
    RegionRequest {
        flags: RegionFlags::INPUT | RegionFlags::OUTPUT,
        naa_addr: NaaAddress::ZERO,
        host: RemoteRegion { addr: 0x10_0000, rkey: 0x77, size: bytes },
    }
}

fn ended(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let first = peer.session(env.server(), &Offer::default(), &[region(4096)])?;
    peer.disconnect(&first)?;
    let mut second = peer.session(env.server(), &Offer::default(), &[region(4096)])?;
    write(&mut peer, &mut second, whole(&first.regions[0]), &[7; 64])?;
    Ok(peer.verdict(&mut second)?.into())
}

fn deregistered(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut wires = Vec::new();
    for _ in 0..2 {
        wires.push(peer.connect(env.target(), &Offer::default())?);
    }
    env.victim.reregister()?;
    let reth = whole(&wires[0].regions[RW]);
    write(&mut peer, &mut wires[0], reth, &[0xee; 64])?;
    let written = peer.verdict(&mut wires[0])?;
    read(&mut peer, &mut wires[1], reth)?;
    let was_read = peer.verdict(&mut wires[1])?;
    unchanged(env)?;
    same([written, was_read])
}

fn revoked(env: &mut Environment) -> Result<Observation, String> {
    let (mut peer, mut wire) = env.connected()?;
    let length = wire.mtu as u32 + 64;
    let reth = Reth { length, ..whole(&wire.regions[RW]) };
    // What was there before, so that the first packet, which is permitted, changes nothing.
    let before: Vec<u8> = (4096..4096 + wire.mtu).map(super::bare_qp_server::pattern).collect();
    write(&mut peer, &mut wire, reth, &before)?;
    if peer.verdict(&mut wire)? != "ACK" {
        return Err("the first packet was not taken".into());
    }
    env.victim.set_access(false)?;
    let mut last = wire.next(opcode::WRITE_LAST);
    last.payload = &[0xee; 64];
    peer.send(wire.peer, &last)?;
    let answer = peer.verdict(&mut wire)?;
    env.victim.set_access(true)?;
    unchanged(env)?;
    Ok(answer.into())
}

/// A session whose function runs for a while.
pub(super) fn calling(env: &mut Environment) -> Result<(RawPeer, Wire), String> {
    let mut peer = env.attacker()?;
    let mut wire = peer.session(env.server(), &Offer::default(), &[region(4096)])?;
    call(&mut peer, &mut wire, SLOW, 500)?;
    if peer.verdict(&mut wire)? != "ACK" {
        return Err("the call was not taken".into());
    }
    env.settle();
    Ok((peer, wire))
}

/// Starts a function by a WRITE of no bytes.
pub(super) fn call(
    peer: &mut RawPeer,
    wire: &mut Wire,
    function: FunctionCode,
    user: u32,
) -> Result<(), String> {
    let mut packet = wire.next(opcode::WRITE_ONLY_WITH_IMM);
    packet.bth.solicited = true;
    packet.reth = Some(Reth { length: 0, ..whole(&wire.regions[0]) });
    let user = U24::new(user).ok_or("user bits")?;
    packet.imm = Some(RequestImmediate::call(function, user));
    peer.send(wire.peer, &packet)
}
