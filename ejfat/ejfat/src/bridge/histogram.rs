//! Histograms of durations.

/// A histogram of durations in nanoseconds, with four buckets for each power of two. With four buckets for each power
/// of two, the error of a duration is at most 25 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
    sum: u64,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Self::BUCKETS], sum: 0, count: 0 }
    }
}

impl Histogram {
    /// The number of buckets. The buckets are for durations below 2^42 ns, which is 73 minutes. Durations of 2^42 ns or
    /// more count in the last bucket.
    const BUCKETS: usize = 4 * 40;

    fn bucket(nanos: u64) -> usize {
        let nanos = nanos.max(4);
        let log = nanos.ilog2() as usize;
        let step = (nanos >> (log - 2)) as usize & 3;
        (4 * (log - 2) + step).min(Self::BUCKETS - 1)
    }

    /// Returns the shortest duration in nanoseconds that is longer than all durations of this bucket.
    fn end(bucket: usize) -> u64 {
        let (log, step) = (bucket / 4 + 2, bucket as u64 % 4);
        (4 + step + 1) << (log - 2)
    }

    pub fn add(&mut self, nanos: u64) {
        self.counts[Self::bucket(nanos)] += 1;
        self.sum = self.sum.saturating_add(nanos);
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all durations in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns a duration in nanoseconds that a given part of all durations does not exceed, for example half of all
    /// durations if `part` is 0.5. Returns `None` if no duration was counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut passed = 0;
        let bucket = self.counts.iter().position(|count| {
            passed += count;
            passed >= wanted
        })?;
        Some(Self::end(bucket) - 1)
    }

    /// Returns the number of durations in all buckets that contain only durations of at most `nanos` nanoseconds.
    pub fn up_to(&self, nanos: u64) -> u64 {
        let ends = (0..Self::BUCKETS).take_while(|&bucket| Self::end(bucket) - 1 <= nanos).count();
        self.counts[..ends].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_quarter() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for nanos in 1..=100_000u64 {
            histogram.add(nanos);
        }
        for (part, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = histogram.quantile(part).unwrap() as f64;
            assert!((exact..exact * 1.25).contains(&found), "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.up_to(u64::MAX)), (100_000, 100_000));
        histogram.add(u64::MAX);
        assert_eq!(histogram.count(), 100_001);
    }
}
