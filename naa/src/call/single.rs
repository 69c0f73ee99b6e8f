//! Makes one call, whose input and output files are all named on the command line.

use std::path::PathBuf;

use naa_batch::{Call, Interrupted, Single, is_stdout};

use super::{Args, progress::Progress, report::print_json};

pub(super) fn run(args: &Args, call: Call<'_>, inputs: &[PathBuf]) -> anyhow::Result<()> {
    let mut single = Single::new(call, inputs, &args.out)?;
    let stdout_is_data = args.out.iter().any(|path| is_stdout(path));
    let mut progress = Progress::start();
    if let Err(error) = single.call(&mut progress) {
        drop(progress);
        // A call that broke off or could not begin is reported, too, but not a call that the user interrupted.
        if args.json && !error.is::<Interrupted>() {
            let mut report = single.report();
            report.fail(&error);
            print_json(&report, stdout_is_data)?;
        }
        return Err(error);
    }
    single.write(&mut progress)?;
    drop(progress);
    let report = single.end()?;
    if args.json { print_json(&report, stdout_is_data) } else { Ok(()) }
}
