//! C and C++ programs built against the headers and the library of this tree, and an accelerator for them.
#![allow(unreachable_pub, reason = "a module of a test program")]

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use naa_server::{Config, ProviderChoice, Server, functions};

#[path = "../../../../tests/src/capi/own.rs"]
mod own;

/// Programs are ended after this.
const LIMIT: Duration = Duration::from_secs(60);

/// An accelerator on the loopback address with NAAICE's functions 1 to 3, and those of `functions`.
pub fn server(address: &str) -> Server {
    let mut config = Config::new((address.parse::<std::net::IpAddr>().unwrap(), 0).into());
    config.provider = Some(ProviderChoice::Embedded);
    // Calls that sleep need a thread each.
    config.pool.pool_threads = 16;
    Server::start(config, functions::registry(own::all()).unwrap()).unwrap()
}

/// A program of `tests/c`, built.
#[derive(Debug)]
pub struct Program(PathBuf);

/// The library, which is beside this test's program, under the names that linkers look for.
fn libraries() -> PathBuf {
    let built = std::env::current_exe().unwrap().with_file_name("libnaa_c.so");
    assert!(built.exists(), "no {}", built.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("naaice-libraries");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libnaaice.so", "libnaa.so.0"] {
        match std::os::unix::fs::symlink(&built, folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{name}: {error}"),
            _ => {}
        }
    }
    folder
}

/// Builds `source` of `tests/c` as `standard` of C or C++ has it; `name` tells builds of one source apart.
pub fn build(source: &str, standard: &str, name: &str, flags: &[&str]) -> Program {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = libraries();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{standard}"));
    let compiler = if standard.contains("++") { "c++" } else { "cc" };
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg("-I").arg(here.join("include")).args(flags);
    command.arg(here.join("tests/c").join(source)).arg("-o").arg(&program);
    command.arg("-L").arg(&libraries).arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-lnaaice");
    let output = command.args(["-lpthread", "-lm"]).output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    Program(program)
}

impl Program {
    /// Runs it with the embedded provider; it must succeed and say "ok".
    pub fn run(&self, arguments: &[impl AsRef<OsStr>], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(&self.0);
        command.args(arguments).env("NAA_PROVIDER", "embedded");
        command.env_remove("NAA_LOCAL_IP").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(environment.iter().copied());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        print!("{out}");
        let ended = out.trim_end().ends_with("ok") && output.status.success();
        assert!(ended, "{:?}: {} after {:?}\n{out}\n{err}", self.0, output.status, start.elapsed());
        output
    }
}
