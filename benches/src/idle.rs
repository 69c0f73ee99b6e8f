//! What sessions cost that do nothing.

use naa_measure::row::{
    Row,
    Target::{AtMost, Report},
};

use crate::{
    child::Pair,
    cpu,
    runner::{Progress, RunConfig},
    sides::{Far, Near, Wait},
};

const COUNTS: [u32; 4] = [1, 10, 100, 1000];
/// Per cent of one core, both processes together.
const MOST_CPU: f64 = 0.8;
const CPU_AIM: f64 = 0.3;
/// Memory per session of the most sessions to that of ten times fewer.
const FLAT: f64 = 1.25;

fn sessions(count: u32) -> String {
    format!("{count} idle session{}", if count == 1 { "" } else { "s" })
}

fn memory_name(count: u32) -> String {
    format!("{}: resident memory of each, both ends", sessions(count))
}

const FLAT_NAME: &str = "1000 idle sessions: resident memory of each, vs 100 sessions";

fn cpu_name(count: u32) -> String {
    format!("{}: CPU of both ends", sessions(count))
}

pub(crate) fn names() -> Vec<String> {
    let memory = COUNTS.iter().map(|&count| memory_name(count));
    memory.chain([FLAT_NAME.into()]).chain(COUNTS.iter().map(|&count| cpu_name(count))).collect()
}

/// Figures of one repeat, for each number of sessions.
#[derive(Clone, Copy, Debug)]
struct Sample {
    kib_per_session: f64,
    cpu_percent: f64,
}

pub(crate) fn run(config: &RunConfig, progress: &Progress) -> anyhow::Result<Vec<Row>> {
    progress.say("memory and CPU of idle sessions");
    let mut samples = Vec::new();
    // New processes for each repeat: memory grows once.
    for _ in 0..=config.repeats {
        samples.push(watch(config)?);
        progress.bar.inc(1);
    }
    // The first is the warm-up.
    Ok(rows(samples.get(1..).unwrap_or_default()))
}

/// All numbers of sessions at the same time, since they hardly do anything.
fn watch(config: &RunConfig) -> anyhow::Result<[Sample; COUNTS.len()]> {
    let RunConfig { effort, placement, .. } = config;
    let mut pairs = Vec::new();
    for count in COUNTS {
        let mut pair = Pair::start(Some(Far::Call(Wait::Adaptive)), None, Near::Idle(count), placement)?;
        let before = resident(&pair)?;
        pair.warm_up(effort)?;
        let grown = resident(&pair)? - before;
        pairs.push((pair, grown / f64::from(count)));
    }
    let mut results = [Sample { kib_per_session: 0.0, cpu_percent: 0.0 }; COUNTS.len()];
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter_mut()
            .map(|(pair, kib_per_session)| {
                scope.spawn(|| {
                    let sample = pair.run(effort)?;
                    let cpu_percent = (sample.cpu[0] + sample.cpu[1]) * 100.0;
                    anyhow::Ok(Sample { kib_per_session: *kib_per_session, cpu_percent })
                })
            })
            .collect();
        for (thread, result) in threads.into_iter().zip(&mut results) {
            *result = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    Ok(results)
}

fn resident(pair: &Pair) -> anyhow::Result<f64> {
    let far = pair.far.as_ref().map_or(Ok(0.0), |far| cpu::resident_kib(far.id()))?;
    Ok(cpu::resident_kib(pair.near.id())? + far)
}

fn rows(samples: &[[Sample; COUNTS.len()]]) -> Vec<Row> {
    let of = |place: usize, figure: fn(&Sample) -> f64| -> Vec<f64> {
        samples.iter().map(|repeat| figure(&repeat[place])).collect()
    };
    let places = || COUNTS.iter().enumerate();
    let memory = places().map(|(place, &count)| {
        Row::alone(memory_name(count), "KiB", Report, &of(place, |s| s.kib_per_session))
    });
    let pairs: Vec<_> = samples.iter().map(|s| (s[3].kib_per_session, s[2].kib_per_session)).collect();
    let flat = Row::compared(FLAT_NAME, "KiB", AtMost(FLAT), &pairs);
    let cpu = places().map(|(place, &count)| {
        Row::alone(cpu_name(count), "%", AtMost(MOST_CPU), &of(place, |s| s.cpu_percent))
            .aiming(Some(AtMost(CPU_AIM)))
    });
    memory.chain([flat]).chain(cpu).collect()
}
