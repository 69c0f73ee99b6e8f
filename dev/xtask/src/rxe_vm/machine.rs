//! A running QEMU.

use super::{
    Args,
    control::{Control, Name},
    image::Image,
};
use crate::running::Running;
use anyhow::{Context, Result, ensure};
use std::{
    env, fs,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
};

/// Ended when dropped.
pub(super) struct Machine {
    pub(super) name: Name,
    qemu: Running,
}

impl Machine {
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.qemu.0.try_wait().context("cannot wait for QEMU")?.is_some())
    }
}

/// One machine, or two with a wire between them.
pub(super) fn start(
    options: &Args,
    image: &Image,
    control: &Control,
    machines: &[Name],
) -> Result<Vec<Machine>> {
    enough_memory(options, machines.len())?;
    // The wire is a pair of sockets without names: nothing to collide with other runs, no order of start.
    let wire = UnixStream::pair().context("cannot make the wire between the machines")?;
    let ends = [wire.0, wire.1].map(|end| options.two.then(|| OwnedFd::from(end)));
    machines.iter().zip(ends).map(|(name, end)| one(options, image, control, *name, end)).collect()
}

fn one(
    options: &Args,
    image: &Image,
    control: &Control,
    name: Name,
    wire: Option<OwnedFd>,
) -> Result<Machine> {
    let folder = env::current_dir().context("cannot tell the current folder")?;
    let console = control.of(name, "console");
    let console = fs::OpenOptions::new().create(true).append(true).open(console);
    let console = console.context("cannot write the console's log")?;
    // Should this program be killed, the kernel ends the machine too.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-accel", "tcg,thread=multi", "-cpu", "max,+invtsc", "-smp", &options.cpus.to_string()])
        .args(["-m", &options.memory.to_string(), "-no-reboot", "-nic", "none"])
        // -nographic is not used, because it takes standard input, which may be the wire.
        .args(["-display", "none", "-monitor", "none"])
        .args(["-chardev", "file,id=console,path=/dev/stdout,append=on", "-serial", "chardev:console"])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initrd)
        .args(["-append", &kernel_command_line(name)])
        .args(share(Path::new("/"), "host", ",readonly=on,multidevs=remap")?)
        .args(share(&control.folder, "control", "")?)
        .args(share(&folder, "folder", ",multidevs=remap")?);
    if wire.is_some() {
        // An empty romfile= avoids files for booting from a network, which may not be installed.
        let card = format!("virtio-net-pci,netdev=wire,mac={},romfile=", mac(name));
        command.args(["-netdev", "socket,id=wire,fd=0", "-device", &card]);
    }
    let qemu = command
        .stdin(wire.map_or_else(Stdio::null, Stdio::from))
        .stderr(console.try_clone().context("cannot write the console's log")?)
        .stdout(console)
        .spawn()
        .context("cannot run setpriv (Debian package util-linux)")?;
    Ok(Machine { name, qemu: Running(qemu) })
}

/// `no_timer_check`: on a busy host an emulated timer misses its ticks, and the kernel would panic.
/// `tsc`: reading another clock leaves the emulated processor and takes up to twice as long. What the kernel does not
/// know, `rxe_vm`, it hands to the first program as a variable.
fn kernel_command_line(name: Name) -> String {
    format!(
        "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable clocksource=tsc rxe_vm={}",
        name.as_str()
    )
}

/// Its last byte is that of the address; rxe makes its GUID of it.
const fn mac(name: Name) -> &'static str {
    match name {
        Name::A => "52:54:00:00:09:01",
        Name::B => "52:54:00:00:09:03",
    }
}

fn share(path: &Path, tag: &str, more: &str) -> Result<[String; 2]> {
    let text = path.to_str().filter(|p| !p.contains(','));
    let text = text.with_context(|| {
        format!("QEMU cannot share the folder {}: its name must be UTF-8 without commas", path.display())
    })?;
    Ok(["-virtfs".to_owned(), format!("local,path={text},mount_tag={tag},security_model=none{more}")])
}

/// QEMU takes memory when it is used: a lack would show in the middle of a run, as a killed machine.
fn enough_memory(options: &Args, machines: usize) -> Result<()> {
    let wanted = u64::from(options.memory) * machines as u64;
    let Some(available) = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(available_mb) else {
        return Ok(());
    };
    ensure!(
        wanted <= available,
        "{machines} machine{} of {} MB: this host has {available} MB left; give less with -m, or free some",
        if machines == 1 { "" } else { "s" },
        options.memory
    );
    Ok(())
}

fn available_mb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:       24684092 kB\nMemAvailable:   24162952 kB\n";
        assert_eq!(available_mb(text), Some(23596));
        assert_eq!(available_mb("MemTotal: 1 kB\n"), None);
        let options = Args { memory: u32::MAX, ..Default::default() };
        let said = enough_memory(&options, 2).expect_err("too much").to_string();
        assert!(said.contains("2 machines of 4294967295 MB") && said.contains("-m"), "{said}");
    }

    #[test]
    fn shared_folders_have_names_that_qemu_can_take() {
        assert!(share(Path::new("/a b"), "t", "").is_ok());
        let said = share(Path::new("/a,b"), "t", "").expect_err("a comma").to_string();
        assert!(said.contains("/a,b"), "{said}");
    }
}
