//! The folder through which this host and the machines talk.
//!
//! ```text
//! guest.sh, bin/netem    what runs in the machines
//! shared/                for the commands, $RXE_VM_SHARED
//! a/, b/                 of one machine: settings, command; console, setup, ready, stdout, stderr, status, pcap
//! ```

use super::Args;
use crate::repo;
use anyhow::{Context, Result, anyhow};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

const GUEST: &str = include_str!("../../rxe-vm/guest.sh");
const NETEM: &str = include_str!("../../rxe-vm/netem.sh");
/// Environment handed on to the commands.
const HANDED_ON: &[&str] = &["HOME", "RUST_LOG", "RUST_BACKTRACE"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    A,
    B,
}

impl Name {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// Removed when dropped.
pub(super) struct Control {
    pub(super) folder: PathBuf,
}

impl Drop for Control {
    fn drop(&mut self) {
        // What is left behind is in the target directory.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Control {
    pub(super) fn new(options: &Args, machines: &[Name]) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let control = Self { folder: repo::target_dir().join("rxe-vm").join(unique) };
        // Left behind by a killed process of the same number, if at all.
        let _ = fs::remove_dir_all(&control.folder);
        control.make("bin")?;
        control.make("shared")?;
        write(&control.folder.join("guest.sh"), GUEST)?;
        let netem = control.folder.join("bin/netem");
        write(&netem, NETEM)?;
        fs::set_permissions(&netem, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", netem.display()))?;
        for name in machines {
            control.make(name.as_str())?;
            let command = match name {
                Name::A => command_line(&options.command),
                Name::B => options.peer.clone().unwrap_or_default(),
            };
            write(&control.of(*name, "settings"), &settings(options)?)?;
            write(&control.of(*name, "command"), &command)?;
        }
        Ok(control)
    }

    fn make(&self, name: &str) -> Result<()> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))
    }

    /// A file of one machine.
    pub(super) fn of(&self, name: Name, file: &str) -> PathBuf {
        self.folder.join(name.as_str()).join(file)
    }

    pub(super) fn read(&self, name: Name, file: &str) -> Option<String> {
        fs::read(self.of(name, file)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Exit status of the machine's command, if it has ended.
    pub(super) fn status(&self, name: Name) -> Result<Option<u8>> {
        let status = self.read(name, "status");
        status.map(|text| text.trim().parse().context("the machine gave no exit status")).transpose()
    }

    pub(super) fn last_lines(&self, name: Name) -> String {
        let console = self.read(name, "console").unwrap_or_default();
        let lines: Vec<_> = console.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Why a machine ended before its command did.
    pub(super) fn ended_early(&self, name: Name, memory: u32) -> anyhow::Error {
        let machine = name.as_str();
        if self.read(name, "setup-failed").is_some() {
            let why = self.read(name, "setup").unwrap_or_default();
            return anyhow!("machine {machine} could not be set up:\n{}", why.trim_end());
        }
        let memory = if self.out_of_memory(name) {
            format!(": it ran out of its {memory} MB, give it more with -m")
        } else {
            String::new()
        };
        let last = self.last_lines(name);
        anyhow!(
            "machine {machine} stopped before its command ended{memory}\nlast lines of its console:\n{last}"
        )
    }

    /// Whether the machine's kernel had to kill for want of memory.
    pub(super) fn out_of_memory(&self, name: Name) -> bool {
        self.read(name, "console").is_some_and(|console| console.contains("Out of memory"))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The words as a line of bash. A single one is a line already.
pub(crate) fn command_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

/// The settings as assignments of bash variables.
fn settings(options: &Args) -> Result<String> {
    let folder = env::current_dir().context("cannot tell the current folder")?;
    let yes = |flag: bool| if flag { "yes" } else { "" };
    let sysctl: Vec<_> = options.sysctl.iter().map(|setting| quote(setting)).collect();
    let mut text = format!(
        "MTU={}\nTWO={}\nCAPTURE={}\nNETEM={}\nSYSCTL=({})\nFOLDER={}\n",
        options.mtu,
        yes(options.two),
        yes(options.pcap.is_some()),
        quote(options.netem.as_deref().unwrap_or_default()),
        sysctl.join(" "),
        quote(&folder.to_string_lossy())
    );
    for (name, value) in env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if HANDED_ON.contains(&&*name) || name.starts_with("NAA_") {
            text += &format!("export {name}={}\n", quote(&value));
        }
    }
    Ok(text)
}

/// The word in quotes for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn bash(script: &str) -> String {
        let output = Command::new("bash").args(["-c", script]).output().expect("bash");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn words_survive_the_shell() {
        let words = ["plain", "it's", "$HOME `x` \"y\"", "", "a b"].map(str::to_owned);
        let line = command_line(&words);
        assert_eq!(bash(&format!("printf '<%s>' {line}")), words.clone().map(|w| format!("<{w}>")).concat());
        assert_eq!(command_line(&words[2..3]), words[2]);
    }

    #[test]
    fn settings_survive_the_shell() {
        let options = Args {
            two: true,
            netem: Some("loss 1% 'x'".to_owned()),
            sysctl: ["net.ipv4.tcp_rmem=1 2 3", "a.b=$x"].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let text = settings(&options).expect("a current folder");
        let script =
            format!("{text}\nprintf '<%s>' \"$MTU\" \"$TWO\" \"$CAPTURE\" \"$NETEM\" \"${{SYSCTL[@]}}\"");
        assert_eq!(bash(&script), "<4200><yes><><loss 1% 'x'><net.ipv4.tcp_rmem=1 2 3><a.b=$x>");
    }

    #[test]
    fn what_was_a_folder_is_gone_afterwards() {
        let control = Control::new(&Args::default(), &[Name::A, Name::B]).expect("writable");
        let folder = control.folder.clone();
        assert!(folder.join("b/settings").is_file() && folder.join("shared").is_dir());
        drop(control);
        assert!(!folder.exists());
    }
}
