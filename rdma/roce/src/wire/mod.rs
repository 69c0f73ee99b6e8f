//! The RoCE packet in a UDP datagram to port 4791: BTH, extended headers, payload, pad and ICRC.

mod headers;
pub mod mad;

pub use headers::{Aeth, Bth, CarriedAck, Deth, NakCode, Reth, Syndrome};

use crate::opcode::{self, OpcodeInfo};

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// The number of bytes of the ICRC at the end of every packet.
pub const ICRC_LEN: usize = 4;
/// The maximum number of bytes of headers that a packet of this stack has: BTH, RETH, immediate and carried
/// acknowledgement.
pub const MAX_HEADER: usize = Bth::LEN + Reth::LEN + 4 + CarriedAck::LEN;

/// The reason why a datagram is not a packet that this stack handles. The receiver counts and drops the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram is too short for the headers of its opcode. The value is the number of bytes of the datagram.
    #[error("{0} bytes are too short for the packet's headers")]
    Truncated(usize),
    /// This stack does not know the opcode.
    #[error("opcode {0:#04x} is not used on this stack")]
    UnknownOpcode(u8),
    /// The pad count in the BTH is larger than the number of bytes after the headers.
    #[error("the pad count exceeds the payload")]
    Pad,
    /// Bytes follow the headers of a packet that must have no payload. The value is the number of the unexpected bytes.
    #[error("a packet of this opcode has no payload, but {0} bytes follow its headers")]
    UnexpectedPayload(usize),
}

/// A packet whose payload is borrowed from the datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// Address, RKey and length of a WRITE or READ; `None` if the opcode has no RETH.
    pub reth: Option<Reth>,
    /// The acknowledgement; `None` if the opcode has no AETH.
    pub aeth: Option<Aeth>,
    /// The datagram header; `None` if the opcode has no DETH.
    pub deth: Option<Deth>,
    /// The immediate in native byte order; `None` if the opcode has no immediate.
    pub imm: Option<u32>,
    /// The acknowledgement that a request packet carries; `None` if the opcode carries none.
    pub carried: Option<CarriedAck>,
    /// The extended headers that this stack keeps but does not interpret.
    pub other: &'a [u8],
    /// The payload without the pad.
    pub payload: &'a [u8],
    /// The pad bytes after the payload, 0 to 3.
    pub pad: &'a [u8],
    /// The ICRC, in the byte order of the packet.
    pub icrc: [u8; ICRC_LEN],
}

/// Takes the first `N` bytes of `rest`; `None` if `rest` is shorter.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(head)
}

impl<'a> Packet<'a> {
    /// Decodes a datagram. The function checks neither the ICRC nor the values of fields.
    ///
    /// # Errors
    /// Fails with [`Malformed`] if this stack does not know the opcode, or if the datagram is too short or too long for
    /// its opcode.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed::Truncated(datagram.len());
        let (body, icrc) = datagram.split_last_chunk::<ICRC_LEN>().ok_or(short)?;
        let mut rest = body;
        let bth = Bth::decode(take(&mut rest).ok_or(short)?);
        let carrier = opcode::carrier(bth.opcode);
        let info = opcode::info(carrier.unwrap_or(bth.opcode)).ok_or(Malformed::UnknownOpcode(bth.opcode))?;
        let mut packet = Self { bth, icrc: *icrc, ..Self::default() };
        packet.extended(&info, &mut rest).ok_or(short)?;
        if carrier.is_some() {
            packet.carried = Some(CarriedAck::decode(take(&mut rest).ok_or(short)?));
        }
        if !info.payload && !rest.is_empty() {
            return Err(Malformed::UnexpectedPayload(rest.len()));
        }
        let split = rest.len().checked_sub(bth.pad.into()).ok_or(Malformed::Pad)?;
        (packet.payload, packet.pad) = rest.split_at(split);
        Ok(packet)
    }

    fn extended(&mut self, info: &OpcodeInfo, rest: &mut &'a [u8]) -> Option<()> {
        if info.deth {
            self.deth = Some(Deth::decode(take(rest)?));
        }
        if info.reth {
            self.reth = Some(Reth::decode(take(rest)?));
        }
        if info.aeth {
            self.aeth = Some(Aeth::decode(take(rest)?));
        }
        if info.immdt {
            self.imm = Some(u32::from_be_bytes(*take(rest)?));
        }
        let (other, tail) = rest.split_at_checked(info.other)?;
        (self.other, *rest) = (other, tail);
        Some(())
    }

    /// Appends the whole packet to `out`, with the ICRC from the field `icrc`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut header = HeaderBuf::new();
        header.push(&self.bth.encode());
        if let Some(deth) = self.deth {
            header.push(&deth.encode());
        }
        if let Some(reth) = self.reth {
            header.push(&reth.encode());
        }
        if let Some(aeth) = self.aeth {
            header.push(&aeth.encode());
        }
        if let Some(imm) = self.imm {
            header.push(&imm.to_be_bytes());
        }
        if let Some(carried) = self.carried {
            header.push(&carried.encode());
        }
        for part in [header.as_slice(), self.other, self.payload, self.pad, &self.icrc] {
            out.extend_from_slice(part);
        }
    }
}

/// The headers of a packet to be sent, in an array of [`MAX_HEADER`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderBuf {
    bytes: [u8; MAX_HEADER],
    len: u8,
}

impl Default for HeaderBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl HeaderBuf {
    /// Makes a buffer without headers.
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_HEADER], len: 0 }
    }

    /// Appends the bytes of a header.
    ///
    /// # Panics
    /// Panics if all headers in the buffer together have more than [`MAX_HEADER`] bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// Adds an acknowledgement to the headers of a request packet, and changes the opcode accordingly.
    pub(crate) fn carry(&mut self, ack: &CarriedAck) {
        self.bytes[0] |= opcode::CARRIES_ACK;
        self.push(&ack.encode());
    }

    /// Adds one to the PSN in the BTH, which must be the first header.
    pub(crate) fn next_psn(&mut self) {
        if let Some(bth) = self.bytes.first_chunk_mut() {
            Bth::next_psn(bth);
        }
    }

    /// The bytes of all headers that were appended.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// Returns the number of pad bytes behind `len` bytes of payload.
pub const fn pad_of(len: usize) -> u8 {
    (len.wrapping_neg() & 3) as u8
}
