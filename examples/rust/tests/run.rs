//! Each example runs.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use naa_server::{Config, ProviderChoice, Server, functions};

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    said.into_owned()
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("naa-examples-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn checksums_of_many_files() {
    let listen = SocketAddr::new(naa_provider::free_loopback().unwrap(), 0);
    let config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
    let server = Server::start(config, functions::builtins().unwrap()).unwrap();
    let folder = Folder::new("files");
    let files: Vec<_> = (0..40_usize)
        .map(|number| {
            let file = folder.0.join(format!("file-{number}"));
            fs::write(&file, vec![number as u8; number * 1000]).unwrap();
            file.display().to_string()
        })
        .collect();
    let server = server.address().to_string();
    let arguments: Vec<_> = [&*server].into_iter().chain(files.iter().map(String::as_str)).collect();
    let sums = folder.0.join("SUMS");
    fs::write(&sums, output(env!("CARGO_BIN_EXE_async-files"), &arguments)).unwrap();
    assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), files.len());
    output("sha256sum", &["--check", "--quiet", &sums.display().to_string()]);
}

#[test]
fn a_pool_of_which_a_server_is_killed() {
    let said = output(env!("CARGO_BIN_EXE_pool"), &[]);
    assert!(said.contains("is killed") && said.contains("100 of 100 calls done"), "{said}");
}

/// A program that is ended when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program `naa`, which cargo builds beside the tests of all packages.
fn naa() -> Command {
    let tests = std::env::current_exe().unwrap();
    let naa = tests.ancestors().nth(2).map(|folder| folder.join("naa")).unwrap();
    assert!(
        naa.exists(),
        "there is no {}; build it with the same profile: cargo build [--release] -p naa",
        naa.display()
    );
    Command::new(naa)
}

fn wait_for(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "there is no {}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn events_into_a_computation() {
    let folder = Folder::new("events");
    let (socket, file) = (folder.0.join("bridge.sock"), folder.0.join("event"));
    let bind = naa_provider::free_loopback().unwrap().to_string();
    fs::write(&file, vec![2; 10_000]).unwrap();
    let mut bridge = naa();
    let at = ["--listen", &bind, "--bind", &bind, "--provider", "embedded", "--port", "0"];
    bridge.arg("bridge").args(at).arg("--local").arg(&socket);
    let _bridge = Running(bridge.stdout(Stdio::null()).spawn().unwrap());
    wait_for(&socket);
    let source = format!("unix:{}", socket.display());
    let mut example = Command::new(env!("CARGO_BIN_EXE_async-events"));
    let mut example = Running(example.args([&source, "50"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(example.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "subscribed");
    let mut sender = naa();
    sender.args(["ejfat", "send", "--to", &bind]).args(std::iter::repeat_n(&file, 50));
    let sent = sender.output().unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    line.clear();
    said.read_line(&mut line).unwrap();
    let said = line;
    assert!(said.contains("50 events, 500000 bytes, sum 1000000"), "{said}");
}
