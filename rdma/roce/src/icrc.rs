//! The invariant CRC at the end of every RoCEv2 packet (IBTA vol. 1, annex A17.5; rxe_icrc.c).
//!
//! The ICRC is zlib's CRC-32 over eight bytes of ones and the IP packet without the ICRC. The fields that routers may
//! change are set to ones: IPv4 TOS, TTL and header checksum; IPv6 traffic class, flow label and hop limit; the UDP
//! checksum; BTH byte 4. The ICRC is stored little-endian.
//!
//! The ICRC covers the IPv4 identification, which a UDP socket does not report. Because CRC is linear, the only 16-bit
//! identification that fits a packet can be computed, and the bits of the solution outside those 16 still check the
//! packet.

mod cache;
mod warm;

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::wire::{Bth, ICRC_LEN};

pub use cache::FlowCache;
pub use warm::WarmFlow;

/// The bytes of ones before the IP header, in place of the link header.
const LRH: usize = 8;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const V4_LEN: usize = LRH + IPV4 + UDP + Bth::LEN;
const V6_LEN: usize = LRH + IPV6 + UDP + Bth::LEN;
/// The offset of the IPv4 identification in the pseudo-header.
const V4_ID: usize = LRH + 4;

/// The UDP flow of a packet in the form that the ICRC covers, prepared once for many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The pseudo-header, in which lengths, identification and BTH are still zero.
    template: [u8; V6_LEN],
    v4: bool,
}

impl Flow {
    /// The flow of packets from `src` to `dst`; `None` if the two addresses are of different families.
    ///
    /// IPv4 headers are 20 bytes long, unfragmented, with DF set; IPv6 headers have no extension headers.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Option<Self> {
        let mut template = [0; V6_LEN];
        template[..LRH].fill(0xff);
        let ip = &mut template[LRH..];
        let v4 = match (src, dst) {
            (SocketAddr::V4(src), SocketAddr::V4(dst)) => {
                ip[..12].copy_from_slice(&[0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                ip[12..16].copy_from_slice(&src.ip().octets());
                ip[16..20].copy_from_slice(&dst.ip().octets());
                true
            }
            (SocketAddr::V6(src), SocketAddr::V6(dst)) => {
                ip[..8].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                ip[8..24].copy_from_slice(&src.ip().octets());
                ip[24..40].copy_from_slice(&dst.ip().octets());
                false
            }
            _ => return None,
        };
        let udp = &mut ip[if v4 { IPV4 } else { IPV6 }..];
        udp[..2].copy_from_slice(&src.port().to_be_bytes());
        udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
        udp[6..8].fill(0xff);
        Some(Self { template, v4 })
    }

    pub const fn is_ipv4(&self) -> bool {
        self.v4
    }

    /// The ICRC of the bytes before the BTH.
    fn before_bth(&self, ip_id: u16, datagram_len: usize) -> Hasher {
        // A datagram that is too long for any IP packet gets a wrong ICRC; no MTU is that large.
        let udp_len = (datagram_len + UDP) as u16;
        let mut pseudo = self.template;
        let headers = &mut pseudo[..self.len() - Bth::LEN];
        if self.v4 {
            headers[LRH + 2..LRH + 4].copy_from_slice(&udp_len.wrapping_add(IPV4 as u16).to_be_bytes());
            headers[V4_ID..V4_ID + 2].copy_from_slice(&ip_id.to_be_bytes());
        } else {
            headers[LRH + 4..LRH + 6].copy_from_slice(&udp_len.to_be_bytes());
        }
        let udp = headers.len() - UDP;
        headers[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        let mut hasher = Hasher::new();
        hasher.update(headers);
        hasher
    }

    /// The bytes of the pseudo-header, including the BTH.
    const fn len(&self) -> usize {
        if self.v4 { V4_LEN } else { V6_LEN }
    }
}

/// An ICRC being computed.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins the ICRC of a packet. `bth` is its first header, `datagram_len` the bytes of its UDP payload, including
    /// the ICRC; `ip_id` is ignored for IPv6.
    pub fn begin(flow: &Flow, ip_id: u16, datagram_len: usize, bth: &[u8; Bth::LEN]) -> Self {
        let mut hasher = flow.before_bth(ip_id, datagram_len);
        hasher.update(&warm::masked(bth));
        Self(hasher)
    }

    /// Adds the bytes behind the BTH: extended headers, payload, pad.
    pub fn update(&mut self, bytes: &[u8]) {
        // Most packets have no extended header and no pad.
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    /// Adds bytes that `fold` reads. `fold` gets the CRC register and returns 128 bytes in place of the bytes that it
    /// read: the register 0, updated with these 128 bytes, must have the same value as the given register updated with
    /// the bytes that were read. If `fold` returns `None`, nothing is added and the result is false.
    pub fn update_folded(&mut self, fold: impl FnOnce(u32) -> Option<[u8; 128]>) -> bool {
        // The hasher stores the register inverted.
        let Some(folded) = fold(!self.0.clone().finalize()) else { return false };
        self.0 = Hasher::new_with_initial(!0);
        self.0.update(&folded);
        true
    }

    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// Computes the ICRC of a packet that is to be sent with the IP identification `ip_id`.
///
/// `header` is the BTH and all further headers; `rest` is the payload in pieces, and the pad.
///
/// # Panics
/// If `header` is shorter than a BTH.
pub fn compute<'a>(
    flow: &Flow,
    ip_id: u16,
    header: &[u8],
    rest: impl Iterator<Item = &'a [u8]> + Clone,
) -> [u8; ICRC_LEN] {
    let (bth, extended) = header.split_first_chunk().expect("every packet begins with a BTH");
    let len = header.len() + rest.clone().map(<[u8]>::len).sum::<usize>() + ICRC_LEN;
    let mut icrc = Icrc::begin(flow, ip_id, len, bth);
    icrc.update(extended);
    rest.for_each(|piece| icrc.update(piece));
    icrc.finish()
}

/// The IPv4 identifications that a received packet may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// The identification is known. 31 bits check the packet, because DF may be clear.
    Exact(u16),
    /// The sender numbers the segments of one super-packet from 0. 25 bits check the packet.
    Below128,
    /// Any identification is possible. 16 bits check the packet, which still find every single-bit error.
    Any,
}

/// The result for a packet whose ICRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The identification that fits the packet; `None` for IPv6.
    pub ip_id: Option<u16>,
}

/// The reason why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("{0} bytes are no RoCEv2 datagram")]
    Length(usize),
    #[error("the ICRC is wrong")]
    Icrc,
    #[error("the ICRC is right only for the IP identification {0}, which this sender does not use")]
    IpId(u16),
}

/// Checks received packets and computes their hidden identifications, without allocating.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    /// The powers x^(-8n), where n is the number of covered bytes from the identification on; a direct-mapped cache by
    /// n, which is never 0.
    factors: [(u32, u32); 16],
}

impl Solver {
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks `datagram`, a UDP payload that was received on `flow` (its source is the sender).
    ///
    /// `hint` is the likely identification: the segment's index in a merged message, else 0. A right hint saves the
    /// computation; a wrong one has no effect on the result. IPv6 packets are always checked in full.
    pub fn verify(
        &mut self,
        flow: &Flow,
        datagram: &[u8],
        rule: IdRule,
        hint: u16,
    ) -> Result<Checked, Mismatch> {
        self.verify_warm(&mut WarmFlow::new(*flow), datagram, rule, hint)
    }

    /// Does the same as `verify`, with a flow that is kept from packet to packet.
    pub fn verify_warm(
        &mut self,
        warm: &mut WarmFlow,
        datagram: &[u8],
        rule: IdRule,
        hint: u16,
    ) -> Result<Checked, Mismatch> {
        let length = Mismatch::Length(datagram.len());
        if datagram.len() > usize::from(u16::MAX) - UDP - IPV4 {
            return Err(length);
        }
        let (body, received) = datagram.split_last_chunk::<ICRC_LEN>().ok_or(length)?;
        let (bth, rest) = body.split_first_chunk::<{ Bth::LEN }>().ok_or(length)?;
        let guess = if let IdRule::Exact(id) = rule { id } else { hint };
        let mut icrc = warm.begin(guess, datagram.len(), bth);
        icrc.update(rest);
        let delta = u32::from_le_bytes(icrc.finish()) ^ u32::from_le_bytes(*received);
        let flow = warm.flow();
        if !flow.v4 {
            return if delta == 0 { Ok(Checked { ip_id: None }) } else { Err(Mismatch::Icrc) };
        }
        let covered = flow.len() - V4_ID + rest.len();
        let id = if delta == 0 { guess } else { self.solve(delta, covered, guess, rule)? };
        match rule {
            IdRule::Exact(want) if id != want => Err(Mismatch::IpId(id)),
            IdRule::Below128 if id >= 128 => Err(Mismatch::IpId(id)),
            _ => Ok(Checked { ip_id: Some(id) }),
        }
    }

    /// Computes the identification that makes the ICRC difference `delta` zero; `delta` was computed with `guess`.
    fn solve(&mut self, delta: u32, covered: usize, guess: u16, rule: IdRule) -> Result<u16, Mismatch> {
        // Multiplying undoes `covered` bytes of the CRC. The result is the difference of the first four of these bytes,
        // the identification and the fragment word, with the first byte lowest.
        let difference = multiply(delta, self.retreat(covered as u32)).to_le_bytes();
        let id = guess ^ u16::from_be_bytes([difference[0], difference[1]]);
        // RoCEv2 senders set DF, and so does the template. If a clear DF were accepted here, two single-bit errors
        // would pass (1579 and 14870 bits behind the identification), so it is accepted only if the identification is
        // known.
        match (rule, [difference[2], difference[3]]) {
            (_, [0, 0]) | (IdRule::Exact(_), [0x40, 0]) => Ok(id),
            _ => Err(Mismatch::Icrc),
        }
    }

    fn retreat(&mut self, bytes: u32) -> u32 {
        // The division is exact, because packets are padded to four bytes.
        let slots = self.factors.len();
        let slot = &mut self.factors[bytes as usize / 4 % slots];
        if slot.0 != bytes {
            *slot = (bytes, retreat_by(bytes));
        }
        slot.1
    }
}

/// The CRC-32 polynomial, reflected: bit 31 stands for x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// The product of two polynomials over GF(2), modulo the CRC polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        product ^= b & ((a << bit) as i32 >> 31) as u32;
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
        bit += 1;
    }
    product
}

/// The powers x^(-8 * 2^k).
const INVERSES: [u32; 17] = {
    let mut inverse = ONE;
    let mut bit = 0;
    while bit < 8 {
        // This division by x undoes `b >> 1 ^ POLYNOMIAL & -(b & 1)`.
        inverse = if inverse & ONE == 0 { inverse << 1 } else { (inverse ^ POLYNOMIAL) << 1 | 1 };
        bit += 1;
    }
    let mut table = [inverse; 17];
    let mut k = 1;
    while k < table.len() {
        table[k] = multiply(table[k - 1], table[k - 1]);
        k += 1;
    }
    table
};

/// The power x^(-8 * bytes), for up to 2^17 - 1 bytes.
fn retreat_by(bytes: u32) -> u32 {
    let used = INVERSES.iter().enumerate().filter(|(k, _)| bytes >> k & 1 == 1);
    used.fold(ONE, |product, (_, factor)| multiply(product, *factor))
}

/// Corrects the ICRC of a `datagram_len`-byte IPv4 datagram for another IP identification.
///
/// CRC is linear: the difference depends only on the two identifications and on the length.
pub fn renumber(icrc: &mut [u8; ICRC_LEN], datagram_len: usize, from: u16, to: u16) {
    let after_id = V4_LEN - V4_ID - 2 - Bth::LEN + datagram_len.saturating_sub(ICRC_LEN);
    let with = |id: u16| {
        let mut hasher = Hasher::new();
        hasher.update(&id.to_be_bytes());
        let zeros = [0; 512];
        let mut left = after_id;
        while left > 0 {
            let n = left.min(zeros.len());
            hasher.update(&zeros[..n]);
            left -= n;
        }
        hasher.finalize()
    };
    let corrected = u32::from_le_bytes(*icrc) ^ with(from) ^ with(to);
    *icrc = corrected.to_le_bytes();
}

#[cfg(test)]
mod tests;
