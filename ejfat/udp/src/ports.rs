//! UDP ports where segments arrive, a batch at a time.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use ejfat::listen::{Listen, bind_all};
use naa_udp::{MAX_MESSAGES, ReceiveSocket, RecvHeaders};

use crate::{Error, ReadySet};

/// Up to this many ports, each one is tried. With more, epoll tells which of them can be read.
const FEW: usize = 4;
/// Ports that are asked for their drops at a time, a system call each.
const ASKED: usize = 256;

/// Datagrams of one sender, merged by the kernel (GRO), as they lie in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedSegments {
    /// The address from which the datagrams came.
    pub from: IpAddr,
    /// The number of bytes of all datagrams together.
    pub len: usize,
    /// Bytes of each datagram but the last.
    pub stride: usize,
}

/// What came to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// The local address of the port.
    pub at: SocketAddr,
    /// The number of datagrams that were received. Each datagram of a super-packet counts.
    pub datagrams: u64,
    /// The number of bytes of the received datagrams, without IP and UDP headers.
    pub bytes: u64,
    /// Datagrams that the kernel dropped at its socket; datagrams that were merged (GRO) count as one.
    pub kernel_drops: u64,
}

#[derive(Debug)]
struct Port {
    socket: ReceiveSocket,
    datagrams: Cell<u64>,
    bytes: Cell<u64>,
    /// Datagrams that the kernel dropped, as of when it was last asked.
    drops: Cell<u64>,
}

impl Port {
    fn new(at: SocketAddr, buffer: Option<usize>) -> Result<Self, Error> {
        let socket = ReceiveSocket::bind(at, buffer)?;
        let [datagrams, bytes, drops] = [0; 3].map(Cell::new);
        Ok(Self { socket, datagrams, bytes, drops })
    }

    /// Asks the kernel how much it dropped.
    fn ask(&self) -> Result<(), Error> {
        let now = self.socket.drops().map_err(Error::io("read what a socket dropped"))?;
        // The kernel's counter has 32 bits.
        let before = self.drops.get();
        self.drops.set(before + u64::from(now.wrapping_sub(before as u32)));
        Ok(())
    }
}

/// Bound ports.
#[derive(Debug)]
pub struct Ports {
    ports: Vec<Port>,
    skipped: Vec<SocketAddr>,
    ready: ReadySet,
    headers: RefCell<RecvHeaders>,
    /// The port that is asked next for its drops.
    next_asked: Cell<usize>,
}

impl Ports {
    /// The longest datagram, merged or not, is shorter than an IP packet can be.
    pub const BUFFER: usize = 1 << 16;
    /// Buffers of a batch.
    pub const BATCH: usize = MAX_MESSAGES;

    /// Binds the ports. `buffer` is the number of bytes of each port's receive buffer, or `None` for the default of the
    /// operating system.
    ///
    /// # Errors
    /// Fails if another process has a port that must be free, or every port of a range, and if the operating system
    /// refuses a socket.
    pub fn bind(listen: &[Listen], buffer: Option<usize>) -> Result<Self, Error> {
        let busy = |error: &Error| matches!(error, Error::Busy { .. });
        let (ports, skipped) = bind_all(listen, |at| Port::new(at, buffer), busy)?;
        let ready = ReadySet::new().map_err(Error::io("make an epoll"))?;
        for (number, port) in ports.iter().enumerate() {
            ready.add(port.socket.as_fd(), number).map_err(Error::io("watch a UDP socket"))?;
        }
        let headers = RefCell::new(RecvHeaders::new(Self::BATCH));
        Ok(Self { ports, skipped, ready, headers, next_asked: Cell::new(0) })
    }

    /// Returns the number of bound ports.
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns true if no port is bound.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The addresses, with the ports the system chose for 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| port.socket.local_addr()).collect()
    }

    /// The ports of ranges that another process holds, and that are left out.
    pub fn skipped(&self) -> &[SocketAddr] {
        &self.skipped
    }

    /// Returns the size in bytes of a socket's receive buffer, as the operating system granted it. The Linux kernel
    /// uses half of this size for its own data.
    ///
    /// # Errors
    /// Fails if the operating system does not report the size.
    pub fn buffer(&self) -> io::Result<usize> {
        self.ports.first().map_or(Ok(0), |port| Ok(port.socket.recv_buffer()? / 2))
    }

    /// Returns the number of datagrams that the Linux kernel dropped at the sockets since they were opened. Most of
    /// these datagrams came while the receive buffer was full, so a larger buffer makes longer bursts possible. The
    /// datagrams of a super-packet count as one. If there are more than 256 ports, each call updates the numbers of the
    /// next 256 ports and uses the last known numbers of all other ports.
    ///
    /// # Errors
    /// Fails if the operating system does not report the drops of a socket.
    pub fn kernel_drops(&self) -> Result<u64, Error> {
        self.ask(ASKED)
    }

    /// Returns the number of dropped datagrams as [`Ports::kernel_drops`] does, and updates the number of every port.
    /// The call takes long for many ports, so programs call it once at their end.
    ///
    /// # Errors
    /// Fails if the operating system does not report the drops of a socket.
    pub fn all_kernel_drops(&self) -> Result<u64, Error> {
        self.ask(self.ports.len())
    }

    fn ask(&self, most: usize) -> Result<u64, Error> {
        let first = self.next_asked.get();
        for at in (0..most.min(self.ports.len())).map(|next| (first + next) % self.ports.len()) {
            self.ports[at].ask()?;
            self.next_asked.set(at + 1);
        }
        Ok(self.ports.iter().map(|port| port.drops.get()).sum())
    }

    /// Further file descriptors of the sockets of the first `most` ports.
    ///
    /// # Errors
    /// Fails if this process may have no more open files.
    pub(crate) fn sample(&self, most: usize) -> Result<Vec<ReceiveSocket>, Error> {
        let again = |port: &Port| port.socket.try_clone().map_err(Error::io("watch a UDP socket"));
        self.ports.iter().take(most).map(again).collect()
    }

    /// The counters of the ports to which something came; their drops as of the last [`Ports::kernel_drops`].
    pub fn counters(&self) -> Vec<PortCounters> {
        let of = |port: &Port| PortCounters {
            at: port.socket.local_addr(),
            datagrams: port.datagrams.get(),
            bytes: port.bytes.get(),
            kernel_drops: port.drops.get(),
        };
        self.ports.iter().map(of).filter(|port| port.datagrams > 0 || port.kernel_drops > 0).collect()
    }

    /// A descriptor that is readable when some port has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Sleeps for at most `most` until a port has received a datagram, and calls `each` with the number of each port
    /// that has a datagram. Returns false if there may be more ports with a datagram.
    ///
    /// # Errors
    /// Fails if the operating system cannot wait for the sockets.
    pub fn wait(&self, most: Duration, each: impl FnMut(usize)) -> Result<bool, Error> {
        self.ready.wait(most, each).map_err(Error::io("wait for segments"))
    }

    /// Calls `each` with the number of each port that may have a datagram, without waiting. Returns false if there may
    /// be more ports with a datagram.
    ///
    /// # Errors
    /// Fails if the operating system cannot report the state of the sockets.
    pub fn ready(&self, each: impl FnMut(usize)) -> Result<bool, Error> {
        if self.ports.len() <= FEW {
            (0..self.ports.len()).for_each(each);
            return Ok(true);
        }
        self.wait(Duration::ZERO, each)
    }

    /// Receives a batch of at most [`Self::BATCH`] super-packets from a port, without waiting. Each buffer must have
    /// [`Self::BUFFER`] bytes and gets one super-packet. Returns the number of buffers that were filled, which is 0 if
    /// the port has no datagram.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system reports an error other than an empty socket.
    pub fn receive(
        &self,
        port: usize,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [ReceivedSegments; Self::BATCH],
    ) -> Result<usize, Error> {
        let port = &self.ports[port];
        let headers = &mut *self.headers.borrow_mut();
        let count = port.socket.recv(headers, buffers).map_err(Error::io("receive segments"))?;
        let (mut datagrams, mut bytes) = (0, 0);
        for (at, received) in received.iter_mut().enumerate().take(count) {
            // One whose sender is unknown counts as an empty datagram.
            *received = headers.message(at).map_or(ReceivedSegments::NONE, |message| ReceivedSegments {
                from: message.from.ip(),
                len: message.len,
                stride: message.segment_len,
            });
            datagrams += received.len.div_ceil(received.stride).max(1) as u64;
            bytes += received.len as u64;
        }
        port.datagrams.set(port.datagrams.get() + datagrams);
        port.bytes.set(port.bytes.get() + bytes);
        Ok(count)
    }
}

impl ReceivedSegments {
    /// A value without bytes, with which arrays for [`Ports::receive`] are filled before they are used.
    pub const NONE: Self = Self { from: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0, stride: 1 };

    /// The datagrams in their buffer; an empty one is one, too.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let empty = (self.len == 0).then_some(&[][..]);
        empty.into_iter().chain(buffer[..self.len].chunks(self.stride))
    }
}
