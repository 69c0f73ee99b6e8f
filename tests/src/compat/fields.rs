//! Where the fields of RoCEv2 packets and of connection management lie (IBTA vol. 1, chapters 9 and 12, annex A17).
//!
//! A replay must notice when this project's encoders and decoders change together, so it uses neither: these offsets
//! are its own.

/// Bytes of the base transport header.
pub(super) const BTH: usize = 12;
pub(super) const RETH: usize = 16;
pub(super) const ICRC: usize = 4;
/// Bytes of a management datagram, and what precedes it in a packet: BTH and DETH.
pub(super) const MAD: usize = 256;
pub(super) const BEFORE_MAD: usize = BTH + 8;

pub(super) const SEND_FIRST: u8 = 0x00;
pub(super) const SEND_ONLY: u8 = 0x04;
pub(super) const WRITE_FIRST: u8 = 0x06;
pub(super) const WRITE_ONLY: u8 = 0x0a;
pub(super) const WRITE_ONLY_WITH_IMM: u8 = 0x0b;
pub(super) const ACKNOWLEDGE: u8 = 0x11;
pub(super) const UD_SEND_ONLY: u8 = 0x64;
/// It has no RETH: only the first packet of a WRITE has one.
const WRITE_LAST_WITH_IMM: u8 = 0x09;

pub(super) const OPCODE: usize = 0;
pub(super) const DEST_QP: usize = 5;
/// The highest bit asks for an acknowledgement.
pub(super) const ACK_REQUEST: usize = 8;
pub(super) const PSN: usize = 9;
/// Offsets in packets with an RETH.
pub(super) const RETH_ADDRESS: usize = BTH;
pub(super) const RETH_RKEY: usize = BTH + 8;
/// Offsets in acknowledgements: the syndrome, then 24 bits of the message sequence number.
pub(super) const SYNDROME: usize = BTH;
pub(super) const MSN: usize = BTH + 1;

/// Offsets in a management datagram.
pub(super) const ATTRIBUTE: usize = 16;
pub(super) const LOCAL_COMM_ID: usize = 24;
pub(super) const REMOTE_COMM_ID: usize = 28;
pub(super) const REQ_QPN: usize = 24 + 32;
pub(super) const REQ_PSN: usize = 24 + 44;
pub(super) const REQ_LOCAL_GID: usize = 24 + 56;
pub(super) const REQ_REMOTE_GID: usize = 24 + 72;
/// Offsets of the addresses in rdma_cm's header, which is in a REQ's private data.
pub(super) const REQ_SOURCE: usize = 24 + 140 + 4;
pub(super) const REQ_DESTINATION: usize = REQ_SOURCE + 16;
pub(super) const REP_QPN: usize = 24 + 12;
pub(super) const REP_PSN: usize = 24 + 20;
/// The lower half of the GUID is random.
pub(super) const REP_GUID: usize = 24 + 28;
pub(super) const DREQ_QPN: usize = 24 + 8;

/// The attribute of a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cm {
    Req,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    Other(u16),
}

pub(super) const PSN_MASK: u32 = 0xff_ffff;

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes[at..at + 2].iter().fold(0, |word, byte| word << 8 | u16::from(*byte))
}

pub(super) fn be24(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 3].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

pub(super) fn put24(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
}

pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// How far `psn` is ahead of `from`.
pub(super) fn psn_since(psn: u32, from: u32) -> u32 {
    psn.wrapping_sub(from) & PSN_MASK
}

/// Whether `psn` is `from`, or ahead of it by less than half of all numbers.
pub(super) fn psn_reached(psn: u32, from: u32) -> bool {
    psn_since(psn, from) < 1 << 23
}

/// What the management datagram of a packet without its ICRC says.
pub(super) fn cm(mad: &[u8]) -> Cm {
    match be16(mad, ATTRIBUTE) {
        0x10 => Cm::Req,
        0x12 => Cm::Rej,
        0x13 => Cm::Rep,
        0x14 => Cm::Rtu,
        0x15 => Cm::Dreq,
        0x16 => Cm::Drep,
        other => Cm::Other(other),
    }
}

/// Whether the packet is long enough for the headers that its opcode has.
pub(super) fn is_whole(packet: &[u8]) -> bool {
    let Some(&opcode) = packet.first() else { return false };
    match opcode {
        UD_SEND_ONLY => packet.len() == BEFORE_MAD + MAD,
        _ => packet.len() >= BTH + header_behind_bth(opcode) + usize::from(pad(packet)),
    }
}

fn pad(packet: &[u8]) -> u8 {
    packet.get(1).map_or(0, |byte| byte >> 4 & 3)
}

pub(super) fn has_reth(opcode: u8) -> bool {
    matches!(opcode, WRITE_FIRST | WRITE_ONLY | WRITE_ONLY_WITH_IMM)
}

pub(super) fn has_immediate(opcode: u8) -> bool {
    matches!(opcode, WRITE_LAST_WITH_IMM | WRITE_ONLY_WITH_IMM)
}

/// SENDs without an immediate and WRITEs.
pub(super) fn is_message(opcode: u8) -> bool {
    opcode <= WRITE_ONLY_WITH_IMM && !matches!(opcode, 0x03 | 0x05)
}

/// The last packet of a message.
pub(super) fn ends(opcode: u8) -> bool {
    matches!(opcode, 0x02 | SEND_ONLY | 0x08..=WRITE_ONLY_WITH_IMM)
}

pub(super) fn begins(opcode: u8) -> bool {
    matches!(opcode, SEND_FIRST | SEND_ONLY) || has_reth(opcode)
}

fn header_behind_bth(opcode: u8) -> usize {
    let reth = if has_reth(opcode) { RETH } else { 0 };
    let immediate = if has_immediate(opcode) { 4 } else { 0 };
    let aeth = if opcode == ACKNOWLEDGE { 4 } else { 0 };
    reth + immediate + aeth
}

/// The headers of a whole packet of a message, and its payload without the pad.
pub(super) fn split(packet: &[u8]) -> (&[u8], &[u8]) {
    let (headers, rest) = packet.split_at(BTH + header_behind_bth(packet[OPCODE]));
    (headers, &rest[..rest.len() - usize::from(pad(packet))])
}

/// The name of an opcode as the InfiniBand specification has it.
pub(super) fn opcode_name(opcode: u8) -> String {
    let names = [
        "SEND first",
        "SEND middle",
        "SEND last",
        "SEND last with immediate",
        "SEND only",
        "SEND only with immediate",
        "WRITE first",
        "WRITE middle",
        "WRITE last",
        "WRITE last with immediate",
        "WRITE only",
        "WRITE only with immediate",
    ];
    names.get(usize::from(opcode)).map_or_else(|| format!("opcode {opcode:#04x}"), |name| (*name).to_owned())
}
