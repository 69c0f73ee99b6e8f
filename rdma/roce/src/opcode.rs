//! The table of opcodes, with the headers and the payload of each opcode (IBTA vol. 1, 9.2.1 table 38; rxe_opcode.c).

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The operation to which a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    /// An atomic operation or a SEND with invalidate. This stack decodes packets of these operations, but does not
    /// execute them.
    Unsupported,
    UdSend,
    /// A congestion notification packet (RoCEv2 annex A17.9.3).
    Cnp,
}

/// The operation, the position, the headers and the payload of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    pub name: &'static str,
    pub operation: Operation,
    pub position: Position,
    pub reth: bool,
    pub aeth: bool,
    pub immdt: bool,
    pub deth: bool,
    /// The number of bytes of extended headers that this stack does not interpret (atomics, invalidate, CNP).
    pub other: usize,
    pub payload: bool,
}

pub const SEND_FIRST: u8 = 0x00;
pub const SEND_MIDDLE: u8 = 0x01;
pub const SEND_LAST: u8 = 0x02;
pub const SEND_LAST_WITH_IMM: u8 = 0x03;
pub const SEND_ONLY: u8 = 0x04;
pub const SEND_ONLY_WITH_IMM: u8 = 0x05;
pub const WRITE_FIRST: u8 = 0x06;
pub const WRITE_MIDDLE: u8 = 0x07;
pub const WRITE_LAST: u8 = 0x08;
pub const WRITE_LAST_WITH_IMM: u8 = 0x09;
pub const WRITE_ONLY: u8 = 0x0a;
pub const WRITE_ONLY_WITH_IMM: u8 = 0x0b;
pub const READ_REQUEST: u8 = 0x0c;
pub const READ_RESPONSE_FIRST: u8 = 0x0d;
pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
pub const READ_RESPONSE_LAST: u8 = 0x0f;
pub const READ_RESPONSE_ONLY: u8 = 0x10;
pub const ACKNOWLEDGE: u8 = 0x11;
pub const UD_SEND_ONLY: u8 = 0x64;
pub const CNP: u8 = 0x81;

const fn row(name: &'static str, operation: Operation, position: Position) -> OpcodeInfo {
    OpcodeInfo {
        name,
        operation,
        position,
        reth: false,
        aeth: false,
        immdt: false,
        deth: false,
        other: 0,
        payload: true,
    }
}

/// Returns the table's row for an opcode; `None` if this stack does not know the opcode. A receiver drops packets with
/// unknown opcodes.
pub const fn info(opcode: u8) -> Option<OpcodeInfo> {
    use Operation::*;
    use Position::*;
    Some(match opcode {
        SEND_FIRST => row("SEND_FIRST", Send, First),
        SEND_MIDDLE => row("SEND_MIDDLE", Send, Middle),
        SEND_LAST => row("SEND_LAST", Send, Last),
        SEND_LAST_WITH_IMM => OpcodeInfo { immdt: true, ..row("SEND_LAST_WITH_IMM", Send, Last) },
        SEND_ONLY => row("SEND_ONLY", Send, Only),
        SEND_ONLY_WITH_IMM => OpcodeInfo { immdt: true, ..row("SEND_ONLY_WITH_IMM", Send, Only) },
        WRITE_FIRST => OpcodeInfo { reth: true, ..row("WRITE_FIRST", Write, First) },
        WRITE_MIDDLE => row("WRITE_MIDDLE", Write, Middle),
        WRITE_LAST => row("WRITE_LAST", Write, Last),
        WRITE_LAST_WITH_IMM => OpcodeInfo { immdt: true, ..row("WRITE_LAST_WITH_IMM", Write, Last) },
        WRITE_ONLY => OpcodeInfo { reth: true, ..row("WRITE_ONLY", Write, Only) },
        WRITE_ONLY_WITH_IMM => {
            OpcodeInfo { reth: true, immdt: true, ..row("WRITE_ONLY_WITH_IMM", Write, Only) }
        }
        READ_REQUEST => OpcodeInfo { reth: true, payload: false, ..row("READ_REQUEST", ReadRequest, Only) },
        READ_RESPONSE_FIRST => OpcodeInfo { aeth: true, ..row("READ_RESPONSE_FIRST", ReadResponse, First) },
        READ_RESPONSE_MIDDLE => row("READ_RESPONSE_MIDDLE", ReadResponse, Middle),
        READ_RESPONSE_LAST => OpcodeInfo { aeth: true, ..row("READ_RESPONSE_LAST", ReadResponse, Last) },
        READ_RESPONSE_ONLY => OpcodeInfo { aeth: true, ..row("READ_RESPONSE_ONLY", ReadResponse, Only) },
        ACKNOWLEDGE => OpcodeInfo { aeth: true, payload: false, ..row("ACKNOWLEDGE", Acknowledge, Only) },
        0x12 => OpcodeInfo {
            aeth: true,
            other: 8,
            payload: false,
            ..row("ATOMIC_ACKNOWLEDGE", Unsupported, Only)
        },
        0x13 => OpcodeInfo { other: 28, payload: false, ..row("COMPARE_SWAP", Unsupported, Only) },
        0x14 => OpcodeInfo { other: 28, payload: false, ..row("FETCH_ADD", Unsupported, Only) },
        0x16 => OpcodeInfo { other: 4, ..row("SEND_LAST_WITH_INVALIDATE", Unsupported, Last) },
        0x17 => OpcodeInfo { other: 4, ..row("SEND_ONLY_WITH_INVALIDATE", Unsupported, Only) },
        UD_SEND_ONLY => OpcodeInfo { deth: true, ..row("UD_SEND_ONLY", UdSend, Only) },
        CNP => OpcodeInfo { other: 16, payload: false, ..row("CNP", Cnp, Only) },
        _ => return None,
    })
}

impl OpcodeInfo {
    /// Returns the number of bytes of the headers behind the BTH.
    pub const fn extended_len(&self) -> usize {
        (if self.reth { 16 } else { 0 })
            + (if self.aeth { 4 } else { 0 })
            + (if self.immdt { 4 } else { 0 })
            + (if self.deth { 8 } else { 0 })
            + self.other
    }
}
