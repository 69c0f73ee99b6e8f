//! Rings of local workers, in memory that both the worker and the bridge map. [`ejfat::ring::shared`] describes the
//! protocol between worker and bridge.

use std::{
    collections::BTreeMap,
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
    BLOCK, Descriptor, Geometry, SubscribeRefusal, SubscribeResponse, Subscription,
    shared::{ASLEEP_AT, DESCRIPTORS_AT, HEAD_AT},
};
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg, socket_with,
        sockopt::socket_peercred,
    },
};
use verbs::{
    Memory,
    admission::{Admission, AdmissionDecision},
};

use crate::{Error, wake_set::WakeSet, word::Word};

/// The maximum number of connections that have not subscribed yet.
const MOST_PENDING: usize = 16;
/// The maximum number of connections that one call of [`Listener::next`] accepts. Connections beyond this number wait
/// for the next call of [`Listener::next`].
const MOST_AT_ONCE: usize = 64;
/// The time limit within which a new connection must subscribe.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A ring that a local worker maps.
#[derive(Debug)]
pub(crate) struct SharedRing {
    socket: OwnedFd,
    geometry: Geometry,
    events: Memory,
    head: Word,
    asleep: Word,
}

/// The shared-memory files of a ring, which are sent to the worker.
pub(crate) struct Files {
    events: OwnedFd,
    credits: OwnedFd,
}

impl SharedRing {
    /// Makes a ring in shared memory. Returns the ring, the memory of its slots, the memory of its credits, and the
    /// files that the worker gets.
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

    pub(crate) fn answer(&self, answer: SubscribeResponse, files: &Files) -> io::Result<()> {
        let fds = [files.events.as_fd(), files.credits.as_fd()];
        Ok(send_answer(self.socket.as_fd(), &Ok(answer), &fds)?)
    }

    /// Announces to the worker an event that is in the ring.
    pub(crate) fn deliver(&mut self, descriptor: &Descriptor) {
        let at = DESCRIPTORS_AT + self.geometry.descriptor_at(descriptor.sequence);
        self.events.write(at, &descriptor.encode());
        self.head.store(descriptor.sequence);
        // The fence ensures that `head` is written before `asleep` is read. A worker that is about to sleep first sets
        // `asleep` to 1, and then reads `head` once more. Therefore the worker finds the new event, or the bridge finds
        // that the worker sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load() == 1 {
            // Errors of `send` are ignored. If the socket is full, the bytes in the socket wake the worker. If the
            // socket is closed, `is_over` notices that.
            let _ = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Returns true if the worker's subscription is over: the worker has closed its socket, or has sent data. A worker
    /// that keeps to the protocol sends no data after it has subscribed.
    pub(crate) fn is_over(&self) -> bool {
        let mut byte = [0; 1];
        !matches!(recv(&self.socket, &mut byte, RecvFlags::DONTWAIT), Err(Errno::AGAIN | Errno::INTR))
    }
}

fn send_answer(
    socket: BorrowedFd<'_>,
    answer: &Result<SubscribeResponse, SubscribeRefusal>,
    files: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let block = SubscribeResponse::encode(answer);
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

/// The state of a connection that has not subscribed yet, after a try to read its subscription.
enum PendingState {
    Nothing(OwnedFd),
    Wants(Applicant),
    /// The connection was refused, or the other end closed it.
    Over,
}

/// The socket to which local workers connect, with the connections that have not subscribed yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// The connections that have not subscribed yet, in the order of arrival.
    pending: BTreeMap<u64, Pending>,
    /// The admission decides which connections stay in `pending`, by the user IDs of the connected processes. If one
    /// user has many connections that send nothing, these connections do not keep other users out.
    admission: Admission<u64, u32>,
    arrived: u64,
    /// The number of messages that were refused, because they were not valid subscriptions.
    pub(crate) refused: u64,
    /// True if the listening socket was removed from the set of file descriptors that wake the server loop.
    ignored: bool,
}

/// A worker that asks for a subscription.
#[derive(Debug)]
pub(crate) struct Applicant {
    pub(crate) socket: OwnedFd,
    pub(crate) subscription: Subscription,
}

impl Listener {
    /// Creates a UNIX socket at `path`, and listens there. If `path` is a socket file at which no process listens any
    /// more, the file is replaced.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let wrong = |_| {
            let (path, len) = (path.display().to_string(), path.as_os_str().len());
            Error::Path { path, len }
        };
        let address = SocketAddrUnix::new(path).map_err(wrong)?;
        let listen_there = || -> io::Result<OwnedFd> {
            if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
                // Only ECONNREFUSED says that no process listens. After another error, a process may still listen: it
                // may have no room for another connection, or its socket file may belong to another user.
                if rustix::net::connect(&new_socket()?, &address) != Err(Errno::CONNREFUSED) {
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
        Ok(Self {
            socket,
            path: path.to_owned(),
            pending: BTreeMap::new(),
            admission: Admission::default(),
            arrived: 0,
            refused: 0,
            ignored: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts connections, and returns the next worker that has sent its subscription.
    pub(crate) fn next(&mut self, now: Instant, wake_set: &WakeSet) -> Option<Applicant> {
        if std::mem::take(&mut self.ignored) {
            let _ = wake_set.add(self.socket.as_fd());
        }
        let late = |pending: &Pending| pending.until <= now;
        let late: Vec<_> = self.pending.iter().filter(|(_, one)| late(one)).map(|(key, _)| *key).collect();
        late.into_iter().for_each(|key| drop(self.leave(key)));
        for _ in 0..MOST_AT_ONCE {
            let socket = match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR) => break,
                // If accepting a connection fails with an error other than `EAGAIN` and `EINTR`, most likely this
                // process has no free file descriptor. The new connection then stays in the queue of the listening
                // socket. The listening socket does not wake the server loop until `next` is called again.
                Err(_) => {
                    wake_set.remove(self.socket.as_fd());
                    self.ignored = true;
                    break;
                }
            };
            // If `add` fails, the new connection does not wake the server loop. The error is ignored, because
            // `Bridge::tick` calls `next` periodically, and `next` reads all connections that have not subscribed yet.
            let _ = wake_set.add(socket.as_fd());
            // If too many connections have not subscribed yet, `admit` returns the socket of the connection that must
            // be ended. The socket that `admit` returns is read once more, because a subscription may have arrived
            // since the last read.
            let lost = self.admit(socket, now).map(|socket| self.read_subscription(socket));
            if let Some(PendingState::Wants(applicant)) = lost {
                return Some(applicant);
            }
        }
        let keys: Vec<_> = self.pending.keys().copied().collect();
        for key in keys {
            let Some(pending) = self.pending.remove(&key) else { continue };
            match self.read_subscription(pending.socket) {
                PendingState::Nothing(socket) => {
                    self.pending.insert(key, Pending { socket, ..pending });
                }
                PendingState::Over => self.admission.leave(key),
                PendingState::Wants(applicant) => {
                    self.admission.leave(key);
                    return Some(applicant);
                }
            }
        }
        None
    }

    /// Admits a new connection if possible. If [`MOST_PENDING`] connections have not subscribed yet, returns the
    /// connection that must be ended: an older connection, or the new connection itself.
    fn admit(&mut self, socket: OwnedFd, now: Instant) -> Option<OwnedFd> {
        let user = socket_peercred(&socket).map_or(u32::MAX, |peer| peer.uid.as_raw());
        let lost = match self.admission.decide(MOST_PENDING, user) {
            AdmissionDecision::Admit => None,
            AdmissionDecision::InPlaceOf(key) => self.leave(key),
            AdmissionDecision::Refuse => return Some(socket),
        };
        self.arrived += 1;
        self.admission.admit(self.arrived, user);
        self.pending.insert(self.arrived, Pending { socket, until: now + SUBSCRIBE_TIMEOUT });
        lost
    }

    fn leave(&mut self, key: u64) -> Option<OwnedFd> {
        self.admission.leave(key);
        self.pending.remove(&key).map(|pending| pending.socket)
    }

    fn read_subscription(&mut self, socket: OwnedFd) -> PendingState {
        // The buffer is one byte longer than a subscription, so that a longer message is noticed.
        let mut bytes = [0; BLOCK + 1];
        let length = match recv(&socket, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return PendingState::Nothing(socket),
            Ok((length, _)) => length,
            Err(_) => 0,
        };
        let block = bytes.first_chunk::<BLOCK>().filter(|_| length == BLOCK);
        match block.map(Subscription::decode) {
            Some(Ok(subscription)) => return PendingState::Wants(Applicant { socket, subscription }),
            Some(Err(malformed)) => self.refuse(&socket, malformed.into()),
            // A length of 0 means that the other end closed the connection without sending a subscription.
            None if length == 0 => {}
            None => self.refuse(&socket, SubscribeRefusal::Malformed),
        }
        PendingState::Over
    }

    fn refuse(&mut self, socket: &OwnedFd, refusal: SubscribeRefusal) {
        self.refused += 1;
        refuse(socket, refusal);
    }
}

/// Sends the refusal of a subscription to the other end of `socket`. Errors are ignored, because the other end may have
/// closed the connection already.
pub(crate) fn refuse(socket: &OwnedFd, refusal: SubscribeRefusal) {
    let _ = send_answer(socket.as_fd(), &Err(refusal), &[]);
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

#[cfg(test)]
mod tests {
    use ejfat_udp::Ports;

    use super::*;

    fn connected(path: &Path) -> OwnedFd {
        let socket = new_socket().unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        socket
    }

    #[test]
    fn only_a_socket_file_at_which_nobody_listens_is_replaced() {
        let path = std::env::temp_dir().join(format!("ejfat-bridge-replaced-{}", std::process::id()));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::new(&path).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        let waiting: Vec<_> = (0..2 * MOST_PENDING)
            .map(|_| new_socket().unwrap())
            .take_while(|socket| rustix::net::connect(socket, &address).is_ok())
            .collect();
        assert!(waiting.len() < 2 * MOST_PENDING, "there is room for all connections");
        assert!(Listener::new(&path).is_err());
        assert!(path.exists());
        drop(listener);
    }

    #[test]
    fn connections_that_say_nothing_keep_no_worker_waiting() {
        let path = std::env::temp_dir().join(format!("ejfat-bridge-local-{}", std::process::id()));
        let mut listener = Listener::new(&path).unwrap();
        let wake_set = WakeSet::new(&Ports::bind(&[], None).unwrap(), Some(&listener)).unwrap();
        let now = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..3 * MOST_PENDING {
            silent.push(connected(&path));
            assert!(listener.next(now, &wake_set).is_none());
        }
        // Between two calls of `next`, a worker subscribes, and then `MOST_PENDING` further connections arrive that
        // send nothing.
        let worker = connected(&path);
        let geometry = Geometry::new(4, 1 << 16).unwrap();
        let subscription = Subscription { redelivery: true, ..Subscription::new(geometry) };
        send(&worker, &subscription.encode(), SendFlags::NOSIGNAL).unwrap();
        silent.extend((0..MOST_PENDING).map(|_| connected(&path)));
        let applicant = listener.next(now, &wake_set).expect("it is heard at once");
        assert_eq!(applicant.subscription, subscription);
        assert!(listener.next(now, &wake_set).is_none());
        assert_eq!(
            (listener.pending.len(), listener.admission.len(), listener.refused),
            (MOST_PENDING, MOST_PENDING, 0)
        );
        assert!(listener.next(now + SUBSCRIBE_TIMEOUT, &wake_set).is_none());
        assert_eq!((listener.pending.len(), listener.admission.len()), (0, 0), "their time is over");
    }
}
