//! How to run a test that failed again.

use std::{env, thread};

use crate::purpose::Purpose;

/// The number of cycles of a waveform.
const CYCLES: u64 = 1000;

/// The command that runs this test again and writes a waveform of the cycles before this one, in which the test failed. Returns `None` if no
/// test of this crate is running.
pub(crate) fn waveform(cycle: u64) -> Option<String> {
    // Cargo says of which package the tests are that it runs.
    if env::var("CARGO_PKG_NAME").as_deref() != Ok(env!("CARGO_PKG_NAME")) {
        return None;
    }
    let mut variables = vec![
        (Purpose::WAVEFORM, "target/failed.fst".to_owned()),
        (Purpose::FROM, cycle.saturating_sub(CYCLES).to_string()),
    ];
    // The test reads these two itself.
    for name in ["NAA_FPGA_PACKETS", "NAA_FPGA_SEED"] {
        variables.extend(env::var(name).ok().map(|value| (name, value)));
    }
    let variables: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    // Cargo adds a hash to the name of a test's program, and the standard library calls a test's thread like the test.
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let target = program.rsplit_once('-').map_or(&*program, |(target, _)| target);
    let thread = thread::current();
    let test = thread.name().unwrap_or_default();
    Some(format!(
        "the waveform of the last cycles before cycle {cycle}:\n    \
         {variables}cargo test --release -p naa-fpga --test {target} -- --exact {test}"
    ))
}
