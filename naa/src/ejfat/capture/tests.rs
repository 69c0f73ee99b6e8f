//! Tests with captures that are made by hand, valid and damaged ones.

use std::{io::Cursor, net::SocketAddr};

use ejfat::{
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments},
    wire::LbHeader,
};
use etherparse::{IpNumber, PacketBuilder};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn source() -> CaptureSelection {
    CaptureSelection { pcap: "x.pcap".into(), port: Vec::new(), host: None }
}

/// The time, the destination and the payload of each datagram.
type Found = Vec<(u64, SocketAddr, Vec<u8>)>;

fn read(source: &CaptureSelection, file: Vec<u8>) -> anyhow::Result<(Found, Packets, bool)> {
    let mut capture = source.read(Box::new(Cursor::new(file)))?;
    let mut found = Vec::new();
    while capture.next(|datagram| {
        found.push((datagram.time, datagram.to, datagram.bytes.to_vec()));
        Ok(())
    })? {}
    Ok((found, capture.packets(), capture.is_cut_off()))
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 9, 0, 1], [10, 9, 0, 2], 20)
        .udp(4000, 19522)
        .write(&mut packet, payload)
        .unwrap();
    packet
}

fn pcap(link: u32, packets: &[&[u8]]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, link].map(u32::to_le_bytes).concat();
    for (n, packet) in (0..).zip(packets) {
        let len = packet.len() as u32;
        file.extend([10, n, len, len].map(u32::to_le_bytes).concat());
        file.extend(*packet);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
    let len = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, &body, &len].concat()
}

/// A pcapng file with an interface whose times are in units of `resolution`, with an offset in seconds.
fn pcapng(resolution: u8, offset: i64, units: u64, packet: &[u8]) -> Vec<u8> {
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let options =
        [&[9, 0, 1, 0, resolution, 0, 0, 0, 14, 0, 8, 0][..], &offset.to_le_bytes(), &[0; 4]].concat();
    let interface = [&[101, 0, 0, 0, 0, 0, 0, 0][..], &options].concat();
    let len = packet.len() as u32;
    let head = [0, (units >> 32) as u32, units as u32, len, len].map(u32::to_le_bytes).concat();
    let packet = block(6, &[&head, packet].concat());
    [block(0x0a0d_0d0a, &section), block(1, &interface), packet].concat()
}

#[test]
fn every_link_type_is_looked_through() {
    let ip = udp(b"payload");
    let ethernet = |between: &[u8]| [&[2; 12], between, &[8, 0], &ip].concat();
    let v6 = |mut packet: Vec<u8>| {
        let builder = PacketBuilder::ipv6([1; 16], [2; 16], 9).udp(4000, 19522);
        builder.write(&mut packet, b"payload").unwrap();
        packet
    };
    for (link, packet) in [
        (1, ethernet(&[])),
        (1, ethernet(&[0x81, 0, 0, 7])),
        (1, ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8])),
        (1, [ethernet(&[]), vec![0; 10]].concat()),
        (0, [&[2, 0, 0, 0], &ip[..]].concat()),
        (108, [&[0, 0, 0, 2], &ip[..]].concat()),
        (101, ip.clone()),
        (228, ip.clone()),
        (229, v6(Vec::new())),
        (113, [&[0; 14][..], &[8, 0], &ip[..]].concat()),
        (113, v6([&[0; 14][..], &[0x86, 0xdd]].concat())),
        (276, [&[8, 0][..], &[0; 18], &ip[..]].concat()),
    ] {
        let (found, packets, _) = read(&source(), pcap(link, &[&packet])).unwrap();
        assert_eq!(found.len(), 1, "link type {link}: {packets:?}");
        assert_eq!((&found[0].2[..], found[0].1.port()), (&b"payload"[..], 19522));
    }
}

#[test]
fn what_is_no_datagram_is_counted() {
    let mut fragment = udp(&[0; 64]);
    fragment[6] = 0x20;
    let mut tcp = udp(b"x");
    tcp[9] = IpNumber::TCP.0;
    let elsewhere = udp(b"there");
    let file = pcap(101, &[&fragment, &tcp, &[], &[0x45; 3], &elsewhere]);
    let only = CaptureSelection { host: Some([10, 9, 0, 3].into()), ..source() };
    let (found, packets, _) = read(&only, file).unwrap();
    assert!(found.is_empty());
    let Packets { packets, fragments, not_udp, left_out, .. } = packets;
    assert_eq!((packets, fragments, not_udp, left_out), (5, 1, 3, 1));
    let (_, packets, _) = read(&source(), pcap(147, &[&elsewhere])).unwrap();
    assert_eq!(packets.unknown_link, 1);
}

#[test]
fn times_are_unix_nanoseconds() {
    let packet = udp(b"x");
    let time = |file| read(&source(), file).unwrap().0[0].0;
    assert_eq!(time(pcap(101, &[&packet])), 10 * SECOND);
    assert_eq!(time(pcapng(6, 0, 1_500_000, &packet)), SECOND * 3 / 2);
    assert_eq!(time(pcapng(9, 2, 5, &packet)), 2 * SECOND + 5);
    assert_eq!(time(pcapng(0x80 | 10, 0, 1536, &packet)), SECOND * 3 / 2);
    assert_eq!(time(pcapng(0, i64::MIN, 5, &packet)), 0);
    assert_eq!(time(pcapng(0, i64::MAX, u64::MAX, &packet)), u64::MAX);
    assert!(read(&source(), pcapng(0x7f, 0, 1, &packet)).is_err());
}

#[test]
fn a_capture_that_was_cut_off_is_read_as_far_as_it_goes() {
    let packet = udp(b"x");
    let mut file = pcap(101, &[&packet, &packet]);
    file.truncate(file.len() - 1);
    let (found, _, cut_off) = read(&source(), file).unwrap();
    assert_eq!((found.len(), cut_off), (1, true));
    let mut damaged = pcap(101, &[&packet, &packet]);
    damaged[24 + 8..][..4].fill(0xff);
    assert!(read(&source(), damaged.clone()).unwrap().2, "what is claimed did not come");
    damaged.resize(2 * LONGEST, 0);
    let problem = read(&source(), damaged).unwrap_err().to_string();
    assert!(problem.contains("claims to be longer than any packet"), "{problem}");
    assert!(read(&source(), b"not a capture at all, by no means".to_vec()).is_err());
    assert!(read(&source(), Vec::new()).is_err());
}

/// A capture on the sender's machine has whole super-packets, because they are cut only later.
#[test]
fn trains_of_segments_are_taken_apart() {
    let size = SegmentSize::of_mtu(1500, IpVersion::V4).unwrap();
    let train = |events: std::ops::Range<u64>, length: usize, lb: bool| {
        let mut bytes = Vec::new();
        for event in events {
            let name = EventFields { tick: 1 << 50 | event, event, data_id: 7, entropy: 9 };
            for segment in Segments::new(LbVersion::V2, size, name, length as u64).unwrap() {
                bytes.extend_from_slice(&segment.headers[if lb { 0 } else { LbHeader::LEN }..]);
                bytes.extend(segment.payload.map(|at| at as u8));
            }
        }
        bytes
    };
    let at = SocketAddr::from(([10, 9, 0, 2], 19522));
    for (events, length, lb, expected) in [
        (0..1, 3000, true, 3),
        (0..1, 3000, false, 3),
        (0..5, 700, true, 5),
        (0..5, 700, false, 5),
        (0..3, 2 * 1436, true, 6),
        (0..1, 1436, true, 1),
        (0..1, 1, true, 1),
    ] {
        let bytes = train(events.clone(), length, lb);
        let datagram = Datagram { time: 0, from: at, to: at, bytes: &bytes, len: bytes.len() };
        let parts: Vec<_> = parts(&datagram, false).collect();
        assert_eq!(parts.len(), expected, "{events:?} of {length}");
        let mut payload = 0;
        for part in &parts {
            let Kind::Segment(segment) = look(part, false) else { panic!("a segment") };
            payload += segment.payload;
        }
        assert_eq!(payload, length * events.count());
    }
}

#[test]
fn marks_and_sense_tell_what_is_ejfats() {
    let at = |port| SocketAddr::from(([10, 9, 0, 2], port));
    let seen = |bytes: &[u8], port, any| {
        let datagram = Datagram { time: 0, from: at(1), to: at(port), bytes, len: bytes.len() };
        match look(&datagram, any) {
            Kind::Segment(segment) => {
                if segment.lb.is_some() {
                    "lb"
                } else {
                    "re"
                }
            }
            Kind::Sync(_) => "sync",
            Kind::Malformed => "malformed",
            Kind::Other => "other",
        }
    };
    let re = |first: u8, offset: u32, length: u32| {
        [&[first, 0, 0, 1][..], &offset.to_be_bytes(), &length.to_be_bytes(), &[0; 8], b"pay"].concat()
    };
    assert_eq!(seen(&re(0x10, 0, 3), 9999, false), "re");
    assert_eq!(seen(&re(0x00, 4, 7), 9999, false), "re");
    assert_eq!(seen(&re(0x10, 4, 6), 9999, false), "other", "beyond the end");
    assert_eq!(seen(&re(0x10, 4, 6), 9999, true), "re", "the port was named");
    assert_eq!(seen(&re(0x11, 0, 3), 9999, false), "other", "a reserved bit");
    assert_eq!(seen(&re(0x10, 0, 3), 4791, false), "other", "RoCE");
    assert_eq!(seen(&re(0x30, 0, 3), 9999, true), "other", "an unknown version");
    let lb = |version: u8, protocol: u8| [&b"LB"[..], &[version, protocol], &[0; 12]].concat();
    assert_eq!(seen(&[lb(2, 1), re(0x10, 9, 3)].concat(), 1, false), "lb", "with a mark, whatever it says");
    assert_eq!(seen(&[lb(4, 1), re(0x10, 0, 3)].concat(), 1, true), "malformed");
    assert_eq!(seen(&[lb(2, 9), re(0x10, 0, 3)].concat(), 1, true), "malformed");
    assert_eq!(seen(b"LB", 1, true), "malformed");
    let sync = |version| [&[b'L', b'C', version][..], &[0; 25]].concat();
    assert_eq!(seen(&sync(2), 1, false), "sync");
    assert_eq!(seen(&sync(1), 1, false), "malformed");
    assert_eq!(seen(b"", 1, true), "other");
}

/// Reading a damaged file ends and does not panic.
#[test]
fn damaged_captures_are_survived() {
    let payload: Vec<u8> = (0..400_u32).map(|at| at as u8).collect();
    let lb =
        [&b"LB\x02\x01"[..], &[0; 12], &[0x10, 0, 0, 1], &[0; 4], &400_u32.to_be_bytes(), &[0; 8]].concat();
    let packet = udp(&[&lb[..], &payload].concat());
    let files = [pcap(101, &[&packet, &packet, &packet]), pcapng(6, 0, 7, &packet)];
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..6000 {
        let mut file = files[round % 2].clone();
        for _ in 0..=random(4) {
            // Most changes hit the headers.
            let at = if random(3) == 0 { random(file.len()) } else { random(120) };
            file[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
        }
        if random(4) == 0 {
            file.truncate(random(file.len()) + 1);
        }
        let Ok(mut capture) = source().read(Box::new(Cursor::new(file))) else { continue };
        let mut blocks = 0;
        while let Ok(true) = capture.next(|datagram| {
            parts(datagram, false).for_each(|part| _ = look(&part, false));
            parts(datagram, true).for_each(|part| _ = look(&part, true));
            Ok(())
        }) {
            blocks += 1;
            assert!(blocks < 1000, "round {round} does not end");
        }
    }
}
