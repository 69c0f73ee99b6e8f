//! Black-box suites on every provider.

pub mod bridge;
pub mod capi;
pub mod compat;
pub mod cut_off;
pub mod front;
mod hex;
pub mod hostile;
pub mod local;
pub mod slow;
pub mod suite;
pub mod wire;

use std::process::ExitCode;

/// How a program ends: whether all is well, or why it cannot tell.
pub fn exit_code(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
