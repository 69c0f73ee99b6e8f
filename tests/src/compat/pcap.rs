//! Recordings as pcap files: UDP over IPv4 over Ethernet, so that tcpdump and tshark show them.

use std::net::{Ipv4Addr, SocketAddrV4};

const MAGIC: [u8; 4] = [0xd4, 0xc3, 0xb2, 0xa1];
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

/// A UDP datagram of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) micros: u64,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) payload: Vec<u8>,
}

pub(super) fn write(datagrams: &[Datagram]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    // Version 2.4, UTC, 65535 bytes of a frame, Ethernet.
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for datagram in datagrams {
        let frame = frame(datagram);
        let len = (frame.len() as u32).to_le_bytes();
        file.extend(((datagram.micros / 1_000_000) as u32).to_le_bytes());
        file.extend(((datagram.micros % 1_000_000) as u32).to_le_bytes());
        file.extend([len, len].concat());
        file.extend(frame);
    }
    file
}

fn frame(datagram: &Datagram) -> Vec<u8> {
    let udp = (UDP + datagram.payload.len()) as u16;
    let mac = |address: &Ipv4Addr| [2, 0, 0, 0, 0, address.octets()[3]];
    let mut ip = vec![0x45, 0];
    ip.extend((udp + IPV4 as u16).to_be_bytes());
    // Identification 0, DF, 64 hops, UDP.
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(datagram.from.ip().octets());
    ip.extend(datagram.to.ip().octets());
    let words = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = [mac(datagram.to.ip()), mac(datagram.from.ip())].concat();
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend(datagram.from.port().to_be_bytes());
    frame.extend(datagram.to.port().to_be_bytes());
    frame.extend(udp.to_be_bytes());
    // No checksum.
    frame.extend([0, 0]);
    frame.extend(&datagram.payload);
    frame
}

/// All datagrams of a file that [`write`] made, or tcpdump on a little-endian machine.
pub(super) fn read(file: &[u8]) -> Result<Vec<Datagram>, String> {
    if file.get(..4) != Some(&MAGIC) || file.len() < FILE_HEADER {
        return Err("it is no little-endian pcap file with microseconds".into());
    }
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mut rest = &file[FILE_HEADER..];
    let mut datagrams = Vec::new();
    while let Some((header, tail)) = rest.split_at_checked(RECORD_HEADER) {
        let micros = u64::from(word(header, 0)) * 1_000_000 + u64::from(word(header, 4));
        let (frame, tail) = tail.split_at_checked(word(header, 8) as usize).ok_or("it ends in a frame")?;
        rest = tail;
        datagrams.push(parse(frame, micros).ok_or("a frame of it is no UDP over IPv4 over Ethernet")?);
    }
    Ok(datagrams)
}

fn parse(frame: &[u8], micros: u64) -> Option<Datagram> {
    let ip = frame.get(ETHERNET..)?;
    let udp = ip.get(IPV4..)?;
    if frame[12..14] != [8, 0] || ip[0] != 0x45 || ip[9] != 17 || udp.len() < UDP {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let address = |at: usize| Ipv4Addr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let payload = udp.get(UDP..port(4).into())?.to_vec();
    Some(Datagram {
        micros,
        from: SocketAddrV4::new(address(12), port(0)),
        to: SocketAddrV4::new(address(16), port(2)),
        payload,
    })
}
