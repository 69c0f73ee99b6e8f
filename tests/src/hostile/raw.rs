//! An attacker: a UDP socket at the RoCE port that builds every packet itself and sees all that comes back.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use naa_udp::{Port, PortConfig, RecvBatch, Rest, SendBatch, wait};
use roce::{
    cm,
    icrc::{self, Flow},
    opcode,
    psn::Psn,
    wire::{
        Aeth, Bth, Deth, ICRC_LEN, Packet, ROCE_PORT, Reth, Syndrome,
        mad::{Answered, CmMessage, CmaHeader, CommIds, MAD_LEN, Mad, Rej, Rep, Req, gid, service_id},
        pad_of,
    },
};
use simnet::Random;

use super::wire::{Answer, Wire};

const GSI_Q_KEY: u32 = 0x8001_0000;
/// Datagrams per system call.
const BATCH: usize = 64;
/// How long an answer may take on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(3);
/// How long nothing must come for silence.
pub(super) const SILENCE: Duration = Duration::from_millis(60);

#[derive(Debug)]
pub struct RawPeer {
    port: Port,
    send: SendBatch,
    receive: RecvBatch,
    pub guid: u64,
    pub random: Random,
    next_qpn: u32,
    received: VecDeque<Vec<u8>>,
    mads: VecDeque<Mad>,
    /// Confirms goodbyes.
    pub polite: bool,
    /// Acknowledges what it receives.
    pub acknowledges: bool,
}

/// What a REQ says beside the addresses.
#[derive(Clone, Debug)]
pub struct Offer {
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub ack_timeout: u8,
    /// 4.096 us times two to this.
    pub mtu: u8,
    pub user_data: Vec<u8>,
}

impl Default for Offer {
    fn default() -> Self {
        Self { retry_count: 7, rnr_retry: 6, ack_timeout: 14, mtu: 3, user_data: Vec::new() }
    }
}

impl RawPeer {
    pub fn open(ip: IpAddr, seed: u32) -> Result<Self, String> {
        let config = PortConfig { gro: false, gso: false, ..PortConfig::default() };
        let port = Port::bind((ip, ROCE_PORT).into(), &config).map_err(|e| e.to_string())?;
        Ok(Self {
            port,
            send: SendBatch::new(BATCH, 1 << 20, false),
            receive: RecvBatch::new(8),
            guid: cm::embedded_guid(seed),
            random: Random::new(seed.into(), 2),
            next_qpn: seed & 0xff_ffff,
            received: VecDeque::new(),
            mads: VecDeque::new(),
            polite: true,
            acknowledges: true,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.port.local_addr()
    }

    /// Sends bytes as they are, sooner or later: [`Self::flush`] makes it now.
    pub fn queue(&mut self, to: SocketAddr, bytes: &[u8]) -> Result<(), String> {
        if self.send.segment(to, bytes.len()).is_none() {
            self.flush()?;
        }
        let mut segment = self.send.segment(to, bytes.len()).ok_or("a datagram larger than a batch")?;
        segment.copy(bytes);
        segment.finish(&[]);
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), String> {
        loop {
            let outcome = self.send.flush(&self.port).map_err(|e| format!("cannot send: {e}"))?;
            match outcome.rest {
                Rest::Empty => return Ok(()),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    pub fn raw(&mut self, to: SocketAddr, bytes: &[u8]) -> Result<(), String> {
        self.queue(to, bytes)?;
        self.flush()
    }

    /// Appends the right ICRC to headers and payload.
    pub fn seal(&self, to: SocketAddr, body: &[u8]) -> Vec<u8> {
        let flow = Flow::new(self.address(), to).expect("one family");
        let mut bytes = body.to_vec();
        if body.len() >= Bth::LEN {
            bytes.extend(icrc::compute(&flow, 0, body, std::iter::empty()));
        }
        bytes
    }

    /// A packet with a right ICRC, its pad filled in.
    pub fn sealed(&self, to: SocketAddr, packet: &Packet<'_>) -> Vec<u8> {
        let pad = pad_of(packet.payload.len());
        let mut packet = *packet;
        packet.bth.pad = pad;
        packet.pad = &[0; 3][..pad.into()];
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        bytes.truncate(bytes.len() - ICRC_LEN);
        self.seal(to, &bytes)
    }

    pub fn send(&mut self, to: SocketAddr, packet: &Packet<'_>) -> Result<(), String> {
        let bytes = self.sealed(to, packet);
        self.raw(to, &bytes)
    }

    /// A management datagram, its 256 bytes as they are.
    pub fn send_mad_bytes(&mut self, to: IpAddr, mad: &[u8]) -> Result<(), String> {
        let to = SocketAddr::new(to, ROCE_PORT);
        let bytes = self.mad_datagram(to, mad);
        self.queue(to, &bytes)
    }

    fn mad_datagram(&self, to: SocketAddr, mad: &[u8]) -> Vec<u8> {
        let mut packet = blank(opcode::UD_SEND_ONLY, 1, Psn::new(0));
        packet.deth = Some(Deth { q_key: GSI_Q_KEY, reserved: 0, src_qp: 1 });
        packet.payload = mad;
        self.sealed(to, &packet)
    }

    pub fn send_mad(&mut self, to: IpAddr, mad: &Mad) -> Result<(), String> {
        self.send_mad_bytes(to, &mad.encode())?;
        self.flush()
    }

    /// Takes what has come, waiting for something until `deadline`. False when nothing came.
    fn pump(&mut self, deadline: Instant) -> Result<bool, String> {
        let failed = |e: std::io::Error| format!("cannot receive: {e}");
        let left = deadline.saturating_duration_since(Instant::now());
        wait(&[&self.port], None, false, Some(left)).map_err(failed)?;
        if self.port.recv(&mut self.receive).map_err(failed)? == 0 {
            return Ok(false);
        }
        let mut goodbyes = Vec::new();
        for message in self.receive.messages() {
            for (_, bytes) in message.segments() {
                let Ok(packet) = Packet::decode(bytes) else { continue };
                let Some(mad) = packet.deth.and_then(|_| <&[u8; MAD_LEN]>::try_from(packet.payload).ok())
                else {
                    self.received.push_back(bytes.to_vec());
                    continue;
                };
                let Ok(mad) = Mad::decode(mad) else { continue };
                if let CmMessage::Dreq(dreq) = &mad.message {
                    let ids = CommIds { local: dreq.ids.remote, remote: dreq.ids.local };
                    goodbyes.push((message.from.ip(), Mad::new(mad.tid, CmMessage::Drep(ids))));
                }
                self.mads.push_back(mad);
            }
        }
        if self.polite {
            goodbyes.iter().try_for_each(|(to, mad)| self.send_mad(*to, mad))?;
        }
        Ok(true)
    }

    /// The first that `find` takes of what comes.
    fn first<T>(
        &mut self,
        within: Duration,
        mut find: impl FnMut(&mut Self) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, String> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = find(self)? {
                return Ok(Some(found));
            }
            if !self.pump(deadline)? && Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// The next management datagram.
    pub fn receive_mad(&mut self, within: Duration) -> Result<Option<Mad>, String> {
        self.first(within, |peer| Ok(peer.mads.pop_front()))
    }

    /// The next management datagram in words.
    pub fn mad_answer(&mut self, within: Duration) -> Result<String, String> {
        Ok(self.receive_mad(within)?.map_or_else(|| "silence".into(), |mad| in_words(&mad.message)))
    }

    /// Forgets what has come.
    pub fn drain(&mut self) -> Result<(), String> {
        while self.pump(Instant::now())? {}
        self.received.clear();
        self.mads.clear();
        Ok(())
    }

    /// Discards the packets that the victim still sends on the connection, until it sends none for the time `SILENCE`.
    ///
    /// # Errors
    /// Returns an error if the victim still sends packets after the time `SOON`.
    pub fn wait_until_silent(&mut self, wire: &mut Wire) -> Result<(), String> {
        self.drain()?;
        let deadline = Instant::now() + SOON;
        while self.receive(wire, SILENCE)?.is_some() {
            if Instant::now() > deadline {
                return Err(format!("the victim still sends packets {} s after the flood", SOON.as_secs()));
            }
        }
        Ok(())
    }

    /// A REQ to the listener at `to`.
    pub fn request(&mut self, to: SocketAddr, offer: &Offer) -> Mad {
        let local = self.address().ip();
        // QPNs are counted, not random: a number that is used again too soon belongs to a stale connection.
        self.next_qpn = self.next_qpn % 0xff_fff0 + 2;
        let header = CmaHeader { port: 50_000, src: local, dst: to.ip() };
        let mut private_data = [0; Req::PRIVATE];
        private_data[..CmaHeader::LEN].copy_from_slice(&header.encode());
        private_data[CmaHeader::LEN..][..offer.user_data.len()].copy_from_slice(&offer.user_data);
        let req = Req {
            local_comm_id: self.random.next_u32() | 1,
            service_id: service_id(to.port()),
            ca_guid: self.guid,
            q_key: 0,
            qpn: self.next_qpn,
            responder_resources: 4,
            initiator_depth: 16,
            remote_cm_timeout: 20,
            transport: 0,
            flow_control: false,
            starting_psn: Psn::new(self.random.next_u32()),
            local_cm_timeout: 18,
            retry_count: offer.retry_count,
            p_key: Bth::DEFAULT_P_KEY,
            mtu: offer.mtu,
            rnr_retry: offer.rnr_retry,
            max_cm_retries: 15,
            srq: false,
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(local),
            remote_gid: gid(to.ip()),
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            ack_timeout: offer.ack_timeout,
            private_data,
        };
        Mad::new(self.random.next_u64(), CmMessage::Req(req))
    }

    /// REQ out, REP in, no RTU yet.
    pub fn half_open(&mut self, to: SocketAddr, offer: &Offer) -> Result<(Mad, Rep), String> {
        let req = self.request(to, offer);
        for _ in 0..4 {
            self.send_mad(to.ip(), &req)?;
            let deadline = Instant::now() + SOON / 4;
            while let Some(mad) = self.receive_mad(deadline.saturating_duration_since(Instant::now()))? {
                match mad.message {
                    CmMessage::Rep(rep) if mad.tid == req.tid => return Ok((req, rep)),
                    CmMessage::Rej(rej) if mad.tid == req.tid => return Err(format!("REJ {}", rej.reason)),
                    _ => {}
                }
            }
        }
        Err("no answer to a REQ".into())
    }

    /// The whole handshake.
    pub fn connect(&mut self, to: SocketAddr, offer: &Offer) -> Result<Wire, String> {
        let (req, rep) = self.half_open(to, offer)?;
        let wire = Wire::new(to, &req, &rep);
        self.send_mad(to.ip(), &Mad::new(req.tid, CmMessage::Rtu(wire.ids)))?;
        Ok(wire)
    }

    /// Ends a connection and waits for the confirmation.
    pub fn disconnect(&mut self, wire: &Wire) -> Result<(), String> {
        self.send_mad(wire.to.ip(), &wire.disconnect_request())?;
        let deadline = Instant::now() + SOON;
        while let Some(mad) = self.receive_mad(deadline.saturating_duration_since(Instant::now()))? {
            if matches!(mad.message, CmMessage::Drep(ids) if ids.remote == wire.ids.local) {
                return Ok(());
            }
        }
        Err("no DREP".into())
    }

    /// The next packet of a connection, what it brings, acknowledged if that is asked for.
    pub fn receive(&mut self, wire: &mut Wire, within: Duration) -> Result<Option<Answer>, String> {
        self.first(within, |peer| {
            while let Some(bytes) = peer.received.pop_front() {
                let Ok(packet) = Packet::decode(&bytes) else { continue };
                if packet.bth.dest_qp != wire.qpn {
                    continue;
                }
                let answer = wire.receive(&packet);
                if peer.acknowledges && wire.owes_ack {
                    wire.owes_ack = false;
                    peer.acknowledge(wire, Syndrome::ACK)?;
                }
                if answer.is_some() {
                    return Ok(answer);
                }
            }
            Ok(None)
        })
    }

    /// The next packet of any connection, as it came.
    pub fn receive_bytes(&mut self, within: Duration) -> Result<Option<Vec<u8>>, String> {
        self.first(within, |peer| Ok(peer.received.pop_front()))
    }

    /// An acknowledgement, or something like it, of all that has come.
    pub fn acknowledge(&mut self, wire: &Wire, syndrome: Syndrome) -> Result<(), String> {
        let mut packet = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, wire.epsn.minus(1));
        packet.aeth = Some(Aeth { syndrome, msn: wire.msn });
        self.send(wire.peer, &packet)
    }

    /// What comes back on a connection, in words: the first refusal, else the last that came within `SILENCE`.
    pub fn verdict(&mut self, wire: &mut Wire) -> Result<String, String> {
        let mut last = None;
        let deadline = Instant::now() + SILENCE;
        while let Some(answer) = self.receive(wire, deadline.saturating_duration_since(Instant::now()))? {
            if answer.is_refusal() {
                return Ok(answer.to_string());
            }
            last = Some(answer.to_string());
        }
        Ok(last.unwrap_or_else(|| "silence".into()))
    }

    /// A WRITE of 8 bytes is acknowledged: the connection lives.
    pub fn is_alive(&mut self, wire: &mut Wire, region: usize) -> Result<bool, String> {
        let region = *wire.regions.get(region).ok_or("no such region")?;
        let mut packet = wire.next(opcode::WRITE_ONLY);
        packet.reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: 8 });
        packet.payload = b"deadbeef";
        self.send(wire.peer, &packet)?;
        let deadline = Instant::now() + SOON;
        while let Some(answer) = self.receive(wire, deadline.saturating_duration_since(Instant::now()))? {
            match answer {
                Answer::Ack { psn } if psn == packet.bth.psn => return Ok(true),
                _ if answer.is_refusal() => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// A packet of nothing but a base header that asks for an acknowledgement.
pub fn blank<'a>(opcode: u8, dest_qp: u32, psn: Psn) -> Packet<'a> {
    let p_key = Bth::DEFAULT_P_KEY;
    Packet { bth: Bth { opcode, dest_qp, psn, p_key, ack_req: true, ..Bth::default() }, ..Packet::default() }
}

/// A REJ for this reason.
pub fn rej(ids: CommIds, about: Answered, reason: u16) -> Rej {
    Rej { ids, about, ari_len: 0, reason, ari: [0; 72], private_data: [0; Rej::PRIVATE] }
}

/// A REP with ordinary figures.
pub fn rep(ids: CommIds, qpn: u32, starting_psn: Psn, ca_guid: u64) -> Rep {
    Rep {
        ids,
        q_key: 0,
        qpn,
        starting_psn,
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        ca_guid,
        private_data: [0; Rep::PRIVATE],
    }
}

/// A message of connection management, with what matters of it.
pub(super) fn in_words(message: &CmMessage) -> String {
    match message {
        CmMessage::Req(_) => "REQ".into(),
        CmMessage::Mra(_) => "MRA".into(),
        CmMessage::Rej(rej) => format!("REJ {}", rej.reason),
        CmMessage::Rep(_) => "REP".into(),
        CmMessage::Rtu(_) => "RTU".into(),
        CmMessage::Dreq(_) => "DREQ".into(),
        CmMessage::Drep(_) => "DREP".into(),
    }
}
