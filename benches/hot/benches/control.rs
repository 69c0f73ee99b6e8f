//! What the control plane's parts cost at its largest site: `cargo bench -p naa-hot-paths --bench control`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sim::site::{Site, Size};

/// A site of the largest size after some seconds.
fn site(seconds: u32) -> Site {
    let mut site = Site::new(Size::FULL, 1).expect("a site that fits");
    (0..seconds).for_each(|_| site.second());
    site
}

/// A period in which the shares of all workers change, and the epochs of all load balancers follow.
fn period(c: &mut Criterion) {
    let mut group = c.benchmark_group("control");
    group.sample_size(20).throughput(Throughput::Elements(1));
    let mut made = None;
    group.bench_function("tick of 8 load balancers x 128 workers, all changed", |b| {
        let site = made.get_or_insert_with(|| site(20));
        b.iter_custom(|times| {
            site.periods.clear();
            while (site.periods.len() as u64) < times {
                site.change_all();
                site.second();
            }
            site.periods[..times as usize].iter().sum()
        });
    });
}

fn state(c: &mut Criterion) {
    let mut group = c.benchmark_group("control");
    group.throughput(Throughput::Elements(1));
    let (mut made, mut n) = (None, 0);
    group.bench_function("SendState applied", |b| {
        let site = made.get_or_insert_with(|| site(5));
        let workers = site.workers();
        b.iter_custom(|times| {
            (0..times)
                .map(|_| {
                    n = (n + 1) % workers;
                    site.state(n)
                })
                .sum()
        });
    });
}

criterion_group!(benches, period, state);
criterion_main!(benches);
