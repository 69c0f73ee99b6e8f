//! Whether numbers look drawn at random. Every threshold is that of one false alarm in 500 000 (two-sided): with
//! about 150 figures per run, one run in some thousands fails for nothing.

use std::collections::{HashMap, HashSet, VecDeque};

use super::case::Observation;

/// Standard deviations that a figure may be off.
const SIGMAS: f64 = 4.75;

/// Numbers of one kind, in the order they were drawn.
#[derive(Debug, Default)]
pub(super) struct Sample {
    name: &'static str,
    bits: u32,
    /// Whether all numbers that one process draws are in use at once.
    unique: bool,
    numbers: Vec<u32>,
    /// The numbers of the process that draws now.
    own: HashSet<u32>,
    repeats_in_one: usize,
    recent: VecDeque<u32>,
}

impl Sample {
    pub(super) fn new(name: &'static str, bits: u32, unique: bool) -> Self {
        Self { name, bits, unique, ..Self::default() }
    }

    pub(super) fn add(&mut self, number: u32) {
        self.numbers.push(number);
        self.repeats_in_one += usize::from(!self.own.insert(number));
        self.recent.push_back(number);
        if self.recent.len() > 256 {
            self.recent.pop_front();
        }
    }

    /// A retransmission brings a number once more.
    pub(super) fn is_last(&self, number: u32) -> bool {
        self.recent.contains(&number)
    }

    /// Another process draws from now on.
    pub(super) fn restart(&mut self) {
        self.own.clear();
        self.recent.clear();
    }

    /// Pairs of equal numbers.
    fn repeats(&self) -> f64 {
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for number in &self.numbers {
            *counts.entry(*number).or_default() += 1;
        }
        counts.values().map(|n| (n * (n - 1) / 2) as f64).sum()
    }

    /// Every digit of `width` bits is as frequent as any other, at every position.
    fn digits(&self, width: u32, figures: &mut Vec<Figure>, numbers: &[u32], what: &str) {
        let values = 1usize << width;
        for position in 0..self.bits / width {
            let mut counts = vec![0u64; values];
            for number in numbers {
                counts[(number >> (position * width)) as usize & (values - 1)] += 1;
            }
            let expected = numbers.len() as f64 / values as f64;
            let chi2 = counts.iter().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
            let off = normal_of_chi2(chi2, (values - 1) as f64);
            figures.push(Figure { text: format!("{} {what} {position} of {width} bits", self.name), off });
        }
    }

    /// No number tells about one that is `lag` later.
    fn correlation(&self, lag: usize, figures: &mut Vec<Figure>, numbers: &[u32], what: &str) {
        let scale = 2f64.powi(self.bits as i32);
        // Mean 0, variance 1/12 each.
        let centred = |n: &u32| f64::from(*n) / scale - 0.5;
        let sum: f64 = numbers.iter().zip(&numbers[lag..]).map(|(a, b)| centred(a) * centred(b)).sum();
        let pairs = (numbers.len() - lag) as f64;
        let off = sum * 12.0 / pairs.sqrt();
        figures.push(Figure { text: format!("{} {what}, lag {lag}", self.name), off });
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mask = u32::MAX >> (32 - self.bits);
        // Modulo 2^bits, differences of random numbers are random, and not correlated with the next ones.
        let differences: Vec<_> =
            self.numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & mask).collect();
        for (numbers, what) in [(&self.numbers, "digit"), (&differences, "digit of differences")] {
            self.digits(4, &mut figures, numbers, what);
            self.digits(8, &mut figures, numbers, what);
        }
        for lag in [1, 2, 3, 8] {
            self.correlation(lag, &mut figures, &self.numbers, "serial correlation");
            self.correlation(lag, &mut figures, &differences, "serial correlation of differences");
        }
        figures
    }
}

/// How far a figure is from what chance gives, in standard deviations.
#[derive(Debug)]
struct Figure {
    text: String,
    off: f64,
}

/// Wilson and Hilferty's approximation.
fn normal_of_chi2(chi2: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    ((chi2 / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

pub(super) fn check(samples: &[Sample], count: usize) -> Result<Observation, String> {
    let (mut notes, mut wrong) = (Vec::new(), Vec::new());
    for sample in samples {
        if sample.numbers.len() != count {
            return Err(format!("{} of {count} {}s were seen", sample.numbers.len(), sample.name));
        }
        let n = count as f64;
        let expected = n * (n - 1.0) / 2.0 / 2f64.powi(sample.bits as i32);
        let repeats = sample.repeats();
        notes.push(format!("{}: {repeats} repeats, {expected:.1} by chance", sample.name));
        // Poisson; the constant covers small means.
        let spread = SIGMAS * expected.sqrt() + 6.0;
        if (repeats - expected).abs() > spread {
            wrong.push(format!("{} repeats {repeats} times, {expected:.1} by chance", sample.name));
        }
        if sample.unique && sample.repeats_in_one > 0 {
            wrong.push(format!("{} repeats {} times in one device", sample.name, sample.repeats_in_one));
        }
        let figures = sample.figures();
        let worst = figures.iter().max_by(|a, b| a.off.abs().total_cmp(&b.off.abs())).ok_or("no figures")?;
        notes.push(format!("worst {:.1} sigma", worst.off.abs()));
        if worst.off.abs() > SIGMAS {
            wrong.push(format!("{} is off by {:.1} sigma", worst.text, worst.off));
        }
    }
    match wrong.is_empty() {
        true => Ok(Observation::noted("no pattern", notes.join(", "))),
        false => Err(wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use simnet::Random;

    use super::*;

    fn sample(bits: u32, next: impl FnMut(usize) -> u32) -> Sample {
        let mut sample = Sample::new("number", bits, false);
        (0..50_000).map(next).for_each(|n| sample.add(n & (u32::MAX >> (32 - bits))));
        sample
    }

    #[test]
    fn patterns_are_found() {
        let mut random = Random::new(1, 1);
        assert!(check(&[sample(32, |_| random.next_u32())], 50_000).is_ok());
        assert!(check(&[sample(24, |_| random.next_u32())], 50_000).is_ok());
        assert!(check(&[sample(32, |n| n as u32)], 50_000).is_err(), "a counter");
        assert!(check(&[sample(32, |n| (n as u32).wrapping_mul(0x9e37_79b9))], 50_000).is_err(), "spread");
        assert!(check(&[sample(32, |_| random.next_u32() & !0x100)], 50_000).is_err(), "a fixed bit");
        assert!(check(&[sample(24, |_| random.next_u32() % 40_000)], 50_000).is_err(), "few");
        let mut biased = || if random.next_u32().is_multiple_of(50) { 7 } else { random.next_u32() };
        assert!(check(&[sample(32, |_| biased())], 50_000).is_err(), "a favourite");
    }
}
