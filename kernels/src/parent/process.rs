//! One child, as long as it lives: requests to it and their replies, each by a deadline.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    process::Child,
    sync::Arc,
    time::{Duration, Instant},
};

use mrsp::catalogue::Direction;
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg},
    process::{Pid, Signal, kill_process_group, pidfd_send_signal},
};

use super::launch::{LaunchedProcess, Launcher, how_it_ended};
use crate::message::{ChildReply, ChildRequest, MOST_BYTES, MOST_FILES, MOST_TEXT, Mapped, printable};

/// Held for a child as long as it may write to the memory whose files it got.
#[derive(Debug)]
pub struct ChildAccess(());

/// A region of a session, for its child.
#[derive(Clone, Copy, Debug)]
pub struct RegionFile<'a> {
    /// Sealed against shrinking: a child must not be able to take pages away.
    pub file: BorrowedFd<'a>,
    /// The offset of the region in the file, in bytes.
    pub offset: u64,
    /// The length of the region in bytes.
    pub size: u64,
    /// The direction of the region from the kernel's view.
    pub direction: Direction,
}

impl RegionFile<'_> {
    fn mapped(&self) -> Mapped {
        let &Self { offset, size, direction, .. } = self;
        Mapped { offset, size, direction }
    }
}

/// What a kernel returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelResult {
    /// 0 for success.
    pub code: i32,
    /// For each region how many bytes are a result, as the kernel says: unchecked.
    pub produced: Vec<u64>,
    /// Why it failed, for people.
    pub text: String,
}

/// Why a kernel did not return.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The operating system started no process for the session's kernels, or an exchange with this process failed.
    #[error(
        "no process can be started for kernels: {0}; raise `ulimit -u` and `ulimit -n` or serve fewer sessions"
    )]
    Start(#[from] io::Error),
    /// The memory of the session's regions is not in files, or another process still has these files.
    #[error("the session's memory is in no files, or another process has them")]
    NoFiles,
    /// The process could not load the library or map the regions. The text says why and begins with a verb.
    #[error("the library {0}")]
    Refused(String),
    /// The process of the session ended before the kernel returned. The text says how the process ended and begins with
    /// a verb.
    #[error("the kernel's process {0}")]
    Died(String),
    /// The process sent bytes that are no valid reply, and was killed.
    #[error("the kernel's process sent {0}; it was killed")]
    Misbehaved(&'static str),
    /// The kernel did not return before the deadline of the call, and its process was killed.
    #[error("the kernel did not finish in time; it was killed")]
    TimedOut,
    /// The session ended during the call, and the process was killed.
    #[error("the session ended; the kernel was killed")]
    Ended,
}

/// A child that closed its socket has this long to end by itself, so that the error can say how it ended.
const EXIT_TIME: Duration = Duration::from_secs(1);
/// Replies but tables: a call's, with a number per region.
const MOST_REPLY: usize = 32 + 256 * 8 + MOST_TEXT;

#[derive(Debug)]
pub(super) struct KernelProcess {
    socket: OwnedFd,
    pidfd: Arc<OwnedFd>,
    /// `None` once it was waited for.
    child: Option<Child>,
    access: Arc<ChildAccess>,
    launcher: Launcher,
    sequence: u64,
    regions: usize,
    message: Vec<u8>,
}

impl KernelProcess {
    pub(super) fn start(launcher: &Launcher) -> io::Result<Self> {
        let LaunchedProcess { socket, pidfd, child } = launcher.child()?;
        Ok(Self {
            socket,
            pidfd,
            child: Some(child),
            access: Arc::new(ChildAccess(())),
            launcher: launcher.clone(),
            sequence: 0,
            regions: 0,
            message: Vec::new(),
        })
    }

    pub(super) fn pidfd(&self) -> &Arc<OwnedFd> {
        &self.pidfd
    }

    pub(super) fn access(&self) -> &Arc<ChildAccess> {
        &self.access
    }

    /// Has it load a library; gives the catalogue's bytes.
    pub(super) fn load(&mut self, path: &Path, deadline: Instant) -> Result<Vec<u8>, CallError> {
        let mut buffer = vec![0; MOST_BYTES + 1];
        match self.exchange(&ChildRequest::Load(path), &[], deadline, &mut buffer)? {
            ChildReply::Table(bytes) => Ok(bytes.to_vec()),
            other => Err(refusal(&other)),
        }
    }

    /// Has it map the session's regions.
    pub(super) fn map(&mut self, regions: &[RegionFile<'_>], deadline: Instant) -> Result<(), CallError> {
        for part in regions.chunks(MOST_FILES) {
            let mapped = part.iter().map(RegionFile::mapped).collect();
            let files: Vec<_> = part.iter().map(|region| region.file).collect();
            let mut buffer = [0; MOST_REPLY];
            match self.exchange(&ChildRequest::Map(mapped), &files, deadline, &mut buffer)? {
                ChildReply::Mapped => {}
                other => return Err(refusal(&other)),
            }
        }
        self.regions = regions.len();
        Ok(())
    }

    pub(super) fn call(&mut self, user: u32, code: u8, deadline: Instant) -> Result<KernelResult, CallError> {
        self.sequence += 1;
        let (sequence, regions) = (self.sequence, self.regions);
        let mut buffer = [0; MOST_REPLY];
        match self.exchange(&ChildRequest::Call { sequence, user, code }, &[], deadline, &mut buffer)? {
            ChildReply::Done { sequence: to, code, produced, text }
                if to == sequence && produced.len() == regions =>
            {
                Ok(KernelResult { code, produced, text: printable(text) })
            }
            other => Err(refusal(&other)),
        }
    }

    fn exchange<'b>(
        &mut self,
        request: &ChildRequest<'_>,
        files: &[BorrowedFd<'_>],
        deadline: Instant,
        buffer: &'b mut [u8],
    ) -> Result<ChildReply<'b>, CallError> {
        let mut message = std::mem::take(&mut self.message);
        request.encode(&mut message);
        let sent = self.send(&message, files);
        self.message = message;
        match sent {
            Ok(()) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.died()),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        match wait(&self.socket, &self.pidfd, deadline)? {
            Woken::Reply => {}
            Woken::Death => return Err(self.died()),
            Woken::Deadline => return Err(CallError::TimedOut),
        }
        match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => Err(self.died()),
            Ok((_, len)) => {
                ChildReply::decode(&buffer[..len]).ok_or(CallError::Misbehaved("what is no reply"))
            }
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Never waits: at most one message is on its way, and the socket has room for it.
    fn send(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, flags).map(drop)
    }

    /// The process has ended, or it has closed its socket and ends soon, or is ended.
    fn died(&mut self) -> CallError {
        let by_itself = ended(&self.pidfd, Instant::now() + EXIT_TIME).unwrap_or(false);
        self.kill();
        if !by_itself {
            return CallError::Misbehaved("nothing but the end of its socket");
        }
        // Nothing may be sent to the group of a child that was waited for: another process may get its number.
        let status = self.child.take().and_then(|mut child| child.wait().ok());
        CallError::Died(status.map_or_else(|| "is gone".to_owned(), how_it_ended))
    }

    /// Ends it and waits until it has no memory any more.
    pub(super) fn kill_and_wait(mut self) {
        self.kill();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Ends it, and what it started in its process group. Processes that left the group live on.
    fn kill(&self) {
        kill(&self.pidfd);
        // Nobody has waited for a child that is still here, so no other process can have its number.
        let group = self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            // Fails only when nothing of the group is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for KernelProcess {
    fn drop(&mut self) {
        // The group is that of a child that is still here.
        if self.child.is_some() {
            self.kill();
        }
        if let Some(child) = self.child.take() {
            self.launcher.reap(child, self.access.clone());
        }
    }
}

/// Fails only when the process has ended already.
pub(super) fn kill(pidfd: &OwnedFd) {
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}

fn refusal(reply: &ChildReply<'_>) -> CallError {
    match reply {
        ChildReply::Error(why) => CallError::Refused(printable(why)),
        _ => CallError::Misbehaved("the answer to another question"),
    }
}

/// What ended a wait for a reply.
enum Woken {
    /// There is a message, or the end of the socket.
    Reply,
    /// The process is dead. Whatever else holds its socket open answers for nobody.
    Death,
    Deadline,
}

/// Waits for a reply, but not for one of a dead process: a process that was forked by it may keep its socket open.
fn wait(socket: &OwnedFd, pidfd: &OwnedFd, deadline: Instant) -> io::Result<Woken> {
    let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(pidfd, PollFlags::IN)];
    poll_until(&mut fds, deadline)?;
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok(match (is_ready(&fds[0]), is_ready(&fds[1])) {
        (_, true) => Woken::Death,
        (true, false) => Woken::Reply,
        (false, false) => Woken::Deadline,
    })
}

/// Whether the process has ended by the deadline.
fn ended(pidfd: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll_until(&mut fds, deadline)?;
    Ok(!fds[0].revents().is_empty())
}

fn poll_until(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match poll(fds, left.as_ref()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
