//! Base and extended transport headers (IBTA vol. 1, chapter 9). All fields are big-endian.

use crate::psn::Psn;

pub(super) fn be24(b: &[u8]) -> u32 {
    u32::from_be_bytes([0, b[0], b[1], b[2]])
}

pub(super) fn put24(b: &mut [u8], v: u32) {
    b[..3].copy_from_slice(&v.to_be_bytes()[1..]);
}

/// The base transport header, 12 bytes (9.2). Reserved bits are kept, so a packet that is decoded and encoded again has
/// the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    pub opcode: u8,
    pub solicited: bool,
    pub mig_req: bool,
    /// The number of pad bytes after the payload, 0-3.
    pub pad: u8,
    pub tver: u8,
    pub p_key: u16,
    pub fecn: bool,
    pub becn: bool,
    pub reserved6: u8,
    /// The destination queue pair, 24 bits.
    pub dest_qp: u32,
    pub ack_req: bool,
    pub reserved7: u8,
    pub psn: Psn,
}

impl Bth {
    pub const LEN: usize = 12;
    pub const DEFAULT_P_KEY: u16 = 0xffff;

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

/// The RDMA extended transport header, 16 bytes (9.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    pub addr: u64,
    pub rkey: u32,
    pub length: u32,
}

impl Reth {
    pub const LEN: usize = 16;

    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        let (addr, rest) = b.split_first_chunk::<8>().expect("16 bytes hold 8");
        Self {
            addr: u64::from_be_bytes(*addr),
            rkey: u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]),
            length: u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]),
        }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..8].copy_from_slice(&self.addr.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..].copy_from_slice(&self.length.to_be_bytes());
        b
    }
}

/// The meaning of an acknowledgement (9.7.5.2.1, table 43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// An ACK. The value is the 5-bit code of end-to-end credits; 0x1f means that the ACK has no credits.
    Ack(u8),
    /// An RNR NAK: the responder has no posted receive. The value is the 5-bit timer code.
    RnrNak(u8),
    Nak(NakCode),
    Reserved(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    PsnSequence,
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
    InvalidRdRequest,
    Reserved(u8),
}

impl Syndrome {
    pub const ACK: Self = Self::Ack(0x1f);

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

/// The ACK extended transport header, 4 bytes (9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    pub syndrome: Syndrome,
    /// The message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    pub const LEN: usize = 4;

    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { syndrome: Syndrome::decode(b[0]), msn: be24(&b[1..]) }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [self.syndrome.encode(), 0, 0, 0];
        put24(&mut b[1..], self.msn);
        b
    }
}

/// The datagram extended transport header, 8 bytes (9.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    pub q_key: u32,
    pub reserved: u8,
    pub src_qp: u32,
}

impl Deth {
    pub const LEN: usize = 8;

    pub fn decode(b: &[u8; Self::LEN]) -> Self {
        Self { q_key: u32::from_be_bytes([b[0], b[1], b[2], b[3]]), reserved: b[4], src_qp: be24(&b[5..]) }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..4].copy_from_slice(&self.q_key.to_be_bytes());
        b[4] = self.reserved;
        put24(&mut b[5..], self.src_qp);
        b
    }
}
