//! Calls one function for many files, and prints how it goes.

use std::path::PathBuf;

use naa_batch::{Batch, Call, Files};

use super::{Args, printer::ResultPrinter, stop};

pub(super) fn run(args: &Args, call: Call<'_>, inputs: Vec<PathBuf>) -> anyhow::Result<()> {
    let files = Files {
        inputs,
        in_dir: args.in_dir.clone(),
        out_dir: args.out_dir.clone(),
        suffix: args.suffix.clone(),
        resume: args.resume,
        sessions: args.sessions,
    };
    let batch = Batch::new(call, &files, &stop::STOPPED)?;
    let mut printer = ResultPrinter::new(args, &batch);
    batch.run(|ended| printer.listen(ended))?;
    // Folders are synced before the summary reports results as complete. Results that exist are synced even if others
    // failed.
    let synced = batch.sync();
    printer.end()?;
    synced
}
