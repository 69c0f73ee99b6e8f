//! Samples of streamed events, as they come: each event is little-endian u16 samples, as of a detector's digitiser. Once a
//! second, and at the end, mean, deviation, extremes and a histogram of each data id.
//!
//! ```text
//! cargo run --release -p naa-events --example histogram -- SOURCE [EVENTS]
//! ```
//!
//! SOURCE is a bridge, `ADDRESS[:PORT]` or `unix:PATH`; after EVENTS events it ends.
//!
//! Each event is copied into one buffer that serves all of them, and given back at once. The bridge could change the event
//! in the ring while it is counted; it cannot change the copy. A program for which the copy is too slow, and which trusts
//! its bridge, reads `Event::bytes_trusting_the_bridge` instead.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use naa_events::{Config, Error, Worker};

const BINS: usize = 16;

/// The sums of one data id.
#[derive(Debug)]
struct Tally {
    events: u64,
    samples: u64,
    sum: u64,
    squares: u128,
    least: u16,
    most: u16,
    bins: [u64; BINS],
}

impl Tally {
    fn new() -> Self {
        Self { events: 0, samples: 0, sum: 0, squares: 0, least: u16::MAX, most: 0, bins: [0; BINS] }
    }

    /// Counts the samples. An odd byte at the end is none.
    fn add(&mut self, bytes: &[u8]) {
        let (samples, _) = bytes.as_chunks::<2>();
        self.events += 1;
        self.samples += samples.len() as u64;
        for &sample in samples {
            let sample = u16::from_le_bytes(sample);
            self.sum += u64::from(sample);
            self.squares += u128::from(sample) * u128::from(sample);
            self.least = self.least.min(sample);
            self.most = self.most.max(sample);
            self.bins[usize::from(sample) * BINS / 65_536] += 1;
        }
    }

    fn report(&self, data_id: u16) {
        let Self { events, samples, least, most, .. } = self;
        if *samples == 0 {
            return println!("data id {data_id}: {events} events, no samples");
        }
        let mean = self.sum as f64 / *samples as f64;
        let deviation = (self.squares as f64 / *samples as f64 - mean * mean).max(0.0).sqrt();
        println!(
            "data id {data_id}: {events} events, {samples} samples, mean {mean:.2}, deviation {deviation:.2}, \
             {least} to {most}"
        );
        let highest = *self.bins.iter().max().unwrap_or(&1);
        for (bin, &count) in self.bins.iter().enumerate() {
            let length = (count * 40 / highest.max(1)) as usize;
            println!("  {:5} {count:12} {}", bin * 65_536 / BINS, "#".repeat(length));
        }
    }
}

fn run(source: &str, most: u64) -> Result<(), Error> {
    let mut worker = Worker::open(&source.parse()?, &Config::default())?;
    eprintln!("{}", worker.describe());
    let (mut tallies, mut bytes) = (BTreeMap::new(), Vec::new());
    let mut due = Instant::now() + Duration::from_secs(1);
    loop {
        if let Some(event) = worker.next_until(Some(due))? {
            let tally = tallies.entry(event.descriptor().name.data_id).or_insert_with(Tally::new);
            event.copy_to(&mut bytes);
            drop(event);
            tally.add(&bytes);
        }
        let stats = worker.stats();
        if Instant::now() >= due || stats.events == most {
            println!("{} events, {} bytes, {} reconnects", stats.events, stats.bytes, stats.reconnects);
            tallies.iter().for_each(|(&data_id, tally)| tally.report(data_id));
            due = Instant::now() + Duration::from_secs(1);
        }
        if stats.events == most {
            return Ok(());
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (source, most) = match &arguments[..] {
        [source] => (source, Ok(u64::MAX)),
        [source, most] => (source, most.parse()),
        _ => {
            eprintln!("usage: histogram SOURCE [EVENTS]");
            return ExitCode::from(2);
        }
    };
    let Ok(most) = most else {
        eprintln!("EVENTS is a number");
        return ExitCode::from(2);
    };
    match run(source, most) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
