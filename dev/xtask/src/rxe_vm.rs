//! `rxe-vm`: runs a command on a real kernel soft-RoCE (rdma_rxe) device, in a small machine of its own, or in one of
//! two on a virtual wire.
//!
//! QEMU boots Debian's stock kernel under software emulation. A machine sees this host's files read-only, with a
//! throw-away overlay on top; the current folder is mounted read-write, without a cache, so that machines and host
//! see each other's writes.

mod args;
mod control;
mod image;
mod machine;
mod tail;

pub(crate) use args::Args;
pub(crate) use control::command_line;

use crate::packages::{self, User};
use anyhow::{Context, Result, ensure};
use control::{Control, Name};
use machine::Machine;
use std::{
    fs,
    io::{self, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};
use tail::{Marked, Sink, Tail};

/// Exit status when the time is up, as timeout(1) has it.
const TIMED_OUT: u8 = 124;
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    right_processor()?;
    packages::ensure(User::RxeVm).map_err(anyhow::Error::msg)?;
    let status = boot(options, &mut |bytes| io::stdout().lock().write_all(bytes))?;
    Ok(ExitCode::from(status))
}

fn right_processor() -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "rxe-vm runs this host's programs on an x86-64 kernel, and so works on x86-64 hosts only"
    );
    Ok(())
}

/// Boots, runs the command, hands its standard output to `stdout` while it runs, and gives its exit status.
/// Everything else that commands write goes to standard error.
fn boot(options: &Args, stdout: &mut Sink<'_>) -> Result<u8> {
    right_processor()?;
    let image = image::ready()?;
    let names: &[Name] = if options.two { &[Name::A, Name::B] } else { &[Name::A] };
    let control = Control::new(options, names)?;
    let machines = machine::start(options, &image, &control, names)?;
    let deadline = Instant::now() + Duration::from_secs(options.limit);
    let ended = watch(machines, &mut Output::new(&control, stdout), deadline)?;
    let verdict = verdict(options, &control, ended)?;
    if let Some(pcap) = &options.pcap {
        let captured = control.of(Name::A, "pcap");
        fs::copy(&captured, pcap).with_context(|| format!("no capture for {}", pcap.display()))?;
    }
    Ok(verdict)
}

/// Boots, and gives the exit status of the command and its standard output, which is shown too if `is_shown`.
pub(crate) fn recorded(options: &Args, is_shown: bool) -> Result<(u8, Vec<u8>)> {
    let mut output = Vec::new();
    let status = boot(options, &mut |bytes| {
        output.extend_from_slice(bytes);
        if is_shown { io::stdout().lock().write_all(bytes) } else { Ok(()) }
    })?;
    Ok((status, output))
}

/// The machine that ended first, or none at the deadline. The other one is ended then.
fn watch(mut machines: Vec<Machine>, output: &mut Output<'_>, deadline: Instant) -> Result<Option<Name>> {
    loop {
        let mut ended = None;
        for machine in &mut machines {
            if machine.has_ended()? {
                ended = ended.or(Some(machine.name));
            }
        }
        output.forward()?;
        if ended.is_some() || Instant::now() >= deadline {
            drop(machines);
            output.finish()?;
            return Ok(ended);
        }
        thread::sleep(POLL);
    }
}

fn verdict(options: &Args, control: &Control, ended: Option<Name>) -> Result<u8> {
    if let Some(status) = control.status(Name::A)? {
        if control.out_of_memory(Name::A) {
            eprintln!("rxe-vm: machine a ran out of its {} MB; give it more with -m", options.memory);
        }
        if let Some(status @ 1..) = control.status(Name::B)? {
            eprintln!("rxe-vm: the command of b ended with exit status {status}");
        }
        return Ok(status);
    }
    if let Some(name) = ended {
        return Err(control.ended_early(name, options.memory));
    }
    let (limit, last) = (options.limit, control.last_lines(Name::A));
    eprintln!("rxe-vm: limit of {limit} s reached (-t); last lines of the console:\n{last}");
    Ok(TIMED_OUT)
}

/// What the commands write.
struct Output<'a> {
    stdout: &'a mut Sink<'a>,
    a: [Tail; 2],
    /// Standard output and standard error, each with whole lines.
    b: [(Tail, Marked); 2],
}

impl<'a> Output<'a> {
    fn new(control: &Control, stdout: &'a mut Sink<'a>) -> Self {
        let tails = |name| ["stdout", "stderr"].map(|file| Tail::new(control.of(name, file)));
        Self { stdout, a: tails(Name::A), b: tails(Name::B).map(|tail| (tail, Marked::new("b: "))) }
    }

    fn forward(&mut self) -> Result<()> {
        self.a[0].forward(self.stdout)?;
        self.a[1].forward(&mut to_stderr)?;
        self.b
            .iter_mut()
            .try_for_each(|(tail, marked)| tail.forward(&mut |b| marked.write(b, &mut to_stderr)))
    }

    fn finish(&mut self) -> Result<()> {
        self.forward()?;
        self.b.iter_mut().try_for_each(|(_, marked)| marked.finish(&mut to_stderr)).context("standard error")
    }
}

fn to_stderr(bytes: &[u8]) -> io::Result<()> {
    io::stderr().lock().write_all(bytes)
}
