//! Programs on naa.h, and an accelerator for them in this process or in one that can be killed.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use naa_server::{Config, ProviderChoice, Server, functions};

#[path = "../../../../tests/src/capi/own.rs"]
mod own;

mod library;

pub use library::Library;

/// Programs are ended after this.
const LIMIT: Duration = Duration::from_secs(120);

/// An accelerator at `ip` with the functions of `naa serve`, and those of `functions`.
pub fn server(ip: &str) -> Server {
    let mut config = Config::new(SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 12_345));
    config.provider = Some(ProviderChoice::Embedded);
    config.max_sessions_per_peer = 512;
    // Calls that sleep need a thread each.
    config.pool.pool_threads = 64;
    Server::start(config, functions::registry(own::all()).unwrap()).unwrap()
}

/// Names the address, in the process that is to be a server.
const SERVE: &str = "NAA_TEST_SERVE";

/// To be called first by the test named `test`: in the process that [`AcceleratorProcess::start`] made, it serves and
/// never returns.
pub fn serve_if_asked() {
    if let Ok(ip) = std::env::var(SERVE) {
        let _server = server(&ip);
        println!("ready");
        loop {
            thread::park();
        }
    }
}

/// An accelerator in a process of its own, killed by [`AcceleratorProcess::kill`] or when dropped.
#[derive(Debug)]
pub struct AcceleratorProcess(Child);

impl AcceleratorProcess {
    /// `test`: the test of this program that calls [`serve_if_asked`].
    pub fn start(test: &str, ip: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(SERVE, ip);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "no server at {ip}");
        Self(child)
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for AcceleratorProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program in C, built.
#[derive(Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Builds `source`, relative to the crate, as `standard` of C or C++ has it: all warnings are errors.
    pub fn build(source: &str, standard: &str, library: Library) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let name = format!("native-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let is_cpp = standard.contains("++");
        let mut command = Command::new(if is_cpp { "c++" } else { "cc" });
        command.arg(format!("-std={standard}")).args(if is_cpp { &["-x", "c++"][..] } else { &[] });
        command.args(["-O1", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
        command.arg("-I").arg(here.join("include")).arg(here.join(source)).arg("-o").arg(&program);
        command.args(if is_cpp { &["-x", "none"][..] } else { &[] });
        library.link(&mut command);
        let output =
            command.arg("-lm").output().unwrap_or_else(|e| panic!("{command:?}: {e}; apt install gcc g++"));
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        Self(program)
    }

    /// The program with the source `text` as C11, with the shared library.
    pub fn of(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.c", std::process::id()));
        fs::write(&path, text).unwrap();
        let program = Self::build(path.to_str().unwrap(), "c11", Library::Shared);
        fs::remove_file(path).unwrap();
        program
    }

    /// A program of `tests/c` as C11, with the shared library.
    pub fn c(source: &str) -> Self {
        Self::build(&format!("tests/c/{source}"), "c11", Library::Shared)
    }

    fn command(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(&self.0);
        command
            .args(arguments)
            .env("NAA_PROVIDER", "embedded")
            .env_remove("NAA_LOCAL_IP")
            .env_remove("NAA_SPEC");
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it; it must succeed and say "ok" last. Returns what it said.
    pub fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let child = self.command(arguments, environment).spawn().unwrap();
        finish(child, &self.0)
    }

    /// Runs it; it must succeed. Returns what it said.
    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments, &[]).output().unwrap();
        let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{}: {}\n{said}\n{errors}", self.0.display(), output.status);
        said
    }

    /// Runs it as [`run`](Self::run) does; `meanwhile` is done when it has said `line`.
    pub fn run_until(&self, arguments: &[&str], line: &str, meanwhile: impl FnOnce()) -> String {
        let mut child = self.command(arguments, &[]).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while out.read_line(&mut said).unwrap() > 0 && !said.trim_end().ends_with(line) {}
        meanwhile();
        let rest = thread::spawn(move || std::io::read_to_string(out).unwrap());
        let status = ended(&mut child);
        said.push_str(&rest.join().unwrap());
        let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        check_output(status, said, &errors, &self.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// What became of it; `None`: it had to be ended.
fn ended(child: &mut Child) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn finish(mut child: Child, program: &Path) -> String {
    let out = child.stdout.take().unwrap();
    let said = thread::spawn(move || std::io::read_to_string(out).unwrap());
    let status = ended(&mut child);
    let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    check_output(status, said.join().unwrap(), &errors, program)
}

fn check_output(
    status: Option<std::process::ExitStatus>,
    said: String,
    errors: &str,
    program: &Path,
) -> String {
    let well = status.is_some_and(|status| status.success()) && said.trim_end().ends_with("ok");
    let status = status.map_or("ended for its time".to_owned(), |status| status.to_string());
    assert!(well, "{}: {status}\n{said}\n{errors}", program.display());
    said
}
