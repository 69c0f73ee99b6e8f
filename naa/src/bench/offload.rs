//! `naa bench offload` finds the size from which on offloading is not slower than local computation.
//!
//! | for | see |
//! |---|---|
//! | repeats: times, joules, rows from them | `repeats` |
//! | the table for people | `table` |

mod repeats;
mod table;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::ensure;
use mrsp::{
    FunctionCode,
    builtin::{self, Element, FftDirection},
};
use naa_host::{
    Device, Param, Session, SessionConfig,
    builtin::{Arguments, BuiltinSession},
};
use naa_measure::{
    Json, TextTable,
    energy::{Counters, NoneFound},
    row::{MOST_SPREAD, Report, Row, Target},
};

use super::local::local;
use crate::{
    demo::{
        cases::{Case, Input},
        children::ServerProcess,
        data,
        prepare::{Prepared, Task, prepare},
    },
    peer::ServerName,
    provider, show,
};
use repeats::{Repeats, cost};

/// Measure from which size on offloading a function pays
///
/// For each function and input size: the time of computing here, on one core with the same libraries; that of a call
/// on a connected session whose data lies in its regions; and that of everything at once: connecting, copying in,
/// calling, copying out. The break-even size is the smallest measured one from which on the call is not slower, by
/// repeats that differ by at most 20 %. Where this machine counts energy, the joules of one computation here and of one
/// call are told too.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    naa bench offload                          with a server process on this machine\n  \
    naa bench offload --server 10.9.0.2        with the accelerator it is about\n  \
    naa bench offload --only sort --json sort.json\n  \
    naa bench offload --quick                  a look in seconds\n\n\
    With a server on this machine both sides have equal cores and share them, so offloading can hardly pay; what \
    remains is its cost. Repeats are interleaved; short computations are repeated within each for a millisecond, or for \
    twenty where energy is counted. J/call is the energy of all processor packages of this machine, and of its memory \
    where that is counted, during a repeat, idle power and other programs included, divided by its computations. \
    Sizes up to 1 MiB have all repeats, larger ones a half, a third and a fifth of them. `nothing`, \
    `increment-by-two` and `catalogue` compute nothing else, and are left out.")]
pub(crate) struct Args {
    /// Measure with this accelerator instead of a server process on this machine
    #[arg(long, value_name = "ADDR[:PORT]")]
    server: Option<ServerName>,
    /// Only functions whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Repeats of each measurement, for sizes up to 1 MiB [default: 15, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    repeats: Option<u32>,
    /// Few sizes and repeats
    #[arg(long)]
    quick: bool,
    /// Write the rows as JSON; - is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 9] = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB];
const QUICK_SIZES: [usize; 3] = [KIB, 64 * KIB, MIB];
const FUNCTIONS: [FunctionCode; 12] = [
    builtin::INCREMENT,
    builtin::SHA256,
    builtin::CRC32C,
    builtin::DGEMM,
    builtin::FFT,
    builtin::LZ4_COMPRESS,
    builtin::LZ4_DECOMPRESS,
    builtin::ZSTD_COMPRESS,
    builtin::ZSTD_DECOMPRESS,
    builtin::VECTOR_ADD,
    builtin::HISTOGRAM,
    builtin::SORT,
];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let only = args.only.as_deref().unwrap_or_default();
    let named: Vec<_> = FUNCTIONS.into_iter().filter(|&function| name(function).contains(only)).collect();
    ensure!(
        !named.is_empty(),
        "no function has {only:?} in its name; they are {}",
        FUNCTIONS.map(name).join(", ")
    );
    let json = args.json.as_deref().map(Json::open).transpose()?;

    let choice = provider::from_env()?;
    let (device, server, child) = match &args.server {
        Some(server) => {
            let (device, server) = server.find(None, choice)?;
            (device, server, None)
        }
        None => {
            let child = ServerProcess::start(choice)?;
            (Device::towards_with(child.address(), choice)?, child.address(), Some(child))
        }
    };
    let bench = Bench { device, server, is_elsewhere: child.is_none(), counters: Counters::open() };
    let sizes = if args.quick { &QUICK_SIZES[..] } else { &SIZES };
    let repeats = args.repeats.unwrap_or(if args.quick { 3 } else { 15 });
    let mut table = table::new(bench.counters.is_ok()).on_stderr(matches!(json, Some(Json::Stdout)));
    let rows = bench.table(&named, sizes, repeats, &mut table)?;
    if let Some(child) = child {
        child.end();
    }
    json.map_or(Ok(()), |json| json.write(&Report { rows }))
}

fn name(function: FunctionCode) -> &'static str {
    builtin::name(function).unwrap_or("unnamed")
}

/// An input of about this number of bytes.
fn input(function: FunctionCode, bytes: usize) -> Input {
    match function {
        builtin::DGEMM => Input::Matrices((bytes / 16).isqrt()),
        builtin::FFT => Input::Signal(bytes / 16, FftDirection::Forward),
        builtin::VECTOR_ADD => Input::Numbers(bytes / 16, Element::F64),
        builtin::HISTOGRAM | builtin::SORT => Input::Numbers(bytes / 8, Element::F64),
        _ => Input::Generated(bytes),
    }
}

/// The number of repeats, which is lower for larger sizes.
fn repeats_of(bytes: usize, repeats: u32) -> u32 {
    let share = match bytes / MIB {
        0..=1 => 1,
        2..=4 => 2,
        5..=16 => 3,
        _ => 5,
    };
    (repeats / share).max(3)
}

struct Bench {
    device: Device,
    server: SocketAddr,
    /// Whether the server was not started by this command, on this machine or another.
    is_elsewhere: bool,
    counters: Result<Counters, NoneFound>,
}

impl Bench {
    fn table(
        &self,
        functions: &[FunctionCode],
        sizes: &[usize],
        repeats: u32,
        table: &mut TextTable,
    ) -> anyhow::Result<Vec<Row>> {
        let has_energy = self.counters.is_ok();
        let bar = show::steps(functions.len() * sizes.len());
        bar.suspend(|| table.row(table::head(has_energy)))?;
        let mut rows = Vec::new();
        let mut summary = Vec::new();
        for &function in functions {
            let mut ratios = Vec::new();
            for &size in sizes {
                bar.set_message(format!("{} {}", name(function), show::bytes(size as u64)));
                let prepared = prepare(Case { function, input: input(function, size) })?;
                let measured = self.measure(&prepared, repeats_of(size, repeats))?;
                let bytes = prepared.inputs.iter().map(|input| input.len() as u64).sum();
                let [call, all] = measured.times(name(function), bytes);
                let energy = has_energy.then(|| measured.energy(name(function), bytes));
                let cells =
                    table::cells(name(function), bytes, [&call, &all], energy.as_ref(), measured.count());
                bar.suspend(|| table.row(cells))?;
                ratios.push((bytes, call.ratio.unwrap_or(f64::INFINITY), call.spread));
                rows.extend([call, all].into_iter().chain(energy));
                bar.inc(1);
            }
            let row = break_even(name(function), &ratios);
            summary.push([name(function).to_owned(), row.remark.clone()]);
            rows.push(row);
        }
        bar.finish_and_clear();
        table.line(&table::about_energy(&self.counters, self.is_elsewhere.then_some(self.server)))?;
        table.line(&format!("\n{}", TextTable::of(["offloading is not slower"], summary)))?;
        Ok(rows)
    }

    fn measure(&self, prepared: &Prepared, repeats: u32) -> anyhow::Result<Repeats> {
        let mut local = local(prepared)?;
        let mut connected = Connected::new(self, prepared)?;
        connected.call()?;
        ensure!(
            connected.is_right(prepared)?,
            "{} gave another result than the computation here; run `naa demo`",
            name(prepared.function)
        );
        let counters = self.counters.as_ref().ok();
        let mut measured = Repeats::default();
        for _ in 0..repeats {
            measured.local.push(cost(counters, &mut local)?);
            measured.offloaded.push(cost(counters, || connected.call())?);
            measured.all.push(cost(None, || self.everything(prepared))?);
        }
        connected.finalize()?;
        Ok(measured)
    }

    /// Does everything that a program must do for one call: connect, copy the inputs, call, copy the result.
    fn everything(&self, prepared: &Prepared) -> anyhow::Result<()> {
        let mut connected = Connected::new(self, prepared)?;
        connected.call()?;
        let result = match &connected {
            Connected::Builtin(session, _) => session.output(0)?.into_owned(),
            Connected::InOut(session, _) => session.to_vec(0)?,
        };
        std::hint::black_box(&result);
        connected.finalize()
    }
}

/// A session with the inputs in its regions.
enum Connected {
    Builtin(BuiltinSession, Arguments),
    InOut(Session, FunctionCode),
}

impl Connected {
    fn new(bench: &Bench, prepared: &Prepared) -> anyhow::Result<Self> {
        let Prepared { function, inputs, room, .. } = prepared;
        let config = SessionConfig::default();
        let Task::Builtin(arguments) = prepared.task else {
            let input = inputs.first().map_or(&[][..], Vec::as_slice);
            let param = Param::in_out(*room).holding(input);
            let session = Session::connect(&bench.device, bench.server, &[param], &config)?;
            return Ok(Self::InOut(session, *function));
        };
        let sizes: Vec<_> = inputs.iter().map(Vec::len).collect();
        let mut session = BuiltinSession::connect(&bench.device, bench.server, &sizes, &[*room], &config)?;
        for (index, input) in inputs.iter().enumerate() {
            session.input(index)?.copy_from_slice(input);
        }
        Ok(Self::Builtin(session, arguments))
    }

    fn call(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Builtin(session, arguments) => session.run(arguments)?,
            Self::InOut(session, function) => session.call(*function)?,
        }
        Ok(())
    }

    /// Whether the result of the first call is right.
    fn is_right(&self, prepared: &Prepared) -> anyhow::Result<bool> {
        let output = match self {
            Self::Builtin(session, _) => session.output(0)?,
            Self::InOut(session, _) => session.bytes(0, ..)?,
        };
        let close = [builtin::DGEMM, builtin::FFT].contains(&prepared.function);
        Ok(if close { data::is_close(&output, &prepared.expected) } else { *output == *prepared.expected })
    }

    fn finalize(self) -> anyhow::Result<()> {
        match self {
            Self::Builtin(session, _) => session.finalize()?,
            Self::InOut(session, _) => session.finalize()?,
        }
        Ok(())
    }
}

/// The smallest size from which on no ratio is above 1. A size whose repeats differ too much does not count.
fn break_even(name: &str, ratios: &[(u64, f64, Option<f64>)]) -> Row {
    let calm = |spread: &Option<f64>| spread.is_some_and(|spread| spread <= MOST_SPREAD);
    let pays = ratios.iter().rev().take_while(|(_, ratio, spread)| *ratio <= 1.0 && calm(spread)).last();
    let sizes: Vec<_> = pays.iter().map(|(bytes, ..)| *bytes as f64).collect();
    let remark = match (pays, ratios.last()) {
        (Some((bytes, ..)), _) => format!("from {} on", show::bytes(*bytes)),
        (None, Some((most, ratio, spread))) => {
            let unsure = if calm(spread) { "" } else { ", with a spread over 20 %" };
            format!("nowhere up to {}; there {ratio:.2} times as long{unsure}", show::bytes(*most))
        }
        (None, None) => String::new(),
    };
    let row = Row::alone(format!("{name}, break-even size"), "B", Target::Report, &sizes);
    // The row passes even if there is no such size.
    Row { pass: Some(true), ..row }.remarked(remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_where_all_larger_sizes_pay() {
        let row = |ratios: &[(u64, f64)]| {
            let calm: Vec<_> = ratios.iter().map(|&(bytes, ratio)| (bytes, ratio, Some(0.1))).collect();
            break_even("f", &calm)
        };
        let found = row(&[(1 << 10, 0.9), (4 << 10, 1.1), (16 << 10, 1.0), (64 << 10, 0.5)]);
        assert_eq!(
            (found.ours, found.remark.as_str(), found.pass),
            (Some(16384.0), "from 16 KiB on", Some(true))
        );
        let none = row(&[(1 << 10, 0.9), (4 << 10, 1.5)]);
        assert_eq!((none.ours, none.pass), (None, Some(true)));
        assert_eq!(none.remark, "nowhere up to 4 KiB; there 1.50 times as long");
        let unsure = break_even("f", &[(1 << 10, 0.5, Some(0.3))]);
        assert!(unsure.ours.is_none() && unsure.remark.contains("spread"), "{}", unsure.remark);
    }

    #[test]
    fn larger_sizes_are_repeated_less() {
        assert_eq!(SIZES.map(|bytes| repeats_of(bytes, 15)), [15, 15, 15, 15, 15, 15, 7, 5, 3]);
        assert_eq!(repeats_of(64 * MIB, 3), 3);
    }
}
