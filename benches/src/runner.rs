//! Runs the repeats of all measures, and makes the rows of the table from them.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use naa_measure::{
    TextTable, number,
    row::{Row, Target},
    stats::median,
};

use crate::{
    child::{Pair, Sample},
    idle,
    measures::{Comparison, Contender, Core, Cpu, Measure, Reference, Turns},
    placement::CpuPlacement,
    side::Effort,
};

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunConfig {
    pub(crate) repeats: u32,
    pub(crate) effort: Effort,
    /// True if the repeats are too short for verdicts.
    pub(crate) quick: bool,
    pub(crate) placement: CpuPlacement,
}

/// Runs the measures, prints each row as soon as it is measured, and returns the rows whose names contain `only`.
pub(crate) fn run(
    measures: &[Measure],
    only: Option<&str>,
    config: &RunConfig,
    table: &mut TextTable,
) -> anyhow::Result<Vec<Row>> {
    let progress = Progress::new(measures.len() as u64 * u64::from(config.repeats + 1), "{pos}/{len}");
    progress.bar.suspend(|| table.row(Row::HEAD))?;
    let mut all = Vec::new();
    for measure in measures {
        let mut rows = match measure {
            Measure::Turns(turns) => take_turns(turns, only, config, &progress)?,
            Measure::Idle => idle::run(config, &progress)?,
        };
        rows.retain(|row| only.is_none_or(|text| row.measure.contains(text)));
        if config.quick {
            rows = rows.into_iter().map(Row::without_verdict).collect();
        }
        progress.bar.suspend(|| {
            rows.iter().filter(|row| !row.is_detail).try_for_each(|row| table.row(row.cells()))
        })?;
        all.extend(rows);
    }
    progress.bar.finish_and_clear();
    Ok(all)
}

/// Runs the contenders in turn, every other time in reverse.
fn take_turns(
    turns: &Turns,
    only: Option<&str>,
    config: &RunConfig,
    progress: &Progress,
) -> anyhow::Result<Vec<Row>> {
    let RunConfig { repeats, effort, placement, .. } = config;
    let rows: Vec<_> =
        turns.rows.iter().filter(|row| only.is_none_or(|text| row.name.contains(text))).collect();
    let needed = |place: &usize| {
        let of = |row: &&&Comparison| row.reference.as_ref().map_or(Vec::new(), Reference::places);
        rows.iter().any(|row| row.ours == *place || of(&row).contains(place))
    };
    let places: Vec<_> = (0..turns.contenders.len()).filter(needed).collect();
    progress.say(&rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join("; "));
    let mut pairs = Vec::new();
    for contender in &turns.contenders {
        let needed = places.contains(&pairs.len());
        let Contender { far, beside, near } = *contender;
        pairs.push(needed.then(|| Pair::start(far, beside, near, placement)).transpose()?);
    }
    let mut remarks = vec![String::new(); pairs.len()];
    for (pair, remark) in pairs.iter_mut().zip(&mut remarks) {
        if let Some(pair) = pair {
            *remark = pair.warm_up(effort)?;
        }
    }
    progress.bar.inc(1);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); pairs.len()];
    for repeat in 0..*repeats {
        for turn in 0..places.len() {
            let turn = if repeat % 2 == 0 { turn } else { places.len() - 1 - turn };
            let place = places[turn];
            if let Some(pair) = &mut pairs[place] {
                samples[place].push(pair.run(effort)?);
            }
        }
        progress.bar.inc(1);
    }
    Ok(rows.into_iter().flat_map(|row| rows_of(turns, row, &samples, &remarks)).collect())
}

/// Makes the row of a ratio, and the rows about the CPU time of its ends.
fn rows_of(turns: &Turns, row: &Comparison, samples: &[Vec<Sample>], remarks: &[String]) -> Vec<Row> {
    let figure = |name: &str, reference: Option<&Reference>, unit, target, of: &dyn Fn(&Sample) -> f64| {
        let values = |place: usize| samples[place].iter().map(of).collect::<Vec<_>>();
        let ours = values(row.ours);
        let references = match reference {
            Some(Reference::Contender(place)) => values(*place),
            Some(Reference::Bound(cores)) => (0..ours.len()).map(|at| rate(cores, samples, at)).collect(),
            None => return Row::alone(name, unit, target, &ours),
        };
        Row::compared(name, unit, target, &ours.into_iter().zip(references).collect::<Vec<_>>())
    };
    let main = figure(&row.name, row.reference.as_ref(), turns.unit, row.target, &|sample| sample.value);
    let reference = row.reference.as_ref().and_then(Reference::contender);
    let mut remark: Vec<_> = [Some(row.ours), reference]
        .into_iter()
        .flatten()
        .map(|place| remarks[place].clone())
        .filter(|remark| !remark.is_empty())
        .collect();
    remark.dedup();
    let cpu = turns.cpu.map_or(Vec::new(), |Cpu { unit, per_second, ends }| {
        let about = |(end, what): (usize, &&str)| {
            let name = format!("{}: CPU of {what}", row.name);
            let has_it = |place: &usize| end < 2 || turns.contenders[*place].beside.is_some();
            let reference = reference.filter(has_it).map(Reference::Contender);
            figure(&name, reference.as_ref(), unit, Target::Report, &|sample| sample.cpu[end] * per_second)
                .detail()
        };
        ends.iter().enumerate().map(about).collect()
    });
    if let Some(Cpu { unit, .. }) = turns.cpu {
        let both = |of: fn(&Row) -> Option<f64>| {
            let parts: Vec<_> = cpu.iter().filter_map(of).map(number).collect();
            parts.join("+")
        };
        let reference = both(|row| row.reference);
        let beside = if reference.is_empty() { String::new() } else { format!(", reference {reference}") };
        remark.insert(0, format!("CPU {} {unit}{beside}", both(|row| row.ours)));
    }
    if let Some(Reference::Bound(cores)) = &row.reference {
        remark.push(format!("the bound is the busiest core's: {}", parts(cores, samples)));
    }
    let main = main.aiming(row.aim).remarked(remark.join("; "));
    std::iter::once(main).chain(cpu).collect()
}

/// Returns the rate in GiB/s at which the busiest core has no time left, from the CPU times of one repeat.
fn rate(cores: &[Core], samples: &[Vec<Sample>], repeat: usize) -> f64 {
    let seconds = |core: &Core| core.parts.iter().map(|&(place, end)| samples[place][repeat].cpu[end]).sum();
    1.0 / cores.iter().map(seconds).fold(0.0, f64::max)
}

/// Describes in words what each core has to do.
fn parts(cores: &[Core], samples: &[Vec<Sample>]) -> String {
    let part = |&(place, end): &(usize, usize)| {
        let seconds: Vec<_> = samples[place].iter().map(|sample| sample.cpu[end]).collect();
        median(&seconds).map_or("-".to_owned(), number)
    };
    let core = |core: &Core| {
        format!("{} {} s/GiB", core.name, core.parts.iter().map(part).collect::<Vec<_>>().join("+"))
    };
    cores.iter().map(core).collect::<Vec<_>>().join(", ")
}

/// Shows on standard error what is being measured, as a bar on a terminal and as lines elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) bar: ProgressBar,
    is_terminal: bool,
}

impl Progress {
    /// Starts to show a measure. `done` is the part of the bar's template that tells how much is done.
    pub(crate) fn new(steps: u64, done: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        // The templates are constants, so the default is never used.
        let style = ProgressStyle::with_template(&format!("{{bar:30}} {done} {{elapsed}} {{wide_msg}}"));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let is_terminal = std::io::stderr().is_terminal();
        if is_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, is_terminal }
    }

    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if !self.is_terminal {
            eprintln!("measuring {what}");
        }
    }
}
