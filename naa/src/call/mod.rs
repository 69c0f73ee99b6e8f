//! `naa call`: one function on files.

mod files;
mod offload;
mod plan;
mod progress;

use std::path::PathBuf;

use anyhow::Context as _;
use mrsp::{FunctionCode, builtin, region::MAX_REGION_BYTES};

use crate::{Usage, peer, show};
use files::{Sink, Source};
use offload::{Made, Peer, Times, room_needed};
use plan::Plan;
use progress::Progress;

/// Call a function of an accelerator on files
///
/// Files are read straight into the memory the accelerator's data is sent from, and results appear under their
/// names when they are complete.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  naa call sha256 --server 10.9.0.2 --in data.bin\n  \
    naa call zstd-compress --server 10.9.0.2 --level 9 --in data.bin --out data.bin.zst\n  \
    naa call zstd-decompress --server 10.9.0.2 --in data.bin.zst --out data.bin\n  \
    naa call dgemm --server 10.9.0.2 -m 100 -n 200 -k 300 --in a.f64 b.f64 --out c.f64\n  \
    naa call 96 --server 10.9.0.2 --in x.bin --out y.bin --out-size 64K     a plug-in, by number\n\n\
    Built-in functions take and give what usual tools do: zstd and LZ4 frames, little-endian f64s, row-major \
    matrices, complex numbers as pairs of f64s. `naa functions` lists what a server offers.")]
pub(crate) struct Args {
    /// Name or number, as `naa functions` lists them
    function: String,
    #[command(flatten)]
    peer: peer::Args,
    #[command(flatten)]
    patience: peer::Patience,
    /// Input files, in the order of the parameters; - is standard input. Checksums take any number of files
    #[arg(short, long = "in", value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,
    /// Output files; - is standard output. Checksums are printed unless one is named
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    out: Vec<PathBuf>,
    /// Bytes of the outputs, such as 64K; only functions that are not built in need it
    #[arg(long, value_name = "BYTES", num_args = 1.., value_parser = plan::size)]
    out_size: Vec<usize>,
    /// zstd: compression level
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=19))]
    level: i32,
    /// dgemm: rows of A and of the product
    #[arg(short, value_name = "ROWS")]
    m: Option<u64>,
    /// dgemm: columns of B and of the product. fft: complex numbers [default: as the files have]
    #[arg(short, value_name = "COLUMNS")]
    n: Option<u64>,
    /// dgemm: columns of A and rows of B [default: as the files have]
    #[arg(short, value_name = "INNER")]
    k: Option<u64>,
    /// fft: transform back; unscaled, as FFTW: divide by n
    #[arg(long)]
    inverse: bool,
    /// Print one JSON object per call; to standard error where --out is -, as standard output has the data
    #[arg(long)]
    json: bool,
}

/// What a call came to.
#[derive(Debug, serde::Serialize)]
struct Report {
    function: String,
    bytes_in: u64,
    bytes_out: u64,
    connect_s: f64,
    offloaded_s: f64,
    /// The function's return code; 0 is success.
    code: u32,
    /// Hexadecimal digits of a checksum.
    result: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (device, server, config) = args.patience.open(&args.peer)?;
    let peer = Peer { device, server, config, timeout: args.patience.timeout };
    let function = number(&args.function, &peer)?;
    for paths in plan::batches(args, function) {
        one(args, function, &peer, &paths)?;
    }
    Ok(())
}

/// The number of a function; names that are not built in are the accelerator's to know.
fn number(function: &str, peer: &Peer) -> anyhow::Result<FunctionCode> {
    let code = match function.parse::<u8>() {
        Ok(number) => FunctionCode::new(number)
            .ok_or_else(|| Usage::error(format!("functions are numbered 1 to {}", FunctionCode::MAX)))?,
        Err(_) => match builtin::by_name(function) {
            Some(code) => code,
            None => {
                let catalogue = naa_host::functions(&peer.device, peer.server)?;
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

fn one(args: &Args, function: FunctionCode, peer: &Peer, paths: &[PathBuf]) -> anyhow::Result<()> {
    let sinks = args.out.iter().map(|path| Sink::new(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut inputs = paths.iter().map(|path| Source::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let plan = Plan::new(args, function, &inputs)?;
    let mut times = Times::default();
    let mut progress = Progress::start();
    let mut report = Report {
        function: builtin::name(function).unwrap_or(&args.function).to_owned(),
        bytes_in: inputs.iter().map(|input| input.len() as u64).sum(),
        bytes_out: 0,
        connect_s: 0.0,
        offloaded_s: 0.0,
        code: 0,
        result: None,
    };
    let called = call(args, function, peer, plan, &mut inputs, &mut times, &mut progress);
    report.connect_s = times.connect.as_secs_f64();
    report.offloaded_s = times.offloaded.as_secs_f64();
    let made = match called {
        Ok(made) => made,
        Err(error) => {
            drop(progress);
            let code = error.downcast_ref::<naa_host::Error>().and_then(naa_host::Error::return_code);
            if let Some(code) = code.filter(|_| args.json) {
                report.code = code.get();
                print_json(&report, sinks.iter().any(Sink::is_stdout))?;
            }
            return Err(error);
        }
    };
    let results = made.results()?;
    report.bytes_out = results.iter().map(|result| result.len() as u64).sum();
    for (sink, result) in sinks.iter().zip(&results) {
        progress.phase(format!("writing {}", show::bytes(result.len() as u64)));
        sink.write(result, || progress.tick())?;
    }
    drop(progress);
    report.result = checksum(function, &results);
    made.finalize()?;
    print(args, &report, paths, sinks.iter().any(Sink::is_stdout))
}

/// Calls, again with a larger output where the function says the one it had is too small.
fn call(
    args: &Args,
    function: FunctionCode,
    peer: &Peer,
    mut plan: Plan,
    inputs: &mut [Source],
    times: &mut Times,
    progress: &mut Progress,
) -> anyhow::Result<Made> {
    loop {
        let error = match peer.call(function, &plan, inputs, times, progress) {
            Ok(made) => return Ok(made),
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

/// The digits people write for it.
fn checksum(function: FunctionCode, results: &[&[u8]]) -> Option<String> {
    match (function, results) {
        (builtin::SHA256, [digest]) => Some(show::hex(digest)),
        (builtin::CRC32C, [checksum]) => {
            checksum.first_chunk().map(|bytes| format!("{:08x}", u32::from_le_bytes(*bytes)))
        }
        _ => None,
    }
}

fn print_json(report: &Report, stdout_is_data: bool) -> anyhow::Result<()> {
    let text = serde_json::to_string(report)?;
    if stdout_is_data {
        eprintln!("{text}");
    } else {
        show::line(&text)?;
    }
    Ok(())
}

fn print(args: &Args, report: &Report, paths: &[PathBuf], stdout_is_data: bool) -> anyhow::Result<()> {
    if args.json {
        print_json(report, stdout_is_data)?;
    } else if let (Some(digits), true) = (&report.result, args.out.is_empty()) {
        let name = paths.first().map_or_else(|| "-".into(), |path| path.display().to_string());
        show::line(&format!("{digits}  {name}"))?;
    }
    Ok(())
}
