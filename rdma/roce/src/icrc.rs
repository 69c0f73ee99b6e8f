//! The invariant CRC that ends every RoCEv2 packet (IBTA vol. 1, annex A17.5; rxe_icrc.c).
//!
//! It is zlib's CRC-32 over eight bytes of ones and the IP packet without the ICRC, with the fields that routers
//! may change set to ones: IPv4 TOS, TTL and header checksum; IPv6 traffic class, flow label and hop limit; the UDP
//! checksum; BTH byte 4. It is stored little-endian.
//!
//! A UDP socket hides the IPv4 identification, which is covered. CRC is linear: the one 16-bit identification that
//! explains a packet can be solved for, and the bits of the solution outside those 16 still check the packet.

mod cache;
mod warm;

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::wire::{Bth, ICRC_LEN};

pub use cache::FlowCache;
pub use warm::WarmFlow;

/// Ones in front of the IP header, in place of the link header.
const LRH: usize = 8;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const V4_LEN: usize = LRH + IPV4 + UDP + Bth::LEN;
const V6_LEN: usize = LRH + IPV6 + UDP + Bth::LEN;
/// Where the IPv4 identification lies in the pseudo-header.
const V4_ID: usize = LRH + 4;

/// The UDP flow of a packet as the ICRC covers it, prepared once for many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Pseudo-header with lengths, identification and BTH still zero.
    template: [u8; V6_LEN],
    v4: bool,
}

impl Flow {
    /// The flow of packets from `src` to `dst`; `None` when the two are of different families.
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

    /// The ICRC up to the BTH.
    fn before_bth(&self, ip_id: u16, datagram_len: usize) -> Hasher {
        // A datagram that no IP packet could carry gets a wrong ICRC; no MTU comes near.
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

    /// Bytes of the pseudo-header, BTH included.
    const fn len(&self) -> usize {
        if self.v4 { V4_LEN } else { V6_LEN }
    }
}

/// An ICRC being computed.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins a packet. `bth` is its first header, `datagram_len` the bytes of its UDP payload, ICRC included;
    /// `ip_id` is ignored on IPv6.
    pub fn begin(flow: &Flow, ip_id: u16, datagram_len: usize, bth: &[u8; Bth::LEN]) -> Self {
        let mut hasher = flow.before_bth(ip_id, datagram_len);
        hasher.update(&warm::masked(bth));
        Self(hasher)
    }

    /// Adds what follows the BTH: extended headers, payload, pad.
    pub fn update(&mut self, bytes: &[u8]) {
        // Most packets have no extended header and no pad.
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    /// Adds bytes that `fold` reads. It gets the register of the CRC, and returns 128 bytes in their place: a CRC that
    /// starts with the register 0 and takes in these 128 bytes must end as one that starts with the given register and
    /// takes in the bytes. Adds nothing, and returns false, if `fold` returns `None`.
    pub fn update_folded(&mut self, fold: impl FnOnce(u32) -> Option<[u8; 128]>) -> bool {
        // A hasher keeps the register inverted.
        let Some(folded) = fold(!self.0.clone().finalize()) else { return false };
        self.0 = Hasher::new_with_initial(!0);
        self.0.update(&folded);
        true
    }

    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// The ICRC of a packet to be sent with the IP identification `ip_id`.
///
/// `header` is the BTH and all further headers; `rest` the payload in pieces and the pad.
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

/// Which IPv4 identifications a received packet may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// The identification is known: 31 bits check, for DF may be clear.
    Exact(u16),
    /// The sender numbers the segments of one super-packet from 0: 25 bits check.
    Below128,
    /// Any identification: 16 bits check, and every single-bit error is still found.
    Any,
}

/// A packet whose ICRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The identification that explains the packet; `None` on IPv6.
    pub ip_id: Option<u16>,
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("{0} bytes are no RoCEv2 datagram")]
    Length(usize),
    #[error("the ICRC is wrong")]
    Icrc,
    #[error("the ICRC is right only for the IP identification {0}, which this sender does not use")]
    IpId(u16),
}

/// Checks received packets and solves for their hidden identifications. Does not allocate.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    /// x^(-8n) by the number n of covered bytes from the identification on, direct-mapped; n is never 0.
    factors: [(u32, u32); 16],
}

impl Solver {
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks `datagram`, a UDP payload received on `flow` (source: the sender).
    ///
    /// `hint` is the likely identification: the segment's index in a coalesced buffer, else 0. A right guess saves
    /// the solving; a wrong one does no harm. IPv6 is always checked in full.
    pub fn verify(
        &mut self,
        flow: &Flow,
        datagram: &[u8],
        rule: IdRule,
        hint: u16,
    ) -> Result<Checked, Mismatch> {
        self.verify_warm(&mut WarmFlow::new(*flow), datagram, rule, hint)
    }

    /// The same on a flow that is kept from packet to packet.
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

    /// The identification that turns the ICRC difference `delta`, computed with `guess`, to zero.
    fn solve(&mut self, delta: u32, covered: usize, guess: u16, rule: IdRule) -> Result<u16, Mismatch> {
        // Undoes `covered` bytes of the CRC: what remains is the difference of the first four of them, the
        // identification and the fragment word, first byte lowest.
        let difference = multiply(delta, self.retreat(covered as u32)).to_le_bytes();
        let id = guess ^ u16::from_be_bytes([difference[0], difference[1]]);
        // RoCEv2 senders set DF, and so does the template. To solve for a clear DF as well would let two single-bit
        // errors pass (1579 and 14870 bits behind the identification), so it is taken only with a known one.
        match (rule, [difference[2], difference[3]]) {
            (_, [0, 0]) | (IdRule::Exact(_), [0x40, 0]) => Ok(id),
            _ => Err(Mismatch::Icrc),
        }
    }

    fn retreat(&mut self, bytes: u32) -> u32 {
        // Packets are padded to four bytes.
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

/// The product of two polynomials over GF(2), modulo the CRC's.
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

/// x^(-8 * 2^k).
const INVERSES: [u32; 17] = {
    let mut inverse = ONE;
    let mut bit = 0;
    while bit < 8 {
        // Divides by x: undoes `b >> 1 ^ POLYNOMIAL & -(b & 1)`.
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

/// x^(-8 * bytes), for up to 2^17 - 1 bytes.
fn retreat_by(bytes: u32) -> u32 {
    let used = INVERSES.iter().enumerate().filter(|(k, _)| bytes >> k & 1 == 1);
    used.fold(ONE, |product, (_, factor)| multiply(product, *factor))
}

/// Corrects the ICRC of a `datagram_len`-byte IPv4 datagram for another IP identification.
///
/// CRC is linear: the difference depends on the two identifications and on the length alone.
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
