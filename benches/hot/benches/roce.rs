//! RoCEv2: headers, ICRC, look-ups of memory regions, requester, responder and completer: `cargo bench -p naa-hot-paths --bench roce`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use naa_hot_paths::{
    engine::{Batch, Codec, Icrc, MESSAGE, MTU, Pair, Request, Side},
    regions::Regions,
};
use roce::{
    icrc::IdRule,
    opcode,
    wire::{Aeth, Bth, HeaderBuf, Packet, Reth, Syndrome},
};

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("roce headers");
    group.throughput(Throughput::Elements(1));
    let codec = Codec::of(64);
    group.bench_function("decode a WRITE", |b| b.iter(|| codec.decode().map(black_box).is_some()));
    let mut acknowledgement = Vec::new();
    let bth = Bth { opcode: opcode::ACKNOWLEDGE, p_key: Bth::DEFAULT_P_KEY, dest_qp: 17, ..Bth::default() };
    let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 5 });
    Packet { bth, aeth, ..Packet::default() }.encode(&mut acknowledgement);
    group.bench_function("decode an ACK", |b| b.iter(|| Packet::decode(black_box(&acknowledgement)).is_ok()));
    let reth = Reth { addr: 1 << 32, rkey: 0x1234_5678, length: 64 };
    group.bench_function("encode BTH and RETH", |b| {
        b.iter(|| {
            let mut header = HeaderBuf::new();
            header.push(&black_box(bth).encode());
            header.push(&black_box(reth).encode());
            header
        });
    });
}

fn icrc(c: &mut Criterion) {
    let mut group = c.benchmark_group("roce ICRC");
    for bytes in [64, 1024, MTU] {
        let mut icrc = Icrc::of(bytes).expect("a flow");
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("compute, {bytes} B"), |b| b.iter(|| icrc.run()));
        group.bench_function(format!("check, {bytes} B, right hint"), |b| {
            b.iter(|| icrc.verify(IdRule::Below128, 0).expect("a right ICRC"));
        });
        group.bench_function(format!("check, {bytes} B, wrong hint"), |b| {
            b.iter(|| icrc.verify(IdRule::Any, 77).expect("a right ICRC"));
        });
    }
}

fn regions(c: &mut Criterion) {
    let mut group = c.benchmark_group("roce memory regions");
    group.throughput(Throughput::Elements(1));
    for count in [1, 64, 16_384] {
        let mut made = None;
        group.bench_function(format!("a WRITE finds its region, 1 of {count}"), |b| {
            let regions = made.get_or_insert_with(|| Regions::new(count).expect("a table"));
            b.iter(|| regions.write().expect("a region"));
        });
    }
}

/// The part of an exchange that is measured.
#[derive(Clone, Copy)]
enum Part {
    /// Work requests are posted, and their packets are described.
    Requester,
    /// Request packets are checked and executed, and their payload is placed.
    Responder,
    /// Responses are checked, their payload is placed, and completions are polled.
    Completer,
}

/// The requests of one exchange, which travel in one batch each way.
#[derive(Clone, Copy)]
struct Requests {
    request: Request,
    bytes: usize,
    count: usize,
}

/// The time that a part of `times` exchanges takes.
fn exchanges(pair: &mut Pair, part: Part, requests: Requests, times: u64) -> Duration {
    let Requests { request, bytes, count } = requests;
    let (mut there, mut back) = (Batch::default(), Batch::default());
    let mut spent = [Duration::ZERO; 3];
    for _ in 0..times {
        let start = Instant::now();
        (0..count).for_each(|_| pair.post(request, bytes).expect("room for requests"));
        pair.describe(Side::Requester, &mut there);
        spent[Part::Requester as usize] += start.elapsed();
        pair.seal(Side::Requester, &mut there).expect("a flow");

        let start = Instant::now();
        pair.receive(Side::Responder, &there);
        spent[Part::Responder as usize] += start.elapsed();
        pair.completed(Side::Responder).expect("success");
        pair.describe(Side::Responder, &mut back);
        pair.seal(Side::Responder, &mut back).expect("a flow");

        let start = Instant::now();
        pair.receive(Side::Requester, &back);
        let completed = pair.completed(Side::Requester).expect("success");
        spent[Part::Completer as usize] += start.elapsed();
        assert_eq!(completed, count, "all requests are completed");
    }
    spent[part as usize]
}

/// Two endpoints whose windows are open.
fn connected() -> Pair {
    let mut pair = Pair::new().expect("the endpoints connect");
    (0..3).for_each(|_| pair.write().expect("a WRITE"));
    pair
}

fn exchange(c: &mut Criterion) {
    const LARGE: usize = 64 << 10;
    let large = |request| Requests { request, bytes: LARGE, count: 1 };
    let small = |request| Requests { request, bytes: 64, count: 16 };
    let rows = [
        ("roce requester", "WRITE of 64 KiB", Part::Requester, large(Request::Write)),
        ("roce requester", "16 SENDs of 64 B", Part::Requester, small(Request::Send)),
        ("roce responder", "WRITE of 64 KiB", Part::Responder, large(Request::Write)),
        ("roce responder", "16 SENDs of 64 B", Part::Responder, small(Request::Send)),
        ("roce completer", "ACK of 16 WRITEs of 64 B", Part::Completer, small(Request::Write)),
        ("roce completer", "READ of 64 KiB", Part::Completer, large(Request::Read)),
    ];
    for (group, name, part, requests) in rows {
        let mut group = c.benchmark_group(group);
        group.throughput(match requests {
            Requests { bytes, count: 1, .. } => Throughput::Bytes(bytes as u64),
            Requests { count, .. } => Throughput::Elements(count as u64),
        });
        let mut made = None;
        group.bench_function(name, |b| {
            let pair = made.get_or_insert_with(connected);
            b.iter_custom(|times| exchanges(pair, part, requests, times));
        });
    }
}

/// A WRITE of 1 MiB from its post to its completion, between two endpoints on one thread.
fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("roce pair");
    group.throughput(Throughput::Bytes(MESSAGE as u64));
    let mut made = None;
    group.bench_function("WRITE of 1 MiB", |b| {
        let pair = made.get_or_insert_with(connected);
        b.iter(|| pair.write().expect("a WRITE"));
    });
}

criterion_group!(benches, headers, icrc, regions, exchange, whole);
criterion_main!(benches);
