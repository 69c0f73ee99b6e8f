//! The management datagrams (MADs) of the CM (IBTA vol. 1, 12.6 and 13.4; ibta_vol1_c12.h), and the header that rdma_cm
//! puts into private data.
//!
//! A [`Mad`] keeps the bits for which it has no field, so a MAD that is decoded and encoded again has the same 256
//! bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::headers::{be24, be32, bytes, put24};
use crate::psn::Psn;

/// The number of bytes of every management datagram.
pub const MAD_LEN: usize = 256;
/// The number of bytes before the CM message.
const HEADER: usize = 24;
/// The first four bytes of a CM datagram: base version 1, class 7 (communication management), class version 2, method 3
/// (Send).
const CM_CLASS: [u8; 4] = [1, 7, 2, 3];

/// The reason why a datagram is not a CM message that this stack handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadError {
    /// The datagram does not have the version, class and method of CM datagrams.
    #[error("not a communication management datagram (version, class or method)")]
    NotCm,
    /// The CM message has an attribute ID that this stack does not use. The value is the attribute ID.
    #[error("attribute {0:#06x} is not used on this stack")]
    Attribute(u16),
}

/// One management datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The transaction ID. A response has the transaction ID of its request.
    pub tid: u64,
    /// The CM message of the datagram.
    pub message: CmMessage,
    /// The received bytes, which contain the bits that have no field in `message`. A new datagram has zeros in `raw`.
    raw: [u8; MAD_LEN],
}

/// A CM message, with the fields that this stack uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmMessage {
    /// A request for a connection.
    Req(Req),
    /// A notice that the sender needs more time for its response.
    Mra(Mra),
    /// A rejection of a request or reply.
    Rej(Rej),
    /// A reply, which accepts a request.
    Rep(Rep),
    /// Ready to use: the active side has received the REP.
    Rtu(CommIds),
    /// A request to disconnect.
    Dreq(Dreq),
    /// The response to a DREQ.
    Drep(CommIds),
}

/// The communication IDs of both sides. `local` is the ID of the sender, and `remote` is the ID of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommIds {
    /// The communication ID of the sender.
    pub local: u32,
    /// The communication ID of the receiver; 0 if the sender does not know the ID.
    pub remote: u32,
}

/// A request for a connection (REQ). "Local" in a field's name means the sender of the REQ, and "remote" means its
/// receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// The communication ID that the sender has chosen for the connection.
    pub local_comm_id: u32,
    /// The service ID, which contains the TCP-space port (RDMA_PS_TCP) of the listener; see [`service_port`].
    pub service_id: u64,
    /// The GUID of the sender's device.
    pub ca_guid: u64,
    /// The Q_Key of the sender's queue pair, which reliable connections do not use.
    pub q_key: u32,
    /// The number of the queue pair of the REQ's sender, 24 bits.
    pub qpn: u32,
    /// The maximum number of READs that the receiver of the REQ may have outstanding at its sender.
    pub responder_resources: u8,
    /// The maximum number of READs that the sender of the REQ may have outstanding at its receiver.
    pub initiator_depth: u8,
    /// The exponent n, 5 bits: the sender expects a response within 4.096 us * 2^n.
    pub remote_cm_timeout: u8,
    /// The transport service, 2 bits; 0 is RC.
    pub transport: u8,
    /// True if the sender wants end-to-end flow control, which this stack does not use.
    pub flow_control: bool,
    /// The PSN of the first request packet that the sender of this message will accept from its peer.
    pub starting_psn: Psn,
    /// The exponent n, 5 bits: the sender responds to a message within 4.096 us * 2^n.
    pub local_cm_timeout: u8,
    /// The retry count, 3 bits.
    pub retry_count: u8,
    /// The partition key of the connection.
    pub p_key: u16,
    /// The code of the path MTU, 4 bits: 1-5 for 256-4096 bytes.
    pub mtu: u8,
    /// The RNR retry count, 3 bits.
    pub rnr_retry: u8,
    /// The maximum number of repetitions of a CM message, 4 bits.
    pub max_cm_retries: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The LID of the sender's port; RoCE has no LIDs.
    pub local_lid: u16,
    /// The LID of the receiver's port; RoCE has no LIDs.
    pub remote_lid: u16,
    /// The GID of the sender's port, which in RoCEv2 is its IP address.
    pub local_gid: [u8; 16],
    /// The GID of the receiver's port, which in RoCEv2 is its IP address.
    pub remote_gid: [u8; 16],
    /// The IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// The traffic class of the connection's packets.
    pub traffic_class: u8,
    /// The hop limit of the connection's packets.
    pub hop_limit: u8,
    /// The exponent n, 5 bits: the sender's local ACK timeout on the primary path is 4.096 us * 2^n; 0 means no
    /// timeout.
    pub ack_timeout: u8,
    /// The private data: the header of rdma_cm ([`CmaHeader`]), followed by the bytes that the program passed.
    pub private_data: [u8; Req::PRIVATE],
}

/// A message receipt acknowledgement (MRA): the sender received a message and needs more time for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The communication IDs of the sender and the receiver.
    pub ids: CommIds,
    /// The message (REQ or REP) to which the sender of the MRA will respond later.
    pub about: Answered,
    /// The exponent n, 5 bits: the sender needs up to 4.096 us * 2^n more time for its response.
    pub service_timeout: u8,
}

/// The message to which an MRA or REJ responds, 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The MRA or REJ responds to a REQ.
    Req,
    /// The MRA or REJ responds to a REP.
    Rep,
    /// The MRA or REJ responds neither to a REQ nor to a REP; the value is the 2-bit code in the MRA or REJ.
    Other(u8),
}

/// A rejection (REJ).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The communication IDs of the sender and the receiver.
    pub ids: CommIds,
    /// The message that is rejected.
    pub about: Answered,
    /// The number of used bytes in the field `ari` (additional rejection information), 7 bits. The number in a received
    /// REJ can be larger than the size of `ari`.
    pub ari_len: u8,
    /// The reason code; see [`verbs::RejectReason`].
    pub reason: u16,
    /// Additional rejection information.
    pub ari: [u8; 72],
    /// The private data of the sender's program, filled up with zeros.
    pub private_data: [u8; Rej::PRIVATE],
}

/// A reply to a request (REP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The communication IDs of the sender and the receiver.
    pub ids: CommIds,
    /// The Q_Key of the sender's queue pair, which reliable connections do not use.
    pub q_key: u32,
    /// The number of the queue pair of the REP's sender, 24 bits.
    pub qpn: u32,
    /// The PSN of the first request packet that the sender of this message will accept from its peer.
    pub starting_psn: Psn,
    /// The maximum number of READs that the receiver of the REP may have outstanding at its sender.
    pub responder_resources: u8,
    /// The maximum number of READs that the sender of the REP may have outstanding at its receiver.
    pub initiator_depth: u8,
    /// The exponent n, 5 bits: the sender delays an ACK by at most 4.096 us * 2^n.
    pub target_ack_delay: u8,
    /// The failover code, 2 bits: whether the sender accepts the alternate path that the REQ proposes.
    pub failover: u8,
    /// True if the sender uses end-to-end flow control.
    pub flow_control: bool,
    /// The RNR retry count, 3 bits.
    pub rnr_retry: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The GUID of the sender's device.
    pub ca_guid: u64,
    /// The private data of the sender's program, filled up with zeros.
    pub private_data: [u8; Rep::PRIVATE],
}

/// A disconnection request (DREQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The communication IDs of the sender and the receiver.
    pub ids: CommIds,
    /// The number of the receiver's queue pair.
    pub remote_qpn: u32,
}

impl Mad {
    /// Makes a datagram with the transaction ID `tid`. In the new datagram, all bits that belong to no field are zero.
    pub fn new(tid: u64, message: CmMessage) -> Self {
        Self { tid, message, raw: [0; MAD_LEN] }
    }

    /// Decodes a management datagram.
    ///
    /// # Errors
    /// Fails with [`MadError`] if the datagram is not a CM message that this stack handles.
    pub fn decode(raw: &[u8; MAD_LEN]) -> Result<Self, MadError> {
        if raw[..4] != CM_CLASS {
            return Err(MadError::NotCm);
        }
        let b: &[u8] = &raw[HEADER..];
        let message = match be16(raw, 16) {
            0x10 => CmMessage::Req(Req::decode(b)),
            0x11 => CmMessage::Mra(Mra::decode(b)),
            0x12 => CmMessage::Rej(Rej::decode(b)),
            0x13 => CmMessage::Rep(Rep::decode(b)),
            0x14 => CmMessage::Rtu(CommIds::decode(b)),
            0x15 => CmMessage::Dreq(Dreq { ids: CommIds::decode(b), remote_qpn: be24(&b[8..]) }),
            0x16 => CmMessage::Drep(CommIds::decode(b)),
            other => return Err(MadError::Attribute(other)),
        };
        Ok(Self { tid: u64::from_be_bytes(bytes(raw, 8)), message, raw: *raw })
    }

    /// Encodes the management datagram.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let mut raw = self.raw;
        raw[..4].copy_from_slice(&CM_CLASS);
        put(&mut raw, 8, self.tid.to_be_bytes());
        let b = &mut raw[HEADER..];
        match &self.message {
            CmMessage::Req(m) => m.encode(b),
            CmMessage::Mra(m) => m.encode(b),
            CmMessage::Rej(m) => m.encode(b),
            CmMessage::Rep(m) => m.encode(b),
            CmMessage::Rtu(ids) | CmMessage::Drep(ids) => ids.encode(b),
            CmMessage::Dreq(m) => m.encode(b),
        }
        put(&mut raw, 16, self.message.attribute().to_be_bytes());
        raw
    }
}

impl CmMessage {
    /// Returns the attribute ID, which identifies the kind of the message.
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => 0x10,
            Self::Mra(_) => 0x11,
            Self::Rej(_) => 0x12,
            Self::Rep(_) => 0x13,
            Self::Rtu(_) => 0x14,
            Self::Dreq(_) => 0x15,
            Self::Drep(_) => 0x16,
        }
    }
}

fn put<const N: usize>(b: &mut [u8], at: usize, value: [u8; N]) {
    b[at..at + N].copy_from_slice(&value);
}

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(b, at))
}

/// Stores `value` in a field of adjacent bits of `byte`. The lowest bit of the field is the bit `shift` of `byte`, and
/// `mask` is the highest value that fits into the field. All other bits of `byte` keep their values.
fn put_bits(byte: &mut u8, mask: u8, shift: u32, value: u8) {
    *byte = *byte & !(mask << shift) | (value & mask) << shift;
}

impl CommIds {
    fn decode(b: &[u8]) -> Self {
        Self { local: be32(b, 0), remote: be32(b, 4) }
    }

    fn encode(&self, b: &mut [u8]) {
        put(b, 0, self.local.to_be_bytes());
        put(b, 4, self.remote.to_be_bytes());
    }
}

impl Answered {
    fn decode(b: u8) -> Self {
        match b >> 6 {
            0 => Self::Req,
            1 => Self::Rep,
            other => Self::Other(other),
        }
    }

    fn encode(self, b: &mut u8) {
        let code = match self {
            Self::Req => 0,
            Self::Rep => 1,
            Self::Other(other) => other,
        };
        put_bits(b, 3, 6, code);
    }
}

impl Req {
    /// The number of bytes of private data in a REQ.
    pub const PRIVATE: usize = 92;
    /// The number of bytes that remain for the application in a REQ's private data after the header of rdma_cm.
    pub const USER_PRIVATE: usize = Self::PRIVATE - CmaHeader::LEN;

    fn decode(b: &[u8]) -> Self {
        Self {
            local_comm_id: be32(b, 0),
            service_id: u64::from_be_bytes(bytes(b, 8)),
            ca_guid: u64::from_be_bytes(bytes(b, 16)),
            q_key: be32(b, 28),
            qpn: be24(&b[32..]),
            responder_resources: b[35],
            initiator_depth: b[39],
            remote_cm_timeout: b[43] >> 3,
            transport: b[43] >> 1 & 3,
            flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(be24(&b[44..])),
            local_cm_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            p_key: be16(b, 48),
            mtu: b[50] >> 4,
            rnr_retry: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            local_lid: be16(b, 52),
            remote_lid: be16(b, 54),
            local_gid: bytes(b, 56),
            remote_gid: bytes(b, 72),
            flow_label: be24(&b[88..]) >> 4,
            traffic_class: b[92],
            hop_limit: b[93],
            ack_timeout: b[95] >> 3,
            private_data: bytes(b, 140),
        }
    }

    fn encode(&self, b: &mut [u8]) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 8, self.service_id.to_be_bytes());
        put(b, 16, self.ca_guid.to_be_bytes());
        put(b, 28, self.q_key.to_be_bytes());
        put24(&mut b[32..], self.qpn);
        b[35] = self.responder_resources;
        b[39] = self.initiator_depth;
        put_bits(&mut b[43], 0x1f, 3, self.remote_cm_timeout);
        put_bits(&mut b[43], 3, 1, self.transport);
        put_bits(&mut b[43], 1, 0, self.flow_control.into());
        put24(&mut b[44..], self.starting_psn.value());
        put_bits(&mut b[47], 0x1f, 3, self.local_cm_timeout);
        put_bits(&mut b[47], 7, 0, self.retry_count);
        put(b, 48, self.p_key.to_be_bytes());
        put_bits(&mut b[50], 0xf, 4, self.mtu);
        put_bits(&mut b[50], 7, 0, self.rnr_retry);
        put_bits(&mut b[51], 0xf, 4, self.max_cm_retries);
        put_bits(&mut b[51], 1, 3, self.srq.into());
        put(b, 52, self.local_lid.to_be_bytes());
        put(b, 54, self.remote_lid.to_be_bytes());
        put(b, 56, self.local_gid);
        put(b, 72, self.remote_gid);
        let below_label = u32::from(b[90] & 0xf);
        put24(&mut b[88..], (self.flow_label & 0xf_ffff) << 4 | below_label);
        b[92] = self.traffic_class;
        b[93] = self.hop_limit;
        put_bits(&mut b[95], 0x1f, 3, self.ack_timeout);
        put(b, 140, self.private_data);
    }
}

impl Mra {
    fn decode(b: &[u8]) -> Self {
        Self { ids: CommIds::decode(b), about: Answered::decode(b[8]), service_timeout: b[9] >> 3 }
    }

    fn encode(&self, b: &mut [u8]) {
        self.ids.encode(b);
        self.about.encode(&mut b[8]);
        put_bits(&mut b[9], 0x1f, 3, self.service_timeout);
    }
}

impl Rej {
    /// The number of bytes of private data in a REJ.
    pub const PRIVATE: usize = 148;

    fn decode(b: &[u8]) -> Self {
        Self {
            ids: CommIds::decode(b),
            about: Answered::decode(b[8]),
            ari_len: b[9] >> 1,
            reason: be16(b, 10),
            ari: bytes(b, 12),
            private_data: bytes(b, 84),
        }
    }

    fn encode(&self, b: &mut [u8]) {
        self.ids.encode(b);
        self.about.encode(&mut b[8]);
        put_bits(&mut b[9], 0x7f, 1, self.ari_len);
        put(b, 10, self.reason.to_be_bytes());
        put(b, 12, self.ari);
        put(b, 84, self.private_data);
    }
}

impl Rep {
    /// The number of bytes of private data in a REP.
    pub const PRIVATE: usize = 196;

    fn decode(b: &[u8]) -> Self {
        Self {
            ids: CommIds::decode(b),
            q_key: be32(b, 8),
            qpn: be24(&b[12..]),
            starting_psn: Psn::new(be24(&b[20..])),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            ca_guid: u64::from_be_bytes(bytes(b, 28)),
            private_data: bytes(b, 36),
        }
    }

    fn encode(&self, b: &mut [u8]) {
        self.ids.encode(b);
        put(b, 8, self.q_key.to_be_bytes());
        put24(&mut b[12..], self.qpn);
        put24(&mut b[20..], self.starting_psn.value());
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        put_bits(&mut b[26], 0x1f, 3, self.target_ack_delay);
        put_bits(&mut b[26], 3, 1, self.failover);
        put_bits(&mut b[26], 1, 0, self.flow_control.into());
        put_bits(&mut b[27], 7, 5, self.rnr_retry);
        put_bits(&mut b[27], 1, 4, self.srq.into());
        put(b, 28, self.ca_guid.to_be_bytes());
        put(b, 36, self.private_data);
    }
}

impl Dreq {
    fn encode(&self, b: &mut [u8]) {
        self.ids.encode(b);
        put24(&mut b[8..], self.remote_qpn);
    }
}

/// The bits of a service ID in the TCP space (Linux: RDMA_PS_TCP), without the port.
const PS_TCP: u64 = 0x0106_0000;

/// Returns the service ID of the TCP-space port (RDMA_PS_TCP) `port`.
pub const fn service_id(port: u16) -> u64 {
    PS_TCP | port as u64
}

/// Returns the TCP-space port (RDMA_PS_TCP) of a service ID; `None` if the service ID does not contain such a port.
pub const fn service_port(service_id: u64) -> Option<u16> {
    if service_id & !0xffff == PS_TCP { Some(service_id as u16) } else { None }
}

/// The header that rdma_cm puts at the start of a REQ's private data (struct cma_hdr in cma.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmaHeader {
    /// The TCP-space port (RDMA_PS_TCP) of the active side.
    pub port: u16,
    /// The IP address of the active side.
    pub src: IpAddr,
    /// The IP address of the passive side.
    pub dst: IpAddr,
}

impl CmaHeader {
    /// The number of bytes of the header.
    pub const LEN: usize = 36;

    /// Decodes the header. Returns `None` if the header's version or the IP version is unknown.
    pub fn decode(b: &[u8; Self::LEN]) -> Option<Self> {
        let address = |at: usize| -> Option<IpAddr> {
            match b[1] >> 4 {
                4 => Some(Ipv4Addr::from(bytes(b, at + 12)).into()),
                6 => Some(Ipv6Addr::from(bytes(b, at)).into()),
                _ => None,
            }
        };
        let header = Self { port: be16(b, 2), src: address(4)?, dst: address(20)? };
        (b[0] == 0).then_some(header)
    }

    /// Encodes the header. `src` and `dst` must be of the same address family.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        put(&mut b, 2, self.port.to_be_bytes());
        for (at, address) in [(4, self.src), (20, self.dst)] {
            match address {
                IpAddr::V4(a) => put(&mut b, at + 12, a.octets()),
                IpAddr::V6(a) => put(&mut b, at, a.octets()),
            }
        }
        b[1] = if self.src.is_ipv4() { 0x40 } else { 0x60 };
        b
    }
}

/// Returns the GID of an address. The GID of an IPv4 address is its IPv4-mapped IPv6 address.
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// Returns a field of `N` bytes: `data`, followed by zeros. Returns `None` if `data` is longer than the field.
pub fn private_data<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut field = [0; N];
    field.get_mut(..data.len())?.copy_from_slice(data);
    Some(field)
}

/// Returns the CM's code for a path MTU of `bytes` bytes; `None` if `bytes` is not 256, 512, 1024, 2048 or 4096.
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    // The code 1 stands for 2^8 bytes, and each further code stands for twice as many bytes as the code before it.
    if matches!(bytes, 256 | 512 | 1024 | 2048 | 4096) { Some(bytes.ilog2() as u8 - 7) } else { None }
}

/// Returns the path MTU in bytes for a code of the CM; `None` if the code is unknown.
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    if matches!(code, 1..=5) { Some(128 << code) } else { None }
}
