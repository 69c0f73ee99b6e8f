//! The process of a session's kernels, which `naa serve --kernels` starts from its own binary.

use std::{ffi::OsString, process::ExitCode};

use naa_kernels::{Launch, child};
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};

use crate::show;

const COMMAND: &str = "kernel-process";

/// The command line of this process, if a server started it as a process of kernels.
pub(crate) fn started() -> Option<child::LaunchArgs> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [command, parent, memory] = arguments.as_slice() else { return None };
    let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
    let parent = u32::try_from(number(parent)?).ok()?;
    (command == COMMAND).then_some(child::LaunchArgs { parent, memory: number(memory)? })
}

/// How much higher the nice value of kernels is than that of the server's threads which serve the network. Pool threads
/// have the same.
const NICER: i32 = 10;

pub(crate) fn run(started: child::LaunchArgs) -> ExitCode {
    if let Err(error) = nice(NICER) {
        show::error_line(&format!("naa: kernels compete with the server for the cores: {error}"));
    }
    match child::run(started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show::error_line(&format!("naa: a process for kernels ends: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts this binary, even if its file was replaced meanwhile.
pub(crate) fn launch(memory: u64) -> Launch {
    Launch { program: "/proc/self/exe".into(), arguments: vec![COMMAND.into()], memory }
}

/// Raises the limit of open files, because each region of each session is a file, and the usual limit of `ulimit -n` is
/// too low for that.
pub(crate) fn raise_file_limit() {
    let most = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }) {
        tracing::warn!(%error, "cannot raise the limit of open files; raise `ulimit -n`");
    }
}
