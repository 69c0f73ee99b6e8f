//! Makes one call, whose input and output files are all named.

use std::path::PathBuf;

use naa_host::asynchronous::{Attempts, Repeat};

use crate::{
    Call, Phase, Progress, Report,
    files::InputFile,
    offload::{Caller, Times, again},
    output::{self, ResultOutput},
    plan::Plan,
};

/// One call. [`call`](Self::call), [`write`](Self::write) and [`end`](Self::end) follow each other.
#[derive(Debug)]
pub struct Single<'a> {
    call: Call<'a>,
    caller: Caller<'a>,
    sinks: Vec<ResultOutput>,
    inputs: Vec<InputFile>,
    plan: Plan,
    report: Report,
}

impl<'a> Single<'a> {
    /// Opens the files, but does not connect.
    ///
    /// # Errors
    /// [`Refused`](crate::Refused) if the files do not fit the function, or two results are for one place; the errors of
    /// files that cannot be read or written.
    pub fn new(call: Call<'a>, inputs: &[PathBuf], outputs: &[PathBuf]) -> anyhow::Result<Self> {
        let sync = call.settings.sync;
        let sinks = outputs.iter().map(|path| ResultOutput::new(path, sync));
        let sinks = sinks.collect::<anyhow::Result<Vec<_>>>()?;
        output::check_distinct(&sinks)?;
        sinks.iter().for_each(ResultOutput::remove_abandoned);
        let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        let mut report = Report { inputs: names(inputs), outputs: names(outputs), ..call.report() };
        let inputs = inputs.iter().map(|path| InputFile::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
        report.bytes_in = inputs.iter().map(|input| input.len() as u64).sum();
        let plan = Plan::new(call, &inputs, sinks.len())?;
        Ok(Self { call, caller: Caller::new(call.peer, None), sinks, inputs, plan, report })
    }

    /// Connects, and makes the call.
    ///
    /// # Errors
    /// The errors of the session, of the function, and of files that cannot be read; [`Interrupted`](crate::Interrupted).
    pub fn call(&mut self, progress: &mut dyn Progress) -> anyhow::Result<()> {
        let Self { call, caller, inputs, plan, report, .. } = self;
        let mut times = Times::default();
        let mut attempts = Attempts::new(Repeat::IfLost(call.settings.repeat_lost));
        let called = loop {
            let called = call.make(caller, plan, inputs, &mut times, progress);
            if !called.as_ref().is_err_and(|error| again(&mut attempts, error)) {
                break called;
            }
        };
        report.time(times);
        called
    }

    /// The report of a call that failed, but for its error.
    pub fn report(self) -> Report {
        self.report
    }

    /// Writes the results of the call.
    ///
    /// # Errors
    /// Fails if a result cannot be written, or if an input changed during the call; [`Interrupted`](crate::Interrupted).
    pub fn write(&mut self, progress: &mut dyn Progress) -> anyhow::Result<()> {
        let Self { call, caller, sinks, inputs, report, .. } = self;
        let results = caller.results()?;
        report.bytes_out = results.iter().map(|result| result.len() as u64).sum();
        for (sink, result) in sinks.iter().zip(&results) {
            progress.phase(Phase::Writing(result.len() as u64));
            let unchanged = || inputs.iter().try_for_each(InputFile::check_unchanged);
            sink.write(result, || progress.tick(), unchanged)?;
        }
        report.conclude(call.target.code, &results);
        Ok(())
    }

    /// Ends the session. Returns the report of the call.
    ///
    /// # Errors
    /// The errors of the session.
    pub fn end(self) -> anyhow::Result<Report> {
        self.caller.finalize()?;
        Ok(self.report)
    }
}
