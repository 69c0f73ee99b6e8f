//! Destinations of complete events.

use std::{
    ffi::OsStr,
    fs::File,
    io::{ErrorKind, Write as _, stdout},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use ejfat_udp::ReceivedEvent;
use naa_files::{Background, CannotWrite, Destination, ResultFolder};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Time limit after a command has ended: a process that the command started may read no byte for this long.
const STALLED: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// A destination that takes events one at a time.
pub(crate) trait EventSink {
    /// Takes an event, whose bytes it may use until it returns. An error ends the worker.
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()>;

    /// Ends the sink; no event follows. If events go to a disk, this waits until all events are on disk.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// The number of events that got a number at the end of their name because the name was taken.
    fn numbered(&self) -> u64 {
        0
    }
}

/// A folder with one file per event. If several events have the same name (from several senders, several receivers, or a
/// receiver that was started again), each file gets a name of its own, so none replaces another.
pub(crate) struct FolderSink {
    folder: Arc<ResultFolder>,
    disk: Background,
    numbered: u64,
}

impl FolderSink {
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        let folder = ResultFolder::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let folder = Arc::new(folder);
        let disk = Background::start(folder.clone()).context("cannot start a thread")?;
        Ok(Self { folder, disk, numbered: 0 })
    }
}

impl EventSink for FolderSink {
    /// Writes the event to a file, which gets its name when all bytes are written.
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        let name = name(event);
        let failed = |why| CannotWrite::new(self.folder.path().join(&name), why);
        let mut file = self.folder.begin().map_err(failed)?;
        file.file().write_all(event.bytes).map_err(failed)?;
        let mut free = name.clone();
        // Each turn of this loop means that another program took the free name in the meantime.
        while let Some(unnamed) = self.disk.appear(file, OsStr::new(&free)).map_err(failed)? {
            file = unnamed;
            free = numbered(&self.folder, &name);
        }
        self.numbered += u64::from(free != name);
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let path = self.folder.path().display();
        self.disk.finish().with_context(|| format!("cannot bring the events in {path} to disk"))
    }

    fn numbered(&self) -> u64 {
        self.numbered
    }
}

/// A name with a number that no file has, for a `name` that is taken. Many events may have one name, so a free number is
/// found by bisection.
fn numbered(folder: &ResultFolder, name: &str) -> String {
    let numbered = |n: u64| format!("{name}.{n}");
    let taken = |n: u64| folder.has(OsStr::new(&numbered(n)));
    let mut above = 2;
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

/// Standard output, to which events are written one behind the other.
pub(crate) struct StandardOutput;

impl EventSink for StandardOutput {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        Ok(out.write_all(event.bytes).and_then(|()| out.flush())?)
    }
}

/// A shell command that runs once per event.
pub(crate) struct Shell(pub(crate) String);

impl EventSink for Shell {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.0]).stdin(Stdio::piped());
        shell
            .env("EJFAT_EVENT", event.name.event.to_string())
            .env("EJFAT_DATA_ID", event.name.data_id.to_string());
        shell.env("EJFAT_FROM", event.from.map(|from| from.to_string()).unwrap_or_default());
        let mut child = shell.spawn().context("cannot run sh")?;
        let input = child.stdin.take().context("sh has no standard input")?;
        feed(&mut child, input, event.bytes).context("cannot write to the command")?;
        let status = child.wait()?;
        ensure!(status.success(), "the command for event {} ended with {status}", name(event));
        Ok(())
    }
}

/// Writes `bytes` until all are written, nobody reads them any more, or the command has failed. After the command itself
/// has ended, a process that it started may still read them, or hold its input open without reading.
fn feed(child: &mut Child, mut input: ChildStdin, mut bytes: &[u8]) -> anyhow::Result<()> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process without a number")?;
    let pidfd = pidfd_open(id, PidfdFlags::empty())?;
    fcntl_setfl(&input, OFlags::NONBLOCK)?;
    let mut ended = false;
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(written) => {
                bytes = &bytes[written..];
                continue;
            }
            // The command does not read any more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let mut fds = [PollFd::new(&input, PollFlags::OUT), PollFd::new(&pidfd, PollFlags::IN)];
        let (fds, limit) = if ended { (&mut fds[..1], Some(&STALLED)) } else { (&mut fds[..], None) };
        match poll(fds, limit) {
            Ok(0) => bail!("it ended, and what it started holds its input open without reading"),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match child.try_wait()? {
            Some(status) if !status.success() => return Ok(()),
            status => ended = status.is_some(),
        }
    }
    Ok(())
}

/// A named pipe, to which events are written one behind the other.
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
        // A link that somebody else put at this path must not redirect the events.
        let no_pipe = || format!("{shown} is no named pipe; name another path, or use --out for a folder");
        let destination = Destination::new(path)?;
        ensure!(!destination.is_file(), no_pipe());
        let file = destination.open_special().map_err(|why| CannotWrite::new(path, why))?;
        let kind = file.metadata().with_context(|| format!("cannot look at {shown}"))?.file_type();
        ensure!(kind.is_fifo(), no_pipe());
        Ok(Self { path: path.to_owned(), file })
    }
}

impl EventSink for Pipe {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        match self.file.write_all(event.bytes) {
            // For other output, a closed pipe is no failure, but here events would be lost.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                let (path, name) = (self.path.display(), name(event));
                bail!("the reader of {path} went away while event {name} was written; start it again first")
            }
            other => other.with_context(|| format!("cannot write to the pipe {}", self.path.display())),
        }
    }
}

/// Only counts events.
pub(crate) struct Nowhere;

impl EventSink for Nowhere {
    fn event(&mut self, _: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}

fn name(event: &ReceivedEvent<'_>) -> String {
    format!("{}-{}", event.name.data_id, event.name.event)
}
