//! Captures: classic pcap files of Ethernet frames, which packet analysers open.

use std::{
    io::{self, Write},
    iter,
    net::{IpAddr, SocketAddr},
};

use etherparse::{IpHeaders, IpNumber, Ipv4Header, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use pcap_parser::{Linktype, nom, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

pub use pcap_parser::LegacyPcapBlock as Frame;

/// The header of a file with nanoseconds and Ethernet.
const FILE_HEADER: [u8; 24] =
    [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
/// The bytes with which a pcapng file begins.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOPS: u8 = 64;

/// A capture that is being written.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: Write> Writer<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&FILE_HEADER)?;
        Ok(Self(out))
    }

    /// Appends a frame that was sent at `now` nanoseconds.
    pub fn frame(&mut self, now: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u32;
        let words = [(now / 1_000_000_000) as u32, (now % 1_000_000_000) as u32, len, len];
        self.0.write_all(words.map(u32::to_le_bytes).as_flattened())?;
        self.0.write_all(data)
    }

    /// Appends a datagram that was sent at `now` nanoseconds. `ip_id` is ignored on IPv6.
    ///
    /// # Errors
    /// If it is too long, if its addresses are not of one IP version, or if it cannot be written.
    pub fn datagram(
        &mut self,
        now: u64,
        from: SocketAddr,
        to: SocketAddr,
        ip_id: u16,
        payload: &[u8],
    ) -> io::Result<()> {
        let builder = PacketBuilder::ethernet2(MACS[0], MACS[1]);
        let builder = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = Ipv4Header::new(0, HOPS, IpNumber::UDP, from.octets(), to.octets())
                    .map_err(io::Error::other)?;
                let header = Ipv4Header { identification: ip_id, ..header };
                builder.ip(IpHeaders::Ipv4(header, Default::default()))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), HOPS),
            _ => return Err(io::Error::other("the addresses are of different families")),
        };
        let mut frame = Vec::new();
        builder.udp(from.port(), to.port()).write(&mut frame, payload).map_err(io::Error::other)?;
        self.frame(now, &frame)
    }
}

/// Returns the frames of a capture, in their order. A frame that is cut off at the end of the file is an error, which comes last.
///
/// # Errors
/// If the file is no capture, or one of something else than Ethernet.
pub fn frames(file: &[u8]) -> Result<impl Iterator<Item = Result<Frame<'_>, CutOff>>, String> {
    if file.starts_with(&PCAPNG) {
        return Err("pcapng; convert it: tcpdump -r FILE -w NEW".into());
    }
    let (mut rest, header) = parse_pcap_header(file).map_err(|_| "not a pcap file")?;
    // The upper bits have the length of a frame check sequence.
    match Linktype(header.network.0 & 0x0fff_ffff) {
        Linktype::ETHERNET => {}
        other => {
            return Err(format!("link type {}, not Ethernet; capture on one device, not on `any`", other.0));
        }
    }
    let parse = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let parse = move |bytes| parse(bytes).map_err(|_: nom::Err<_>| CutOff);
    Ok(iter::from_fn(move || {
        let bytes = std::mem::take(&mut rest);
        let frame = (!bytes.is_empty()).then(|| parse(bytes))?;
        Some(frame.map(|(tail, frame)| {
            rest = tail;
            frame
        }))
    }))
}

/// The capture ends in the middle of a frame: its writer was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capture ends in the middle of a frame")]
pub struct CutOff;

/// A UDP datagram, without padding of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// The IP header.
    pub ip: &'a [u8],
    /// The UDP header and the payload.
    pub udp: &'a [u8],
}

/// Returns the whole UDP datagram of an Ethernet frame; `None` for everything else, fragments among it.
pub fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (from, to, header): (IpAddr, IpAddr, _) = match packet.net.as_ref()? {
        NetSlice::Ipv4(packet) => {
            let header = packet.header();
            (header.source_addr().into(), header.destination_addr().into(), header.slice().len())
        }
        NetSlice::Ipv6(packet) => {
            let header = packet.header();
            (header.source_addr().into(), header.destination_addr().into(), header.slice().len())
        }
        NetSlice::Arp(_) => return None,
    };
    let ip = packet.ether_payload()?.payload.get(..header)?;
    let TransportSlice::Udp(udp) = packet.transport? else { return None };
    let (from, to) = (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()));
    Some(Datagram { from, to, ip, udp: udp.slice() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [&str; 2] = ["10.0.0.1:1", "10.0.0.2:4791"];
    const V6: [&str; 2] = ["[fd00::1]:1", "[fd00::2]:4791"];

    fn addresses(of: [&str; 2]) -> [SocketAddr; 2] {
        of.map(|address| address.parse().unwrap())
    }

    /// A capture of one datagram for each IP version.
    fn capture() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let ([from, to], [from6, to6]) = (addresses(V4), addresses(V6));
        writer.datagram(1_500_000_000, from, to, 7, &[1; 16]).unwrap();
        writer.datagram(2, from6, to6, 0, &[2; 16]).unwrap();
        assert!(writer.datagram(2, from, to6, 0, &[]).is_err());
        assert!(writer.datagram(2, from, to, 0, &[0; 65_508]).is_err());
        bytes
    }

    /// A frame over IPv4 with a tag, and with two bytes of link padding.
    fn frame(tag: &[u8]) -> Vec<u8> {
        let file = capture();
        let frame = frames(&file).unwrap().next().unwrap().unwrap();
        [&frame.data[..12], tag, &frame.data[12..], &[0xee; 2]].concat()
    }

    #[test]
    fn captures_are_read_as_they_were_written() {
        let file = capture();
        assert_eq!(file.len(), 24 + (16 + 14 + 20 + 8 + 16) + (16 + 14 + 40 + 8 + 16));
        let all: Vec<_> = frames(&file).unwrap().map(Result::unwrap).collect();
        assert_eq!((all[0].ts_sec, all[0].ts_usec, all[0].data.len()), (1, 500_000_000, 58));
        let [v4, v6] = [0, 1].map(|at| datagram(all[at].data).unwrap());
        assert_eq!(([v4.from, v4.to], [v6.from, v6.to]), (addresses(V4), addresses(V6)));
        assert_eq!((v4.ip.len(), &v4.ip[4..6], &v4.udp[8..]), (20, &[0, 7][..], &[1; 16][..]));
        assert_eq!((v6.ip.len(), &v6.udp[8..]), (40, &[2; 16][..]));
    }

    #[test]
    fn captures_of_either_byte_order_may_be_cut_off() {
        let big = |n: u32| n.to_be_bytes();
        let header = [big(0xa1b2_c3d4), [0, 2, 0, 4], [0; 4], [0; 4], big(65535), big(1)].concat();
        let file = [&header[..], &[[0; 4], [0; 4], big(3), big(5)].concat(), b"abc"].concat();
        let all: Vec<_> = frames(&file).unwrap().map(Result::unwrap).collect();
        assert_eq!((all[0].data, all[0].origlen, all.len()), (&b"abc"[..], 5, 1));
        for file in [file, capture()] {
            let mut all = frames(&file[..file.len() - 1]).unwrap().skip_while(Result::is_ok);
            assert_eq!(all.next().unwrap().unwrap_err(), CutOff);
            assert!(all.next().is_none());
        }
    }

    #[test]
    fn other_files_are_refused() {
        let mut other_link = capture();
        other_link[20] = 113;
        for bytes in [&b"short"[..], &[0; 24], &PCAPNG.repeat(6), &other_link] {
            assert!(frames(bytes).is_err());
        }
    }

    #[test]
    fn a_datagram_ends_before_the_padding() {
        for tag in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
            let frame = frame(tag);
            let datagram = datagram(&frame).expect("UDP");
            assert_eq!((datagram.ip.len(), &datagram.udp[8..]), (20, &[1; 16][..]));
        }
    }

    #[test]
    fn cut_frames_and_fragments_are_none() {
        let mut frame = frame(&[]);
        for len in 0..frame.len() - 2 {
            assert!(datagram(&frame[..len]).is_none(), "{len}");
        }
        frame[14 + 6] = 0x20;
        assert!(datagram(&frame).is_none());
    }
}
