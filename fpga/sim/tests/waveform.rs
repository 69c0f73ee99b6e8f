//! The waveform of a test that failed: how to get it is printed, and it is written.

use std::{env, fs, process::Command};

use naa_fpga::{Bench, Module, Tools};

/// The environment variable with which this program runs [`a_failing_test`] for real.
const FAIL: &str = "NAA_FPGA_TEST_FAILS";

/// Fails if [`FAIL`] is set, after a few cycles.
#[test]
fn a_failing_test() {
    let Some(tools) = Tools::for_test() else { return };
    let mut bench =
        Bench::new(Module::new("icrc512").model(&tools).unwrap_or_else(|error| panic!("{error}")));
    for _ in 0..3000 {
        bench.cycle(&mut []);
    }
    assert!(env::var_os(FAIL).is_none(), "this test was told to fail");
}

#[test]
fn a_test_that_fails_says_how_to_get_its_waveform() {
    if Tools::for_test().is_none() {
        return;
    }
    let again = || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_failing_test"]).env(FAIL, "1");
        command.env_remove("NAA_FPGA_PACKETS").env("NAA_FPGA_SEED", "7");
        command
    };
    let output = again().output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    let command = "NAA_FPGA_TRACE=target/failed.fst NAA_FPGA_TRACE_FROM=2002 NAA_FPGA_SEED=7 cargo test --release \
                   -p naa-fpga --test waveform -- --exact a_failing_test";
    assert!(said.contains(command), "{said}");

    let file = env::temp_dir().join(format!("naa-fpga-{}.fst", std::process::id()));
    let output = again().env("NAA_FPGA_TRACE", &file).env("NAA_FPGA_TRACE_FROM", "2002").output().unwrap();
    assert!(!output.status.success());
    let waveform = fs::read(&file).unwrap();
    fs::remove_file(file).unwrap();
    // The first block of an FST file is its header: type 0, and 329 as the length, with the high byte first.
    assert_eq!(waveform[..9], [0, 0, 0, 0, 0, 0, 0, 1, 73]);
    let (first, last) = (&waveform[9..17], &waveform[17..25]);
    assert_eq!([first, last].map(|time| u64::from_be_bytes(time.try_into().unwrap())), [4004, 6003]);
}
