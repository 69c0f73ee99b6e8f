//! `naa doctor` tells what this machine has for RDMA, what each provider can do here, and which commands help if
//! something is missing.

mod print;
mod trace;

use std::{io::IsTerminal, net::IpAddr, time::Duration};

use anyhow::bail;

use crate::show;
use print::Colour;

const MORE: &str = "\
Examples:
  naa doctor                  what each provider can do here, and what to type for the rest
  naa doctor --json | jq '.providers[] | select(.ready) | .name'
  sudo naa doctor             the firewall's rules too, which only root may read
  naa doctor --trace 10.9.0.2 the packets that a server on this address refuses, and why, until Ctrl-C

Levels: ok; note: worth knowing; warn: slower, or works in part; bad: what keeps a provider from working.
The self-test starts a server on a provider's address, calls it from this process and compares the results.
Nothing on the machine is changed. The exit status is 0 if a provider is ready, else 1.

JSON: {\"checks\": [{name, level, finding, remedy}], \"providers\": [{name, ready, addresses, cannot_listen: [{address,
why}], why, remedy, self_test}]}. A name may come more than once (device, interface, port-4791). `remedy` and
`self_test` may be null; self_test: {ok, address, calls, microseconds, sizes: [{bytes, calls, median_microseconds}],
error}. Keys may be added, none removed.
With --trace there is one object per refused packet: {seconds, from, cause, why, opcode, qp, psn, rkey, address, length}.
All but the first four may be null.";

/// Look at this machine: RDMA devices, limits, network; what each provider can do here
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Leave the providers' self-tests out
    #[arg(long)]
    no_self_test: bool,
    /// Run a server on this address of the machine, with the embedded provider, and print each packet that it refuses
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_self_test")]
    trace: Option<IpAddr>,
    /// End the trace after this time; without it the trace ends by Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "trace", value_parser = crate::peer::seconds)]
    seconds: Option<Duration>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(address) = args.trace {
        return trace::run(address, args.seconds, args.json);
    }
    let mut report = naa_doctor::examine();
    if !args.no_self_test {
        report.run_self_tests();
    }
    if args.json {
        show::line(&serde_json::to_string(&report)?)?;
    } else {
        let colour = Colour(
            std::io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        );
        show::line(&print::report(&report, colour))?;
    }
    if report.is_ready() {
        return Ok(());
    }
    bail!("no provider is ready here; the lines that begin with `->` say what helps")
}
