//! EJFAT's segmenter, reassembler, table look-ups and rewrites: `cargo bench -p naa-hot-paths --bench ejfat`.
//!
//! Criterion calls the closure of a bench for each sample, and does not call it if the bench is left out. The closure therefore makes
//! expensive objects in its first call.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use naa_hot_paths::ejfat::{Forwarding, Reassembly, Segmenting};

const EVENT: usize = 1 << 20;
const SMALL: usize = 8192;

fn segmenter(c: &mut Criterion) {
    let mut group = c.benchmark_group("ejfat segmenter");
    for mtu in [9000, 1500] {
        let segmenting = Segmenting::new(EVENT, mtu).expect("an event");
        group.throughput(Throughput::Elements(segmenting.count() as u64));
        group.bench_function(format!("1 MiB event, MTU {mtu}"), |b| b.iter(|| segmenting.run()));
    }
}

fn reassembler(c: &mut Criterion) {
    let mut group = c.benchmark_group("ejfat reassembler");
    for (bytes, event) in [(EVENT, "1 MiB"), (SMALL, "8 KiB")] {
        for mtu in [9000, 1500] {
            for (shuffled, order) in [(false, "in order"), (true, "shuffled")] {
                if shuffled && bytes == SMALL {
                    continue;
                }
                let name = format!("{event} event, MTU {mtu}, {order}");
                group.throughput(Throughput::Bytes(bytes as u64));
                let mut made = None;
                group.bench_function(&name, |b| {
                    let new = || Reassembly::new(bytes, mtu, shuffled).expect("an event");
                    let reassembly = made.get_or_insert_with(new);
                    b.iter(|| reassembly.run().expect("complete"));
                });
            }
        }
    }
    for (shuffled, order) in [(false, "in order"), (true, "shuffled")] {
        let mut reassembly = Reassembly::new(EVENT, 1500, shuffled).expect("an event");
        group.throughput(Throughput::Elements(reassembly.segments() as u64));
        let name = format!("1 MiB event, MTU 1500, {order}, without the copies");
        group.bench_function(name, |b| b.iter(|| reassembly.account().expect("complete")));
    }
}

/// Handles the next packet; `None` if the packet is dropped.
type Run = fn(&mut Forwarding) -> Option<()>;

fn load_balancer(c: &mut Criterion) {
    let mut group = c.benchmark_group("ejfat load balancer");
    group.throughput(Throughput::Elements(1));
    for bytes in [100, 1500] {
        let rows: [(_, Run); 3] = [
            ("table look-up", Forwarding::route),
            ("rewrite of a copy", Forwarding::rewrite),
            ("rewrite of a copy and counters", Forwarding::forward),
        ];
        for (name, run) in rows {
            let mut made = None;
            group.bench_function(format!("{name}, {bytes} B packet"), |b| {
                let forwarding = made.get_or_insert_with(|| Forwarding::new(bytes).expect("tables"));
                b.iter(|| run(forwarding).expect("a route"));
            });
        }
    }
}

criterion_group!(benches, segmenter, reassembler, load_balancer);
criterion_main!(benches);
