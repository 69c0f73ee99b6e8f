//! `rxe-vm`: runs a command on a real kernel soft-RoCE (rdma_rxe) device, in a small machine of its own.
//!
//! QEMU boots Debian's stock kernel under software emulation (about 10 s, no /dev/kvm). The machine sees this
//! host's files read-only, with a throw-away overlay on top; the current folder is mounted read-write.

mod image;

use crate::{
    packages::{self, User},
    repo,
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    env, fs,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

const GUEST: &str = include_str!("../rxe-vm/guest.sh");
/// Exit status when the time is up, as timeout(1) has it.
const TIMED_OUT: u8 = 124;
const POLL: Duration = Duration::from_millis(50);
/// Environment handed on to the command.
const HANDED_ON: &[&str] = &["HOME", "RUST_LOG", "RUST_BACKTRACE"];

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Memory of the machine
    #[arg(short, value_name = "MB", default_value_t = 2048)]
    pub(crate) memory: u32,
    /// Processors of the machine
    #[arg(short, value_name = "CPUS", default_value_t = 2)]
    pub(crate) cpus: u32,
    /// Limit of the whole run; exit status 124 when it is reached
    #[arg(short = 't', value_name = "SECONDS", default_value_t = 300)]
    pub(crate) limit: u64,
    /// Capture what passes eth-a into this file
    #[arg(short, value_name = "PCAP")]
    pub(crate) pcap: Option<PathBuf>,
    /// MTU of eth-a and eth-b; 4200 gives a path MTU of 4096, 1500 one of 1024
    #[arg(long, value_name = "N", default_value_t = 4200)]
    pub(crate) mtu: u32,
    /// One word is a line of bash, several are a program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    packages::ensure(User::RxeVm).map_err(anyhow::Error::msg)?;
    let status = boot(options, &mut |bytes| io::stdout().lock().write_all(bytes))?;
    Ok(ExitCode::from(status))
}

/// Boots, runs the command, hands its standard output to `stdout` while it runs, and gives its exit status.
/// Standard error goes to standard error.
pub(crate) fn boot(options: &Options, stdout: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<u8> {
    ensure!(cfg!(target_arch = "x86_64"), "rxe-vm boots an x86-64 kernel and works on x86-64 hosts only");
    let image = image::ready()?;
    let control = Control::new(options)?;
    let mut machine = Machine(start(options, &image, &control.folder)?);
    let deadline = Instant::now() + Duration::from_secs(options.limit);
    let mut output = [Tail::new(control.folder.join("stdout")), Tail::new(control.folder.join("stderr"))];
    let timed_out = loop {
        let ended = machine.0.try_wait().context("cannot wait for QEMU")?.is_some();
        output[0].forward(stdout)?;
        output[1].forward(&mut |bytes| io::stderr().lock().write_all(bytes))?;
        if ended || Instant::now() >= deadline {
            break !ended;
        }
        thread::sleep(POLL);
    };
    drop(machine);
    if let Some(pcap) = &options.pcap {
        let captured = control.folder.join("pcap");
        fs::copy(&captured, pcap).with_context(|| format!("no capture for {}", pcap.display()))?;
    }
    control.verdict(timed_out, options.limit)
}

/// A running QEMU, ended when this is dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(options: &Options, image: &image::Image, control: &Path) -> Result<Child> {
    let folder = env::current_dir().context("cannot tell the current folder")?;
    let share = |path: &Path, tag: &str, more: &str| -> Result<[String; 2]> {
        let path = path
            .to_str()
            .filter(|p| !p.contains(','))
            .context("QEMU cannot share a folder with such a name")?;
        Ok(["-virtfs".to_owned(), format!("local,path={path},mount_tag={tag},security_model=none{more}")])
    };
    let console = File::create(control.join("console")).context("cannot write the console's log")?;
    // Should this program be killed, the kernel ends the machine too.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", &options.cpus.to_string()])
        .args(["-m", &options.memory.to_string(), "-nographic", "-no-reboot", "-nic", "none"])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initrd)
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .args(share(Path::new("/"), "host", ",readonly=on,multidevs=remap")?)
        .args(share(control, "control", "")?)
        .args(share(&folder, "folder", ",multidevs=remap")?)
        .stdin(Stdio::null())
        .stderr(console.try_clone().context("cannot write the console's log")?)
        .stdout(console)
        .spawn()
        .context("cannot run setpriv (Debian package util-linux)")
}

/// The folder through which host and machine talk, removed when dropped.
struct Control {
    folder: PathBuf,
}

impl Drop for Control {
    fn drop(&mut self) {
        // What is left behind is in the target directory.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Control {
    fn new(options: &Options) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = repo::target_dir().join("rxe-vm").join(unique);
        // Left behind by a killed process of the same number, if at all.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let control = Self { folder };
        control.write("guest.sh", GUEST)?;
        control.write("settings", &settings(options)?)?;
        let command = match options.command.as_slice() {
            [line] => line.clone(),
            words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        };
        control.write("command", &command)?;
        Ok(control)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.folder.join(name), text).with_context(|| format!("cannot write {name} of the machine"))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read(self.folder.join(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn verdict(&self, timed_out: bool, limit: u64) -> Result<u8> {
        if let Some(status) = self.read("status") {
            return status.trim().parse().context("the machine gave no exit status");
        }
        if self.read("setup-failed").is_some() {
            bail!("the machine could not make its network:\n{}", self.read("setup").unwrap_or_default());
        }
        let console = self.read("console").unwrap_or_default();
        let lines: Vec<_> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n");
        if timed_out {
            eprintln!("rxe-vm: limit of {limit} s reached (-t); last lines of the console:\n{last}");
            return Ok(TIMED_OUT);
        }
        bail!("the machine stopped before the command ended; last lines of its console:\n{last}");
    }
}

fn settings(options: &Options) -> Result<String> {
    let folder = env::current_dir().context("cannot tell the current folder")?;
    let capture = if options.pcap.is_some() { "yes" } else { "" };
    let mut text =
        format!("MTU={}\nCAPTURE={capture}\nFOLDER={}\n", options.mtu, quote(&folder.to_string_lossy()));
    for (name, value) in env::vars() {
        if HANDED_ON.contains(&name.as_str()) || name.starts_with("NAA_") {
            text += &format!("export {name}={}\n", quote(&value));
        }
    }
    Ok(text)
}

/// For a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What a growing file has gained.
struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn forward(&mut self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<()> {
        if self.file.is_none() {
            // The machine makes it when the command starts.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).context("cannot read what the machine writes")?;
        if !bytes.is_empty() {
            sink(&bytes).context("cannot hand on what the machine writes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let words = ["plain", "it's", "$HOME `x` \"y\"", "", "a b"];
        let line = words.map(quote).join(" ");
        let output =
            Command::new("sh").args(["-c", &format!("printf '<%s>' {line}")]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.map(|w| format!("<{w}>")).concat());
    }

    #[test]
    fn a_tail_gives_each_byte_once() {
        let path = env::temp_dir().join(format!("rxe-vm-tail-{}", std::process::id()));
        let mut tail = Tail::new(path.clone());
        let mut seen = Vec::new();
        let mut forward = |seen: &mut Vec<u8>| tail.forward(&mut |b| seen.write_all(b)).expect("readable");
        forward(&mut seen);
        fs::write(&path, "one ").expect("written");
        forward(&mut seen);
        fs::write(&path, "one two").expect("written");
        forward(&mut seen);
        forward(&mut seen);
        fs::remove_file(&path).expect("removed");
        assert_eq!(seen, b"one two");
    }
}
