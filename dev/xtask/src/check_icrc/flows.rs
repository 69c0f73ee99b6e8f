//! Packets of a connection in their order: opcodes, PSNs, lengths, and that answers fit what was asked.

use super::packet::{Handshake, Kind, Packet, Position};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

const PSNS: u32 = 1 << 24;

/// How far `psn` is ahead of `of`; negative if behind.
fn ahead(psn: u32, of: u32) -> i32 {
    let distance = psn.wrapping_sub(of) % PSNS;
    if distance < PSNS / 2 { distance as i32 } else { distance as i32 - PSNS as i32 }
}

fn next(psn: u32, count: u32) -> u32 {
    (psn + count) % PSNS
}

/// A queue pair, by its address and number.
type QueuePair = (IpAddr, u32);

/// What a queue pair is sent by its peer.
#[derive(Debug, Default)]
struct Flow {
    mtu: usize,
    peer: Option<QueuePair>,
    /// The PSN of the next new request.
    expected: u32,
    /// Requests by PSN: opcode and bytes of payload.
    requests: HashMap<u32, (u8, usize)>,
    /// A message that is not complete: its kind, and the bytes still to come if a RETH told.
    open: Option<(Kind, Option<usize>)>,
    /// Packets before the next one are not in the capture.
    unsure: bool,
    /// First PSN and number of those that the capture had not when later ones came. From the first of them on messages
    /// are no longer counted, and runs of responses may have holes.
    holes: Vec<(u32, u32)>,
    /// READs asked for: first PSN, with PSNs and bytes.
    reads: BTreeMap<u32, (u32, usize)>,
    /// Where parts of READs were asked for again. rxe begins its answer with the opcode of the middle then.
    restarts: HashSet<u32>,
    /// Requests that end a message.
    messages: u32,
    /// Responses: the PSN that must come next in a run.
    run: Option<u32>,
}

/// Everything that a capture has shown so far.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: HashMap<QueuePair, Flow>,
    /// REQs by their sender and communication ID, to be found by the REP.
    asked: HashMap<(IpAddr, u32), Handshake>,
    /// Requests sent again.
    pub(super) repeated: usize,
    /// Packets of connections whose handshake the capture has not.
    pub(super) unknown: usize,
    /// Packets that must have passed and that the capture has not: a busy machine misses some.
    pub(super) missed: usize,
}

impl Flows {
    /// Takes the next packet.
    ///
    /// # Errors
    /// What does not fit what came before.
    pub(super) fn take(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        if let Some(handshake) = packet.cm().and_then(Handshake::read) {
            self.shaken(packet, &handshake);
        }
        if packet.kind == Kind::Datagram {
            return Ok(());
        }
        let key = (packet.to, packet.qpn);
        let Some(flow) = self.flows.get_mut(&key) else {
            self.unknown += 1;
            return Ok(());
        };
        if packet.payload.len() > flow.mtu {
            return Err(format!("{} bytes, more than the path MTU of {}", packet.payload.len(), flow.mtu));
        }
        let full = matches!(packet.position, Position::First | Position::Middle);
        if full && packet.payload.len() != flow.mtu {
            return Err(format!("{} bytes in the middle of a message", packet.payload.len()));
        }
        if packet.is_request() {
            let gap = ahead(packet.psn, flow.expected);
            if gap < 0 {
                self.repeated += 1;
                return flow.check_repeat(packet);
            }
            self.missed += gap as usize;
            if gap > 0 {
                flow.miss(gap as u32);
            }
            return flow.request(packet);
        }
        let (asking, run) = (flow.peer, flow.run.take());
        let Some(asked) = asking.and_then(|peer| self.flows.get_mut(&peer)) else { return Ok(()) };
        self.missed += asked.catch_up(packet);
        let run = answer(packet, asked, run)?;
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.run = run;
        }
        Ok(())
    }

    /// A connection is asked for, or granted.
    fn shaken(&mut self, packet: &Packet<'_>, handshake: &Handshake) {
        if handshake.is_request {
            self.asked.insert((packet.from, handshake.local_id), *handshake);
            return;
        }
        let Some(request) = self.asked.get(&(packet.to, handshake.remote_id)) else { return };
        let (active, passive) = ((packet.to, request.qpn), (packet.from, handshake.qpn));
        if self.flows.get(&active).is_some_and(|flow| flow.peer == Some(passive)) {
            // The REP again.
            return;
        }
        let flow = |peer, expected| Flow { mtu: request.mtu, peer: Some(peer), expected, ..Flow::default() };
        let (to_active, to_passive) = (flow(passive, request.psn), flow(active, handshake.psn));
        self.flows.insert(active, to_active);
        self.flows.insert(passive, to_passive);
    }
}

impl Flow {
    /// A request that was not sent before.
    fn request(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        let open = self.open.take();
        let unsure = std::mem::take(&mut self.unsure);
        let len = packet.payload.len();
        self.requests.insert(packet.psn, (packet.opcode, len));
        let count = self.psns(packet);
        self.expected = next(packet.psn, count);
        self.messages += u32::from(packet.position.ends());
        let left = match (open, packet.position.begins()) {
            (_, begins) if unsure => packet.reth_len.filter(|_| begins).map(|len| len as usize),
            (Some((kind, _)), true) => {
                return Err(format!("opcode {:#04x} within a {kind:?}", packet.opcode));
            }
            (None, false) => return Err(format!("opcode {:#04x} begins a message", packet.opcode)),
            (Some((kind, _)), false) if kind != packet.kind => {
                return Err(format!("opcode {:#04x} within a {kind:?}", packet.opcode));
            }
            (Some((_, left)), false) => left,
            (None, true) => packet.reth_len.map(|len| len as usize),
        };
        if packet.kind == Kind::ReadRequest {
            self.reads.insert(packet.psn, (count, left.unwrap_or(0)));
            return if len == 0 { Ok(()) } else { Err("a READ request with payload".into()) };
        }
        let left =
            left.map(|left| left.checked_sub(len).ok_or("more bytes than the RETH told")).transpose()?;
        if packet.position.ends() {
            if left.is_some_and(|left| left > 0) {
                return Err(format!("{} bytes less than the RETH told", left.unwrap_or(0)));
            }
        } else {
            if left == Some(0) {
                return Err("the RETH told of no more bytes".into());
            }
            self.open = Some((packet.kind, left));
        }
        if packet.position == Position::Last && len == 0 {
            return Err("an empty last packet".into());
        }
        Ok(())
    }

    /// An answer tells of requests that the capture has not: how many PSNs.
    fn catch_up(&mut self, packet: &Packet<'_>) -> usize {
        if is_nak(packet) {
            return 0;
        }
        let gap = ahead(packet.psn, self.expected) + 1;
        if gap > 0 {
            self.miss(gap as u32);
            self.expected = next(packet.psn, 1);
            self.open = None;
        }
        gap.max(0) as usize
    }

    /// The next `count` requests are not in the capture, or overtaken on their way to it.
    fn miss(&mut self, count: u32) {
        self.unsure = true;
        self.holes.push((self.expected, count));
    }

    fn was_missed(&self, psn: u32) -> bool {
        self.holes.iter().any(|&(first, count)| (0..count as i32).contains(&ahead(psn, first)))
    }

    /// PSNs a packet takes.
    fn psns(&self, packet: &Packet<'_>) -> u32 {
        match packet.reth_len {
            Some(len) if packet.kind == Kind::ReadRequest => (len as usize).div_ceil(self.mtu).max(1) as u32,
            _ => 1,
        }
    }

    /// A request that was sent before, or a part of a READ.
    fn check_repeat(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        if packet.kind == Kind::ReadRequest {
            self.restarts.insert(packet.psn);
            let (first, (count, bytes)) =
                self.read_at(packet.psn).ok_or("a READ in the place of something else")?;
            let skipped = ahead(packet.psn, first) as usize * self.mtu;
            let asked = packet.reth_len.unwrap_or(0) as usize;
            let fits = asked <= bytes.saturating_sub(skipped);
            return if fits {
                Ok(())
            } else {
                Err(format!("asks for {asked} bytes of {bytes} in {count} packets again"))
            };
        }
        let found = (packet.opcode, packet.payload.len());
        match self.requests.get(&packet.psn) {
            Some(before) if *before == found => Ok(()),
            Some(before) => Err(format!("{found:x?} was sent as {before:x?} before")),
            None if self.was_missed(packet.psn) => {
                self.requests.insert(packet.psn, found);
                Ok(())
            }
            None => Err("a PSN of the past that was not sent before".into()),
        }
    }

    fn read_at(&self, psn: u32) -> Option<(u32, (u32, usize))> {
        let fits =
            |(first, (count, _)): &(&u32, &(u32, usize))| (0..*count as i32).contains(&ahead(psn, **first));
        // The range of a READ that begins before the numbers wrap is found at the end.
        let before = self.reads.range(..=psn).next_back().filter(fits);
        before.or_else(|| self.reads.iter().next_back().filter(fits)).map(|(first, read)| (*first, *read))
    }
}

/// An acknowledgement or READ response to requests of `asked`; gives the PSN that must come next in a run.
fn answer(packet: &Packet<'_>, asked: &Flow, run: Option<u32>) -> Result<Option<u32>, String> {
    if ahead(packet.psn, asked.expected) > 0 {
        return Err("misses what was not sent".into());
    }
    if let Some((_, msn)) = packet.aeth
        && msn > asked.messages % PSNS
        && asked.holes.is_empty()
    {
        return Err(format!("MSN {msn} after {} messages", asked.messages));
    }
    if packet.kind == Kind::Acknowledge {
        let inside = run.is_some() && asked.holes.is_empty();
        return if inside { Err("an ACK inside a run of READ responses".into()) } else { Ok(None) };
    }
    let Some((first, (count, bytes))) = asked.read_at(packet.psn) else {
        return if !asked.holes.is_empty() { Ok(None) } else { Err("a READ response without a READ".into()) };
    };
    let at = ahead(packet.psn, first) as u32;
    let is_last = at + 1 == count;
    if is_last {
        let expected = bytes - (count as usize - 1) * asked.mtu;
        if packet.payload.len() != expected {
            return Err(format!("{} bytes instead of {expected} end a READ", packet.payload.len()));
        }
    }
    if packet.position.ends() != is_last {
        return Err(format!("opcode {:#04x} for packet {at} of {count} of a READ", packet.opcode));
    }
    if !asked.holes.is_empty() || packet.position.begins() || asked.restarts.contains(&packet.psn) {
        return Ok((!is_last).then(|| next(packet.psn, 1)));
    }
    match run {
        Some(psn) if packet.psn != psn => Err(format!("a run goes on with PSN {psn}")),
        None => Err(format!("opcode {:#04x} begins a run", packet.opcode)),
        _ => Ok((!is_last).then(|| next(packet.psn, 1))),
    }
}

/// Carries the PSN that is missed, which the other side may not have sent yet.
fn is_nak(packet: &Packet<'_>) -> bool {
    packet.aeth.is_some_and(|(syndrome, _)| syndrome == 0x60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1024;
    const BYTES: [u8; MTU] = [0; MTU];
    const ASKING: QueuePair = (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 1);
    const ASKED: QueuePair = (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 2);

    fn connected() -> Flows {
        let flow = |peer| Flow { mtu: MTU, peer: Some(peer), expected: PSNS - 1, ..Flow::default() };
        let flows = [(ASKING, flow(ASKED)), (ASKED, flow(ASKING))].into_iter().collect();
        Flows { flows, ..Flows::default() }
    }

    fn packet(to: QueuePair, opcode: u8, kind: Kind, position: Position, psn: u32) -> Packet<'static> {
        let from = if to == ASKED { ASKING } else { ASKED };
        let aeth = matches!(opcode, 0x0d | 0x0f | 0x11).then_some((0x1f, 1));
        let payload = if kind == Kind::ReadResponse { &BYTES } else { &BYTES[..0] };
        let reth_len = (kind == Kind::ReadRequest).then_some(3 * MTU as u32);
        Packet { from: from.0, to: to.0, opcode, kind, position, qpn: to.1, psn, reth_len, aeth, payload }
    }

    fn request(psn: u32) -> Packet<'static> {
        packet(ASKED, 0x0c, Kind::ReadRequest, Position::Only, psn)
    }

    fn response(opcode: u8, position: Position, psn: u32) -> Packet<'static> {
        packet(ASKING, opcode, Kind::ReadResponse, position, psn)
    }

    #[test]
    fn a_read_is_answered_in_a_run() {
        let mut flows = connected();
        flows.take(&request(PSNS - 1)).expect("new");
        flows.take(&response(0x0d, Position::First, PSNS - 1)).expect("the first");
        flows.take(&response(0x0e, Position::Middle, 0)).expect("numbers wrap");
        let skipped =
            flows.take(&response(0x0e, Position::Middle, 1)).expect_err("the last is not in the middle");
        assert!(skipped.contains("packet 2 of 3"), "{skipped}");
        flows.take(&response(0x0f, Position::Last, 1)).expect_err("the run was broken");
        assert_eq!((flows.missed, flows.repeated, flows.unknown), (0, 0, 0));
    }

    #[test]
    fn nothing_comes_inside_a_run() {
        let mut flows = connected();
        flows.take(&request(PSNS - 1)).expect("new");
        flows.take(&response(0x0d, Position::First, PSNS - 1)).expect("the first");
        let ack = packet(ASKING, 0x11, Kind::Acknowledge, Position::Only, PSNS - 1);
        let inside = flows.take(&ack).expect_err("it ends the run");
        assert!(inside.contains("inside a run"), "{inside}");
    }

    #[test]
    fn a_part_of_a_read_again_begins_in_the_middle() {
        let mut flows = connected();
        flows.take(&request(PSNS - 1)).expect("new");
        let again = Packet { reth_len: Some(2 * MTU as u32), ..request(0) };
        flows.take(&again).expect("its last two thirds");
        flows.take(&response(0x0e, Position::Middle, 0)).expect("as rxe does");
        flows.take(&response(0x0f, Position::Last, 1)).expect("the rest");
        assert_eq!(flows.repeated, 1);
        let more = Packet { reth_len: Some(3 * MTU as u32), ..request(0) };
        flows.take(&more).expect_err("more than was asked for");
    }

    #[test]
    fn who_was_overtaken_may_come_later() {
        let mut flows = connected();
        let send = |psn| packet(ASKED, 0x04, Kind::Send, Position::Only, psn);
        flows.take(&send(PSNS - 1)).expect("new");
        flows.take(&send(2)).expect("two were overtaken");
        flows.take(&send(1)).expect("one of them");
        flows.take(&send(0)).expect("the other");
        assert_eq!((flows.missed, flows.repeated), (2, 2));
        let never = flows.take(&send(PSNS - 2)).expect_err("before the first");
        assert!(never.contains("not sent before"), "{never}");
    }
}
