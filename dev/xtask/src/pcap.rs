//! Classic pcap files, and the UDP datagrams of their Ethernet frames. Written for `check-icrc`, from the formats'
//! definitions (pcap-savefile(5), IEEE 802.3 and 802.1Q, RFC 791, RFC 8200, RFC 768).

use anyhow::{Result, bail, ensure};

const LINKTYPE_ETHERNET: u32 = 1;
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const UDP: u8 = 17;

/// The frames of a capture, in order.
#[derive(Debug)]
pub(crate) struct Capture<'a> {
    rest: &'a [u8],
    big_endian: bool,
}

#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes on the wire that the capture left out.
    pub(crate) missing: usize,
}

impl<'a> Capture<'a> {
    pub(crate) fn open(file: &'a [u8]) -> Result<Self> {
        let Some((header, rest)) = file.split_at_checked(24) else { bail!("shorter than a pcap header") };
        let big_endian = match [header[0], header[1], header[2], header[3]] {
            // Microseconds, nanoseconds.
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
            [0x0a, 0x0d, 0x0d, 0x0a] => bail!("pcapng; convert it: tcpdump -r FILE -w NEW"),
            _ => bail!("not a pcap file"),
        };
        let capture = Self { rest, big_endian };
        // The upper bits carry the length of a frame check sequence.
        let link = capture.number(&header[20..]) & 0x0fff_ffff;
        ensure!(
            link == LINKTYPE_ETHERNET,
            "link type {link}, not Ethernet; capture on one device, not on `any`"
        );
        Ok(capture)
    }

    fn number(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

impl<'a> Iterator for Capture<'a> {
    type Item = Frame<'a>;

    /// A record cut off at the end of the file ends the capture: the writer was stopped.
    fn next(&mut self) -> Option<Frame<'a>> {
        let (header, rest) = self.rest.split_at_checked(16)?;
        let captured = self.number(&header[8..]) as usize;
        let missing = (self.number(&header[12..]) as usize).saturating_sub(captured);
        let (bytes, rest) = rest.split_at_checked(captured)?;
        self.rest = rest;
        Some(Frame { bytes, missing })
    }
}

/// A capture of these frames, each captured at time 0.
pub(crate) fn file(frames: &[Vec<u8>]) -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: u32 = 2 | 4 << 16;
    const LONGEST: u32 = 262_144;
    let mut file = [MAGIC, VERSION, 0, 0, LONGEST, LINKTYPE_ETHERNET].map(u32::to_le_bytes).concat();
    for frame in frames {
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

/// An IP packet with UDP in it: `ip` are its header bytes, `udp` the UDP header and payload, without padding of
/// the link.
#[derive(Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) ip: &'a [u8],
    pub(crate) udp: &'a [u8],
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// The whole UDP datagram of an Ethernet frame; `None` for everything else, fragments among it.
pub(crate) fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let mut at = 12;
    while VLAN_TAGS.contains(&be16(frame, at)?) {
        at += 4;
    }
    let packet = frame.get(at + 2..)?;
    match be16(frame, at)? {
        0x0800 => ipv4(packet),
        0x86dd => ipv6(packet),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<Datagram<'_>> {
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let fragment = be16(packet, 6)? & 0x3fff != 0;
    if first >> 4 != 4 || header < 20 || fragment || *packet.get(9)? != UDP {
        return None;
    }
    let packet = packet.get(..usize::from(be16(packet, 2)?))?;
    let (ip, udp) = packet.split_at_checked(header)?;
    cut(ip, udp)
}

fn ipv6(packet: &[u8]) -> Option<Datagram<'_>> {
    if packet.first()? >> 4 != 6 || *packet.get(6)? != UDP {
        return None;
    }
    let (ip, rest) = packet.split_at_checked(40)?;
    cut(ip, rest.get(..usize::from(be16(packet, 4)?))?)
}

fn cut<'a>(ip: &'a [u8], udp: &'a [u8]) -> Option<Datagram<'a>> {
    let udp = udp.get(..usize::from(be16(udp, 4)?))?;
    (udp.len() >= 8).then_some(Datagram { ip, udp })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn file(big_endian: bool, frames: &[&[u8]]) -> Vec<u8> {
        let number = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        // 2.4.
        let version = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        let mut file =
            [number(0xa1b2_c3d4), version, [0; 4], [0; 4], number(65535), number(LINKTYPE_ETHERNET)].concat();
        for frame in frames {
            let len = number(frame.len() as u32);
            file.extend([[0; 4], [0; 4], len, len].concat());
            file.extend_from_slice(frame);
        }
        file
    }

    /// An Ethernet frame with a UDP datagram over IPv4, and two bytes of link padding.
    pub(crate) fn frame(tag: &[u8], payload: &[u8]) -> Vec<u8> {
        let udp_len = (payload.len() + 8) as u16;
        let mut frame = [[0_u8; 12].as_slice(), tag, &[8, 0, 0x45, 0]].concat();
        frame.extend((udp_len + 20).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        frame.extend([0xc0, 0, 0x12, 0xb7]);
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend_from_slice(payload);
        frame.extend([0xee, 0xee]);
        frame
    }

    #[test]
    fn both_byte_orders_are_read() {
        for big_endian in [true, false] {
            let file = file(big_endian, &[b"abc", b"de"]);
            let frames: Vec<_> = Capture::open(&file).expect("a pcap file").map(|f| f.bytes).collect();
            assert_eq!(frames, [b"abc".as_slice(), b"de"]);
            // The writer was stopped in the middle of a record.
            assert_eq!(Capture::open(&file[..file.len() - 1]).expect("a pcap file").count(), 1);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let mut other_link = file(true, &[]);
        other_link[23] = 113;
        for bytes in [&b"short"[..], &[0; 24], &[0x0a, 0x0d, 0x0d, 0x0a].repeat(6), &other_link] {
            assert!(Capture::open(bytes).is_err());
        }
    }

    #[test]
    fn a_datagram_ends_before_the_padding() {
        for tag in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
            let frame = frame(tag, b"hello");
            let datagram = datagram(&frame).expect("UDP");
            assert_eq!((datagram.ip.len(), &datagram.udp[8..]), (20, b"hello".as_slice()));
        }
    }

    #[test]
    fn cut_frames_and_fragments_are_none() {
        let mut frame = frame(&[], b"hello");
        for len in 0..frame.len() - 2 {
            assert!(datagram(&frame[..len]).is_none(), "{len}");
        }
        frame[14 + 6] = 0x20;
        assert!(datagram(&frame).is_none());
    }
}
