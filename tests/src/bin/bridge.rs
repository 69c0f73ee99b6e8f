//! Bridges and workers as processes, and the suite that kills them: see `naa_tests::bridge`.

use std::process::ExitCode;

use clap::Parser as _;
use naa_tests::bridge::role;

fn main() -> ExitCode {
    naa_tests::exit_code(role::run(role::Args::parse()).map(|()| true))
}
