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
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["series", "unix_ms", "value"])?;
    for of in &found {
        samples(of).iter().try_for_each(|(at, value)| out.serialize((&of.name, at, value)))?;
    }
    Ok(show::line(String::from_utf8(out.into_inner()?)?.trim_end())?)
}
