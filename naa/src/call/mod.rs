//! `naa call`: one function on files.

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
mod teller;

use anyhow::Context as _;
use mrsp::{
    FunctionCode,
    builtin::{self, Group},
    region::MAX_REGION_BYTES,
};

use crate::{Usage, provider, show};
use files::Source;
use offload::{Caller, Peer, Times, room_needed};
use plan::Plan;
use progress::Progress;

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
    let function = number(&args.function, &peer)?;
    plan::check(args, function)?;
    let inputs = names::expand(&args.input)?;
    stop::listen()?;
    let result = if is_batch(args, function)? {
        batch::run(args, function, &peer, &inputs)
    } else {
        single::run(args, function, &peer, &inputs)
    };
    if result.as_ref().is_err_and(|error| error.is::<stop::Interrupted>()) {
        show::error_line("naa: interrupted");
        std::process::exit(stop::EXIT_CODE);
    }
    result
}

/// The number of a function; names that are not built in are the accelerator's to know.
fn number(function: &str, peer: &Peer) -> anyhow::Result<FunctionCode> {
    let code = match function.parse::<u8>() {
        Ok(number) => FunctionCode::new(number)
            .ok_or_else(|| Usage::error(format!("functions are numbered 1 to {}", FunctionCode::MAX)))?,
        Err(_) => match builtin::by_name(function) {
            Some(code) => code,
            None => {
                let waiting = show::waiting(format!("connecting to {}", peer.server));
                let catalogue = naa_host::functions(&peer.device, peer.server)?;
                drop(waiting);
                let found = catalogue.functions.iter().find(|offered| offered.name == function);
                let server = peer.server;
                found
                    .with_context(|| {
                        format!("{server} has no function {function}; `naa functions --server {server}` lists them")
                    })?
                    .code
            }
        },
    };
    if code == builtin::CATALOGUE {
        return Err(Usage::error("use `naa functions`, which prints the catalogue"));
    }
    Ok(code)
}

/// Whether each input is a call of its own.
fn is_batch(args: &Args, function: FunctionCode) -> anyhow::Result<bool> {
    let printed = plan::is_checksum(function) && args.out.is_empty() && args.out_dir.is_none();
    let folders = !args.in_dir.is_empty() || args.out_dir.is_some();
    if args.input.is_empty() && args.in_dir.is_empty() {
        return Ok(false);
    }
    if folders {
        let takes_one = match plan::inputs_of(function) {
            Some(count) => count == 1,
            None => Group::of(function) == Group::Naaice || args.out_size.len() == 1,
        };
        if !takes_one {
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

/// Calls, again with a larger output where the function says the one it had is too small.
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
                    _ => return Err(error),
                }
            }
            _ => return Err(error),
        }
    }
}
