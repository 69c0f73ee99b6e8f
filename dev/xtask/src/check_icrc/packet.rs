//! RoCEv2 headers of a datagram, from InfiniBand Architecture volume 1, chapter 9 (transport) and 12 (communication
//! management), and annex A17. Shares nothing with the crate under test.

use simnet::pcap::Datagram;
use std::net::IpAddr;

pub(super) const ROCE_PORT: u16 = 4791;
const BTH: usize = 12;
const ICRC: usize = 4;
const MAD: usize = 256;

/// What an operation does, apart from its place in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    Datagram,
}

/// Where in its message a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    First,
    Middle,
    Last,
    Only,
}

use Kind::{Acknowledge, Datagram as Ud, ReadRequest, ReadResponse, Send, Write};
use Position::{First, Last, Middle, Only};

impl Position {
    pub(super) fn ends(self) -> bool {
        matches!(self, Last | Only)
    }

    pub(super) fn begins(self) -> bool {
        matches!(self, First | Only)
    }
}

/// Kind, place, and whether RETH, AETH, an immediate follow the base transport header.
fn shape(opcode: u8) -> Option<(Kind, Position, [bool; 3])> {
    let none = [false; 3];
    let (reth, aeth, imm) = ([true, false, false], [false, true, false], [false, false, true]);
    Some(match opcode {
        0x00 => (Send, First, none),
        0x01 => (Send, Middle, none),
        0x02 => (Send, Last, none),
        0x03 => (Send, Last, imm),
        0x04 => (Send, Only, none),
        0x05 => (Send, Only, imm),
        0x06 => (Write, First, reth),
        0x07 => (Write, Middle, none),
        0x08 => (Write, Last, none),
        0x09 => (Write, Last, imm),
        0x0a => (Write, Only, reth),
        0x0b => (Write, Only, [true, false, true]),
        0x0c => (ReadRequest, Only, reth),
        0x0d => (ReadResponse, First, aeth),
        0x0e => (ReadResponse, Middle, none),
        0x0f => (ReadResponse, Last, aeth),
        0x10 => (ReadResponse, Only, aeth),
        0x11 => (Acknowledge, Only, aeth),
        0x64 => (Ud, Only, none),
        _ => return None,
    })
}

/// A packet's headers, in the order in which they lie on the wire.
#[derive(Debug, Clone)]
pub(super) struct Packet<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) opcode: u8,
    pub(super) kind: Kind,
    pub(super) position: Position,
    /// The number of the queue pair that receives the packet.
    pub(super) qpn: u32,
    pub(super) psn: u32,
    /// Bytes the RETH announces.
    pub(super) reth_len: Option<u32>,
    /// Syndrome and MSN.
    pub(super) aeth: Option<(u8, u32)>,
    /// The payload without padding.
    pub(super) payload: &'a [u8],
}

fn be(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl<'a> Packet<'a> {
    /// What the datagram holds, or what is wrong with it.
    pub(super) fn read(datagram: &Datagram<'a>) -> Result<Self, String> {
        let body = &datagram.udp[8..];
        if body.len() < BTH + ICRC {
            return Err("shorter than its headers".into());
        }
        let (bth, rest) = body[..body.len() - ICRC].split_at(BTH);
        let opcode = bth[0];
        let Some((kind, position, [reth, aeth, imm])) = shape(opcode) else {
            return Err(format!("opcode {opcode:#04x}"));
        };
        let lengths = [if reth { 16 } else { 0 }, if aeth { 4 } else { 0 }, if imm { 4 } else { 0 }];
        let headers = lengths.iter().sum::<usize>() + if kind == Ud { 8 } else { 0 };
        let Some((headers, padded)) = rest.split_at_checked(headers) else {
            return Err("shorter than its headers".into());
        };
        let pad = usize::from(bth[1] >> 4 & 3);
        let Some(payload) = padded.len().checked_sub(pad).map(|len| &padded[..len]) else {
            return Err(format!("{pad} bytes of pad in {}", padded.len()));
        };
        if padded.len() % 4 != 0 {
            return Err(format!("{} bytes of payload and pad are no multiple of 4", padded.len()));
        }
        let packet = Self {
            from: datagram.from.ip(),
            to: datagram.to.ip(),
            opcode,
            kind,
            position,
            qpn: be(&bth[5..8]),
            psn: be(&bth[9..12]),
            reth_len: reth.then(|| be(&headers[12..16])),
            aeth: aeth.then(|| (headers[0], be(&headers[1..4]))),
            payload,
        };
        packet.plausible(bth)?;
        Ok(packet)
    }

    fn plausible(&self, bth: &[u8]) -> Result<(), String> {
        if bth[1] & 0x0f != 0 {
            return Err(format!("transport version {}", bth[1] & 0x0f));
        }
        if be(&bth[2..4]) & 0x7fff != 0x7fff {
            return Err(format!("partition {:#06x}", be(&bth[2..4])));
        }
        if self.qpn == 0 {
            return Err("for queue pair 0".into());
        }
        // Embedded peers give one of these bits a meaning between themselves. Captures are of foreign peers.
        if bth[4] & 0x3f != 0 || bth[8] & 0x7f != 0 {
            return Err(format!(
                "reserved bits {:#04x} and {:#04x} of the BTH",
                bth[4] & 0x3f,
                bth[8] & 0x7f
            ));
        }
        if let Some((syndrome, _)) = self.aeth {
            let known = syndrome < 0x40 || (0x60..=0x64).contains(&syndrome);
            let right = known && (self.kind == Acknowledge || syndrome < 0x20);
            if !right {
                return Err(format!("AETH syndrome {syndrome:#04x}"));
            }
        }
        Ok(())
    }

    /// A management datagram of connections: attribute, and its bytes behind the MAD header.
    pub(super) fn cm(&self) -> Option<(u32, &'a [u8])> {
        let is_cm = self.kind == Ud && self.qpn == 1 && self.payload.len() == MAD && self.payload[1] == 7;
        is_cm.then(|| (be(&self.payload[16..18]), &self.payload[24..]))
    }

    pub(super) fn is_request(&self) -> bool {
        matches!(self.kind, Send | Write | ReadRequest)
    }

    /// Misread by tshark, which takes the ICRC of a SEND without payload for one.
    pub(super) fn is_empty_send(&self) -> bool {
        self.kind == Send && self.payload.is_empty()
    }
}

/// What a REQ (attribute 0x10) or REP (0x13) says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake {
    pub(super) is_request: bool,
    pub(super) local_id: u32,
    /// The communication ID of the REQ that a REP answers.
    pub(super) remote_id: u32,
    pub(super) qpn: u32,
    /// The PSN of the first packet that the sender of this message expects.
    pub(super) psn: u32,
    /// The path MTU; only a REQ has it.
    pub(super) mtu: usize,
}

impl Handshake {
    pub(super) fn read((attribute, body): (u32, &[u8])) -> Option<Self> {
        let mtu = |code: u8| 128_usize << (code & 7);
        match attribute {
            0x10 => Some(Self {
                is_request: true,
                local_id: be(&body[..4]),
                remote_id: 0,
                qpn: be(&body[32..35]),
                psn: be(&body[44..47]),
                mtu: mtu(body[50] >> 4),
            }),
            0x13 => Some(Self {
                is_request: false,
                local_id: be(&body[..4]),
                remote_id: be(&body[4..8]),
                qpn: be(&body[12..15]),
                psn: be(&body[20..23]),
                mtu: 0,
            }),
            _ => None,
        }
    }
}
