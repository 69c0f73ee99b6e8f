//! A few seeds of the simulation; `cargo xtask sim` runs many.

use naa_tests::sim::{self, Options};

fn run(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = sim::run(seed, &Options::default()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn seeds_0_to_24() {
    run(0..25);
}

#[test]
fn seeds_25_to_49() {
    run(25..50);
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..5 {
        let twice = [0, 1].map(|_| sim::run(seed, &Options::default()));
        assert_eq!(twice[0], twice[1]);
    }
}
