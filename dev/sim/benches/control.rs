//! What the control plane's parts cost at its largest site: `cargo bench -p sim`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use sim::site::{Site, Size};

/// A period in which the shares of all workers change, and the epochs of all load balancers follow.
fn period(c: &mut Criterion) {
    let mut site = Site::new(Size::FULL, 1).expect("a site that fits");
    (0..20).for_each(|_| site.second());
    let mut group = c.benchmark_group("control");
    group.sample_size(20).measurement_time(Duration::from_secs(20));
    group.bench_function("tick of 8 load balancers x 128 workers, all changed", |b| {
        b.iter_custom(|times| {
            site.periods.clear();
            while (site.periods.len() as u64) < times {
                site.change_all();
                site.second();
            }
            site.periods[..times as usize].iter().sum()
        });
    });
    group.finish();
}

fn state(c: &mut Criterion) {
    let mut site = Site::new(Size::FULL, 1).expect("a site that fits");
    (0..5).for_each(|_| site.second());
    let workers = site.workers();
    let mut n = 0;
    c.bench_function("SendState applied", |b| {
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
