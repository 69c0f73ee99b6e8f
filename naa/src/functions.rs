//! `naa functions`: what an accelerator offers.

use mrsp::catalogue::{Direction, FunctionInfo};
use naa_measure::TextTable;

use crate::{peer, provider, show};

/// List the functions of an accelerator
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  naa functions --server 10.9.0.2\n  naa functions --server 10.9.0.2:12345 --json\n\n\
    Parameters are written name:type, < marks inputs, > outputs, = both; argument \
    and status blocks are left out. Accelerators other than `naa serve` may \
    have no catalogue."
)]
pub(crate) struct Args {
    #[command(flatten)]
    peer: peer::Args,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (device, server) = args.peer.open()?;
    provider::report(device.why(), device.is_surprising());
    let waiting = show::waiting(format!("connecting to {server}"));
    let catalogue = naa_host::functions(&device, server)?;
    drop(waiting);
    if args.json {
        let functions: Vec<_> = catalogue.functions.iter().map(json).collect();
        let all = serde_json::json!({"server": server.to_string(), "provider": device.provider(),
            "why": device.why(), "functions": functions});
        return Ok(show::line(&all.to_string())?);
    }
    let header = ["code", "name", "parameters", "description"];
    Ok(show::line(&TextTable::of(header, catalogue.functions.iter().map(row)))?)
}

fn row(function: &FunctionInfo) -> Vec<String> {
    vec![function.code.to_string(), function.name.clone(), function.signature(), function.description.clone()]
}

fn json(function: &FunctionInfo) -> serde_json::Value {
    let parameters: Vec<_> = function
        .parameters
        .iter()
        .map(|parameter| {
            serde_json::json!({
                "direction": direction(parameter.direction), "kind": parameter.kind.name(),
                "name": parameter.name, "description": parameter.description,
            })
        })
        .collect();
    serde_json::json!({
        "code": function.code.get(), "name": function.name, "description": function.description,
        "pooled": function.pooled, "parameters": parameters,
    })
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Input => "input",
        Direction::Output => "output",
        Direction::InOut => "in-out",
        Direction::Internal => "internal",
    }
}
