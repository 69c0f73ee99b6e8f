//! What a computation costs each time, in seconds and joules, and the rows of all repeats.

use std::time::{Duration, Instant};

use naa_measure::{
    energy::Counters,
    row::{Row, Target},
};

use crate::show;

/// The shortest time of a repeat, so that clocks and single interruptions do not matter.
const LEAST: Duration = Duration::from_millis(1);
/// The shortest time of a repeat that measures energy, because the counters of energy change only once in a
/// millisecond.
const LEAST_COUNTED: Duration = Duration::from_millis(20);

/// Time and energy of one computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    seconds: f64,
    /// The energy in joules; `None` if it is not counted, or if the counters did not change, because each computation
    /// takes energy.
    joules: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Repeats {
    pub(super) local: Vec<Cost>,
    pub(super) offloaded: Vec<Cost>,
    /// The costs of calls with connecting and copying.
    pub(super) all: Vec<Cost>,
}

/// Measures the cost of one computation, which is repeated until the time is long enough.
pub(super) fn cost(
    counters: Option<&Counters>,
    mut compute: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Cost> {
    let least = if counters.is_some() { LEAST_COUNTED } else { LEAST };
    let mut count = 1_u32;
    loop {
        let before = counters.and_then(Counters::read);
        let start = Instant::now();
        for _ in 0..count {
            compute()?;
        }
        let time = start.elapsed();
        if time >= least {
            let after = counters.and_then(Counters::read);
            let used = before
                .zip(after)
                .map(|(before, after)| after.joules_since(&before))
                .filter(|used| *used > 0.0);
            let share = |whole: f64| whole / f64::from(count);
            return Ok(Cost { seconds: share(time.as_secs_f64()), joules: used.map(share) });
        }
        // The count is at least doubled, so that the clock is read rarely.
        let missing = least.as_secs_f64() / time.as_secs_f64().max(1e-9);
        count = count.saturating_mul((missing * 1.2).ceil().clamp(2.0, 1000.0) as u32);
    }
}

impl Repeats {
    pub(super) fn count(&self) -> usize {
        self.local.len()
    }

    /// The rows for the time of calls, and of calls with connecting and copying, each compared with local computation.
    pub(super) fn times(&self, name: &str, bytes: u64) -> [Row; 2] {
        let row = |what: &str, ours: &[Cost]| {
            let us = |cost: &Cost| cost.seconds * 1e6;
            let pairs: Vec<_> = ours.iter().map(us).zip(self.local.iter().map(us)).collect();
            Row::compared(format!("{name}, {}, {what}", show::bytes(bytes)), "us", Target::Report, &pairs)
        };
        [row("offloaded", &self.offloaded), row("offloaded with connecting and copying", &self.all)]
    }

    /// The row for the energy of calls compared with local computation. Repeats without a count of energy are left out.
    pub(super) fn energy(&self, name: &str, bytes: u64) -> Row {
        let joules = |(ours, local): (&Cost, &Cost)| ours.joules.zip(local.joules);
        let pairs: Vec<_> = self.offloaded.iter().zip(&self.local).filter_map(joules).collect();
        let measure = format!("{name}, {}, energy, offloaded vs local", show::bytes(bytes));
        Row::compared(measure, "J", Target::Report, &pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    fn sleep() -> anyhow::Result<()> {
        thread::sleep(LEAST);
        Ok(())
    }

    #[test]
    fn joules_are_those_of_one_computation() {
        let folder = std::env::temp_dir().join(format!("naa-offload-energy-{}", std::process::id()));
        let zone = folder.join("intel-rapl:0");
        fs::create_dir_all(&zone).expect("a folder");
        let write = |file: &str, text: &str| fs::write(zone.join(file), text).map_err(anyhow::Error::from);
        write("name", "package-0\n").expect("a file");
        write("max_energy_range_uj", "262143328850\n").expect("a file");
        write("energy_uj", "0\n").expect("a file");
        let counters = Counters::under(&folder).expect("a counter");
        let mut used = 0;
        let measured = cost(Some(&counters), || {
            used += 1500;
            write("energy_uj", &format!("{used}\n"))
        });
        let measured = measured.expect("a cost");
        let joules = measured.joules.expect("a counter");
        assert!((joules - 0.0015).abs() < 1e-12, "{measured:?}");
        assert!(measured.seconds > 0.0);
        let still = cost(Some(&counters), sleep).expect("a time");
        assert!(still.joules.is_none(), "{still:?}");
        fs::remove_dir_all(&folder).expect("removed");
        let gone = cost(Some(&counters), sleep).expect("a time");
        assert!(gone.joules.is_none() && gone.seconds >= LEAST.as_secs_f64(), "{gone:?}");
    }

    #[test]
    fn without_counters_there_is_a_time_and_no_energy() {
        let measured = cost(None, sleep).expect("a time");
        assert!(measured.joules.is_none() && measured.seconds >= LEAST.as_secs_f64(), "{measured:?}");
    }

    #[test]
    fn energy_is_compared_repeat_by_repeat() {
        let cost = |joules| Cost { seconds: 1e-3, joules };
        let repeats = Repeats {
            local: vec![cost(Some(2.0)), cost(Some(4.0)), cost(Some(9.0))],
            offloaded: vec![cost(Some(1.0)), cost(Some(2.0)), cost(None)],
            all: Vec::new(),
        };
        let row = repeats.energy("sort", 1 << 10);
        assert_eq!(row.measure, "sort, 1 KiB, energy, offloaded vs local");
        assert_eq!((row.unit, row.ours, row.reference, row.ratio), ("J", Some(1.5), Some(3.0), Some(0.5)));
        let [call, _] = repeats.times("sort", 1 << 10);
        assert_eq!(
            (call.measure.as_str(), call.unit, call.ratio),
            ("sort, 1 KiB, offloaded", "us", Some(1.0))
        );
    }
}
