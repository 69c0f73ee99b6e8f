//! What `rxe-vm` can be asked for.

use std::path::PathBuf;

const MEMORY: u32 = 2048;
const CPUS: u32 = 2;
const LIMIT: u64 = 300;
const MTU: u32 = 4200;

/// The text after the options in `--help`. Lines have at most 80 columns, so that examples can be copied from any
/// terminal.
const MORE: &str = "\
The machine:
  It boots Debian's stock kernel with rdma_rxe. No RDMA hardware, no module of
  this host's kernel and no /dev/kvm are needed: the processor is always
  emulated, so that it works in containers, and alike everywhere. On two idle
  cores one machine takes 8 s to boot, two take 12 s; programs run many times
  slower. All files of this host are there, but only what is written below the
  current folder stays. Output and exit status are the command's own.

  eth-a  10.9.0.1  fd00:9::1  with the soft-RoCE device rxe0
  eth-b  10.9.0.2  fd00:9::2  the other end of its wire, in the namespace
                              `peer`, for a program with a RoCEv2 stack of its
                              own: ip netns exec peer PROGRAM

Two machines (--two), with a wire between them and without that namespace:
  a: eth-a  10.9.0.1  fd00:9::1  with rxe0; runs COMMAND when both are up
  b: eth-b  10.9.0.3  fd00:9::3  with rxe0; runs --peer, its output appears on
                                 standard error as `b: ...`; ends with COMMAND
  Both write to the current folder and see what the other wrote there; locks
  on files hold within one machine only. After `rmmod rdma_rxe` a program
  with a stack of its own can have the address to itself.

In a machine:
  $RXE_VM_SHARED  empty folder, seen by both machines: for files to wait for
  netem WORDS     other impairments of the wire, on all of its ends
  netem off       none

Examples, each to be copied as it is:
  What rdma-core says of the device:
    cargo xtask rxe-vm -- ibv_devinfo -v
  rping of rdma-core on the kernel's device against `naa rping`:
    cargo build --release && cargo xtask rxe-vm -- '
      rping -s -a 10.9.0.1 -C 3 -v & sleep 2;
      ip netns exec peer target/release/naa rping -c -a 10.9.0.1 -C 3 -v; wait'
  Two machines, kernel to kernel; b serves until a has ended:
    cargo xtask rxe-vm --two --peer 'rping -s -P -a fd00:9::3' -- '
      sleep 2; rping -c -a fd00:9::3 -C 3 -v'
  Speed of the kernel's stack; b tells a by a file when it is about to listen
  (-u 20: perftest's usual timeout of 67 ms is too short for emulation):
    cargo xtask rxe-vm --two --peer '
      touch $RXE_VM_SHARED/ready; ib_write_bw -d rxe0 -x 1 -u 20 -n 500' -- '
      until [ -e $RXE_VM_SHARED/ready ]; do sleep 0.1; done; sleep 2;
      ib_write_bw -d rxe0 -x 1 -u 20 -n 500 10.9.0.3'
  A bad network, and another one half-way:
    cargo xtask rxe-vm --two --netem 'loss 1% duplicate 1%' \\
      --peer 'rping -s -P -a 10.9.0.3' -- '
      sleep 2; rping -c -a 10.9.0.3 -C 50 -V && echo still right;
      netem delay 2ms reorder 25%;
      rping -c -a 10.9.0.3 -C 50 -V && echo still right'
  A capture, for tshark or `cargo xtask check-icrc`, of a path MTU of 1024:
    cargo xtask rxe-vm --two --mtu 1500 -p rping.pcap \\
      --peer 'rping -s -P -a 10.9.0.3' -- '
      sleep 2; rping -c -a 10.9.0.3 -C 1 -v'
  Larger socket buffers:
    cargo xtask rxe-vm --sysctl net.core.rmem_max=8388608 -- COMMAND
  By hand; type in another terminal: echo 'ibv_devices; rdma link' >>lines
    touch lines; cargo xtask rxe-vm -t 3600 -- '
      while sleep 1; do while read -r l; do eval \"$l\"; done; done <lines'";

#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// Memory of a machine
    #[arg(short, value_name = "MB", default_value_t = MEMORY, value_parser = memory)]
    pub(crate) memory: u32,
    /// Processors of a machine
    #[arg(short, value_name = "CPUS", default_value_t = CPUS, value_parser = cpus)]
    pub(crate) cpus: u32,
    /// Limit of the whole run; exit status 124 when it is reached
    #[arg(short = 't', value_name = "SECONDS", default_value_t = LIMIT)]
    pub(crate) limit: u64,
    /// Capture what passes eth-a into this file
    #[arg(short, value_name = "PCAP")]
    pub(crate) pcap: Option<PathBuf>,
    /// MTU of the wire; 4200 gives a path MTU of 4096, 1500 one of 1024
    #[arg(long, value_name = "N", default_value_t = MTU, value_parser = mtu)]
    pub(crate) mtu: u32,
    /// Two machines on a virtual wire, both with a soft-RoCE device: a runs COMMAND, b what --peer says
    #[arg(long)]
    pub(crate) two: bool,
    /// Line of bash that b runs from its start; without it b is just there
    #[arg(long, value_name = "COMMAND", requires = "two")]
    pub(crate) peer: Option<String>,
    /// Impair the wire in both directions, in the words of tc-netem(8): 'loss 1% duplicate 1%'
    #[arg(long, value_name = "WORDS")]
    pub(crate) netem: Option<String>,
    /// Kernel setting of every machine, like net.core.rmem_max=8388608; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = sysctl)]
    pub(crate) sysctl: Vec<String>,
    /// One word is a line of bash, several are a program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            memory: MEMORY,
            cpus: CPUS,
            limit: LIMIT,
            pcap: None,
            mtu: MTU,
            two: false,
            peer: None,
            netem: None,
            sysctl: Vec::new(),
            command: Vec::new(),
        }
    }
}

fn number(text: &str, least: u32, most: u32, why: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("give a number from {least} to {most}: {why}")),
    }
}

fn memory(text: &str) -> Result<u32, String> {
    number(text, 256, 1 << 20, "megabytes, of which the kernel and its first programs take about 150")
}

fn cpus(text: &str) -> Result<u32, String> {
    number(text, 1, 64, "processors, more than this host has make it slower")
}

fn mtu(text: &str) -> Result<u32, String> {
    number(text, 1280, 9000, "IPv6 wants 1280, jumbo frames end at 9000")
}

/// A name below /proc/sys, and nothing else there.
fn sysctl(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match text.split_once('=') {
        Some((key, value))
            if key.contains('.') && key.chars().all(fits) && !key.contains("..") && !value.is_empty() =>
        {
            Ok(text.to_owned())
        }
        _ => Err("give KEY=VALUE with a key as sysctl(8) has it: net.core.rmem_max=8388608".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, String> {
        let words = ["rxe-vm"].iter().chain(words);
        Cli::try_parse_from(words).map(|cli| cli.options).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_command_line() {
        let parsed = parse(&["--", "true"]).expect("enough");
        let expected = Args { command: vec!["true".to_owned()], ..Default::default() };
        assert_eq!(format!("{parsed:?}"), format!("{expected:?}"));
    }

    #[test]
    fn everything_is_understood() {
        let words = ["--two", "--peer", "rping -s", "--netem", "loss 1%", "--mtu", "9000", "--sysctl"];
        let more = ["net.core.rmem_max=1", "--sysctl", "net.ipv4.tcp_rmem=1 2 3", "--", "a", "b c"];
        let options = parse(&[words.as_slice(), &more].concat()).expect("right");
        assert!(options.two && options.peer.as_deref() == Some("rping -s") && options.mtu == 9000);
        assert_eq!(options.sysctl, ["net.core.rmem_max=1", "net.ipv4.tcp_rmem=1 2 3"]);
        assert_eq!(options.command, ["a", "b c"]);
    }

    #[test]
    fn examples_fit_a_terminal() {
        assert_eq!(MORE.lines().find(|line| line.chars().count() > 80), None);
    }

    #[test]
    fn what_cannot_work_is_refused_with_words() {
        let refused = |words: &[&str], why: &str| {
            let said = parse(&[words, &["--", "true"]].concat()).expect_err("refused");
            assert!(said.contains(why), "{words:?}: {said}");
        };
        for mtu in ["100", "9001", "65536", "big", "-1"] {
            refused(&[&format!("--mtu={mtu}")], "from 1280 to 9000");
        }
        for setting in ["rmem", "net.core.rmem_max", "net.core.rmem_max=", "../x.y=1", "net..x=1", "net.$x=1"]
        {
            refused(&["--sysctl", setting], "KEY=VALUE");
        }
        refused(&["-m", "64"], "megabytes");
        refused(&["-c", "0"], "processors");
        refused(&["--peer", "x"], "--two");
        assert!(parse(&["--two"]).expect_err("no command").contains("COMMAND"));
    }
}
