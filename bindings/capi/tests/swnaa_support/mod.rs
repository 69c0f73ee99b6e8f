//! C servers: compiled against the headers and the library of this build, run as processes of their own.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use naa_host::{Device, Param, Session, SessionConfig};

#[path = "../native_support/library.rs"]
mod library;

pub use library::Library;

pub const PORT: u16 = 12_345;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

/// Compiles `name` with all warnings as errors; returns the program.
pub fn compile(name: &str, compiler: &str, flags: &[&str], library: Library) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let program = format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    command.args(flags).arg(source(name)).arg("-o").arg(&program);
    library.link(&mut command);
    let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}; `apt install gcc g++`"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A C server in a process of its own; killed when dropped.
pub struct ServerProcess {
    pub address: std::net::SocketAddr,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    program: PathBuf,
}

impl ServerProcess {
    pub fn start(program: PathBuf, address: &str, arguments: &[&str]) -> Self {
        Self::start_saying(program, address, arguments, Stdio::inherit())
    }

    /// One whose standard error goes to `said`.
    pub fn start_saying(program: PathBuf, address: &str, arguments: &[&str], said: Stdio) -> Self {
        let mut command = Command::new(&program);
        command.arg(PORT.to_string()).args(arguments);
        command.env("NAA_LOCAL_IP", address).env("NAA_PROVIDER", "embedded");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let address = std::net::SocketAddr::new(address.parse().unwrap(), PORT);
        let mut server = Self { address, child, input, output, program };
        server.expect_ready();
        server
    }

    pub fn expect_ready(&mut self) {
        assert_eq!(self.line(), "ready");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn command(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// `top`, the connections so far, the kernels' calls so far.
    pub fn status(&mut self) -> [u32; 3] {
        self.command("status");
        let line = self.line();
        let numbers: Vec<u32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Waits until so many slots are free.
    #[track_caller]
    pub fn until_free(&mut self, top: u32) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.status()[0] != top {
            assert!(Instant::now() < deadline, "{:?} instead of {top} free slots", self.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap()
    }

    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().count()
    }

    /// The resident memory of the process in KiB.
    pub fn resident(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// User and system time.
    pub fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// The status it ends with by itself, soon.
    #[track_caller]
    pub fn ends(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.program);
    }
}

pub fn device(address: &str) -> Device {
    Device::open_with(address.parse().unwrap(), naa_host::ProviderChoice::Embedded).unwrap()
}

pub fn connect(device: &Device, server: &ServerProcess, params: &[Param<'_>]) -> Session {
    Session::connect(device, server.address, params, &SessionConfig::default()).unwrap()
}
