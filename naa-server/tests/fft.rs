//! Fourier transforms that are composed of shorter transforms are compared with rustfft and with the definition of the
//! transform.

use std::f64::consts::TAU;

use naa_server::functions::fft;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use rustfft::{FftDirection, FftPlanner, num_complex::Complex64};

const SEED: u64 = 0x6e61_6104;
/// The permitted relative error of a transform. The error is the root mean square of the differences between computed
/// and expected values, divided by the root mean square of the expected values. A comparison with rustfft permits 10
/// times `TOLERANCE`. A forward transform followed by an inverse transform may have an error of up to 3 times
/// `TOLERANCE`.
const TOLERANCE: f64 = 2e-15;

fn signal(n: usize) -> Vec<Complex64> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut number = || f64::from(random.next_u32()) / f64::from(u32::MAX) - 0.5;
    (0..n).map(|_| Complex64::new(number(), number())).collect()
}

fn norm(numbers: impl Iterator<Item = Complex64>) -> f64 {
    numbers.map(|z| z.norm_sqr()).sum::<f64>().sqrt()
}

fn distance(a: &[Complex64], b: &[Complex64]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| a - b)) / norm(b.iter().copied())
}

/// Computes element `k` of the Fourier transform of `signal` by the definition of the transform.
fn point(signal: &[Complex64], k: usize, direction: FftDirection) -> Complex64 {
    let n = signal.len();
    let sign = if direction == FftDirection::Forward { -1.0 } else { 1.0 };
    let turn = |j: usize| {
        let turns = (j as u128 * k as u128 % n as u128) as f64 / n as f64;
        Complex64::from_polar(1.0, sign * TAU * turns)
    };
    signal.iter().enumerate().map(|(j, x)| x * turn(j)).sum()
}

#[test]
fn composed_transforms_agree_with_rustfft_and_the_definition() {
    println!("seed {SEED:#x}");
    // Each tested length is a prime, a product of two factors below 65,537, or 3 times the prime 65,537.
    for n in [1 << 17, 3 * 5 * 7 * 11 * 13 * 17, 4 * 65_521, 390_625, 65_537, 100_003, 3 * 65_537, 131_101] {
        for direction in [FftDirection::Forward, FftDirection::Inverse] {
            let signal = signal(n);
            let mut found = signal.clone();
            fft::compute(direction, &mut found).unwrap();
            let mut expected = signal.clone();
            FftPlanner::new().plan_fft(n, direction).process(&mut expected);
            let error = distance(&found, &expected);
            // The tolerance for differences to rustfft is ten times `TOLERANCE`, because rustfft is less exact for some
            // primes.
            assert!(error < 10.0 * TOLERANCE, "{n} {direction}: {error:e} from rustfft");
            let typical = (n as f64).sqrt();
            for k in [0, 1, 2, n / 3, n / 2, n - 1] {
                let error = (found[k] - point(&signal, k, direction)).norm() / typical;
                assert!(error < 1e-13, "{n} {direction}, number {k}: {error:e}");
            }
        }
    }
}

#[test]
fn forward_then_inverse_gives_the_signal_times_its_length() {
    for n in [1_000_000, 1 << 18, 262_147] {
        let signal = signal(n);
        let mut there_and_back = signal.clone();
        fft::compute(FftDirection::Forward, &mut there_and_back).unwrap();
        fft::compute(FftDirection::Inverse, &mut there_and_back).unwrap();
        there_and_back.iter_mut().for_each(|z| *z /= n as f64);
        let error = distance(&there_and_back, &signal);
        assert!(error < 3.0 * TOLERANCE, "{n}: {error:e}");
    }
}
