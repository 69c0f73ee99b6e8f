//! Base and extended transport headers (IBTA vol. 1, chapter 9). All fields are big-endian.

use crate::psn::Psn;

/// Returns the `N` bytes at the offset `at`. All callers pass constant offsets that lie within the header or message.
pub(super) fn bytes<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    *b[at..].first_chunk().expect("fields lie within the message")
}

pub(super) fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(b, at))
}

pub(super) fn be24(b: &[u8]) -> u32 {
    u32::from_be_bytes([0, b[0], b[1], b[2]])
}

pub(super) fn put24(b: &mut [u8], v: u32) {
    b[..3].copy_from_slice(&v.to_be_bytes()[1..]);
}

/// The base transport header, 12 bytes (IBTA vol. 1, 9.2). Reserved bits are kept, so a packet that is decoded and
/// encoded again has the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// The opcode: operation and position of the packet in its message.
    pub opcode: u8,
    /// The solicited-event bit.
    pub solicited: bool,
    /// The MigReq bit, the path migration state. RDMA NICs and this stack send 1.
    pub mig_req: bool,
    /// The number of pad bytes after the payload, 0-3.
    pub pad: u8,
    /// The transport header version, 4 bits; valid packets have 0.
    pub tver: u8,
    /// The partition key; 0xffff is the default partition.
    pub p_key: u16,
    /// The bit FECN: a switch between the peers noticed congestion.
    pub fecn: bool,
    /// The bit BECN: the receiver of the packets in the other direction noticed congestion.
    pub becn: bool,
    /// The 6 reserved bits after FECN and BECN.
    pub reserved6: u8,
    /// The destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// The AckReq bit: the requester demands an acknowledgement.
    pub ack_req: bool,
    /// The 7 reserved bits after the AckReq bit. Between ends that both use the embedded provider, the bit
    /// [`Bth::TAKES_CARRIED_ACKS`] has a meaning.
    pub reserved7: u8,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// The number of bytes of a BTH.
    pub const LEN: usize = 12;
    /// The partition key of the default partition with full membership.
    pub const DEFAULT_P_KEY: u16 = 0xffff;
    /// The bit of `reserved7` by which an end that uses the embedded provider tells a peer that also uses it that it
    /// accepts carried acknowledgements. Embedded peers of before ignore the bit; other peers never get it.
    pub const TAKES_CARRIED_ACKS: u8 = 1;

    /// Decodes the 12 bytes of a BTH.
    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self {
            opcode: b[0],
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            tver: b[1] & 0xf,
            p_key: u16::from_be_bytes([b[2], b[3]]),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            reserved6: b[4] & 0x3f,
            dest_qp: be24(&b[5..]),
            ack_req: b[8] & 0x80 != 0,
            reserved7: b[8] & 0x7f,
            psn: Psn::new(be24(&b[9..])),
        }
    }

    /// Adds one to the PSN in the bytes of a BTH.
    pub(crate) fn next_psn(b: &mut [u8; Self::LEN]) {
        let psn = Psn::new(be24(&b[9..]));
        put24(&mut b[9..], psn.plus(1).value());
    }

    /// Returns the 12 bytes of the BTH.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.opcode;
        b[1] =
            (self.solicited as u8) << 7 | (self.mig_req as u8) << 6 | (self.pad & 3) << 4 | self.tver & 0xf;
        b[2..4].copy_from_slice(&self.p_key.to_be_bytes());
        b[4] = (self.fecn as u8) << 7 | (self.becn as u8) << 6 | self.reserved6 & 0x3f;
        put24(&mut b[5..], self.dest_qp);
        b[8] = (self.ack_req as u8) << 7 | self.reserved7 & 0x7f;
        put24(&mut b[9..], self.psn.value());
        b
    }
}

/// The RDMA extended transport header, 16 bytes (IBTA vol. 1, 9.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The address of the first byte in the responder's memory.
    pub addr: u64,
    /// The RKey of the responder's region.
    pub rkey: u32,
    /// The DMA length: the number of bytes of the whole WRITE or READ request.
    pub length: u32,
}

impl Reth {
    /// The number of bytes of a RETH.
    pub const LEN: usize = 16;

    /// Decodes the 16 bytes of a RETH.
    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { addr: u64::from_be_bytes(bytes(b, 0)), rkey: be32(b, 8), length: be32(b, 12) }
    }

    /// Returns the 16 bytes of the RETH.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..8].copy_from_slice(&self.addr.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..].copy_from_slice(&self.length.to_be_bytes());
        b
    }
}

/// The meaning of an acknowledgement (IBTA vol. 1, 9.7.5.2.1, table 43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// An ACK. The value is the 5-bit code of end-to-end credits; 0x1f means that the ACK has no credits.
    Ack(u8),
    /// An RNR NAK: the responder has no posted receive. The value is the 5-bit code of the time for which the
    /// requester must wait before it sends the request again.
    RnrNak(u8),
    /// A NAK: the responder refuses the request, or packets before the request are missing.
    Nak(NakCode),
    /// A syndrome that the specification reserves. The value is all 8 bits of the syndrome.
    Reserved(u8),
}

/// The code of a NAK (IBTA vol. 1, 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// Code 0: request packets are missing. The NAK has the PSN of the first missing packet.
    PsnSequence,
    /// Code 1: the request is invalid, or longer than the posted receive.
    InvalidRequest,
    /// Code 2: the RKey, the address range or the access right is wrong.
    RemoteAccess,
    /// Code 3: the responder could not execute the request because of an error on its side.
    RemoteOperation,
    /// Code 4: the request is invalid on a reliable datagram connection, which this stack does not use.
    InvalidRdRequest,
    /// A code that the specification reserves, 5 bits.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK without end-to-end credits.
    pub const ACK: Self = Self::Ack(0x1f);

    /// Decodes a syndrome, which is the first byte of an AETH.
    pub fn decode(b: u8) -> Self {
        match b >> 5 {
            0 => Self::Ack(b & 0x1f),
            1 => Self::RnrNak(b & 0x1f),
            3 => Self::Nak(match b & 0x1f {
                0 => NakCode::PsnSequence,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperation,
                4 => NakCode::InvalidRdRequest,
                n => NakCode::Reserved(n),
            }),
            _ => Self::Reserved(b),
        }
    }

    /// Returns the syndrome as the first byte of an AETH.
    pub fn encode(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::RnrNak(timer) => 0x20 | timer & 0x1f,
            Self::Nak(code) => {
                0x60 | match code {
                    NakCode::PsnSequence => 0,
                    NakCode::InvalidRequest => 1,
                    NakCode::RemoteAccess => 2,
                    NakCode::RemoteOperation => 3,
                    NakCode::InvalidRdRequest => 4,
                    NakCode::Reserved(n) => n & 0x1f,
                }
            }
            Self::Reserved(b) => b,
        }
    }
}

/// The ACK extended transport header, 4 bytes (IBTA vol. 1, 9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The kind of the acknowledgement: ACK, RNR NAK, or NAK with its code.
    pub syndrome: Syndrome,
    /// The message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// The number of bytes of an AETH.
    pub const LEN: usize = 4;

    /// Decodes the 4 bytes of an AETH.
    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { syndrome: Syndrome::decode(b[0]), msn: be24(&b[1..]) }
    }

    /// Returns the 4 bytes of the AETH.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [self.syndrome.encode(), 0, 0, 0];
        put24(&mut b[1..], self.msn);
        b
    }
}

/// An acknowledgement that a request packet carries, 8 bytes. It means the same as a packet with the opcode
/// `ACKNOWLEDGE` that arrives just before the request packet. The header is the last one before the payload.
///
/// Only two ends that both use the embedded provider, and have told each other that they accept it
/// ([`Bth::TAKES_CARRIED_ACKS`]), send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedAck {
    /// The 8 reserved bits before the PSN.
    pub reserved: u8,
    /// The PSN that an `ACKNOWLEDGE` packet has in its BTH.
    pub psn: Psn,
    /// The kind of the acknowledgement, and the message sequence number.
    pub aeth: Aeth,
}

impl CarriedAck {
    /// The number of bytes of a carried acknowledgement.
    pub const LEN: usize = 4 + Aeth::LEN;

    /// Decodes the 8 bytes of a carried acknowledgement.
    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { reserved: b[0], psn: Psn::new(be24(&b[1..])), aeth: Aeth::decode(&bytes(b, 4)) }
    }

    /// Returns the 8 bytes of the carried acknowledgement.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.reserved;
        put24(&mut b[1..], self.psn.value());
        b[4..].copy_from_slice(&self.aeth.encode());
        b
    }
}

/// The datagram extended transport header, 8 bytes (IBTA vol. 1, 9.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The Q_Key, by which a receiver checks that the sender may send datagrams to the queue pair.
    pub q_key: u32,
    /// The 8 reserved bits after the Q_Key.
    pub reserved: u8,
    /// The number of the sender's queue pair, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// The number of bytes of a DETH.
    pub const LEN: usize = 8;

    /// Decodes the 8 bytes of a DETH.
    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { q_key: be32(b, 0), reserved: b[4], src_qp: be24(&b[5..]) }
    }

    /// Returns the 8 bytes of the DETH.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..4].copy_from_slice(&self.q_key.to_be_bytes());
        b[4] = self.reserved;
        put24(&mut b[5..], self.src_qp);
        b
    }
}
