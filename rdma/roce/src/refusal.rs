//! The reasons for which an endpoint does not execute a packet, and the observer that learns them.

use std::net::SocketAddr;

use crate::{
    cm::CmCounters,
    counters::Counters,
    wire::{Malformed, NakCode, Packet},
};

type Counter = fn(&mut Counters) -> &mut u64;

/// The one reason for which an endpoint does not execute a packet.
///
/// The causes that concern request packets are named after the checks of the specification (IBTA vol. 1, 9.7.4). The
/// endpoint sends a NAK only for the causes for which the method [`Self::nak`] returns a NAK code, and an RNR NAK only
/// for [`Self::ReceiverNotReady`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalCause {
    /// The datagram is not a packet that this stack handles.
    #[error("the datagram is not a packet: {0}")]
    Malformed(#[from] Malformed),
    /// The transport version in the BTH is not 0.
    #[error("the transport version in the BTH is not 0")]
    Version,
    /// The P_Key is neither 0xffff nor 0x7fff.
    #[error("the P_Key is neither 0xffff nor 0x7fff")]
    PKey,
    /// The destination is queue pair 0, which RoCE does not use.
    #[error("the destination queue pair is 0, which RoCE does not use")]
    QueuePairZero,
    /// The destination queue pair does not exist, or is not connected.
    #[error("the queue pair does not exist, or is not connected")]
    UnknownQp,
    /// The source IP address is not the address of the connection's peer.
    #[error("the source address is not the address of the connection's peer")]
    WrongSource,
    /// The ICRC of the packet is wrong.
    #[error("the invariant CRC is wrong: a byte changed on the way, or the sender computes another CRC")]
    Icrc,
    /// A packet with the opcode `UD_SEND_ONLY` is not for queue pair 1, has a wrong Q_Key, or does not have 256 bytes
    /// of payload.
    #[error("a datagram of this kind belongs to queue pair 1, with the Q_Key 0x80010000 and 256 bytes")]
    NotManagement,

    /// The management datagram is not a CM message.
    #[error("the management datagram is not a message of the CM")]
    CmMalformed,
    /// No connection has the communication IDs of the CM message.
    #[error("no connection has the communication IDs of the CM message")]
    CmUnknownId,
    /// The CM message comes from an IP address that is not the address of the connection's peer.
    #[error("the CM message comes from another address than the connection's peer")]
    CmWrongSource,
    /// The state of the connection does not permit the CM message, for example because the peer has sent too many MRAs.
    #[error("the connection's state does not permit the CM message")]
    CmUnexpected,

    /// The PSN is later than the expected PSN, because packets are missing.
    #[error("the PSN is ahead of the expected PSN: packets before it are missing")]
    OutOfSequence,
    /// The PSN is earlier than the expected PSN, because the request was executed before.
    #[error("the PSN is behind the expected PSN: the request was executed before")]
    Duplicate,
    /// The opcode does not continue the message, or begins a message inside another message.
    #[error("the opcode does not continue the message, or begins one inside of another")]
    OpcodeSequence,
    /// The payload does not have the length that the opcode and the path MTU demand.
    #[error("the payload has not the length that the opcode and the path MTU demand")]
    PayloadLength,
    /// The DMA length in the RETH is above 2^31, differs from the sum of the payload lengths of the message's packets,
    /// or would need 2^23 or more READ response packets.
    #[error("the DMA length is above 2^31, or does not agree with the payload of the message's packets")]
    MessageLength,
    /// The peer has more outstanding READs than the queue pair permits.
    #[error("the READ is one more than the queue pair may have outstanding")]
    TooManyReads,
    /// The queue pair has no posted receive for the message.
    #[error("no receive is posted")]
    ReceiverNotReady,
    /// The message is longer than the posted receive.
    #[error("the message is longer than the posted receive")]
    ReceiveTooShort,
    /// The memory of the posted receive was deregistered, or does not permit writing any more.
    #[error("the memory of the posted receive was deregistered, or its access rights were revoked")]
    ReceiveMemory,
    /// No region of the protection domain has the RKey, covers the address range and permits the access.
    #[error("RKey, address, length or right of the access is not that of a region of the protection domain")]
    RemoteAccess,

    /// The response acknowledges packets that are not outstanding.
    #[error("the response acknowledges packets that are not outstanding")]
    StrayResponse,
    /// The syndrome of the acknowledgement has a value that the specification reserves.
    #[error("the syndrome of the acknowledgement is reserved")]
    ReservedSyndrome,
    /// One or more READ response packets before this one are missing.
    #[error("a READ response before this one is missing")]
    ResponseGap,
    /// The READ response fits no outstanding READ, or has a wrong length.
    #[error("the READ response answers no READ, or has a wrong length")]
    BadResponse,
    /// The memory for the READ response was deregistered, or does not permit writing any more.
    #[error("the memory for the READ response was deregistered, or its access rights were revoked")]
    ResponseMemory,
}

impl RefusalCause {
    /// Returns the code of the NAK that the responder sends for this cause; `None` if the NAK has no code, or if no NAK
    /// is sent. If packets are missing, the responder usually sends a NAK for the first later packet only. The cause
    /// [`Self::ReceiverNotReady`] has no code, because an RNR NAK has a timer in place of the code.
    pub fn nak(self) -> Option<NakCode> {
        match self {
            Self::OutOfSequence => Some(NakCode::PsnSequence),
            Self::OpcodeSequence
            | Self::PayloadLength
            | Self::MessageLength
            | Self::TooManyReads
            | Self::ReceiveTooShort => Some(NakCode::InvalidRequest),
            Self::ReceiveMemory => Some(NakCode::RemoteOperation),
            Self::RemoteAccess => Some(NakCode::RemoteAccess),
            _ => None,
        }
    }

    /// Returns true if the refused request ends the connection.
    pub(crate) fn is_fatal(self) -> bool {
        self.nak().is_some_and(|code| code != NakCode::PsnSequence)
    }

    /// Returns a short name of the cause for use by programs. The name stays the same in later versions.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Counts the refusal.
    pub(crate) fn count(self, counters: &mut Counters) {
        if let Some(counter) = self.row().1 {
            *counter(counters) += 1;
        }
    }

    /// Returns the name of the cause and the counter of the cause. Some causes have no counter here. The refusal of a
    /// CM message is counted by [`Self::count_cm`].
    fn row(self) -> (&'static str, Option<Counter>) {
        match self {
            Self::Malformed(_) => ("malformed", Some(|c| &mut c.rx_malformed)),
            Self::Version => ("version", Some(|c| &mut c.rx_malformed)),
            Self::PKey => ("p-key", Some(|c| &mut c.rx_malformed)),
            Self::QueuePairZero => ("queue-pair-zero", Some(|c| &mut c.rx_malformed)),
            Self::UnknownQp => ("unknown-qp", Some(|c| &mut c.rx_unknown_qp)),
            Self::WrongSource => ("wrong-source", Some(|c| &mut c.rx_wrong_source)),
            Self::Icrc => ("icrc", Some(|c| &mut c.rx_icrc_encapsulated)),
            Self::NotManagement => ("not-management", Some(|c| &mut c.rx_malformed)),
            Self::CmMalformed => ("cm-malformed", None),
            Self::CmUnknownId => ("cm-unknown-id", None),
            Self::CmWrongSource => ("cm-wrong-source", None),
            Self::CmUnexpected => ("cm-unexpected", None),
            Self::OutOfSequence => ("out-of-sequence", Some(|c| &mut c.out_of_seq_request)),
            Self::Duplicate => ("duplicate", Some(|c| &mut c.duplicate_request)),
            Self::OpcodeSequence => ("opcode-sequence", Some(|c| &mut c.send_invalid_request)),
            Self::PayloadLength => ("payload-length", Some(|c| &mut c.send_invalid_request)),
            Self::MessageLength => ("message-length", Some(|c| &mut c.send_invalid_request)),
            Self::TooManyReads => ("too-many-reads", Some(|c| &mut c.send_invalid_request)),
            Self::ReceiverNotReady => ("receiver-not-ready", Some(|c| &mut c.send_rnr_err)),
            Self::ReceiveTooShort => ("receive-too-short", Some(|c| &mut c.send_invalid_request)),
            Self::ReceiveMemory => ("receive-memory", Some(|c| &mut c.send_invalid_request)),
            Self::RemoteAccess => ("remote-access", Some(|c| &mut c.send_access_err)),
            Self::StrayResponse => ("stray-response", Some(|c| &mut c.rx_stray_ack)),
            Self::ReservedSyndrome => ("reserved-syndrome", Some(|c| &mut c.rx_stray_ack)),
            Self::ResponseGap => ("response-gap", None),
            Self::BadResponse => ("bad-response", None),
            Self::ResponseMemory => ("response-memory", None),
        }
    }

    /// Counts the refusal of a CM message.
    pub(crate) fn count_cm(self, counters: &mut CmCounters) {
        let counter = match self {
            Self::CmMalformed => &mut counters.rx_malformed,
            Self::CmUnknownId => &mut counters.rx_unknown_id,
            Self::CmWrongSource => &mut counters.rx_wrong_source,
            Self::CmUnexpected => &mut counters.rx_unexpected,
            _ => return,
        };
        *counter += 1;
    }
}

/// A packet that an endpoint did not execute.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The reason for which the endpoint does not execute the packet.
    pub cause: RefusalCause,
    /// The UDP address of the sender.
    pub from: SocketAddr,
    /// The packet; `None` if the datagram could not be decoded as a packet. The fields of the packet can have any
    /// values, because the endpoint makes no further checks after the first check that fails.
    pub packet: Option<&'a Packet<'a>>,
}

/// An observer is notified of each packet that an endpoint does not execute. The observer `()` does nothing.
pub trait Observer {
    /// The endpoint calls this method once for each refused packet. The method must return quickly, because the
    /// endpoint handles no packets until the method returns.
    fn refused(&mut self, refusal: &Refusal<'_>);
}

impl Observer for () {
    fn refused(&mut self, _: &Refusal<'_>) {}
}
