//! The session suite on loopback, embedded provider against embedded provider. `cargo xtask interop` has the others.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        // It may have died already; what matters is that it is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(far: &str, near: &str) {
    let suite = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_suite"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let child = suite().args(["serve", "--provider", "embedded", "--bind", far]).spawn();
    let mut server = Far(child.expect("the far side starts"));
    let mut said = String::new();
    let out = server.0.stdout.take().expect("it was piped");
    BufReader::new(out).read_line(&mut said).expect("it says something");
    assert!(said.starts_with("READY"), "{said}");
    let host = ["host", "--provider", "embedded", "--server", far, "--local", near];
    let output = suite().args(host).output().expect("the near side runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = text.lines().filter(|line| !line.contains("|ok|")).collect();
    assert!(output.status.success() && failed.is_empty(), "{failed:#?}");
    assert!(text.lines().count() > 40, "{text}");
}

#[test]
fn ipv4() {
    run("127.0.9.1", "127.0.9.2");
}
