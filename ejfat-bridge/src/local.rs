//! Workers on this machine: rings in memory that both map. The protocol is [`ejfat::ring::shared`].

use std::{
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileTypeExt as _,
    },
    path::{Path, PathBuf},
    sync::atomic::{Ordering, fence},
    time::{Duration, Instant},
};

use ejfat::ring::{
    Answer, BLOCK, Descriptor, Geometry, Refusal, Subscription,
    shared::{ASLEEP_AT, DESCRIPTORS_AT, HEAD_AT},
};
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg, socket_with,
    },
};
use verbs::Memory;

use crate::{Error, bells::Bells, word::Word};

/// Connections that did not say yet what they want.
const MOST_PENDING: usize = 16;
/// So long they may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A ring that a worker of this machine maps.
#[derive(Debug)]
pub(crate) struct Shared {
    socket: OwnedFd,
    geometry: Geometry,
    events: Memory,
    head: Word,
    asleep: Word,
}

/// Files of a ring, and how the worker gets them.
pub(crate) struct Files {
    events: OwnedFd,
    credits: OwnedFd,
}

impl Shared {
    /// Memory of a ring, its credits, and the files to send.
    pub(crate) fn new(socket: OwnedFd, geometry: Geometry) -> io::Result<(Self, Memory, Memory, Files)> {
        let (events_file, events) = region::memfd_for_readers("naa-events", geometry.shared_bytes())?;
        let (credits_file, credits) = region::memfd("naa-credits", geometry.credits_bytes())?;
        let ring = events.slice(geometry.shared_ring_at(), geometry.ring_bytes());
        let (head, asleep) = (Word::new(&events, HEAD_AT), Word::new(&credits, ASLEEP_AT));
        let shared = Self { socket, geometry, events, head, asleep };
        Ok((shared, ring, credits, Files { events: events_file, credits: credits_file }))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn answer(&self, answer: Answer, files: &Files) -> io::Result<()> {
        let fds = [files.events.as_fd(), files.credits.as_fd()];
        Ok(tell(self.socket.as_fd(), &Ok(answer), &fds)?)
    }

    /// The event is in the ring: tells the worker.
    pub(crate) fn deliver(&mut self, descriptor: &Descriptor) {
        let at = DESCRIPTORS_AT + self.geometry.descriptor_at(descriptor.sequence);
        self.events.write(at, &descriptor.encode());
        self.head.store(descriptor.sequence);
        // Whoever goes to sleep says so first and then looks at the head again.
        fence(Ordering::SeqCst);
        if self.asleep.load() == 1 {
            // A socket that is full wakes it, too; one that is closed is noticed when it is read.
            let _ = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Whether the worker closed its socket, or sent what it never sends.
    pub(crate) fn is_over(&self) -> bool {
        let mut byte = [0; 1];
        !matches!(recv(&self.socket, &mut byte, RecvFlags::DONTWAIT), Err(Errno::AGAIN | Errno::INTR))
    }
}

fn tell(
    socket: BorrowedFd<'_>,
    answer: &Result<Answer, Refusal>,
    files: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let block = Answer::encode(answer);
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[io::IoSlice::new(&block)], &mut control, flags).map(drop)
}

#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    until: Instant,
}

/// Where workers of this machine connect.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    pending: Vec<Pending>,
    /// Subscriptions that are none.
    pub(crate) refused: u64,
    /// The bell does not ring for new ones.
    ignored: bool,
}

/// A worker that asks to be taken.
#[derive(Debug)]
pub(crate) struct Applicant {
    pub(crate) socket: OwnedFd,
    pub(crate) subscription: Subscription,
}

impl Listener {
    /// A socket that nobody listens at any more makes room.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let wrong = |_| {
            let (path, len) = (path.display().to_string(), path.as_os_str().len());
            Error::Path { path, len }
        };
        let address = SocketAddrUnix::new(path).map_err(wrong)?;
        let listen_there = || -> io::Result<OwnedFd> {
            if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
                if rustix::net::connect(&new_socket()?, &address).is_ok() {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there"));
                }
                fs::remove_file(path)?;
            }
            let socket = new_socket()?;
            bind(&socket, &address)?;
            listen(&socket, MOST_PENDING as i32)?;
            Ok(socket)
        };
        let socket = listen_there().map_err(Error::io(format!("listen at {}", path.display())))?;
        Ok(Self { socket, path: path.to_owned(), pending: Vec::new(), refused: 0, ignored: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes connections, and returns somebody who said what he wants.
    pub(crate) fn next(&mut self, now: Instant, bells: &Bells) -> Option<Applicant> {
        if std::mem::take(&mut self.ignored) {
            let _ = bells.hear(self.socket.as_fd());
        }
        loop {
            let socket = if self.pending.len() < MOST_PENDING {
                accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
            } else {
                Err(Errno::MFILE)
            };
            let socket = match socket {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR) => break,
                // There is no place, or no descriptor, for another one: it is looked at later.
                Err(_) => {
                    bells.ignore(self.socket.as_fd());
                    self.ignored = true;
                    break;
                }
            };
            // One that is not heard is looked at now and then.
            let _ = bells.hear(socket.as_fd());
            self.pending.push(Pending { socket, until: now + PATIENCE });
        }
        self.pending.retain(|pending| pending.until > now);
        let mut at = 0;
        while at < self.pending.len() {
            // One byte more tells what is too long.
            let mut bytes = [0; BLOCK + 1];
            let read = recv(&self.pending[at].socket, &mut bytes, RecvFlags::DONTWAIT);
            let length = match read {
                Err(Errno::AGAIN | Errno::INTR) => {
                    at += 1;
                    continue;
                }
                Ok((length, _)) => length,
                Err(_) => 0,
            };
            let Pending { socket, .. } = self.pending.swap_remove(at);
            let block = bytes.first_chunk::<BLOCK>().filter(|_| length == BLOCK);
            match block.map(Subscription::decode) {
                Some(Ok(subscription)) => return Some(Applicant { socket, subscription }),
                Some(Err(malformed)) => self.refuse(&socket, malformed.into()),
                // It went away again.
                None if length == 0 => {}
                None => self.refuse(&socket, Refusal::Malformed),
            }
        }
        None
    }
}

impl Listener {
    fn refuse(&mut self, socket: &OwnedFd, refusal: Refusal) {
        self.refused += 1;
        refuse(socket, refusal);
    }
}

/// Whether it still listens or not.
pub(crate) fn refuse(socket: &OwnedFd, refusal: Refusal) {
    let _ = tell(socket.as_fd(), &Err(refusal), &[]);
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
