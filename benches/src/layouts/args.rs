//! What the command is told.

use std::{fmt::Write as _, net::IpAddr, path::PathBuf};

use mrsp::layout::LayoutRule;
use naa_provider::Provider;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    grid::{Sweep, name},
    point::{Direction, Sizes},
};
use crate::sides::Wait;

const EXAMPLES: &str = "\
Examples:
  naa bench layouts                          everything, in under 40 minutes, on an idle machine
  naa bench layouts --quick                  a look in a minute, which is no verdict
  naa bench layouts --resume                 goes on where it was broken off
  naa bench layouts --list                   what there is to measure, and how long it takes
  naa bench layouts --fit                    and print the rule that makes `auto` best here
  naa bench layouts --fit --from layouts/layouts.json      of what was measured before
  naa bench layouts --rule packed:65536:3,gathered --out b  `auto` by a rule, into another folder
  naa bench layouts --params 20 --bytes 100,8K --direction in
  naa bench layouts --bind 10.9.0.1          the RDMA device with this address

A layout says which regions the accelerator has for a session's parameters, and in which WRITEs they go: \
symmetric (a region and a WRITE for each), asymmetric (one region, a WRITE each), gathered (one region, one WRITE with \
a scatter-gather list), packed:BYTES (one region; outputs of up to so many bytes and inputs of up to a sixteenth are copied together), and auto, \
which takes packed or another by a rule. Programs choose with `naa_host::SessionConfig::layout`.

Two processes on this machine hold a session of each layout for the same parameters, and take turns in each repeat; \
calls do nothing but carry the parameters. Every session shows that all bytes arrive before its figures count. \
The folder gets layouts.html, a page to look at; layouts.csv; and layouts.json, which is written after every workload. \
--resume continues it if everything else that is said is the same.

In the CSV byte_length is bytes of all parameters together, setup_time the seconds that connecting, registering and \
agreeing on regions take, transfer_time the seconds of a call, of which the first is first_time: the names and units of \
the NAAICE project's measurements, whose setup_time leaves connecting out, and whose transfer_time is a first call's. \
All columns that end in _time are seconds, goodput is bytes per second. For its evaluation.py keep one layout:
  awk -F, -v OFS=, 'NR == 1 || $6 == \"gathered\" { print $1, $2, $3 }' layouts/layouts.csv > output.csv

Fitted on one run and judged on another, `auto` is to reach 0.95 of the best layout at every workload. There is no \
verdict with --quick, with fewer than 15 repeats, or where repeats differ by more than 20 %. Joules are those of the \
processor's counters, where the machine has some.";

/// Measure which memory-region layout is best for which parameters
///
/// Calls with 1 to 255 parameters of 64 B to 64 MiB, of equal and of mixed sizes, in and out, over each provider there is,
/// by ends that spin and that block: what connecting, the first call and further calls take, CPU time and energy, and
/// memory that is registered.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A few workloads with few and short repeats: no verdict
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repeats of each measurement; fewer than 15 are no verdict, and large parameters have a half or a third of them
    /// [default: 15, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) repeats: Option<u32>,
    /// The folder for layouts.json, layouts.csv and layouts.html [default: layouts, with --from that of FILE]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the JSON to FILE too when all is measured; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Go on with the run in the folder
    #[arg(long)]
    pub(crate) resume: bool,
    /// Measure nothing: make page, CSV and table of what was measured before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "repeats", "resume", "rule", "list", "bind", "provider", "wait", "sizes", "params", "bytes", "direction", "unpinned"])]
    pub(crate) from: Option<PathBuf>,
    /// Print the rule that is best for what was measured
    #[arg(long)]
    pub(crate) fit: bool,
    /// What `auto` follows: packed:BYTES:COUNT,OTHERWISE, with :MOST bytes together after COUNT [default: NAA_LAYOUT_RULE, else that of the provider]
    #[arg(long)]
    pub(crate) rule: Option<LayoutRule>,
    /// Only these providers, embedded or verbs [default: those there are]
    #[arg(long, value_name = "PROVIDER,...", value_delimiter = ',', value_parser = provider)]
    pub(crate) provider: Vec<Provider>,
    /// An address of an RDMA device of this machine, for the verbs provider [default: the first there is]
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Option<IpAddr>,
    /// Only ends that spin or block
    #[arg(long, value_name = "spin|block,...", value_delimiter = ',', value_parser = wait)]
    pub(crate) wait: Vec<Wait>,
    /// Only parameters of equal or mixed sizes
    #[arg(long, value_name = "equal|mixed,...", value_delimiter = ',', value_parser = named::<Sizes>)]
    pub(crate) sizes: Vec<Sizes>,
    /// Other numbers of parameters, 1 to 255
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) params: Vec<u16>,
    /// Other bytes of a parameter on average; K and M are KiB and MiB
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = bytes)]
    pub(crate) bytes: Vec<u64>,
    /// Only parameters that go in, out or both
    #[arg(long, value_name = "in|out|both,...", value_delimiter = ',', value_parser = named::<Direction>)]
    pub(crate) direction: Vec<Direction>,
    /// Let the kernel place the two ends instead of giving each half of the cores
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// List the workloads
    #[arg(long)]
    pub(crate) list: bool,
}

/// As serde has it.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.into())).map_err(|error| error.to_string())
}

fn wait(text: &str) -> Result<Wait, String> {
    let known = [Wait::Spin, Wait::Block].into_iter().find(|&wait| name(wait) == text);
    known.ok_or_else(|| "write spin or block".into())
}

fn provider(text: &str) -> Result<Provider, String> {
    let known =
        [Provider::Embedded, Provider::Verbs].into_iter().find(|provider| provider.to_string() == text);
    known.ok_or_else(|| "write embedded or verbs".into())
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let fits = |bytes: &u64| (1..=MOST_BYTES).contains(bytes);
    number.filter(fits).ok_or_else(|| "write 1 to 1024M, such as 100, 64K or 1M".into())
}

/// The most bytes of a parameter, so that mixed sizes fit into the 2 GiB of a region.
const MOST_BYTES: u64 = 1 << 30;

impl Args {
    pub(crate) fn instead(&self) -> Sweep<'_> {
        let Self { wait, sizes, params, bytes, direction, .. } = self;
        Sweep { waits: wait, sizes, params, bytes, directions: direction }
    }

    /// With everything that figures depend on, in one order: runs with the same command can be one.
    pub(crate) fn command(&self) -> String {
        fn list<T>(out: &mut String, option: &str, values: &[T], text: impl Fn(&T) -> String) {
            if !values.is_empty() {
                // Writing to a string does not fail.
                let _ = write!(out, " {option} {}", values.iter().map(text).collect::<Vec<_>>().join(","));
            }
        }
        fn serialized(value: &impl serde::Serialize) -> String {
            serde_json::to_value(value)
                .ok()
                .and_then(|value| Some(value.as_str()?.to_owned()))
                .unwrap_or_default()
        }
        let mut out = String::from("naa bench layouts");
        for (flag, is_set) in [(" --quick", self.quick), (" --unpinned", self.unpinned)] {
            out.push_str(if is_set { flag } else { "" });
        }
        list(&mut out, "--repeats", self.repeats.as_slice(), u32::to_string);
        list(&mut out, "--provider", &self.provider, Provider::to_string);
        list(&mut out, "--bind", self.bind.as_slice(), IpAddr::to_string);
        list(&mut out, "--wait", &self.wait, |&wait| name(wait).into());
        list(&mut out, "--sizes", &self.sizes, serialized);
        list(&mut out, "--params", &self.params, u16::to_string);
        list(&mut out, "--bytes", &self.bytes, u64::to_string);
        list(&mut out, "--direction", &self.direction, serialized);
        out
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Result<Args, String> {
        let words = std::iter::once("layouts").chain(words.split_whitespace());
        Program::try_parse_from(words).map(|program| program.args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_has_what_figures_depend_on_and_can_be_said_again() {
        let args =
            parse("--resume --bytes 64,8K --params 1,255 --direction in --out x --quick --wait block --fit");
        let command = args.unwrap().command();
        let expected = "naa bench layouts --quick --wait block --params 1,255 --bytes 64,8192 --direction in";
        assert_eq!(command, expected);
        let again = parse(expected.strip_prefix("naa bench layouts ").unwrap()).unwrap();
        assert_eq!(again.command(), expected);
        assert_eq!(parse("").unwrap().command(), "naa bench layouts");
    }

    #[test]
    fn what_is_nonsense_is_refused_with_what_is_not() {
        for (words, remedy) in [
            ("--bytes 0", "64K"),
            ("--bytes 2048M", "64K"),
            ("--params 256", "1..=255"),
            ("--wait adaptive", "spin or block"),
            ("--sizes odd", "`equal` or `mixed`"),
            ("--provider tcp", "embedded or verbs"),
            ("--rule best", "packed:BYTES:COUNT,OTHERWISE"),
            ("--from x --quick", "--quick"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(remedy), "{words}: {error}");
        }
    }
}
