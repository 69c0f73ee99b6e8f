//! MRSP's messages and the plan of a call: `cargo bench -p naa-hot-paths --bench mrsp`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mrsp::{
    AcceleratorSession, AnnouncedParam, CallPlan, FunctionCode, HostSession, Message, NaaAddress,
    RegionFlags, RegionRequest, RemoteRegion, U24,
    accelerator::{RegionAddress, SessionLimits},
    codec,
    host::HostConfig,
};

/// The largest number of regions for which the buffer of NAAICE's C library has room.
const REGIONS: u64 = 31;

fn consume<T>(decoded: T) {
    black_box(decoded);
}

fn region(at: u64) -> RemoteRegion {
    RemoteRegion { addr: 0x7000_0000_0000 + (at << 32), rkey: 500 + at as u32, size: 4096 }
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("mrsp codec");
    group.throughput(Throughput::Elements(REGIONS));
    let request = |at| RegionRequest {
        flags: RegionFlags::INPUT,
        naa_addr: NaaAddress::truncate(at << 12),
        host: region(at),
    };
    let requests: Vec<_> = (0..REGIONS).map(request).collect();
    let message = codec::encode_request(&requests).expect("31 regions");
    group.bench_function("encode a request of 31 regions", |b| {
        b.iter(|| codec::encode_request(black_box(&requests)));
    });
    group.bench_function("decode a request of 31 regions", |b| {
        b.iter(|| match codec::decode(black_box(&message)) {
            Ok(Message::AdvertiseAndRequest(regions)) => regions.iter().for_each(consume),
            other => panic!("{other:?}"),
        });
    });
    let regions: Vec<_> = (0..REGIONS).map(region).collect();
    let message = codec::encode_advertisement(&regions).expect("31 regions");
    group.bench_function("encode an advertisement of 31 regions", |b| {
        b.iter(|| codec::encode_advertisement(black_box(&regions)));
    });
    group.bench_function("decode an advertisement of 31 regions", |b| {
        b.iter(|| match codec::decode(black_box(&message)) {
            Ok(Message::Advertisement(regions)) => regions.iter().for_each(consume),
            other => panic!("{other:?}"),
        });
    });
}

/// Both sides of a session with an input and an output of 64 bytes.
fn session() -> (HostSession, AcceleratorSession) {
    let param = |flags, addr| AnnouncedParam { flags, addr, rkey: 1, size: 64 };
    let params = [param(RegionFlags::INPUT, 0x1000), param(RegionFlags::OUTPUT, 0x2000)];
    let mut host = HostSession::new(&HostConfig::default(), &params, &[]).expect("two parameters");
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    let aar = host.start().expect("a new session");
    naa.handle_message(&aar).expect("two regions");
    let addresses = [0x8000, 0x9000].map(|addr| RegionAddress { addr, rkey: 3 });
    host.handle_message(&naa.allocated(&addresses).expect("two addresses")).expect("an advertisement");
    (host, naa)
}

/// A call: the host plans its WRITEs, the accelerator reads the request and plans its response, and the host reads that.
fn call(c: &mut Criterion) {
    let mut group = c.benchmark_group("mrsp call");
    group.throughput(Throughput::Elements(1));
    let (mut host, mut naa) = session();
    let (mut there, mut back) = (CallPlan::with_capacity(2), CallPlan::with_capacity(2));
    group.bench_function("both sides of a call of 64 B", |b| {
        b.iter(|| {
            host.begin_call(FunctionCode::constant(1), U24::ZERO, &[], &mut there).expect("a ready session");
            let last = black_box(&there).writes().last().and_then(|write| write.immediate);
            naa.handle_request(last.expect("an immediate")).expect("a request");
            naa.respond(Ok(&[]), 0, &mut back).expect("a call");
            let last = black_box(&back).writes().last().expect("a WRITE");
            host.handle_response(last.immediate.expect("an immediate"), last.length).expect("a response")
        });
    });
}

criterion_group!(benches, messages, call);
criterion_main!(benches);
