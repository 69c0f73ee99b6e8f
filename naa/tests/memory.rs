//! A call that needs more memory than there is, against a server process.

mod common;

use std::{
    fs::File,
    thread,
    time::{Duration, Instant},
};

use common::{ServerProcess, TempFolder, naa, run, stderr, wait_at_most};
use naa_server::functions::fft;
use rustfft::{FftDirection, num_complex::Complex64};

/// A server with an address space of 4 GiB.
fn small_server(bind: &str) -> ServerProcess {
    let script = "ulimit -v 4194304 && exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_naa"), "serve", "--bind", bind, "--port", "0", "--json"]);
    // Enough for the regions of the large call, and not for what its function needs beside them.
    ServerProcess::spawn(command.args(["--memory", "3000"]))
}

#[test]
fn a_transform_that_needs_too_much_memory_is_refused_and_nobody_else_suffers() {
    let mut server = small_server("127.0.6.61");
    let folder = TempFolder::new("memory");
    // A prime, which takes several times its own memory. Its data are a file without pages.
    let path = folder.file("signal.c128");
    File::create(&path).expect("a file").set_len(16 * 33_554_467).expect("sparse files");
    let small = folder.with("small", &[7; 100_000]);
    let mut large =
        naa(&["call", "fft", "--server", &server.name(), "--in", &path, "--out", &folder.file("out")]);
    let mut large = large.stderr(std::process::Stdio::piped()).spawn().expect("the binary runs");
    let mut others = 0;
    let begin = Instant::now();
    while large.try_wait().expect("a child").is_none() && begin.elapsed() < Duration::from_secs(60) {
        let other = run(&["call", "sha256", "--server", &server.name(), "--in", &small]);
        assert!(other.status.success(), "{}", stderr(&other));
        others += 1;
        thread::sleep(Duration::from_millis(50));
    }
    assert!(others > 0);
    let refused = large.wait_with_output().expect("it ends");
    assert!(stderr(&refused).contains("0x16"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("bytes beside its regions"), "{}", stderr(&refused));
    assert!(wait_at_most(&mut server.process.child, Duration::from_millis(50)).is_none(), "the server lives");

    // What fits is computed, as this machine does it.
    let n = 131_101;
    let signal: Vec<_> = (0..n).map(|i| Complex64::new(f64::from(i % 1009), f64::from(i % 31))).collect();
    let path = folder.with("prime", bytemuck::cast_slice(&signal));
    let out = folder.file("spectrum");
    let call = run(&["call", "fft", "--server", &server.name(), "--in", &path, "--out", &out]);
    assert!(call.status.success(), "{}", stderr(&call));
    let mut expected = signal;
    fft::compute(FftDirection::Forward, &mut expected).expect("memory");
    assert!(std::fs::read(&out).expect("a result") == bytemuck::cast_slice::<_, u8>(&expected));
}
