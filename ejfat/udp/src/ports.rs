//! UDP ports where segments arrive, a batch at a time.

use std::{
    cell::Cell,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

use quinn_udp::{RecvMeta, UdpSocketState};
use socket2::SockRef;

use crate::{Error, drops, socket};

/// Datagrams of one sender, merged by the kernel (GRO), as they lie in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub from: IpAddr,
    pub len: usize,
    /// Bytes of each datagram but the last.
    pub stride: usize,
}

#[derive(Debug)]
struct Port {
    socket: UdpSocket,
    state: UdpSocketState,
    /// So many were told of already.
    drops: Cell<u64>,
}

impl Port {
    fn new(at: SocketAddr, buffer: Option<usize>) -> Result<Self, Error> {
        let socket = socket::bound(at, buffer, None)?;
        let state = UdpSocketState::new((&socket).into()).map_err(Error::io("prepare a UDP socket"))?;
        Ok(Self { socket, state, drops: Cell::new(0) })
    }

    fn kernel_drops(&self) -> Result<u64, Error> {
        let now = drops::of(&self.socket).map_err(Error::io("read what a socket dropped"))?;
        // The kernel's counter has 32 bits.
        let before = self.drops.get();
        let all = before + u64::from(now.wrapping_sub(before as u32));
        self.drops.set(all);
        Ok(all)
    }
}

/// Bound ports.
#[derive(Debug)]
pub struct Ports(Vec<Port>);

impl Ports {
    /// The longest datagram, merged or not, is shorter than an IP packet can be.
    pub const BUFFER: usize = 1 << 16;
    /// Buffers of a batch.
    pub const BATCH: usize = quinn_udp::BATCH_SIZE;

    /// Binds them; `buffer` are bytes of each one's receive buffer, `None`: the system's.
    pub fn bind(at: &[SocketAddr], buffer: Option<usize>) -> Result<Self, Error> {
        at.iter().map(|&at| Port::new(at, buffer)).collect::<Result<_, _>>().map(Self)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses, with the ports the system chose for 0.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(|port| port.socket.local_addr()).collect()
    }

    /// Bytes of a socket's receive buffer, as the system granted it: half of what it tells is its own overhead.
    pub fn buffer(&self) -> io::Result<usize> {
        self.0.first().map_or(Ok(0), |port| Ok(SockRef::from(&port.socket).recv_buffer_size()? / 2))
    }

    /// Datagrams that the kernel dropped at the sockets since they were opened, mostly because they came faster than
    /// they were taken: a larger buffer holds longer bursts. Datagrams that were merged (GRO) count as one.
    pub fn kernel_drops(&self) -> Result<u64, Error> {
        self.0.iter().map(Port::kernel_drops).sum()
    }

    /// Readable when something is there.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|port| port.socket.as_fd())
    }

    /// One batch of a port, without waiting: a buffer of [`Self::BUFFER`] bytes for each one received, at most
    /// [`Self::BATCH`]. Returns how many, 0 if there is nothing.
    pub fn receive(
        &self,
        port: usize,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received; Self::BATCH],
    ) -> Result<usize, Error> {
        let Port { socket, state, .. } = &self.0[port];
        let mut metas = [RecvMeta::default(); Self::BATCH];
        let count = match state.recv(socket.into(), buffers, &mut metas) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(Error::io("receive segments")(error)),
        };
        for (received, meta) in received.iter_mut().zip(&metas[..count]) {
            *received = Received { from: meta.addr.ip(), len: meta.len, stride: meta.stride.max(1) };
        }
        Ok(count)
    }
}

impl Received {
    pub const NONE: Self = Self { from: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), len: 0, stride: 1 };

    /// The datagrams in their buffer; an empty one is one, too.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let empty = (self.len == 0).then_some(&[][..]);
        empty.into_iter().chain(buffer[..self.len].chunks(self.stride))
    }
}
