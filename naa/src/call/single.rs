//! Makes one call, whose input and output files are all named on the command line.

use std::path::PathBuf;

use mrsp::builtin;

use super::{
    Args, call,
    files::Source,
    offload::{Caller, Peer, Times},
    output::{self, Sink},
    plan::Plan,
    progress::Progress,
    report::{Report, Status},
    stop::Interrupted,
    target::Target,
};
use crate::show;

pub(super) fn run(args: &Args, target: &Target, peer: &Peer, paths: &[PathBuf]) -> anyhow::Result<()> {
    let function = target.code;
    let sinks =
        args.out.iter().map(|path| Sink::new(path, !args.no_sync)).collect::<anyhow::Result<Vec<_>>>()?;
    output::check_distinct(&sinks)?;
    sinks.iter().for_each(Sink::remove_abandoned);
    let mut inputs = paths.iter().map(|path| Source::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let plan = Plan::new(args, target, &inputs, sinks.len())?;
    let mut times = Times::default();
    let mut progress = Progress::start();
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
    let mut report = Report {
        function: builtin::name(function).unwrap_or(&args.function).to_owned(),
        inputs: names(paths),
        outputs: names(&args.out),
        bytes_in: inputs.iter().map(|input| input.len() as u64).sum(),
        ..peer.report()
    };
    let stdout_is_data = sinks.iter().any(Sink::is_stdout);
    let mut caller = Caller::new(peer, None);
    let called = call(args, function, &mut caller, plan, &mut inputs, &mut times, &mut progress);
    report.time(times);
    if let Err(error) = called {
        drop(progress);
        report.fail(Status::Failed, &error);
        // A call that broke off or could not begin is reported, too, but not a call that the user interrupted.
        if args.json && !error.is::<Interrupted>() {
            report.print_json(stdout_is_data)?;
        }
        return Err(error);
    }
    let results = caller.results()?;
    report.bytes_out = results.iter().map(|result| result.len() as u64).sum();
    for (sink, result) in sinks.iter().zip(&results) {
        progress.phase(format!("writing {}", show::bytes(result.len() as u64)));
        let unchanged = || inputs.iter().try_for_each(Source::check_unchanged);
        sink.write(result, || progress.tick(), unchanged)?;
    }
    drop(progress);
    report.conclude(function, &results);
    caller.finalize()?;
    if args.json { report.print_json(stdout_is_data) } else { Ok(()) }
}
