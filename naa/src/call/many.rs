//! Calls one function for many files, and prints how it goes.

use std::path::PathBuf;

use naa_batch::{Batch, Call, Files};

use super::{Args, stop, teller::Teller};

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
    let mut teller = Teller::new(args, &batch);
    batch.run(|told| teller.listen(told))?;
    // Folders are synced before the summary reports results as complete. Results that exist are synced even if others
    // failed.
    let synced = batch.sync();
    teller.end()?;
    synced
}
