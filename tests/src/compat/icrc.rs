//! The invariant CRC of RoCEv2 over IPv4 (IBTA vol. 1, annex A17), apart from the one that is under test.

use std::net::SocketAddrV4;

use super::fields::ICRC;

/// IP identifications that segments of a super-packet may have.
const MOST_SEGMENTS: u16 = 128;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

const TABLE: [u32; 256] = table();

fn crc32(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// The ICRC of a packet that is `body` without it: an IP header of 20 bytes with DF and this identification.
fn of(from: SocketAddrV4, to: SocketAddrV4, id: u16, body: &[u8]) -> [u8; ICRC] {
    let udp = (8 + body.len() + ICRC) as u16;
    let mut head = vec![0xff; 8];
    head.extend([0x45, 0xff]);
    head.extend((udp + 20).to_be_bytes());
    head.extend(id.to_be_bytes());
    head.extend([0x40, 0, 0xff, 17, 0xff, 0xff]);
    head.extend(from.ip().octets());
    head.extend(to.ip().octets());
    head.extend(from.port().to_be_bytes());
    head.extend(to.port().to_be_bytes());
    head.extend(udp.to_be_bytes());
    head.extend([0xff, 0xff]);
    let mut masked = body.to_vec();
    // FECN, BECN and reserved bits of the base transport header.
    if let Some(byte) = masked.get_mut(4) {
        *byte = 0xff;
    }
    (!crc32(crc32(u32::MAX, &head), &masked)).to_le_bytes()
}

/// The body with its ICRC, for a socket that sends with identification 0.
pub(super) fn seal(from: SocketAddrV4, to: SocketAddrV4, body: &[u8]) -> Vec<u8> {
    let icrc = of(from, to, 0, body);
    [body, &icrc].concat()
}

/// The body of a packet whose ICRC is right for one of the identifications that segments have.
pub(super) fn open(from: SocketAddrV4, to: SocketAddrV4, packet: &[u8]) -> Option<&[u8]> {
    let (body, icrc) = packet.split_last_chunk::<ICRC>()?;
    (0..MOST_SEGMENTS).any(|id| of(from, to, id, body) == *icrc).then_some(body)
}
