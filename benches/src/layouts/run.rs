//! A run: all workloads, its files, and what it comes to.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use mrsp::layout::{LayoutChoice, LayoutRule};
use naa_host::{LAYOUT_RULE_VARIABLE, default_layout_rule, layout_rule_from_env};
use naa_measure::{
    Json, TextTable,
    energy::Counters,
    row::{LEAST_REPEATS, Row},
};

use super::{
    args::Args,
    contenders::contenders,
    csv::csv,
    effort::{Effort, about},
    file::{self, Folder, Written},
    fit, grid,
    grid::{DevicePair, Planned},
    look::{self, Available},
    measure::{Bench, Unmeasured},
    point::{ProviderRule, Run},
    progress::Progress,
    report, summary,
};
use crate::{
    child::Pair,
    placement::{self, CpuPlacement},
    sides::{Far, Near, Wait, layouts::Ends},
};

const QUICK_REPEATS: u32 = 3;
/// Workloads in a row that cannot be measured: then it is not for what is special about them.
const MOST_FAILED: u32 = 3;

/// # Errors
/// If something cannot be measured, or its results not written.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let table = Row::table().on_stderr(matches!(json, Some(Json::Stdout)));
    if let Some(path) = &args.from {
        let run = file::read(path)?;
        let folder = folder_at(args.out.as_deref().or_else(|| path.parent()).unwrap_or(path))?;
        return Results { run: &run, folder: &folder, args, table: &table }.publish(json);
    }
    let Available { providers, remarks } = look::providers(&args.provider, args.bind)?;
    remarks.iter().try_for_each(|remark| table.line(remark))?;
    let steps = steps(args, &providers, &table)?;
    if args.list {
        return list(&steps, &table);
    }
    let folder = folder_at(args.out.as_deref().unwrap_or(Path::new("layouts")))?;
    let placement = if args.unpinned { CpuPlacement::default() } else { CpuPlacement::halves()? };
    table.line(&placement::describe(&placement))?;
    let (counters, energy) = look::counters();
    table.line(&energy)?;
    let fresh = Run {
        machine: look::machine(&placement, energy),
        command: args.command(),
        rules: rules(args.rule, &providers)?,
        points: Vec::new(),
    };
    let mut run = if args.resume { folder.resume(fresh)? } else { fresh };
    if !args.resume
        && let Some(kept) = folder.keep_old()?
    {
        table.line(&kept)?;
    }
    let failed = Measuring { placement, counters, table: &table, folder: &folder }.all(&steps, &mut run)?;
    Results { run: &run, folder: &folder, args, table: &table }.publish(json)?;
    ensure!(failed == 0, "{failed} of {} workloads could not be measured; why is above", steps.len());
    Ok(())
}

fn folder_at(path: &Path) -> anyhow::Result<Folder> {
    // The folder of a file that was named without one.
    Folder::make(if path.as_os_str().is_empty() { Path::new(".") } else { path })
}

/// A workload, and what is done for it.
struct Step {
    planned: Planned,
    contenders: Vec<LayoutChoice>,
    effort: Effort,
    /// The estimated time in seconds.
    estimate: f64,
}

fn steps(args: &Args, providers: &[DevicePair], table: &TextTable) -> anyhow::Result<Vec<Step>> {
    let repeats = args.repeats.unwrap_or(if args.quick { QUICK_REPEATS } else { LEAST_REPEATS });
    let mut planned = grid::plan(providers, args.quick, args.instead());
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) && args.wait.is_empty() {
        planned.retain(|planned| planned.wait != Wait::Spin);
        table.line(
            "ends that spin are not measured: they would wait for each other on the one core there is",
        )?;
    }
    ensure!(!planned.is_empty(), "nothing to measure: one parameter cannot have mixed sizes");
    let step = |planned: Planned| {
        let workload = &planned.workload;
        let contenders = contenders(workload);
        let effort = Effort::of(workload, repeats, args.quick);
        let estimate = effort.estimate(workload, contenders.len());
        Step { planned, contenders, effort, estimate }
    };
    Ok(planned.into_iter().map(step).collect())
}

fn list(steps: &[Step], table: &TextTable) -> anyhow::Result<()> {
    steps.iter().try_for_each(|step| table.line(&step.planned.workload.to_string()))?;
    let seconds = steps.iter().map(|step| step.estimate).sum();
    let layouts: usize = steps.iter().map(|step| step.contenders.len()).sum();
    let time = about(Duration::from_secs_f64(seconds));
    table.line(&format!("{} workloads, {layouts} points, about {time}", steps.len()))
}

/// What `auto` follows over each provider.
fn rules(asked: Option<LayoutRule>, providers: &[DevicePair]) -> anyhow::Result<Vec<ProviderRule>> {
    let everywhere = asked.map_or_else(layout_rule_from_env, |rule| Ok(Some(rule)))?;
    let rule = |provider: &DevicePair| ProviderRule {
        provider: provider.name.into(),
        rule: everywhere.unwrap_or_else(|| default_layout_rule(provider.name)).to_string(),
    };
    Ok(providers.iter().map(rule).collect())
}

/// What all workloads are measured with.
struct Measuring<'a> {
    placement: CpuPlacement,
    counters: Option<Counters>,
    table: &'a TextTable,
    folder: &'a Folder,
}

impl Measuring<'_> {
    /// Measures those of `steps` that are not in `run`, which is saved after each step. Returns how many could not be
    /// measured.
    fn all(&self, steps: &[Step], run: &mut Run) -> anyhow::Result<u32> {
        let is_left = |step: &&Step| !run.points.iter().any(|point| point.workload == step.planned.workload);
        let left: Vec<_> = steps.iter().filter(is_left).collect();
        let estimates: Vec<_> = left.iter().map(|step| step.estimate).collect();
        let mut progress = Progress::new(&estimates, steps.len());
        let mut pairs = Pairs { placement: &self.placement, current: None };
        let (mut failed, mut in_a_row) = (0, 0);
        for step in left {
            progress.begin(&step.planned.workload);
            let ends = Ends { wait: step.planned.wait, address: step.planned.address };
            let rule = rule_of(run, &step.planned.workload.provider)?;
            let mut bench = Bench { pair: pairs.get(ends)?, counters: self.counters.as_ref(), rule };
            match bench.measure(&step.planned.workload, &step.contenders, &step.effort) {
                Ok(points) => {
                    in_a_row = 0;
                    run.points.extend(points);
                    self.folder.save(&Written { run, rows: &[] })?;
                }
                Err(error) if error.is::<Unmeasured>() && in_a_row + 1 < MOST_FAILED => {
                    (failed, in_a_row) = (failed + 1, in_a_row + 1);
                    let line = format!("{} is not measured: {error:#}", step.planned.workload);
                    progress.shown.bar.suspend(|| self.table.line(&line))?;
                }
                Err(error) => return Err(error.context(step.planned.workload.to_string())),
            }
            progress.end(step.estimate);
        }
        progress.shown.bar.finish_and_clear();
        Ok(failed)
    }
}

fn rule_of(run: &Run, provider: &str) -> anyhow::Result<LayoutRule> {
    let rule = run.rules.iter().find(|rule| rule.provider == provider);
    Ok(rule.context("a provider without a rule")?.rule.parse()?)
}

/// The processes of the workloads that are measured, started anew where others are needed.
struct Pairs<'a> {
    placement: &'a CpuPlacement,
    current: Option<(Ends, Pair)>,
}

impl Pairs<'_> {
    fn get(&mut self, ends: Ends) -> anyhow::Result<&mut Pair> {
        if self.current.as_ref().is_none_or(|(current, _)| *current != ends) {
            // Nothing of others may run meanwhile.
            self.current = None;
            let pair = Pair::start(Some(Far::Layouts(ends)), None, Near::Layouts(ends), self.placement)?;
            self.current = Some((ends, pair));
        }
        self.current.as_mut().map(|(_, pair)| pair).context("processes that were just started")
    }
}

/// A run that is complete, or as complete as it gets.
struct Results<'a> {
    run: &'a Run,
    folder: &'a Folder,
    args: &'a Args,
    table: &'a TextTable,
}

impl Results<'_> {
    fn publish(&self, json: Option<Json>) -> anyhow::Result<()> {
        let points = &self.run.points;
        if points.is_empty() {
            bail!("there are no points");
        }
        let rows = summary::rows(points);
        let written = Written { run: self.run, rows: &rows };
        if self.args.from.is_none() {
            self.folder.save(&written)?;
        }
        file::replace(&self.folder.csv(), csv(points)?)?;
        file::replace(&self.folder.html(), report::html(self.run))?;
        self.print(&rows)?;
        if self.args.fit {
            self.print_rules()?;
        }
        let Self { table, folder, .. } = self;
        table.line("")?;
        table.line(&format!("{} is the page; {}", folder.html().display(), folder.csv().display()))?;
        json.map_or(Ok(()), |json| json.write(&written))
    }

    fn print(&self, rows: &[Row]) -> anyhow::Result<()> {
        let mut table = self.table.clone();
        table.line(&format!("\n{}\n", summary::table(&self.run.points)))?;
        table.row(Row::HEAD)?;
        rows.iter().filter(|row| !row.is_detail).try_for_each(|row| table.row(row.cells()))
    }

    fn print_rules(&self) -> anyhow::Result<()> {
        let fitted: BTreeMap<_, _> = fit::fit(&self.run.points);
        self.table.line("")?;
        for (provider, fitted) in fitted {
            let fit::Fitted { rule, worst, mean, at, points, noisy, .. } = fitted;
            self.table.line(&format!(
                "{provider}, fitted to {points} workloads without {noisy} that were noisy: {mean:.2} of the best \
                 layout on average, {worst:.2} at {at}"
            ))?;
            self.table.line(&format!("export {LAYOUT_RULE_VARIABLE}={rule}"))?;
        }
        Ok(())
    }
}
