//! The protocol core by itself: `cargo bench -p naa-bench`. `naa bench` has the same beside a copy of as many bytes.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use naa_bench::engine::{Codec, Copying, Icrc, MESSAGE, Pair};

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("WRITE 1 MiB");
    group.throughput(Throughput::Bytes(MESSAGE as u64));
    let mut pair = Pair::new().expect("the engine connects");
    group.bench_function("engine, both ends", |b| b.iter(|| pair.write().expect("it arrives")));
    let mut copying = Copying::new(MESSAGE);
    group.bench_function("memcpy", |b| b.iter(|| copying.run()));
    group.finish();
}

fn packet(criterion: &mut Criterion) {
    let mut codec = Codec::new();
    let mut group = criterion.benchmark_group("WRITE packet of 4 KiB");
    group.throughput(Throughput::Bytes(codec.bytes() as u64));
    let mut copying = Copying::new(codec.bytes());
    let icrc = Icrc::new().expect("a flow");
    group.bench_function("decode + encode", |b| b.iter(|| codec.run().expect("it is one")));
    group.bench_function("ICRC", |b| b.iter(|| icrc.run()));
    group.bench_function("memcpy", |b| b.iter(|| copying.run()));
    group.finish();
}

criterion_group!(benches, engine, packet);
criterion_main!(benches);
