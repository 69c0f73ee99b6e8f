//! Histograms of durations.

/// The longest duration that the histogram must record with its full precision, in nanoseconds. The value 2^40 ns is
/// about 18 minutes. Durations of 2^41 ns or more are recorded as `LONGEST`.
const LONGEST: u64 = 1 << 40;
/// The number of significant decimal digits with which the histogram records a duration. With one significant digit,
/// the crate `hdrhistogram` divides the range from each power of two to the next one into 16 equal parts. The error of
/// a recorded duration is therefore below 7 %.
const DIGITS: u8 = 1;

/// A histogram of durations in nanoseconds, which counts how many durations lie in each of its ranges.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = hdrhistogram::Histogram::new_with_max(LONGEST, DIGITS);
        Self { counts: counts.expect("the constants are a histogram's"), sum: 0 }
    }
}

impl Histogram {
    /// Adds a duration of `nanos` nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        // The histogram has no bucket for 0, so a duration of 0 is counted as 1 ns.
        self.counts.saturating_record(nanos.max(1));
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Returns the number of durations that were added.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the sum of all durations that were added, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns a quantile of the added durations, in nanoseconds; `None` if no duration was added. `part` says which
    /// quantile, from 0 to 1; 0.5 gives the median.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.value_at_quantile(part))
    }

    /// Returns the number of added durations of at most `nanos` nanoseconds. Some durations that are longer than
    /// `nanos` by less than 7 % are counted, too.
    pub fn up_to(&self, nanos: u64) -> u64 {
        self.counts.count_between(0, nanos)
    }

    /// Returns a histogram of the durations that were added after `before`, an earlier copy of this histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        // The subtraction does not fail: no count in `before` is higher than the same count in `self`, because counts
        // never decrease.
        let subtracted = since.counts.subtract(&before.counts);
        debug_assert!(subtracted.is_ok(), "{subtracted:?}");
        since.sum -= before.sum.min(self.sum);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_seven_percent() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for nanos in 1..=100_000u64 {
            histogram.add(nanos);
        }
        for (part, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = histogram.quantile(part).unwrap() as f64;
            assert!((exact..exact * 1.07).contains(&found), "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.up_to(u64::MAX)), (100_000, 100_000));
        let before = histogram.clone();
        histogram.add(u64::MAX);
        assert_eq!((histogram.count(), histogram.since(&before).count()), (100_001, 1));
    }
}
