//! Queue pairs of one endpoint against a peer that says anything, while the application posts, withdraws memory and
//! destroys. Memory is touched only where permitted ([`crate::device`]); completions come once and in order; work
//! and timers end.

use std::{collections::BTreeMap, net::SocketAddr};

use roce::{
    Config, QpAttr, Time,
    opcode::{self, Operation},
    psn::Psn,
    wire::{Aeth, Bth, CarriedAck, Packet, ROCE_PORT, Reth, Syndrome, pad_of},
};
use verbs::{Access, Payload, PdId, QpCap, QpNum, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc};

use crate::{
    device::{Device, seal},
    program::Program,
};

const MAX_STEPS: usize = 256;
/// More than all queues and windows together allow at one time.
const MAX_PACKETS: usize = 1 << 15;
/// More than all retries of both queue pairs.
const MAX_TIMEOUTS: usize = 2000;
const REGION: usize = 4096;
const CAP: QpCap = QpCap { max_send_wr: 16, max_recv_wr: 8, max_sge: 3, late_acks: true };

/// The headers between the BTH and the payload, without the immediate.
struct Extended {
    reth: Option<Reth>,
    aeth: Option<Aeth>,
    carried: Option<CarriedAck>,
}

/// A queue pair as its application and its peer know it.
struct Pair {
    num: QpNum,
    pd: PdId,
    mtu: u32,
    /// PSN of the peer's next request, as far as answers tell.
    request: Psn,
    /// PSN of the peer's next answer, and of the last request it saw.
    answer: Psn,
    seen: Psn,
    /// Posted sends without completion, and whether success completes them.
    sends: BTreeMap<u64, bool>,
    receives: BTreeMap<u64, ()>,
}

struct Machine<'a> {
    program: Program<'a>,
    device: Device,
    peer: SocketAddr,
    pds: [PdId; 2],
    pairs: Vec<Pair>,
    now: Time,
    wr_id: u64,
}

pub fn run(data: &[u8]) {
    let mut machine = Machine::new(data);
    for _ in 0..MAX_STEPS {
        if machine.program.is_over() {
            break;
        }
        machine.step();
    }
    machine.finish();
}

impl<'a> Machine<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mut program = Program::new(data);
        let addr = ([10, 0, 0, 1], ROCE_PORT).into();
        let depth = program.pick(&[1024, 1024, 1024, 3]);
        let mut device = Device::new(Config::default(), 1, addr, depth);
        let pds = [device.endpoint.alloc_pd(), device.endpoint.alloc_pd()];
        let write_only = Access::REMOTE_WRITE;
        let read_only = Access { remote_read: true, ..Access::default() };
        let regions = [
            (0, Access::ALL, 0x1000),
            (0, write_only, 0x7f00_0000_0000),
            (0, read_only, 0),
            (0, Access::LOCAL, 0x2000),
            (1, Access::ALL, u64::MAX - REGION as u64),
        ];
        for (pd, access, va) in regions {
            device.register(pds[pd], va, vec![pd as u8; REGION], access);
        }
        let peer = ([10, 0, 0, 2], ROCE_PORT).into();
        let mut machine = Self { program, device, peer, pds, pairs: Vec::new(), now: Time(1), wr_id: 0 };
        machine.create();
        machine.create();
        machine
    }

    /// A new queue pair, mostly connected.
    fn create(&mut self) {
        let program = &mut self.program;
        let options = program.byte();
        let pd = self.pds[usize::from(options & 1)];
        let mtu = [256, 1024][usize::from(options >> 1 & 1)];
        let num = self.device.create_qp(pd, CAP);
        let (send_psn, recv_psn) = match options >> 2 & 3 {
            0 => (0, 0),
            1 => (0xff_fffe, 0xff_fffc),
            _ => (program.u32(), program.u32()),
        };
        let attr = QpAttr {
            peer: self.peer,
            remote_qpn: 0x11,
            path_mtu: mtu,
            send_psn,
            recv_psn,
            retry_count: program.byte() & 7,
            rnr_retry_count: program.byte() & 7,
            ack_timeout: 1 + program.byte() % 20,
            responder_resources: program.byte(),
            initiator_depth: program.byte(),
            embedded_peer: options & 16 != 0,
            offers_carried_acks: true,
        };
        if options & 0xe0 != 0xe0 {
            self.device.endpoint.connect_qp(num, &attr).expect("a fresh queue pair");
        }
        let (send, recv) = (Psn::new(send_psn), Psn::new(recv_psn));
        let (sends, receives) = (BTreeMap::new(), BTreeMap::new());
        self.pairs.push(Pair { num, pd, mtu, request: recv, answer: send, seen: send, sends, receives });
    }

    fn step(&mut self) {
        let op = self.program.byte();
        let pair = usize::from(op >> 7);
        match op & 0x1f {
            0..8 => self.request(pair),
            8..12 => self.answer(pair),
            12..15 => self.post_send(pair),
            15..17 => self.post_recv(pair),
            17 => self.advance(),
            18..21 => self.transmit(MAX_PACKETS),
            21 => {
                let most = self.program.below(16);
                let _ = self.transmit_some(most);
            }
            22 => self.poll(),
            23 => self.change_access(),
            24 => self.deregister(),
            25 => self.register(),
            26 => self.replace(pair),
            27 => self.device.endpoint.fail_qp(self.pairs[pair].num),
            28 => self.raw(pair),
            29 => _ = self.skip_to_timeout(),
            30 => {
                let busy = self.device.endpoint.dealloc_pd(self.pairs[pair].pd);
                busy.expect_err("a queue pair uses the protection domain");
            }
            _ => self.noise(),
        }
    }

    fn psn(&mut self, next: Psn) -> Psn {
        match self.program.byte() % 16 {
            0 => next.minus(self.program.byte().into()),
            1 => next.plus(self.program.byte().into()),
            2 => Psn::new(self.program.u32()),
            _ => next,
        }
    }

    fn payload(&mut self, mtu: u32) -> Vec<u8> {
        let len = match self.program.byte() % 8 {
            0..3 => mtu as usize,
            3..6 => self.program.byte().into(),
            6 => 0,
            _ => self.program.below(5000),
        };
        vec![self.program.byte(); len]
    }

    fn reth(&mut self) -> Reth {
        let slot = self.program.below(8);
        let region = self.device.regions.slots.get(slot).and_then(Option::as_ref);
        let (va, rkey) = region.map_or((0, 0), |region| (region.va, region.keys.rkey));
        let offset = match self.program.byte() % 8 {
            0 => self.program.u64(),
            1 => self.program.u16().into(),
            2 => REGION as u64 - u64::from(self.program.byte()),
            _ => 0,
        };
        let length = match self.program.byte() % 8 {
            0 => self.program.u32(),
            1..3 => self.program.u16().into(),
            3 => 0,
            4 => 256,
            5 => 1024,
            _ => self.program.byte().into(),
        };
        let rkey = if self.program.rarely(16) { self.program.u32() } else { rkey };
        Reth { addr: va.wrapping_add(offset), rkey, length }
    }

    /// A request of the peer, which may carry an acknowledgement.
    fn request(&mut self, pair: usize) {
        let byte = self.program.byte();
        let opcode = byte % 0x18;
        let Pair { mtu, request, .. } = self.pairs[pair];
        let psn = self.psn(request);
        let info = opcode::info(opcode);
        let reth = info.is_some_and(|info| info.reth).then(|| self.reth());
        let payload = if info.is_some_and(|info| info.payload) { self.payload(mtu) } else { Vec::new() };
        if psn == request {
            let read = info.is_some_and(|info| info.operation == Operation::ReadRequest);
            let packets = reth.filter(|_| read).map_or(1, |reth| reth.length.div_ceil(mtu).max(1));
            self.pairs[pair].request = psn.plus(packets);
        }
        let carries = byte >= opcode::CARRIES_ACK && opcode <= opcode::READ_REQUEST;
        let carried = carries.then(|| self.carried(pair));
        self.feed(pair, opcode, psn, Extended { reth, aeth: None, carried }, &payload);
    }

    fn carried(&mut self, pair: usize) -> CarriedAck {
        let psn = self.psn(self.pairs[pair].seen);
        CarriedAck { reserved: 0, psn, aeth: self.aeth() }
    }

    fn aeth(&mut self) -> Aeth {
        let syndrome = if self.program.rarely(4) { self.program.byte() } else { 0x1f };
        Aeth { syndrome: Syndrome::decode(syndrome), msn: self.program.byte().into() }
    }

    /// An acknowledgement or READ response of the peer.
    fn answer(&mut self, pair: usize) {
        let opcode = 0x0d + self.program.byte() % 6;
        let Pair { mtu, answer, seen, .. } = self.pairs[pair];
        let next = if self.program.flag() { seen } else { answer };
        let psn = self.psn(next);
        let aeth = self.aeth();
        let payload = if opcode < opcode::ACKNOWLEDGE { self.payload(mtu) } else { Vec::new() };
        self.pairs[pair].answer = psn.plus(1);
        self.feed(pair, opcode, psn, Extended { reth: None, aeth: Some(aeth), carried: None }, &payload);
    }

    fn feed(&mut self, pair: usize, opcode: u8, psn: Psn, extended: Extended, payload: &[u8]) {
        let Extended { reth, aeth, carried } = extended;
        let flags = self.program.byte();
        let pad = if flags & 0x1c == 0x1c { flags >> 6 } else { pad_of(payload.len()) };
        let bth = Bth {
            opcode: if carried.is_some() { opcode | opcode::CARRIES_ACK } else { opcode },
            psn,
            pad,
            solicited: flags & 1 != 0,
            ack_req: flags & 2 != 0,
            p_key: Bth::DEFAULT_P_KEY,
            dest_qp: self.pairs[pair].num.0,
            reserved7: if carried.is_some() { Bth::TAKES_CARRIED_ACKS } else { 0 },
            ..Bth::default()
        };
        let mut bytes = bth.encode().to_vec();
        reth.inspect(|reth| bytes.extend(reth.encode()));
        let info = opcode::info(opcode);
        if info.is_some_and(|info| info.aeth) {
            bytes.extend(aeth.unwrap_or(Aeth { syndrome: Syndrome::ACK, msn: 0 }).encode());
        }
        if info.is_some_and(|info| info.immdt) {
            bytes.extend(self.program.u32().to_be_bytes());
        }
        bytes.resize(bytes.len() + info.map_or(0, |info| info.other), 0);
        carried.inspect(|carried| bytes.extend(carried.encode()));
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + usize::from(pad_of(payload.len())), 0);
        if flags & 0x38 == 0x38 {
            self.program.mutate(&mut bytes);
        }
        self.deliver(bytes);
    }

    /// Gives the endpoint a packet with the right ICRC.
    fn deliver(&mut self, mut bytes: Vec<u8>) {
        let mut from = self.peer;
        if self.program.rarely(32) {
            from = ([10, 0, 0, self.program.byte()], 1).into();
        }
        let mut to = self.device.addr;
        to.set_port(ROCE_PORT);
        seal(&mut bytes, from, to, u16::from(self.program.byte()) & 0x7f);
        let named = bytes.first_chunk().map(|bth| Bth::decode(bth).dest_qp);
        let pd = self.pairs.iter().find(|pair| Some(pair.num.0) == named).map(|pair| pair.pd);
        self.device.receive(self.now, from, &bytes, pd);
    }

    fn raw(&mut self, pair: usize) {
        let len = self.program.below(96);
        let mut bytes = self.program.bytes(len).to_vec();
        if let Some(qpn) = bytes.get_mut(5..8) {
            qpn.copy_from_slice(&self.pairs[pair].num.0.to_be_bytes()[1..]);
        }
        self.deliver(bytes);
    }

    fn noise(&mut self) {
        let len = self.program.below(96);
        let bytes = self.program.bytes(len);
        self.device.receive(self.now, self.peer, bytes, None);
    }

    fn sges(&mut self) -> Vec<Sge> {
        let count = self.program.below(5);
        let sges = (0..count).filter_map(|_| {
            let slot = self.program.below(8);
            let offset = if self.program.rarely(8) { REGION as u64 - 64 } else { self.program.byte().into() };
            let length =
                if self.program.rarely(4) { self.program.u16().into() } else { self.program.byte().into() };
            self.device.regions.sge(slot, offset, length)
        });
        sges.collect()
    }

    fn post_send(&mut self, pair: usize) {
        let options = self.program.byte();
        let remote = RemoteAddr { addr: self.program.u64(), rkey: self.program.u32() };
        let op = match options & 7 {
            0 => SendOp::Send,
            1 => SendOp::SendWithImm(7),
            2 | 3 => SendOp::Write(remote),
            4 => SendOp::WriteWithImm(remote, 8),
            _ => SendOp::Read(remote),
        };
        let (signaled, fence, solicited) = (options & 8 != 0, options & 16 != 0, options & 32 != 0);
        let sges = self.sges();
        let inline;
        let payload = if options & 0xc0 == 0xc0 {
            inline = vec![options; self.program.below(600)];
            Payload::Inline(&inline)
        } else {
            Payload::Sges(&sges)
        };
        self.wr_id += 1;
        let flags = SendFlags { signaled, solicited, fence };
        let found = &mut self.pairs[pair];
        let wr = SendWr { wr_id: self.wr_id, op, payload, flags };
        if self.device.endpoint.post_send(found.num, &wr).is_ok() {
            found.sends.insert(self.wr_id, signaled);
        }
    }

    fn post_recv(&mut self, pair: usize) {
        let sges = self.sges();
        self.wr_id += 1;
        let found = &mut self.pairs[pair];
        let wr = RecvWr { wr_id: self.wr_id, sges: &sges };
        if self.device.endpoint.post_recv(found.num, &wr).is_ok() {
            found.receives.insert(self.wr_id, ());
        }
    }

    fn advance(&mut self) {
        let nanos = u64::from(self.program.byte()) << (self.program.byte() % 32);
        self.now = Time(self.now.0 + nanos);
        self.device.expire(self.now);
    }

    /// False when no timer runs.
    fn skip_to_timeout(&mut self) -> bool {
        let Some(at) = self.device.endpoint.poll_timeout() else { return false };
        self.now = self.now.max(at);
        self.device.expire(self.now);
        true
    }

    /// Takes everything that is to be sent.
    fn transmit(&mut self, most: usize) {
        assert!(!self.transmit_some(most), "poll_transmit does not end");
    }

    /// Takes up to `most` packets; true if there may be more.
    fn transmit_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(datagram) = self.device.send(self.now, 0) else { return false };
            let packet = Packet::decode(&datagram).expect("own packets decode");
            assert!(packet.payload.len() <= 1024, "beyond the path MTU");
            self.observe(&packet);
        }
        true
    }

    /// The peer learns from what it receives. All queue pairs send to the same number: it takes all as the first's.
    fn observe(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        for pair in &mut self.pairs {
            match packet.aeth.map(|aeth| aeth.syndrome) {
                None => pair.seen = psn,
                Some(Syndrome::Ack(_)) if psn.plus(1).since(pair.request) > 0 => pair.request = psn.plus(1),
                Some(Syndrome::Ack(_)) => {}
                Some(_) => pair.request = psn,
            }
        }
    }

    fn poll(&mut self) {
        let (send_cq, recv_cq) = (self.device.send_cq, self.device.recv_cq);
        for wc in self.device.poll(send_cq) {
            self.completed(&wc, true);
        }
        for wc in self.device.poll(recv_cq) {
            self.completed(&wc, false);
        }
    }

    /// Completions come in the order of posting, each once.
    fn completed(&mut self, wc: &Wc, send: bool) {
        let overrun = self.device.endpoint.counters().cq_overrun > 0;
        // A destroyed queue pair may have completions left.
        let Some(pair) = self.pairs.iter_mut().find(|pair| pair.num == wc.qp) else { return };
        if !send {
            let first = pair.receives.pop_first().map(|(wr_id, ())| wr_id);
            assert!(first == Some(wc.wr_id) || overrun, "receive {} completed, not {first:?}", wc.wr_id);
            return;
        }
        let own = pair.sends.remove(&wc.wr_id).expect("a posted send completes once");
        assert!(own || !wc.status.is_success(), "success was not to be reported");
        let rest = pair.sends.split_off(&wc.wr_id);
        let skipped = std::mem::replace(&mut pair.sends, rest);
        assert!(overrun || skipped.values().all(|signaled| !signaled), "sends complete in order");
    }

    fn change_access(&mut self) {
        let slot = self.program.below(8);
        let bits = self.program.byte();
        let access =
            Access { local_write: bits & 1 != 0, remote_write: bits & 2 != 0, remote_read: bits & 4 != 0 };
        if let Some(Some(region)) = self.device.regions.slots.get_mut(slot) {
            // Refused beyond what it was registered for.
            if self.device.endpoint.set_mr_access(region.keys.lkey, access).is_ok() {
                region.access = access;
            }
        }
    }

    fn deregister(&mut self) {
        let slot = self.program.below(8);
        if let Some(region) = self.device.regions.slots.get_mut(slot).and_then(Option::take) {
            let id = self.device.endpoint.dereg_mr(region.keys.lkey).expect("registered");
            assert_eq!(id.0 as usize, slot);
        }
    }

    fn register(&mut self) {
        if self.device.regions.slots.iter().flatten().count() < 8 {
            let pd = self.pds[self.program.below(2)];
            let len = self.program.below(REGION);
            self.device.register(pd, self.program.u64() >> 1, vec![9; len], Access::ALL);
        }
    }

    fn replace(&mut self, pair: usize) {
        let old = self.pairs.remove(pair);
        self.device.endpoint.destroy_qp(old.num).expect("it exists");
        self.create();
    }

    /// With a peer that is silent from now on, all work ends.
    fn finish(&mut self) {
        for _ in 0..MAX_TIMEOUTS {
            self.transmit(MAX_PACKETS);
            for _ in 0..4 {
                self.poll();
            }
            if !self.skip_to_timeout() {
                break;
            }
        }
        assert_eq!(self.device.endpoint.poll_timeout(), None, "timers never end");
        let waiting = |pair: &Pair| pair.sends.values().any(|signaled| *signaled);
        let overrun = self.device.endpoint.counters().cq_overrun > 0;
        assert!(overrun || !self.pairs.iter().any(waiting), "a send never completes");
        for pair in std::mem::take(&mut self.pairs) {
            self.device.endpoint.destroy_qp(pair.num).expect("it exists");
        }
        assert!(self.device.send(self.now, 0).is_none(), "a destroyed queue pair sends");
    }
}
