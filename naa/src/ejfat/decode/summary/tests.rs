//! Tests that each datagram is counted exactly once.

use std::net::SocketAddr;

use super::*;
use crate::ejfat::capture::look;

fn datagram<'a>(time: u64, bytes: &'a [u8], len: usize) -> Datagram<'a> {
    let at = SocketAddr::from(([10, 9, 0, 2], 19522));
    Datagram { time, from: at, to: at, bytes, len }
}

fn segment(event: u64, offset: u32, length: u32, payload: usize) -> Vec<u8> {
    let header = [&[0x10, 0, 0, 1][..], &offset.to_be_bytes(), &length.to_be_bytes(), &event.to_be_bytes()];
    [&header.concat()[..], &vec![7; payload]].concat()
}

fn see(summary: &mut Summary, time: u64, bytes: &[u8], captured: usize) {
    let datagram = datagram(time, &bytes[..captured], bytes.len());
    summary.see(&datagram, &look(&datagram, true));
}

#[test]
fn holes_are_counted_as_they_are_filled() {
    let mut summary = Summary::new(500).unwrap();
    let mut holes = Vec::new();
    for offset in [40, 0, 20, 30, 10] {
        see(&mut summary, 0, &segment(1, offset, 50, 10), 20);
        holes.push(summary.records[0].holes());
    }
    assert_eq!(holes, [1, 1, 2, 1, 0]);
    assert_eq!((summary.records[0].end, summary.records[0].bytes), (EventResult::Complete, 50));
    // The same event number much later is another event.
    see(&mut summary, 10_000_000_000, &segment(1, 0, 50, 10), 30);
    assert_eq!(summary.records.len(), 2);
}

#[test]
fn any_segments_are_counted_once() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut summary = Summary::new(500).unwrap();
    let rounds = 20_000;
    let mut time = 1 << 60;
    for _ in 0..rounds {
        let lengths = [10, 30, 1000, u64::from(u32::MAX), random(1 << 32)];
        let length = lengths[random(5) as usize] as u32;
        let offset =
            [random(5) * 10, random(1 << 32), u64::from(length.wrapping_sub(10))][random(3) as usize];
        let payload = [10, 10, 0, random(50)][random(4) as usize];
        let bytes = segment(random(30), offset as u32, length, payload as usize);
        time = [time + random(1 << 28), random(u64::MAX), time][random(20).min(2) as usize];
        let captured = 20 + random(payload + 1) as usize;
        see(&mut summary, time, &bytes, captured);
    }
    let seen: u64 = summary.records.iter().map(|record| record.segments).sum();
    assert_eq!(seen, rounds);
    for record in &summary.records {
        assert_eq!(record.end == EventResult::Complete, record.bytes == record.length && record.bytes > 0);
        assert!(record.bytes <= record.length && record.duplicates + record.refused <= record.segments);
    }
    assert!(summary.records.iter().any(|record| record.end == EventResult::Complete));
    summary.text(0, true).unwrap();
}
