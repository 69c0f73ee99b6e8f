//! Events of a bridge on this machine, in memory that both map. `ejfat::ring::shared` says what passes.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant},
};

use ejfat::ring::{BLOCK, SubscribeResponse, shared};
use naa_host::WaitMode;
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
        SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with,
    },
};

use crate::{
    Config, Error, Event,
    connection::{SubscriptionEnd, answer, subscription},
    credits::{Credits, SharedCredits},
    memory::{RingMemory, SharedFile},
    ring::WorkerRing,
};

/// Adaptive waits look for this long before they sleep.
const SPIN: Duration = Duration::from_micros(50);
/// Looks at the head between two at the socket.
const LOOKS: u32 = 1024;
/// Wake-ups taken at once: one is enough, and more are nobody's.
const WAKES: usize = 16;

#[derive(Debug)]
pub(crate) struct SharedSubscription {
    bridge: String,
    wait: WaitMode,
    socket: OwnedFd,
    events: Arc<SharedFile>,
    credits: Arc<SharedFile>,
    /// The number of the newest event that was taken.
    taken: u32,
    /// The bridge was told to wake this side.
    asleep: bool,
    /// It closed the socket.
    ended: bool,
}

impl SharedSubscription {
    pub(crate) fn open(
        path: &Path,
        config: &Config,
        limit: Duration,
        held: &Arc<AtomicU64>,
    ) -> Result<(Self, Arc<WorkerRing>, SubscribeResponse), Error> {
        let bridge = format!("unix:{}", path.display());
        let until = Instant::now() + limit.min(Duration::from_secs(u32::MAX.into()));
        let socket = connect_socket(path, until).map_err(|e| {
            let remedy = "start a bridge that serves this socket with `naa bridge --listen ADDR --local PATH`, or see who \
                          may open it";
            local(&bridge, "no connection", e, remedy)
        })?;
        let failed = |e: io::Error| local(&bridge, "no answer", e, "see the bridge's load and its log");
        send(&socket, &subscription(config), SendFlags::NOSIGNAL).map_err(|e| failed(e.into()))?;
        let (block, files) = receive(&socket, until).map_err(failed)?;
        let answer = answer(&bridge, &block, config.again)?;
        let geometry = config.geometry;
        let wrong = |why: String| Error::Files { bridge: bridge.clone(), why };
        let [events, credits] = <[OwnedFd; 2]>::try_from(files)
            .map_err(|files| wrong(format!("it sent {} files instead of two", files.len())))?;
        let events = map(&events, geometry.shared_bytes(), false).map_err(wrong)?;
        let credits = map(&credits, geometry.credits_bytes(), true).map_err(wrong)?;
        let memory = RingMemory::Shared(events.clone(), geometry.shared_ring_at());
        let to = Credits::Shared(SharedCredits::new(geometry, credits.clone()));
        let ring = WorkerRing::new((geometry, config.again), memory, to, held.clone());
        let wait = config.session.wait;
        let this = Self { bridge, wait, socket, events, credits, taken: 0, asleep: false, ended: false };
        Ok((this, ring, answer))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next event, if the head says that there is one.
    pub(crate) fn look(&mut self, ring: &Arc<WorkerRing>) -> Result<Option<Event>, SubscriptionEnd> {
        let head = u32::from_le(self.events.load(shared::HEAD_AT, Ordering::Acquire));
        if head == self.taken {
            return Ok(None);
        }
        self.wake();
        // A head that is nonsense shows as a descriptor that is not the next one's.
        let descriptor = |at| self.events.block(shared::DESCRIPTORS_AT + at);
        let given = ring
            .take(None, descriptor)
            .map_err(|why| Error::Protocol { bridge: self.bridge.clone(), why })?;
        self.taken = given.descriptor().sequence;
        Ok(Some(Event::new(ring.clone(), given)))
    }

    pub(crate) fn test(&mut self, ring: &Arc<WorkerRing>) -> Result<Option<Event>, SubscriptionEnd> {
        // First: a wake-up taken after the look would be missed.
        self.drain();
        self.sleep();
        match self.look(ring)? {
            None if self.ended => Err(SubscriptionEnd::Gone("it closed its socket".to_owned())),
            event => Ok(event),
        }
    }

    pub(crate) fn wait(
        &mut self,
        ring: &Arc<WorkerRing>,
        until: Option<Instant>,
    ) -> Result<Option<Event>, SubscriptionEnd> {
        if let Some(event) = self.spin(ring, until)? {
            return Ok(Some(event));
        }
        if let Some(event) = self.test(ring)? {
            return Ok(Some(event));
        }
        if self.wait == WaitMode::Spin {
            return Ok(None);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, left.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => {
                return Err(
                    Error::Machine { what: "cannot sleep until an event comes", source: e.into() }.into()
                );
            }
        }
        self.look(ring)
    }

    /// Looks for a while, as the wait mode has it.
    fn spin(
        &mut self,
        ring: &Arc<WorkerRing>,
        until: Option<Instant>,
    ) -> Result<Option<Event>, SubscriptionEnd> {
        if self.wait == WaitMode::Block {
            return Ok(None);
        }
        let adaptive = (self.wait == WaitMode::Adaptive).then(|| Instant::now() + SPIN);
        let until = [until, adaptive].into_iter().flatten().min();
        for _ in 0..LOOKS {
            if let Some(event) = self.look(ring)? {
                return Ok(Some(event));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Asks to be woken for what comes from now on.
    fn sleep(&mut self) {
        if !self.asleep {
            self.credits.store(shared::ASLEEP_AT, 1_u32.to_le(), Ordering::Relaxed);
            self.asleep = true;
        }
        // Between the word and the look at the head, as the bridge has one between the head and the look at the word.
        fence(Ordering::SeqCst);
    }

    fn wake(&mut self) {
        if self.asleep {
            self.credits.store(shared::ASLEEP_AT, 0, Ordering::Relaxed);
            self.asleep = false;
        }
    }

    /// Takes wake-ups.
    fn drain(&mut self) {
        for _ in 0..WAKES {
            // It is asked again if need be: who wakes may take the word back.
            let mut byte = [0; BLOCK];
            match recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok((_, 1..)) => self.asleep = false,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }
}

fn local(bridge: &str, what: &'static str, source: io::Error, remedy: &'static str) -> Error {
    Error::Local { bridge: bridge.to_owned(), what, source, remedy }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

fn connect_socket(path: &Path, until: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // Many wait to be accepted.
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The answer and the files that come with it.
fn receive(socket: &OwnedFd, until: Instant) -> io::Result<([u8; BLOCK], Vec<OwnedFd>)> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut block = [0; BLOCK];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut block)];
        match recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == BLOCK && !message.flags.contains(ReturnFlags::TRUNC) => {
                let mut files = Vec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(more) = message {
                        files.extend(more);
                    }
                }
                return Ok((block, files));
            }
            Ok(message) if message.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn map(file: &OwnedFd, len: usize, writable: bool) -> Result<Arc<SharedFile>, String> {
    let what = if writable { "credits" } else { "events" };
    let mapped = SharedFile::new(file, len, writable);
    mapped.map(Arc::new).map_err(|e| format!("the file of {what}, of which {len} bytes are needed: {e}"))
}
