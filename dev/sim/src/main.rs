//! Runs the simulation over many seeds, or one again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use clap::Parser;
use sim::{
    Failure, Kind, RunConfig, Summary,
    site::{Site, Size},
};

const THREADS: u64 = 2;
const GOODPUT_MESSAGES: usize = 5000;
const PROGRESS_EVERY: u64 = 1000;

/// Simulates two RoCEv2 endpoints, or EJFAT senders with a worker or a bridge, over a faulty network
#[derive(Parser)]
struct Args {
    /// traffic (work requests of all sorts), calls (sessions, and calls of functions), events (EJFAT), bridge (events
    /// into workers' rings) or control (EJFAT's control plane); all unless told
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "A", default_value_t = 0)]
    from: u64,
    /// Run this one seed
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print plans and completions
    #[arg(long)]
    verbose: bool,
    /// Write the packets sent
    #[arg(long, value_name = "FILE", requires_all = ["kind", "seed"])]
    pcap: Option<PathBuf>,
    /// Measure packets per second on a perfect network instead
    #[arg(long, conflicts_with_all = ["kind", "seeds", "from", "seed"])]
    goodput: bool,
    /// Draw the shares of workers into an SVG file instead: a slow worker, a newcomer, a death, a clock that is set back
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "seeds", "from", "seed", "goodput"])]
    plot: Option<PathBuf>,
    /// Run a control plane with 8 load balancers, 128 workers and 16 senders each for so many minutes of virtual time
    /// instead, and print what its memory and a period come to
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["kind", "seeds", "from", "seed", "goodput"])]
    full_site: Option<u32>,
}

fn main() -> ExitCode {
    match perform(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn perform(args: &Args) -> Result<(), String> {
    if args.goodput {
        return goodput();
    }
    if let Some(file) = &args.plot {
        return plot(file);
    }
    if let Some(minutes) = args.full_site {
        return full_site(minutes);
    }
    for kind in Kind::ALL.into_iter().filter(|kind| args.kind.is_none_or(|wanted| wanted == *kind)) {
        let start = Instant::now();
        let summary = seeds(kind, args).map_err(|failure| failure.to_string())?;
        println!("{kind}: {summary}, {:.1} wall seconds", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn goodput() -> Result<(), String> {
    let measured = sim::goodput(GOODPUT_MESSAGES)?;
    let seconds = measured.wall.as_secs_f64();
    let gigabits = measured.bytes as f64 * 8e-9 / seconds;
    println!("{:.0} packets per second, {gigabits:.2} Gbit/s", measured.packets as f64 / seconds);
    Ok(())
}

fn plot(file: &Path) -> Result<(), String> {
    let written = sim::shares().and_then(|svg| std::fs::write(file, svg).map_err(|why| why.to_string()));
    written.map_err(|why| format!("{}: {why}", file.display()))
}

/// The memory after the first tenth of the time, and at the end, may differ by this.
const GROWTH: u64 = 2 << 20;

fn full_site(minutes: u32) -> Result<(), String> {
    let mut site = Site::new(Size::FULL, 1)?;
    let mut early = 0;
    for minute in 0..minutes {
        for second in 0..60 {
            // Workers become faster or slower now and then.
            if (minute * 60 + second) % 30 == 0 {
                site.change_all();
            }
            site.second();
        }
        if minute == minutes / 10 {
            early = resident();
        }
    }
    let grown = resident().saturating_sub(early);
    let mut periods = std::mem::take(&mut site.periods);
    periods.sort_unstable();
    let at =
        |part: usize| periods.get(periods.len() * part / 1000).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    println!(
        "{} workers, {minutes} minutes, {} epochs: a period took {:.2} ms (median), {:.2} ms (99.9 %); {} records, memory \
         {} MiB, {} KiB more than after a tenth of the time",
        site.workers(),
        site.epochs,
        at(500),
        at(999),
        site.records(),
        resident() >> 20,
        grown >> 10,
    );
    if grown > GROWTH { Err(format!("memory grew by more than {} MiB", GROWTH >> 20)) } else { Ok(()) }
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn seeds(kind: Kind, args: &Args) -> Result<Summary, Failure> {
    let (from, count) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let options = RunConfig { verbose: args.verbose, pcap: args.pcap.clone() };
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        let mut total = Summary::default();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count || failed.load(Ordering::Relaxed) {
                return Ok(total);
            }
            total += run(kind, from + n, &options).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            if (n + 1) % PROGRESS_EVERY == 0 {
                eprintln!("{kind}: {} of {count} seeds", n + 1);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut total = Summary::default();
        for thread in threads {
            total += thread.join().expect("panics are caught")?;
        }
        Ok(total)
    })
}

/// A panic is a failure of its seed.
fn run(kind: Kind, seed: u64, options: &RunConfig) -> Result<Summary, Failure> {
    catch_unwind(AssertUnwindSafe(|| sim::run(kind, seed, options))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Failure { kind, seed, why: format!("panic: {text}") })
    })
}
