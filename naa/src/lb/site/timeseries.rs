//! `naa lb timeseries`.

use std::time::Duration;

use ejfat_client::messages::{self as pb, timeseries::Timeseries};
use serde_json::json;

use super::{
    At,
    when::{ago, length},
};
use crate::show;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb timeseries '/lb/4/*' --last 10m > run.csv
  naa lb timeseries /lb/4/session/7/slots --json

It prints a line of CSV for each sample: series, UNIX time in milliseconds, value.";

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Args {
    /// A name of a series, as /lb/4/session/7/fill_percent; with * at its end it stands for all series whose names begin like it
    #[arg(value_name = "SELECTOR", default_value = "*")]
    selectors: Vec<String>,
    /// Print samples of this last length of time: a number followed by ms, s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = length)]
    last: Duration,
    #[command(flatten)]
    at: At,
}

fn samples(of: &pb::Timeseries) -> Vec<(i64, serde_json::Value)> {
    match &of.timeseries {
        Some(Timeseries::IntegerSamples(all)) => {
            all.data.iter().map(|of| (of.timestamp, of.value.into())).collect()
        }
        Some(Timeseries::FloatSamples(all)) => {
            all.data.iter().map(|of| (of.timestamp, of.value.into())).collect()
        }
        None => Vec::new(),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (_, connection) = args.at.connect()?;
    let found = connection.timeseries(args.selectors.clone(), Some(ago(args.last)))?.timeseries;
    if args.at.json {
        let of = |of: &pb::Timeseries| json!({ "name": of.name, "unit": of.unit, "samples": samples(of) });
        return Ok(show::line(&json!({ "series": found.iter().map(of).collect::<Vec<_>>() }).to_string())?);
    }
    show::line("series,unix_ms,value")?;
    for of in &found {
        for (at, value) in samples(of) {
            show::line(&format!("{},{at},{value}", of.name))?;
        }
    }
    Ok(())
}
