//! Where complete events go.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write as _, stdout},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use ejfat_udp::Event;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Takes events, one at a time.
pub(crate) trait Sink {
    /// The event's bytes are lent until it returns. An error ends the worker.
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()>;
}

/// A file per event. Events of one name, of several senders or of one that was started again, get names of their own:
/// none replaces another.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Sink for Folder {
    /// Under its name when all of it is written.
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let name = name(event);
        let partial = self.0.join(format!(".{name}.part"));
        let path = self.0.join(free(&self.0, &name));
        let written = fs::write(&partial, event.bytes).and_then(|()| fs::rename(&partial, &path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A name that no file has. Many events may have one name: their files are not counted one by one.
fn free(folder: &Path, name: &str) -> String {
    let numbered = |n: u64| if n == 1 { name.to_owned() } else { format!("{name}.{n}") };
    let taken = |n: u64| folder.join(numbered(n)).exists();
    let mut above = 1;
    while taken(above) {
        above *= 2;
    }
    let mut below = above / 2;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if taken(middle) { below = middle } else { above = middle }
    }
    numbered(above)
}

/// One behind the other.
pub(crate) struct StandardOutput;

impl Sink for StandardOutput {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        Ok(out.write_all(event.bytes).and_then(|()| out.flush())?)
    }
}

/// A shell command per event.
pub(crate) struct Shell(pub(crate) String);

impl Sink for Shell {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.0]).stdin(Stdio::piped());
        shell
            .env("EJFAT_EVENT", event.name.event.to_string())
            .env("EJFAT_DATA_ID", event.name.data_id.to_string());
        shell.env("EJFAT_FROM", event.from.map(|from| from.to_string()).unwrap_or_default());
        let mut child = shell.spawn().context("cannot run sh")?;
        let mut input = child.stdin.take().context("sh has no standard input")?;
        match input.write_all(event.bytes) {
            // It wants to read no more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            other => other.context("cannot write to the command")?,
        }
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "the command for event {} ended with {status}", name(event));
        Ok(())
    }
}

/// A named pipe: one behind the other.
pub(crate) struct Pipe {
    path: PathBuf,
    file: File,
}

impl Pipe {
    /// Makes the pipe unless it is there, and waits for a reader.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let (shown, mode) = (path.display(), Mode::RUSR | Mode::WUSR);
        match mknodat(CWD, path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot make the pipe {shown}")),
        }
        let kind = fs::metadata(path).with_context(|| format!("cannot look at {shown}"))?.file_type();
        ensure!(kind.is_fifo(), "{shown} is no named pipe; name another path, or use --out for a folder");
        let file = OpenOptions::new().write(true).open(path);
        let file = file.with_context(|| format!("cannot open the pipe {shown}"))?;
        Ok(Self { path: path.to_owned(), file })
    }
}

impl Sink for Pipe {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        match self.file.write_all(event.bytes) {
            // Elsewhere a closed pipe is no failure: here events would be lost.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                let (path, name) = (self.path.display(), name(event));
                bail!("the reader of {path} went away while event {name} was written; start it again first")
            }
            other => other.with_context(|| format!("cannot write to the pipe {}", self.path.display())),
        }
    }
}

/// Events are counted, nothing more.
pub(crate) struct Nowhere;

impl Sink for Nowhere {
    fn event(&mut self, _: &Event<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}

fn name(event: &Event<'_>) -> String {
    format!("{}-{}", event.name.data_id, event.name.event)
}
