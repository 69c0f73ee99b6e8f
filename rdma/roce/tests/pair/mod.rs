//! Two endpoints in virtual time, and the wire between them. A test can make the wire lose, repeat, delay or change
//! packets.
//!
//! A test that fails prints all packets of its pair.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod end;
pub(crate) mod setup;

use std::{collections::BTreeMap, fmt::Write, net::SocketAddr, time::Duration};

use roce::{
    DatagramMeta, Observer, QpAttr, Refusal, RefusalCause, Time,
    icrc::{Flow, compute},
    opcode,
    psn::Psn,
    wire::{
        Aeth, Bth, CarriedAck, Deth, NakCode, Packet, Reth, Syndrome,
        mad::{CmMessage, Mad},
    },
};
use verbs::{CmEvent, CmId, ConnParam, SendFlags, SendOp, WcStatus};

pub(crate) use end::{End, HALF};
pub(crate) use setup::Setup;

pub(crate) const MTU: u32 = 256;
/// The time that a packet takes from one end to the other.
pub(crate) const DELAY: Duration = Duration::from_micros(10);
/// The PSN of A's first request packet.
pub(crate) const PSN_A: u32 = 100;
/// The PSN of B's first request packet.
pub(crate) const PSN_B: u32 = 5000;
pub(crate) const PORT: u16 = 12_345;
/// A test fails if one run of the pair makes this number of steps, or if an end sends this number of packets at once.
const MANY: usize = 20_000;

/// The two ends of the connection. In most tests, `A` is the requester and `B` is the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    A,
    B,
}
pub(crate) use Side::{A, B};

impl Side {
    pub(crate) fn other(self) -> Self {
        if self == A { B } else { A }
    }
}

/// A packet that an end sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) from: Side,
    pub(crate) kind: &'static str,
    /// The number of this packet among the packets of the same kind from the same end, counted from 1.
    pub(crate) nth: usize,
    pub(crate) bth: Bth,
    pub(crate) reth: Option<Reth>,
    pub(crate) aeth: Option<Aeth>,
    pub(crate) imm: Option<u32>,
    /// The acknowledgement that the packet carries.
    pub(crate) carried: Option<CarriedAck>,
    /// The number of payload bytes.
    pub(crate) len: usize,
}

impl Sent {
    pub(crate) fn psn(&self) -> u32 {
        self.bth.psn.value()
    }
}

/// What the wire does with a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Lose,
    Repeat,
    Delay(Duration),
    /// The wire changes one bit of the payload or of a header.
    Corrupt,
    /// The wire changes the packet with this function, and the changed packet gets a correct ICRC.
    Change(fn(&mut Packet<'_>)),
}

type Rule = Box<dyn FnMut(&Sent) -> Option<Fault>>;

pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) sent: Vec<Sent>,
    /// The CM messages among the sent packets.
    pub(crate) mads: Vec<CmMessage>,
    /// An entry for each refused packet, with the end that refused the packet and the refusal cause.
    pub(crate) refused: Vec<(Side, RefusalCause)>,
    /// If true, an end handles all packets with the same arrival time, and only then sends packets. If false, an end
    /// can send packets after each arrival.
    pub(crate) batches: bool,
    /// The IPv4 identification with which the ICRC of each packet is computed.
    pub(crate) ip_id: u16,
    rules: Vec<Rule>,
    /// The datagrams on the wire. A key has the arrival time of a datagram, and a serial number that decides the order
    /// of datagrams with the same arrival time. A value has the receiving end and the bytes of the datagram.
    wire: BTreeMap<(Time, u64), (Side, Vec<u8>)>,
    order: u64,
    log: String,
}

impl Pair {
    /// Makes two endpoints, A and B, whose queue pairs are connected to each other.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let mut pair = Self::unconnected(&setup);
        let [a, b] = setup.psn;
        let of_a = setup.attr(pair.b.addr, pair.b.qp.0, [a, b]);
        let of_b = setup.attr(pair.a.addr, pair.a.qp.0, [b, a]);
        let of_b = QpAttr { offers_carried_acks: false, ..of_b };
        pair.a.endpoint.connect_qp(pair.a.qp, &of_a).unwrap();
        pair.b.endpoint.connect_qp(pair.b.qp, &of_b).unwrap();
        pair
    }

    fn unconnected(setup: &Setup) -> Self {
        Self {
            now: Time(1_000_000),
            a: End::new(1, setup),
            b: End::new(2, setup),
            sent: Vec::new(),
            mads: Vec::new(),
            refused: Vec::new(),
            batches: false,
            ip_id: 0,
            rules: Vec::new(),
            wire: BTreeMap::new(),
            order: 0,
            log: String::new(),
        }
    }

    /// Makes two endpoints, of which A has sent a REQ to B. The endpoint B has received the REQ, and has not accepted
    /// or rejected it yet. Returns the IDs of the connection at A and at B.
    pub(crate) fn requested() -> (Self, CmId, CmId) {
        let mut pair = Self::new();
        for end in [&mut pair.a, &mut pair.b] {
            end.renew_qp();
        }
        pair.listen();
        let id_a = pair.connect();
        pair.drive_for(DELAY);
        let Some(CmEvent::ConnectRequest { id, .. }) = pair.b.event() else { panic!("no request arrived") };
        (pair, id_a, id)
    }

    /// Makes a listener at B for the port `PORT`, and returns the ID of the listener.
    pub(crate) fn listen(&mut self) -> CmId {
        self.b.endpoint.listen(self.b.channel, PORT, 8).unwrap().0
    }

    /// Starts a connection from A to B by the CM, and returns the ID of the connection at A.
    pub(crate) fn connect(&mut self) -> CmId {
        let (now, a, remote) = (self.now, &mut self.a, (self.b.addr.ip(), PORT).into());
        a.endpoint.connect(now, a.channel, a.qp, a.addr.ip(), remote, &ConnParam::default()).unwrap()
    }

    /// Makes two ends that are connected by the CM. Returns the IDs of the connection at A and at B.
    pub(crate) fn by_cm() -> (Self, CmId, CmId) {
        let (mut pair, id_a, id_b) = Self::requested();
        pair.accept(id_b);
        pair.drive();
        let ends = [pair.a.event(), pair.b.event()];
        assert!(ends.iter().all(|event| matches!(event, Some(CmEvent::Established { .. }))), "{ends:?}");
        (pair, id_a, id_b)
    }

    pub(crate) fn accept(&mut self, id: CmId) {
        let b = &mut self.b;
        b.endpoint.accept(self.now, id, b.qp, &ConnParam::default()).unwrap();
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut End {
        if side == A { &mut self.a } else { &mut self.b }
    }

    /// Adds a rule that says what the wire does with a packet. The wire calls the rules in the order in which they were
    /// added, until a rule returns a `Fault`. If all rules return `None`, the wire delivers the packet.
    pub(crate) fn rule(&mut self, rule: impl FnMut(&Sent) -> Option<Fault> + 'static) {
        self.rules.push(Box::new(rule));
    }

    /// Sets what the wire does with the `nth` packet of the kind `kind` from each end. `nth` is counted from 1.
    pub(crate) fn on(&mut self, kind: &'static str, nth: usize, fault: Fault) {
        self.rule(move |p| (p.kind == kind && p.nth == nth).then_some(fault));
    }

    pub(crate) fn lose(&mut self, kind: &'static str, nth: usize) {
        self.on(kind, nth, Fault::Lose);
    }

    /// Makes the wire lose all packets from `side`.
    pub(crate) fn silence(&mut self, side: Side) {
        self.rule(move |p| (p.from == side).then_some(Fault::Lose));
    }

    pub(crate) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Posts a signaled WRITE at A, from the first `len` bytes of A's region to the second half of B's region.
    pub(crate) fn write(&mut self, id: u64, len: u32) {
        self.a.post(id, SendOp::Write(self.b.remote(HALF)), 0, len);
    }

    pub(crate) fn write_imm(&mut self, id: u64, len: u32, imm: u32) {
        self.a.post(id, SendOp::WriteWithImm(self.b.remote(HALF), imm), 0, len);
    }

    pub(crate) fn send(&mut self, id: u64, len: u32) {
        self.a.post(id, SendOp::Send, 0, len);
    }

    pub(crate) fn read(&mut self, id: u64, len: u32) {
        self.a.post(id, SendOp::Read(self.b.remote(0)), HALF, len);
    }

    pub(crate) fn fenced_write(&mut self, id: u64, len: u32) {
        let flags = SendFlags { fence: true, ..SendFlags::SIGNALED };
        self.a.post_with(id, SendOp::Write(self.b.remote(HALF)), 0, len, flags).unwrap();
    }

    /// Sends one SEND and waits for its completion. The requester measures the round-trip time of this SEND. Because
    /// this time is short, the requester's retransmission interval is short afterwards. At the end, the function clears
    /// the list of sent packets.
    pub(crate) fn warm_up(&mut self) {
        self.b.recv(0, 0);
        self.send(0, 0);
        assert_eq!((self.finish(), self.b.received()), (ok([0]), ok([0])));
        self.sent.clear();
    }

    /// Runs both ends until no packet is on the wire and no timer runs. Returns the completions of A's send queue.
    pub(crate) fn finish(&mut self) -> Vec<(u64, WcStatus)> {
        self.drive();
        self.a.completed()
    }

    /// Puts all waiting packets on the wire, and handles the next arrival or timer. Returns false if no packet is on
    /// the wire and no timer runs.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let timer = [&self.a, &self.b].iter().filter_map(|end| end.endpoint.poll_timeout()).min();
        let Some(next) = arrival.into_iter().chain(timer).min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            self.arrive();
        } else {
            self.a.endpoint.handle_timeout(self.now);
            self.b.endpoint.handle_timeout(self.now);
        }
        true
    }

    /// Advances the time to the next arrival of a packet, and delivers the packet. The function does not let the ends
    /// send packets.
    pub(crate) fn step_without_sending(&mut self) {
        let next = self.wire.keys().next().map(|(at, _)| *at);
        self.now = next.expect("a packet is on the wire");
        self.arrive();
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, datagram) = entry.remove();
            self.deliver_bytes(to, &datagram);
            if !self.batches {
                break;
            }
        }
    }

    pub(crate) fn drive(&mut self) {
        for _ in 0..MANY {
            if !self.step() {
                return;
            }
        }
        panic!("the ends do not come to rest");
    }

    /// Runs the pair until the clock of the pair has advanced by `time`.
    pub(crate) fn drive_for(&mut self, time: Duration) {
        let end = self.now + time;
        for n in 0.. {
            assert!(n < MANY, "the ends do not come to rest");
            self.transmit();
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let timers = [&self.a, &self.b].map(|end| end.endpoint.poll_timeout());
            let next = timers.into_iter().chain([arrival]).flatten().min();
            if next.is_none_or(|next| next > end) {
                break;
            }
            self.step();
        }
        self.now = end;
    }

    /// Puts on the wire all packets that the two ends have to send.
    pub(crate) fn transmit(&mut self) {
        for side in [A, B] {
            let more = (0..MANY).all(|_| self.transmit_one(side));
            assert!(!more, "{side:?} does not stop sending");
        }
    }

    /// Puts the next packet of `side` on the wire. Returns false if `side` has no packet to send.
    pub(crate) fn transmit_one(&mut self, side: Side) -> bool {
        let now = self.now;
        let end = self.end(side);
        if !end.endpoint.poll_transmit(now, &mut end.transmit) {
            return false;
        }
        let (body, to) = (end.gather(&end.transmit), end.transmit.to);
        assert_eq!(to, self.end(side.other()).addr, "packets go to the peer");
        let datagram = self.seal(side, body);
        self.put(side, datagram);
        true
    }

    /// Appends the ICRC to a packet from `side`.
    pub(crate) fn seal(&self, side: Side, mut body: Vec<u8>) -> Vec<u8> {
        let (from, to) = self.addresses(side);
        let (bth, rest) = body.split_at(Bth::LEN);
        let icrc = compute(&Flow::new(from, to).unwrap(), self.ip_id, bth, std::iter::once(rest));
        body.extend(icrc);
        body
    }

    fn addresses(&self, from: Side) -> (SocketAddr, SocketAddr) {
        if from == A { (self.a.addr, self.b.addr) } else { (self.b.addr, self.a.addr) }
    }

    fn put(&mut self, from: Side, datagram: Vec<u8>) {
        let packet = Packet::decode(&datagram).unwrap();
        let mut sent = self.describe(from, &packet);
        sent.nth = 1 + self.sent.iter().filter(|p| (p.from, p.kind) == (from, sent.kind)).count();
        let fault = self.rules.iter_mut().find_map(|rule| rule(&sent));
        self.note(&format!("{from:?} sends {}", line(&sent)), fault.as_ref());
        self.sent.push(sent);
        self.mads.extend(message(&packet));
        let at = self.now + DELAY;
        match fault {
            Some(Fault::Lose) => {}
            None => self.launch(at, from, datagram),
            Some(Fault::Delay(more)) => self.launch(at + more, from, datagram),
            Some(Fault::Repeat) => {
                self.launch(at, from, datagram.clone());
                self.launch(at, from, datagram);
            }
            Some(Fault::Corrupt) => {
                let mut datagram = datagram;
                let n = datagram.len() - 5;
                datagram[n] ^= 4;
                self.launch(at, from, datagram);
            }
            Some(Fault::Change(change)) => {
                let mut packet = packet;
                change(&mut packet);
                let datagram = self.encode(from, &packet);
                self.launch(at, from, datagram);
            }
        }
    }

    fn launch(&mut self, at: Time, from: Side, datagram: Vec<u8>) {
        self.order += 1;
        self.wire.insert((at, self.order), (from.other(), datagram));
    }

    /// Encodes a packet from `from` with its pad and its ICRC.
    pub(crate) fn encode(&self, from: Side, packet: &Packet<'_>) -> Vec<u8> {
        let pad = packet.payload.len().wrapping_neg() & 3;
        let mut packet = Packet { pad: &[0; 3][..pad], ..*packet };
        packet.bth.pad = pad as u8;
        let mut body = Vec::new();
        packet.encode(&mut body);
        body.truncate(body.len() - 4);
        self.seal(from, body)
    }

    /// Makes a packet from the peer of `to` for the queue pair of `to`, with the headers that the opcode `opcode` has.
    /// If the opcode has a RETH, the RETH has the length 0 and the address of the second half of the region of `to`.
    pub(crate) fn forge(&self, to: Side, opcode: u8, psn: u32) -> Packet<'static> {
        let end = if to == A { &self.a } else { &self.b };
        let (dest_qp, remote) = (end.qp.0, end.remote(HALF));
        let bth = Bth { opcode, dest_qp, psn: Psn::new(psn), p_key: Bth::DEFAULT_P_KEY, ..Bth::default() };
        let info = opcode::info(request(opcode)).unwrap();
        Packet {
            bth,
            reth: info.reth.then_some(Reth { addr: remote.addr, rkey: remote.rkey, length: 0 }),
            aeth: info.aeth.then_some(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
            imm: info.immdt.then_some(0),
            deth: info.deth.then(Deth::default),
            other: &[0; 32][..info.other],
            ..Packet::default()
        }
    }

    /// Makes a READ request to B for the `length` bytes of B's region that begin at `offset`.
    pub(crate) fn read_request(&self, psn: u32, offset: u32, length: u32) -> Packet<'static> {
        let from = self.b.remote(offset);
        let reth = Some(Reth { addr: from.addr, rkey: from.rkey, length });
        Packet { reth, ..self.forge(B, opcode::READ_REQUEST, psn) }
    }

    /// Makes an ACK, NAK or RNR NAK from the peer of `to`.
    pub(crate) fn forge_ack(&self, to: Side, psn: u32, syndrome: Syndrome) -> Packet<'static> {
        Packet { aeth: Some(Aeth { syndrome, msn: 0 }), ..self.forge(to, opcode::ACKNOWLEDGE, psn) }
    }

    /// Delivers a packet to the end `to` at once, without a delay on the wire. If the receiving end refuses the packet,
    /// returns the refusal cause.
    pub(crate) fn deliver(&mut self, to: Side, packet: &Packet<'_>) -> Option<RefusalCause> {
        let datagram = self.encode(to.other(), packet);
        self.deliver_bytes(to, &datagram)
    }

    pub(crate) fn deliver_bytes(&mut self, to: Side, datagram: &[u8]) -> Option<RefusalCause> {
        let (from, _) = self.addresses(to.other());
        self.deliver_from(from, to, datagram)
    }

    pub(crate) fn deliver_from(
        &mut self,
        from: SocketAddr,
        to: Side,
        datagram: &[u8],
    ) -> Option<RefusalCause> {
        struct Notes(Vec<RefusalCause>);
        impl Observer for Notes {
            fn refused(&mut self, refusal: &Refusal<'_>) {
                self.0.push(refusal.cause);
            }
        }
        let (now, mut notes) = (self.now, Notes(Vec::new()));
        let End { endpoint, memory, addr, .. } = self.end(to);
        let meta = DatagramMeta { from, to: *addr, index: 0 };
        endpoint.handle_datagram(now, &meta, datagram, memory, &mut notes);
        let what = Packet::decode(datagram).map(|packet| line(&self.describe(to.other(), &packet)));
        let what = what.unwrap_or_else(|e| e.to_string());
        let cause = notes.0.first().copied();
        assert!(notes.0.len() < 2, "a packet is refused for one cause: {:?}", notes.0);
        match cause {
            Some(cause) => self.note(&format!("     {to:?} refuses {what}: {}", cause.name()), None),
            None => self.note(&format!("     {to:?} takes {what}"), None),
        }
        self.refused.extend(cause.map(|cause| (to, cause)));
        cause
    }

    fn describe(&self, from: Side, packet: &Packet<'_>) -> Sent {
        let Packet { bth, reth, aeth, imm, carried, payload, .. } = *packet;
        let (at, kind, len) = (self.now, kind(packet), payload.len());
        Sent { at, from, kind, nth: 0, bth, reth, aeth, imm, carried, len }
    }

    fn note(&mut self, what: &str, fault: Option<&Fault>) {
        let us = (self.now.nanos() - 1_000_000) as f64 / 1e3;
        let fault = fault.map_or(String::new(), |fault| format!(" [{fault:?}]"));
        let _ = writeln!(self.log, "{us:>12.1} us {what}{fault}");
    }

    /// The kinds of all packets from `side`, in the order in which the packets were sent.
    pub(crate) fn kinds(&self, side: Side) -> Vec<&'static str> {
        self.sent.iter().filter(|p| p.from == side).map(|p| p.kind).collect()
    }

    /// The PSNs of all packets of a kind, in the order in which the packets were sent.
    pub(crate) fn psns(&self, kind: &str) -> Vec<u32> {
        self.sent.iter().filter(|p| p.kind == kind).map(Sent::psn).collect()
    }

    /// The PSNs of all request packets that A sent, in the order in which A sent them.
    pub(crate) fn requests(&self) -> Vec<u32> {
        let is_request = |p: &&Sent| p.from == A && request(p.bth.opcode) <= opcode::READ_REQUEST;
        self.sent.iter().filter(is_request).map(Sent::psn).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.psns(kind).len()
    }

    /// The causes for which `side` refused packets.
    pub(crate) fn causes(&self, side: Side) -> Vec<RefusalCause> {
        self.refused.iter().filter(|(at, _)| *at == side).map(|(_, cause)| *cause).collect()
    }
}

/// Prints the last 300 lines of the log of packets. The test harness shows this output only if the test fails.
impl Drop for Pair {
    fn drop(&mut self) {
        let lines: Vec<&str> = self.log.lines().collect();
        let skipped = lines.len().saturating_sub(300);
        println!("packets of a pair, without the first {skipped} lines:\n{}", lines[skipped..].join("\n"));
    }
}

/// Returns the completions that a test expects if each of the work requests `ids` has succeeded.
pub(crate) fn ok<const N: usize>(ids: [u64; N]) -> Vec<(u64, WcStatus)> {
    ids.map(|id| (id, WcStatus::Success)).to_vec()
}

/// Returns the completions that a test expects of a queue pair that failed: the oldest request failed with `status`,
/// and all other requests are flushed.
pub(crate) fn failed<const N: usize>(status: WcStatus, ids: [u64; N]) -> Vec<(u64, WcStatus)> {
    let status = |n| if n == 0 { status } else { WcStatus::WrFlushError };
    ids.iter().enumerate().map(|(n, id)| (*id, status(n))).collect()
}

fn line(p: &Sent) -> String {
    let mut line = format!("{} {}", p.kind, p.psn());
    if p.len > 0 {
        let _ = write!(line, ", {} bytes", p.len);
    }
    if let Some(reth) = p.reth {
        let _ = write!(line, ", {} at {:#x}", reth.length, reth.addr);
    }
    if let Some(carried) = p.carried {
        let _ = write!(line, ", carries an ACK of {}", carried.psn.value());
    }
    if p.bth.ack_req {
        line.push_str(", asks for an ACK");
    }
    line
}

/// Returns the kind of a packet. The kind of an acknowledgement packet is `ACK` or the name of a NAK. The kind of a
/// packet with a CM message is the name of this message. The kind of every other packet is the name of its opcode.
fn kind(packet: &Packet<'_>) -> &'static str {
    if let (opcode::ACKNOWLEDGE, Some(aeth)) = (packet.bth.opcode, packet.aeth) {
        return match aeth.syndrome {
            Syndrome::Ack(_) => "ACK",
            Syndrome::RnrNak(_) => "RNR_NAK",
            Syndrome::Nak(NakCode::PsnSequence) => "NAK_SEQUENCE",
            Syndrome::Nak(NakCode::InvalidRequest) => "NAK_INVALID",
            Syndrome::Nak(NakCode::RemoteAccess) => "NAK_ACCESS",
            Syndrome::Nak(NakCode::RemoteOperation) => "NAK_OPERATION",
            Syndrome::Nak(_) | Syndrome::Reserved(_) => "NAK_OTHER",
        };
    }
    match message(packet) {
        Some(CmMessage::Req(_)) => "REQ",
        Some(CmMessage::Mra(_)) => "MRA",
        Some(CmMessage::Rej(_)) => "REJ",
        Some(CmMessage::Rep(_)) => "REP",
        Some(CmMessage::Rtu(_)) => "RTU",
        Some(CmMessage::Dreq(_)) => "DREQ",
        Some(CmMessage::Drep(_)) => "DREP",
        None => opcode::info(request(packet.bth.opcode)).map_or("UNKNOWN", |info| info.name),
    }
}

/// Returns the opcode without the mark of a carried acknowledgement.
fn request(opcode: u8) -> u8 {
    opcode::carrier(opcode).unwrap_or(opcode)
}

fn message(packet: &Packet<'_>) -> Option<CmMessage> {
    packet.deth?;
    Mad::decode(packet.payload.try_into().ok()?).ok().map(|mad| mad.message)
}
