//! The table of opcodes, with the headers and the payload of each opcode (IBTA vol. 1, 9.2.1 table 38; rxe_opcode.c).

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The packet is the first of several packets of its message.
    First,
    /// The packet lies between the first and the last packet of its message.
    Middle,
    /// The packet is the last of several packets of its message.
    Last,
    /// The packet is the only packet of its message.
    Only,
}

impl Position {
    pub(crate) const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if the packet ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The operation to which a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A SEND, with or without an immediate.
    Send,
    /// A WRITE, with or without an immediate.
    Write,
    /// The request packet of a READ.
    ReadRequest,
    /// A packet with data that a READ requested.
    ReadResponse,
    /// An ACK, NAK or RNR NAK.
    Acknowledge,
    /// An atomic operation or a SEND with invalidate. This stack decodes packets of these operations, but does not
    /// execute them.
    Unsupported,
    /// A datagram, which in RoCE contains a message of the connection manager.
    UdSend,
    /// A congestion notification packet (RoCEv2 annex A17.9.3).
    Cnp,
}

/// The operation, the position, the headers and the payload of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The name of the opcode, for people who read logs.
    pub name: &'static str,
    /// The operation to which packets with the opcode belong.
    pub operation: Operation,
    /// The position that a packet with the opcode has in its message.
    pub position: Position,
    /// True if the packet has a RETH: address, RKey and length.
    pub reth: bool,
    /// True if the packet has an AETH: syndrome and message sequence number.
    pub aeth: bool,
    /// True if the packet has an immediate of 4 bytes.
    pub immdt: bool,
    /// True if the packet has a DETH: Q_Key and source queue pair.
    pub deth: bool,
    /// The number of bytes of extended headers that this stack does not interpret (atomics, invalidate, CNP).
    pub other: usize,
    /// True if the packet may have a payload.
    pub payload: bool,
}

/// The first packet of a SEND.
pub const SEND_FIRST: u8 = 0x00;
/// A middle packet of a SEND.
pub const SEND_MIDDLE: u8 = 0x01;
/// The last packet of a SEND without an immediate.
pub const SEND_LAST: u8 = 0x02;
/// The last packet of a SEND with an immediate.
pub const SEND_LAST_WITH_IMM: u8 = 0x03;
/// The only packet of a SEND without an immediate.
pub const SEND_ONLY: u8 = 0x04;
/// The only packet of a SEND with an immediate.
pub const SEND_ONLY_WITH_IMM: u8 = 0x05;
/// The first packet of a WRITE, with a RETH.
pub const WRITE_FIRST: u8 = 0x06;
/// A middle packet of a WRITE.
pub const WRITE_MIDDLE: u8 = 0x07;
/// The last packet of a WRITE without an immediate.
pub const WRITE_LAST: u8 = 0x08;
/// The last packet of a WRITE with an immediate.
pub const WRITE_LAST_WITH_IMM: u8 = 0x09;
/// The only packet of a WRITE without an immediate.
pub const WRITE_ONLY: u8 = 0x0a;
/// The only packet of a WRITE with an immediate.
pub const WRITE_ONLY_WITH_IMM: u8 = 0x0b;
/// The request packet of a READ, with a RETH.
pub const READ_REQUEST: u8 = 0x0c;
/// The first response packet of a READ.
pub const READ_RESPONSE_FIRST: u8 = 0x0d;
/// A middle response packet of a READ.
pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
/// The last response packet of a READ.
pub const READ_RESPONSE_LAST: u8 = 0x0f;
/// The only response packet of a READ.
pub const READ_RESPONSE_ONLY: u8 = 0x10;
/// An ACK, NAK or RNR NAK, which has an AETH.
pub const ACKNOWLEDGE: u8 = 0x11;
/// A datagram of the connection manager, with a DETH.
pub const UD_SEND_ONLY: u8 = 0x64;
/// A congestion notification packet (RoCEv2 annex A17.9.3).
pub const CNP: u8 = 0x81;

/// The bits that turn the opcode of a request packet into the opcode of the same packet with a carried acknowledgement
/// ([`CarriedAck`](crate::wire::CarriedAck)). The specification leaves the opcodes from 0xc0 to 0xff to manufacturers.
pub const CARRIES_ACK: u8 = 0xc0;

/// Returns the opcode of the request packet that carries an acknowledgement in a packet with this opcode; `None` if
/// packets with this opcode carry no acknowledgement.
pub const fn carrier(opcode: u8) -> Option<u8> {
    match opcode & !CARRIES_ACK {
        request @ SEND_FIRST..=READ_REQUEST if opcode & CARRIES_ACK == CARRIES_ACK => Some(request),
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The opcodes that this stack knows (IBTA vol. 1, table 38 and annex A17). An entry contains the opcode, its name
    /// and the number of bytes of the headers behind the BTH. The last value of an entry is true if a packet with the
    /// opcode may have a payload.
    const TABLE: [(u8, &str, usize, bool); 25] = [
        (0x00, "SEND_FIRST", 0, true),
        (0x01, "SEND_MIDDLE", 0, true),
        (0x02, "SEND_LAST", 0, true),
        (0x03, "SEND_LAST_WITH_IMM", 4, true),
        (0x04, "SEND_ONLY", 0, true),
        (0x05, "SEND_ONLY_WITH_IMM", 4, true),
        (0x06, "WRITE_FIRST", 16, true),
        (0x07, "WRITE_MIDDLE", 0, true),
        (0x08, "WRITE_LAST", 0, true),
        (0x09, "WRITE_LAST_WITH_IMM", 4, true),
        (0x0a, "WRITE_ONLY", 16, true),
        (0x0b, "WRITE_ONLY_WITH_IMM", 20, true),
        (0x0c, "READ_REQUEST", 16, false),
        (0x0d, "READ_RESPONSE_FIRST", 4, true),
        (0x0e, "READ_RESPONSE_MIDDLE", 0, true),
        (0x0f, "READ_RESPONSE_LAST", 4, true),
        (0x10, "READ_RESPONSE_ONLY", 4, true),
        (0x11, "ACKNOWLEDGE", 4, false),
        (0x12, "ATOMIC_ACKNOWLEDGE", 12, false),
        (0x13, "COMPARE_SWAP", 28, false),
        (0x14, "FETCH_ADD", 28, false),
        (0x16, "SEND_LAST_WITH_INVALIDATE", 4, true),
        (0x17, "SEND_ONLY_WITH_INVALIDATE", 4, true),
        (0x64, "UD_SEND_ONLY", 8, true),
        (0x81, "CNP", 16, false),
    ];

    /// Returns the number of bytes of the headers behind the BTH.
    fn extended_len(info: &OpcodeInfo) -> usize {
        let headers = [(info.reth, 16), (info.aeth, 4), (info.immdt, 4), (info.deth, 8)];
        headers.iter().filter(|(has, _)| *has).map(|(_, len)| len).sum::<usize>() + info.other
    }

    #[test]
    fn every_opcode_has_the_headers_of_the_specification() {
        for opcode in 0..=u8::MAX {
            let expected = TABLE.iter().find(|row| row.0 == opcode).map(|row| (row.1, row.2, row.3));
            let found = info(opcode).map(|info| (info.name, extended_len(&info), info.payload));
            assert_eq!(found, expected, "opcode {opcode:#04x}");
        }
    }

    #[test]
    fn a_position_begins_or_ends_a_message_as_the_name_says() {
        for (opcode, name, ..) in TABLE {
            let position = info(opcode).unwrap().position;
            let is = |word: &str| name.contains(word);
            let middle = is("MIDDLE");
            assert_eq!(position.starts(), !middle && !is("LAST"), "{name}");
            assert_eq!(position.ends(), !middle && !is("FIRST"), "{name}");
        }
    }
}
