//! What was measured of a contender, and the point it comes to.

use mrsp::layout::LayoutChoice;
use naa_measure::stats::{median, quantile, spread};

use super::point::{Point, Workload};
use crate::sides::layouts::Opened;

/// Calls that a session made without a pause.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) nanoseconds: Vec<u64>,
    /// Seconds, of all calls.
    pub(crate) host_cpu: f64,
    pub(crate) server_cpu: f64,
    pub(crate) joules: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Each time it connected.
    pub(crate) opened: Vec<Opened>,
    pub(crate) repeats: Vec<Repeat>,
}

const GIB: f64 = (1_u64 << 30) as f64;

impl Samples {
    /// `None` without a call.
    pub(crate) fn point(&self, workload: &Workload, choice: LayoutChoice) -> Option<Point> {
        let last = self.opened.last()?;
        let opened = |of: fn(&Opened) -> f64| median(&self.opened.iter().map(of).collect::<Vec<_>>());
        let p50s: Vec<_> =
            self.repeats.iter().filter_map(|repeat| quantile(&micros(&repeat.nanoseconds), 0.5)).collect();
        let p50_us = rounded(median(&p50s)?, 3);
        let all: Vec<_> = self.repeats.iter().flat_map(|repeat| micros(&repeat.nanoseconds)).collect();
        let per_call = |of: fn(&Repeat) -> f64| {
            let each = self.repeats.iter().map(|repeat| of(repeat) / repeat.nanoseconds.len().max(1) as f64);
            median(&each.collect::<Vec<_>>())
        };
        let counted = self.repeats.iter().all(|repeat| repeat.joules.is_some());
        let joules = per_call(|repeat| repeat.joules.unwrap_or_default()).filter(|_| counted);
        Some(Point {
            workload: workload.clone(),
            layout: choice.to_string(),
            used: last.used.clone(),
            setup_us: rounded(opened(|opened| opened.setup_us)?, 3),
            first_us: rounded(opened(|opened| opened.first_us)?, 3),
            p50_us,
            p99_us: rounded(quantile(&all, 0.99)?, 3),
            spread: rounded(spread(&p50s).unwrap_or_default(), 4),
            goodput: rounded(workload.moved() as f64 / GIB / (p50_us / 1e6), 9),
            host_cpu_us: rounded(per_call(|repeat| repeat.host_cpu * 1e6)?, 3),
            server_cpu_us: rounded(per_call(|repeat| repeat.server_cpu * 1e6)?, 3),
            host_registered: last.host_registered,
            server_registered: last.server_registered,
            joules: joules.map(|joules| rounded(joules, 9)),
            repeats: self.repeats.len() as u32,
            calls: all.len() as u32,
        })
    }
}

/// To what clocks tell, so that what is read from a file is what was written.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

fn micros(nanoseconds: &[u64]) -> Vec<f64> {
    nanoseconds.iter().map(|&time| time as f64 / 1e3).collect()
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::{
        super::point::{Direction, Sizes},
        *,
    };

    fn samples(repeats: &[&[u64]], joules: Option<f64>) -> Samples {
        let opened = |setup_us: f64| Opened {
            setup_us,
            first_us: setup_us / 10.0,
            used: "gathered".into(),
            host_registered: 128,
            server_registered: 4096,
        };
        let repeat = |nanoseconds: &&[u64]| Repeat {
            nanoseconds: nanoseconds.to_vec(),
            host_cpu: 6e-6,
            server_cpu: 3e-6,
            joules,
        };
        Samples {
            opened: [900.0, 100.0, 200.0].map(opened).into(),
            repeats: repeats.iter().map(repeat).collect(),
        }
    }

    fn workload() -> Workload {
        let (provider, wait) = ("embedded".into(), "spin".into());
        Workload { provider, wait, sizes: Sizes::Equal, params: 2, bytes: 64, direction: Direction::Both }
    }

    #[test]
    fn a_point_is_medians() {
        let repeats: &[&[u64]] = &[&[1000, 2000, 9000], &[3000, 4000, 4000], &[3000, 3000, 3000]];
        let point = samples(repeats, Some(0.3)).point(&workload(), LayoutChoice::Auto).unwrap();
        assert_eq!((point.layout.as_str(), point.used.as_str()), ("auto", "gathered"));
        assert_eq!((point.setup_us, point.first_us), (200.0, 20.0));
        assert_eq!((point.p50_us, point.repeats, point.calls), (3.0, 3, 9));
        assert!(point.p99_us > 8.0 && point.p99_us <= 9.0, "{point:?}");
        assert_eq!((point.host_cpu_us, point.server_cpu_us), (2.0, 1.0));
        assert!((point.joules.unwrap() - 0.1).abs() < 1e-12, "{point:?}");
        assert!((point.goodput - 256.0 / GIB / 3e-6).abs() < 1e-9, "{point:?}");
        assert!((point.spread - 1.0 / 3.0).abs() < 1e-4, "{point:?}");
    }

    #[test]
    fn nothing_measured_is_no_point_and_no_counters_no_energy() {
        let choice = LayoutChoice::Fixed(Layout::Symmetric);
        assert!(samples(&[], None).point(&workload(), choice).is_none());
        let one = samples(&[&[5000]], None).point(&workload(), choice).unwrap();
        assert_eq!((one.joules, one.spread, one.p99_us), (None, 0.0, 5.0));
    }
}
