//! `icrc512` against `roce::icrc`: every packet of the captures, and random ones of every length.

#[path = "../../../rdma/roce/tests/captures/mod.rs"]
mod captures;
mod common;

use captures::{CAPTURES, datagram, packets};
use common::{bench, bytes, random_run};
use naa_fpga::{Bench, Packet, Rates, Sink, Source};
use roce::icrc::{Flow, IdRule, Solver, compute};
use simnet::Random;

/// `tuser` of the first beat of a packet into which the module writes the CRC.
const INSERT: u64 = 2;

/// A packet for the module, and what the module has to make of it.
struct Case {
    packet: Packet,
    bytes: Vec<u8>,
    bad: bool,
}

/// Whether the Rust finds the CRC of a packet wrong.
fn is_bad(ip: &[u8]) -> bool {
    let of = datagram(ip);
    let flow = Flow::new(of.src, of.dst).unwrap();
    let id = of.ip_id.map_or(IdRule::Any, IdRule::Exact);
    Solver::new().verify(&flow, &of.payload, id, 0).is_err()
}

impl Case {
    fn to_check(ip: Vec<u8>) -> Self {
        let bad = is_bad(&ip);
        Self { packet: Packet { bytes: ip.clone(), ..Packet::default() }, bytes: ip, bad }
    }

    /// The last four bytes of `ip` are the gap for the CRC.
    fn to_fill(ip: Vec<u8>) -> Self {
        let mut bytes = ip.clone();
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&right(&ip));
        Self { packet: Packet { bytes: ip, first: INSERT, ..Packet::default() }, bytes, bad: false }
    }
}

/// The CRC that the Rust gives a packet.
fn right(ip: &[u8]) -> [u8; 4] {
    let of = datagram(ip);
    let (header, rest) = of.payload[..of.payload.len() - 4].split_at(12);
    compute(&Flow::new(of.src, of.dst).unwrap(), of.ip_id.unwrap_or(0), header, std::iter::once(rest))
}

/// A packet with right lengths and otherwise random bytes, whose UDP payload has `len` bytes. Its CRC is random, too.
fn random_packet(random: &mut Random, len: usize) -> Vec<u8> {
    let v6 = random.below(2) == 0;
    let headers = if v6 { 40 } else { 20 };
    let mut ip = bytes(random, headers + 8 + len);
    if v6 {
        ip[0] = 0x60 | ip[0] & 0xf;
        ip[4..6].copy_from_slice(&((8 + len) as u16).to_be_bytes());
        ip[6] = 17;
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((28 + len) as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&[0x40, 0]);
        ip[9] = 17;
    }
    ip[headers + 4..headers + 6].copy_from_slice(&((8 + len) as u16).to_be_bytes());
    ip
}

fn random_case(random: &mut Random) -> Case {
    // Most packets are short, so that they end everywhere in a beat.
    let most = if random.below(16) == 0 { 4200 } else { 200 };
    let len = 16 + random.below(most) as usize;
    if random.below(2) == 0 {
        return Case::to_fill(random_packet(random, len & !3));
    }
    let mut ip = random_packet(random, len);
    let end = ip.len() - 4;
    let crc = right(&ip);
    ip[end..].copy_from_slice(&crc);
    if random.below(2) == 0 {
        // Flips a bit behind the UDP header. The Rust does not see the headers before it.
        let fixed = if ip[0] >> 4 == 4 { 28 } else { 48 };
        let bit = 8 * fixed + random.below(8 * (ip.len() - fixed) as u64) as usize;
        ip[bit / 8] ^= 1 << (bit % 8);
    }
    Case::to_check(ip)
}

/// The beats of all packets.
fn beats(cases: &[Case]) -> u64 {
    cases.iter().map(|case| case.bytes.len().div_ceil(64) as u64).sum()
}

/// Sends packets through the module and compares what comes out. Returns the number of cycles.
fn run(bench: &mut Bench, cases: &[Case], rates: [Rates; 2]) -> u64 {
    let mut source = Source::new(&bench.model, "s", rates[0]);
    let mut sink = Sink::new(&bench.model, "m", rates[1]);
    let (begun, most) = (bench.cycles(), 4 * beats(cases) + 100);
    let (mut given, mut taken) = (cases.iter(), cases.iter().enumerate());
    while taken.len() > 0 {
        if source.is_empty()
            && let Some(case) = given.next()
        {
            source.push(case.packet.clone());
        }
        bench.cycle(&mut [&mut source, &mut sink]);
        assert!(bench.cycles() - begun < most, "{} packets are missing", taken.len());
        while let Some(packet) = sink.pop() {
            let (at, case) = taken.next().expect("no more packets come than were sent");
            assert_eq!(packet.bytes, case.bytes, "packet {at} of {} bytes", case.bytes.len());
            assert_eq!(packet.last == 1, case.bad, "packet {at} of {} bytes", case.bytes.len());
        }
    }
    bench.cycles() - begun
}

#[test]
fn packets_of_captures_are_found_right_and_are_made_again() {
    let Some(mut bench) = bench("icrc512") else { return };
    let mut cases = Vec::new();
    for ip in CAPTURES.into_iter().flat_map(packets) {
        assert!(!is_bad(&ip));
        cases.push(Case::to_check(ip.clone()));
        cases.push(Case { bytes: ip.clone(), ..Case::to_fill(ip) });
    }
    assert!(cases.len() > 1000);
    run(&mut bench, &cases, [Rates::full(); 2]);
}

#[test]
fn random_packets_are_judged_and_made_as_the_rust_does() {
    let Some(mut bench) = bench("icrc512") else { return };
    let (count, seed, mut random) = random_run(0);
    for (at, idle) in [(0, [0, 0]), (1, [40, 0]), (2, [0, 100]), (3, [100, 40])] {
        let cases: Vec<_> = (0..count / 4).map(|_| random_case(&mut random)).collect();
        assert!(cases.iter().any(|case| case.bad));
        let rates = idle.map(|idle| Rates::idle(idle, seed ^ at));
        bench.reset();
        run(&mut bench, &cases, rates);
    }
}

#[test]
fn no_tail_costs_a_cycle() {
    let Some(mut bench) = bench("icrc512") else { return };
    let mut random = Random::new(2, 0);
    let case = |at: usize| Case::to_fill(random_packet(&mut random, 16 + at % 67 * 4));
    let cases: Vec<_> = (0..1000).map(case).collect();
    let cycles = run(&mut bench, &cases, [Rates::full(); 2]);
    let latency = 12;
    assert_eq!(cycles, beats(&cases) + latency);
}
