//! The invariant CRC at the end of every RoCEv2 packet (IBTA vol. 1, annex A17.5; rxe_icrc.c).
//!
//! The ICRC is a CRC-32 as zlib computes it. The ICRC first covers eight bytes 0xff, and then the IP packet from the IP
//! header to the last byte before the ICRC. Each field that routers may change is replaced by ones before the ICRC is
//! computed. In IPv4, routers may change TOS, TTL and header checksum. In IPv6, routers may change traffic class, flow
//! label and hop limit. In IPv4 and in IPv6, the UDP checksum and byte 4 of the BTH are replaced by ones before the
//! ICRC is computed. The ICRC is stored little-endian.
//!
//! The ICRC covers the IPv4 identification, which a UDP socket does not report to the receiver. CRC is linear, so the
//! receiver can compute four bytes of the IPv4 header from the received ICRC. These bytes are the identification and
//! the fragment word, which consists of the flags and the fragment offset. The receiver refuses the packet if the
//! computed fragment word is not that of an unfragmented packet with a set DF bit. Only the rule [`IdRule::Exact`] also
//! permits a clear DF bit.

mod cache;

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::wire::{Bth, ICRC_LEN};

pub use cache::{FlowCache, WarmFlow};

/// The number of bytes 0xff that the ICRC covers in place of an InfiniBand link header (LRH).
const LRH: usize = 8;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const V4_LEN: usize = LRH + IPV4 + UDP + Bth::LEN;
const V6_LEN: usize = LRH + IPV6 + UDP + Bth::LEN;
/// The offset of the IPv4 identification in the pseudo-header.
const V4_ID: usize = LRH + 4;

/// The headers that all packets from one address and UDP port to another have in common, in the form that the
/// ICRC covers. A `Flow` is made once for many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The pseudo-header that the ICRC covers; its lengths, its identification and its BTH are still zero.
    template: [u8; V6_LEN],
    v4: bool,
}

impl Flow {
    /// Makes the `Flow` that describes packets from `src` to `dst`. Returns `None` if one address is IPv4 and the other
    /// address is IPv6.
    ///
    /// The flow's IPv4 header has 20 bytes and a set DF bit, and says that the packet is not a fragment. The flow's
    /// IPv6 header has no extension headers.
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

    /// Returns true if the addresses of the flow are IPv4 addresses.
    pub const fn is_ipv4(&self) -> bool {
        self.v4
    }

    /// Computes the intermediate value of the ICRC that covers only the bytes before the BTH.
    fn before_bth(&self, ip_id: u16, datagram_len: usize) -> Hasher {
        // The cast truncates only lengths of more than 65535 bytes, which no MTU allows.
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

    /// The number of bytes of the pseudo-header, including the BTH.
    const fn len(&self) -> usize {
        if self.v4 { V4_LEN } else { V6_LEN }
    }
}

/// The state of an ICRC computation.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins the ICRC of a packet whose first header is `bth`. `datagram_len` is the number of bytes of the UDP
    /// payload, including the ICRC. `ip_id` is ignored for IPv6.
    pub fn begin(flow: &Flow, ip_id: u16, datagram_len: usize, bth: &[u8; Bth::LEN]) -> Self {
        let mut hasher = flow.before_bth(ip_id, datagram_len);
        hasher.update(&cache::masked(bth));
        Self(hasher)
    }

    /// Adds bytes that follow the BTH: extended headers, payload or pad.
    pub fn update(&mut self, bytes: &[u8]) {
        // Most packets have no extended headers and no pad, so `bytes` is often empty.
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    /// Adds payload bytes to the ICRC. This method does not get the payload bytes: the closure `fold` reads them and
    /// reduces them to 128 bytes. The argument of `fold` is the current CRC register. The ICRC is computed from the 128
    /// bytes instead of the bytes that `fold` read. `fold` must choose the 128 bytes so that two CRCs are equal. One is
    /// the CRC of the 128 bytes with the initial register value 0. The other is the CRC of the bytes that `fold` read,
    /// with the current register value as the initial value. Returns false and adds nothing if `fold` returns `None`.
    pub fn update_folded(&mut self, fold: impl FnOnce(u32) -> Option<[u8; 128]>) -> bool {
        // The functions of `Hasher` return and take the CRC register with all bits inverted, so the values are inverted
        // here (`!`).
        let Some(folded) = fold(!self.0.clone().finalize()) else { return false };
        self.0 = Hasher::new_with_initial(!0);
        self.0.update(&folded);
        true
    }

    /// Returns the ICRC in the byte order of the packet.
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// Computes the ICRC of a packet that is to be sent with the IP identification `ip_id`.
///
/// `header` contains the BTH and all further headers. `rest` yields the pieces of the payload, and after the payload
/// the pad bytes.
///
/// # Panics
/// Panics if `header` is shorter than a BTH.
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

/// The rule that says which IPv4 identifications a received packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// The packet must have this IPv4 identification. With the rule `Exact`, two of the 2^32 values of the ICRC are
    /// accepted: one for a set DF bit and one for a clear DF bit. The ICRC therefore checks the packet like a checksum
    /// of 31 bits.
    Exact(u16),
    /// The packet must have an IPv4 identification below 128. A sender that numbers the datagrams of each super-packet
    /// from 0 uses only identifications below 128, because a super-packet has at most 128 datagrams. The receiver
    /// accepts the ICRC of each of these identifications: 2^7 of the 2^32 values of the ICRC. The ICRC therefore checks
    /// the packet like a checksum of 25 bits.
    Below128,
    /// The packet may have any IPv4 identification. The receiver accepts the ICRC of each of the 2^16 identifications:
    /// 2^16 of the 2^32 values of the ICRC. The ICRC therefore checks the packet only like a checksum of 16 bits. With
    /// the rule `Any`, the ICRC still detects every single-bit error.
    Any,
}

/// What the solver found out about a packet whose ICRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The identification with which the ICRC is right; `None` for IPv6.
    pub ip_id: Option<u16>,
}

/// The reason why a [`Solver`] refuses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The datagram is shorter than BTH and ICRC, or longer than a UDP payload can be. The value is the datagram's
    /// length in bytes.
    #[error("{0} bytes are no RoCEv2 datagram")]
    Length(usize),
    /// The ICRC is wrong. In IPv4, the receiver does not know the identification of the IPv4 header, and no value of it
    /// makes the ICRC right.
    #[error("the ICRC is wrong")]
    Icrc,
    /// The ICRC is right only if the packet was sent with this IPv4 identification, but the [`IdRule`] does not permit
    /// this identification.
    #[error("the ICRC is right only for the IP identification {0}, which this sender does not use")]
    IpId(u16),
}

/// Checks the ICRC of received packets, without allocating memory. The ICRC depends on the IPv4 identification, which a
/// UDP socket does not show to the receiver. So the solver computes the IPv4 identification with which the ICRC of a
/// packet is right.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    /// A direct-mapped cache of results of the function `retreat_by`, which computes a power of x. An entry is an
    /// argument of `retreat_by` and the result for this argument. An empty entry has 0 in place of the argument of
    /// `retreat_by`.
    factors: [(u32, u32); 16],
}

impl Solver {
    /// Makes a solver with an empty cache of intermediate results.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the ICRC of `datagram`, a UDP payload that the source address of `flow` sent to the destination address.
    ///
    /// `hint` is the likely IPv4 identification. A sender numbers the datagrams of a super-packet from 0 in the
    /// identification, so the index of the datagram in the received super-packet is a good `hint`. If `hint` is the
    /// identification, the solver need not compute the identification. A wrong `hint` costs time, but does not change
    /// the result. An IPv6 packet has no identification, so all 32 bits of its ICRC serve to detect errors.
    ///
    /// # Errors
    /// Fails with [`Mismatch::Length`] if the datagram has no room for BTH and ICRC, or is longer than a UDP payload
    /// can be. Fails with another [`Mismatch`] if the ICRC is wrong with every identification that `rule` permits.
    pub fn verify(
        &mut self,
        flow: &Flow,
        datagram: &[u8],
        rule: IdRule,
        hint: u16,
    ) -> Result<Checked, Mismatch> {
        self.verify_warm(&mut WarmFlow::new(*flow), datagram, rule, hint)
    }

    /// Checks `datagram` as [`Self::verify`] does. The caller keeps `warm` for later packets with the same
    /// addresses and UDP ports, because `warm` has a cache that saves time.
    ///
    /// # Errors
    /// Fails with the same errors as [`Self::verify`].
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

    /// Computes the IPv4 identification with which the packet must have been sent if its ICRC is right. `delta` is the
    /// XOR of the received ICRC and the ICRC that was computed with the identification `guess`.
    fn solve(&mut self, delta: u32, covered: usize, guess: u16, rule: IdRule) -> Result<u16, Mismatch> {
        // `covered` is the number of bytes that the ICRC covers from the identification to the end of the packet.
        // `retreat` returns the inverse of x^(8 * covered), so the multiplication divides `delta` by x^(8 * covered).
        // The ICRC changes by `delta` if `difference` is XORed into four bytes of the IPv4 header. The first two bytes
        // of `difference` belong to the identification, and the last two bytes belong to the fragment word (flags and
        // fragment offset).
        let difference = multiply(delta, self.retreat(covered as u32)).to_le_bytes();
        let id = guess ^ u16::from_be_bytes([difference[0], difference[1]]);
        // RoCEv2 senders set the DF bit of the IPv4 header, so this side computed the ICRC with a set DF bit. If
        // `difference[2]` is 0x40, the packet has a clear DF bit. A packet with a clear DF bit is accepted with the
        // rule `Exact`, and refused with the other rules. The rule `Any` accepts no clear DF bit, because the ICRC
        // would then not detect an error in bit 1579 or in bit 14870 (bit 0 is the first bit of the identification).
        // Such an error changes the ICRC in the same way as a clear DF bit together with another identification.
        match (rule, [difference[2], difference[3]]) {
            (_, [0, 0]) | (IdRule::Exact(_), [0x40, 0]) => Ok(id),
            _ => Err(Mismatch::Icrc),
        }
    }

    fn retreat(&mut self, bytes: u32) -> u32 {
        // The argument `bytes` of `retreat` is a multiple of 4 for every valid packet, because the payload is padded.
        // The index in `factors` is `bytes / 4 % slots`, because the index `bytes % slots` would use only every fourth
        // entry.
        let slots = self.factors.len();
        let slot = &mut self.factors[bytes as usize / 4 % slots];
        if slot.0 != bytes {
            *slot = (bytes, retreat_by(bytes));
        }
        slot.1
    }
}

/// The CRC-32 polynomial with reflected bits: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Returns the product of two polynomials over GF(2), modulo the CRC polynomial.
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

/// The entry with the index k is x^(-8 * 2^k) modulo the CRC polynomial. A multiplication by this entry undoes the
/// effect of 2^k zero bytes on the CRC register.
const INVERSES: [u32; 17] = {
    let mut inverse = ONE;
    let mut bit = 0;
    while bit < 8 {
        // This line divides `inverse` by x modulo the CRC polynomial.
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

/// Returns the power x^(-8 * bytes) modulo the CRC polynomial, where `bytes` is at most 2^17 - 1.
fn retreat_by(bytes: u32) -> u32 {
    let used = INVERSES.iter().enumerate().filter(|(k, _)| bytes >> k & 1 == 1);
    used.fold(ONE, |product, (_, factor)| multiply(product, *factor))
}

/// Corrects the ICRC of a packet whose IPv4 identification changes from `from` to `to`. `datagram_len` is the number of
/// bytes of the UDP payload, including the ICRC.
///
/// CRC is linear, so the difference between the old and the new ICRC depends only on `from`, `to` and `datagram_len`.
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
