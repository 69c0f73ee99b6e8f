//! `naa call` calls one function on files.

mod args;
mod batch;
mod files;
mod names;
mod offload;
mod output;
mod plan;
mod progress;
mod report;
mod single;
mod stop;
mod target;
mod teller;

use std::path::Path;

use mrsp::{FunctionCode, ReturnCode, region::MAX_REGION_BYTES};

use crate::{Usage, provider, show};
use files::Source;
use offload::{Caller, Peer, Times, room_needed};
use plan::Plan;
use progress::Progress;
use target::Target;

pub(crate) use args::Args;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (device, server, config) = args.patience.open(&args.peer)?;
    let peer = Peer { device, server, config };
    if args.json && args.out.iter().any(|path| output::is_stdout(path)) {
        // JSON goes to standard error, which then has nothing else.
        show::be_quiet();
    } else {
        provider::tell(peer.device.why(), peer.device.is_surprising());
    }
    let target = Target::find(&args.function, &peer)?;
    plan::check(args, target.code)?;
    let inputs = names::expand(&args.input)?;
    stop::listen()?;
    let result = if is_batch(args, &target)? {
        batch::run(args, &target, &peer, &inputs)
    } else {
        single::run(args, &target, &peer, &inputs)
    };
    if result.as_ref().is_err_and(|error| error.is::<stop::Interrupted>()) {
        show::error_line("naa: interrupted");
        std::process::exit(stop::EXIT_CODE);
    }
    result
}

/// Whether a call is made for each input.
fn is_batch(args: &Args, target: &Target) -> anyhow::Result<bool> {
    let printed = plan::is_checksum(target.code) && args.out.is_empty() && args.out_dir.is_none();
    let folders = !args.in_dir.is_empty() || args.out_dir.is_some();
    if args.input.is_empty() && args.in_dir.is_empty() {
        return Ok(false);
    }
    if folders {
        if !target.takes_one(args.out_size.len()) {
            return Err(Usage::error(
                "--in-dir and --out-dir are for functions of one input and one output; those that are not built in \
                 need one --out-size",
            ));
        }
        if args.out_dir.is_none() && !printed {
            return Err(Usage::error("say where the results of all files go: --out-dir DIR"));
        }
    }
    Ok(folders || printed)
}

/// Makes a call. If the function says that the output was too small, the call is repeated with a larger one.
fn call(
    args: &Args,
    function: FunctionCode,
    caller: &mut Caller<'_>,
    mut plan: Plan,
    inputs: &mut [Source],
    times: &mut Times,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    loop {
        let error = match caller.call(function, &plan, inputs, times, progress) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match &mut plan {
            Plan::Builtin { room, .. } if plan::may_grow(args, function) => {
                match room_needed(&error, *room) {
                    Some(needed) if *room < MAX_REGION_BYTES as usize => {
                        *room = needed.min(MAX_REGION_BYTES as usize);
                    }
                    _ => return Err(of_file(error, inputs)),
                }
            }
            _ => return Err(of_file(error, inputs)),
        }
    }
}

/// The error of a call, which names its file if it is the file's content that cannot be read.
fn of_file(error: anyhow::Error, inputs: &[Source]) -> anyhow::Error {
    let code = error.downcast_ref().and_then(naa_host::Error::return_code);
    match inputs {
        [input] if code == Some(ReturnCode::MALFORMED_INPUT) => match input.path() {
            path if path == Path::new("-") => error.context("standard input"),
            path => error.context(path.display().to_string()),
        },
        _ => error,
    }
}
