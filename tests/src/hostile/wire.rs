//! One connection as its attacking end sees it.

use std::{fmt, net::SocketAddr};

use mrsp::{Message as Mrsp, RegionRequest, RemoteRegion, codec};
use roce::{
    opcode::{self, Operation},
    psn::Psn,
    wire::{
        NakCode, Packet, ROCE_PORT, Syndrome,
        mad::{CmMessage, CommIds, Dreq, Mad, Rep},
    },
};

use super::{
    bystander::advertised,
    raw::{Offer, RawPeer, SOON, blank},
};

#[derive(Clone, Debug)]
pub struct Wire {
    /// The listener.
    pub to: SocketAddr,
    /// Where packets go.
    pub peer: SocketAddr,
    pub ids: CommIds,
    pub tid: u64,
    /// Ours, and the attacked one.
    pub qpn: u32,
    pub remote_qpn: u32,
    /// The next to send, and the next expected.
    pub psn: Psn,
    pub epsn: Psn,
    pub msn: u32,
    pub mtu: usize,
    /// The memory of the other side that it told of.
    pub regions: Vec<RemoteRegion>,
    pub(super) owes_ack: bool,
}

/// What came on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ack {
        psn: Psn,
    },
    Nak(NakCode),
    Rnr,
    /// The payload of one response packet.
    Read(Vec<u8>),
    /// One packet of a message.
    Send(Vec<u8>),
    Write {
        bytes: usize,
        imm: Option<u32>,
    },
    Other(&'static str),
}

impl Answer {
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Nak(_) | Self::Rnr)
    }
}

/// Refusals in the words of the table.
pub(super) const NAK_SEQUENCE: &str = "NAK 0 sequence";
pub(super) const NAK_INVALID: &str = "NAK 1 invalid request";
pub(super) const NAK_ACCESS: &str = "NAK 2 access";

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ack { .. } => "ACK",
            Self::Nak(NakCode::PsnSequence) => NAK_SEQUENCE,
            Self::Nak(NakCode::InvalidRequest) => NAK_INVALID,
            Self::Nak(NakCode::RemoteAccess) => NAK_ACCESS,
            Self::Nak(NakCode::RemoteOperation) => "NAK 3 operation",
            Self::Nak(_) => "NAK of another kind",
            Self::Rnr => "RNR NAK",
            Self::Read(_) => "READ response",
            Self::Send(_) => "SEND",
            Self::Write { .. } => "WRITE",
            Self::Other(name) => name,
        })
    }
}

impl Wire {
    pub(super) fn new(to: SocketAddr, req: &Mad, rep: &Rep) -> Self {
        let CmMessage::Req(asked) = &req.message else { unreachable!("connections begin with a REQ") };
        Self {
            to,
            peer: SocketAddr::new(to.ip(), ROCE_PORT),
            ids: CommIds { local: asked.local_comm_id, remote: rep.ids.local },
            tid: req.tid,
            qpn: asked.qpn,
            remote_qpn: rep.qpn,
            psn: rep.starting_psn,
            epsn: asked.starting_psn,
            msn: 0,
            mtu: 128 << asked.mtu,
            regions: advertised(&rep.private_data).unwrap_or_default(),
            owes_ack: false,
        }
    }

    /// A packet with the next PSN.
    pub fn next<'a>(&mut self, opcode: u8) -> Packet<'a> {
        let packet = self.packet(opcode, self.psn);
        self.psn = self.psn.plus(1);
        packet
    }

    pub fn packet<'a>(&self, opcode: u8, psn: Psn) -> Packet<'a> {
        blank(opcode, self.remote_qpn, psn)
    }

    pub fn disconnect_request(&self) -> Mad {
        Mad::new(self.tid ^ 1, CmMessage::Dreq(Dreq { ids: self.ids, remote_qpn: self.remote_qpn }))
    }

    pub(super) fn receive(&mut self, packet: &Packet<'_>) -> Option<Answer> {
        let info = opcode::info(packet.bth.opcode)?;
        match (info.operation, packet.aeth.map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => {
                return Some(Answer::Ack { psn: packet.bth.psn });
            }
            (Operation::Acknowledge, Some(Syndrome::RnrNak(_))) => return Some(Answer::Rnr),
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => return Some(Answer::Nak(code)),
            (Operation::ReadResponse, _) => return Some(Answer::Read(packet.payload.to_vec())),
            (Operation::Send | Operation::Write, _) => {}
            _ => return Some(Answer::Other(info.name)),
        }
        self.owes_ack |= packet.bth.ack_req;
        if packet.bth.psn != self.epsn {
            return None;
        }
        self.epsn = self.epsn.plus(1);
        if info.position.ends() {
            self.msn = (self.msn + 1) & Psn::MASK;
        }
        Some(match info.operation {
            Operation::Send => Answer::Send(packet.payload.to_vec()),
            _ => Answer::Write { bytes: packet.payload.len(), imm: packet.imm },
        })
    }
}

/// What an attacker says as a host of MRSP.
impl RawPeer {
    /// A SEND of one packet.
    pub fn send_message(&mut self, wire: &mut Wire, message: &[u8]) -> Result<(), String> {
        let mut packet = wire.next(opcode::SEND_ONLY);
        packet.bth.solicited = true;
        packet.payload = message;
        self.send(wire.peer, &packet)
    }

    /// The next message by SEND, of one packet.
    pub fn receive_message(&mut self, wire: &mut Wire) -> Result<Vec<u8>, String> {
        loop {
            match self.receive(wire, SOON)? {
                Some(Answer::Send(bytes)) => return Ok(bytes),
                Some(answer) if answer.is_refusal() => return Err(format!("{answer} instead of a message")),
                Some(_) => {}
                None => return Err("no message came".into()),
            }
        }
    }

    /// A session with the naa server: handshake and regions, as a well-behaved host would.
    pub fn session(
        &mut self,
        server: SocketAddr,
        offer: &Offer,
        regions: &[RegionRequest],
    ) -> Result<Wire, String> {
        let mut wire = self.connect(server, offer)?;
        let request = codec::encode_request(regions).map_err(|e| e.to_string())?;
        self.send_message(&mut wire, &request)?;
        let message = self.receive_message(&mut wire)?;
        match codec::decode(&message) {
            Ok(Mrsp::Advertisement(regions)) => wire.regions = regions.iter().collect(),
            other => return Err(format!("{other:?} instead of an advertisement")),
        }
        Ok(wire)
    }
}
