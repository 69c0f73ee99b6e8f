//! `naa call` calls one function on files.

mod args;
mod many;
mod printer;
mod progress;
mod report;
mod single;
mod stop;

use std::net::SocketAddr;

use naa_batch::{Accelerator, Call, Refused, Target};
use naa_host::{Accelerators, Device, SessionConfig, asynchronous::PoolConfig};

use crate::{Usage, provider, show};

pub(crate) use args::Args;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (servers, config) = args.waiting.open_all(&args.peers)?;
    let pool = (servers.len() > 1).then(|| pool(servers.clone(), &config, args.sessions)).transpose()?;
    let mut servers = servers.into_iter();
    let (device, server) = servers.next().expect("the command line has a server");
    let peer = Accelerator { device, server, config, others: servers.collect(), pool };
    if args.json && args.out.iter().any(|path| naa_batch::is_stdout(path)) {
        // JSON goes to standard error, which then has nothing else.
        show::be_quiet();
    } else {
        provider::report(peer.device.why(), peer.device.is_surprising());
    }
    let result = call(args, &peer).map_err(usage);
    if result.as_ref().is_err_and(|error| error.is::<naa_batch::Interrupted>()) {
        show::error_line("naa: interrupted");
        std::process::exit(stop::EXIT_CODE);
    }
    result
}

/// The pool of several accelerators, each of which may have a session for each file that is in work.
fn pool(
    servers: Vec<(Device, SocketAddr)>,
    config: &SessionConfig,
    sessions: Option<usize>,
) -> anyhow::Result<Accelerators> {
    /// The maximum number of files that are in work at a time.
    const MOST: usize = 64;
    let config = PoolConfig {
        session: config.clone(),
        sessions_per_accelerator: sessions.unwrap_or(MOST),
        give_up_after: Some(config.setup_timeout),
        ..PoolConfig::default()
    };
    Ok(Accelerators::new(servers, config)?)
}

fn call(args: &Args, peer: &Accelerator) -> anyhow::Result<()> {
    let waiting = show::waiting(format!("connecting to {}", peer.server));
    let target = &Target::find(&args.function, peer)?;
    drop(waiting);
    let call = Call { peer, target, settings: &args.settings() };
    call.check()?;
    let inputs = naa_batch::expand(&args.input)?;
    stop::listen()?;
    if is_batch(args, target)? { many::run(args, call, inputs) } else { single::run(args, call, &inputs) }
}

/// The error of the library as an error of this program, which names `--help` and decides the exit status.
fn usage(error: anyhow::Error) -> anyhow::Error {
    error.downcast().map_or_else(|error| error, |Refused(problem)| Usage::error(problem))
}

/// Whether a call is made for each input.
fn is_batch(args: &Args, target: &Target) -> anyhow::Result<bool> {
    let printed = target.is_checksum() && args.out.is_empty() && args.out_dir.is_none();
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
