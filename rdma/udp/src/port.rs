//! Unconnected sockets that receive and send in batches, and waiting for them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    Error, RecvBatch, Waker, bind,
    sys::{interface, option, wait},
};

/// The settings of a port, which [`Port::bind`] applies to its UDP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The size in bytes that is requested for the socket's receive buffer. With the Linux kernel's default size, a
    /// receive buffer has room for about 50 packets of 4 KiB.
    pub receive_buffer: usize,
    /// True if the Linux kernel may merge received datagrams (GRO).
    pub gro: bool,
    /// True if the Linux kernel or the NIC may segment super-packets (GSO).
    pub gso: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { receive_buffer: 4 << 20, gro: true, gso: true }
    }
}

/// A nonblocking, unconnected UDP socket on one concrete local address. Several threads may use a `Port` at the same
/// time.
///
/// A port sends IPv4 packets with the flag DF (don't fragment). A packet that is sent alone has the IPv4 identification
/// 0. The IPv4 identification of a packet in a super-packet is the index of the packet in the super-packet. A protocol
/// whose checksum covers the identification can therefore compute the checksum before the packet is sent.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    local: SocketAddr,
    recv_buffer: usize,
    gro: bool,
    gso: AtomicBool,
}

impl Port {
    /// Binds a socket to `local`: a concrete address of this machine, with port 0 for an ephemeral port.
    ///
    /// # Errors
    /// Fails with [`Error::NotConcrete`] if `local` is a wildcard, multicast or broadcast address, and with
    /// [`Error::NotLocal`] if it is not an address of this machine. Fails with [`Error::AddressInUse`] if another socket
    /// has the address. All other failures are [`Error::Io`].
    pub fn bind(local: SocketAddr, config: &PortConfig) -> Result<Self, Error> {
        let mut local = local;
        local.set_ip(local.ip().to_canonical());
        let ip = local.ip();
        if ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
            return Err(Error::NotConcrete(ip));
        }
        let failed = |what: &str| Error::io(format!("{what} on {local}"));
        let socket = bind::open(local)?;
        // All options are set before the bind, so that no datagram arrives while the socket has the default options.
        required_options(&socket, local).map_err(failed("set an option of the UDP socket"))?;
        let gro = config.gro && option::set(&socket, (libc::SOL_UDP, libc::UDP_GRO), 1).is_ok();
        let gso = config.gso && bind::knows_gso(&socket);
        bind::enlarge(&socket, config.receive_buffer).map_err(failed("size the receive buffer"))?;
        let recv_buffer =
            bind::recv_buffer(&socket).map_err(failed("read the size of the receive buffer"))?;
        let (socket, local) = bind::bind(socket, local)?;
        Ok(Self { socket, local, recv_buffer, gro, gso: gso.into() })
    }

    /// Returns the address to which the socket is bound. If the port 0 was requested, the address has the port that the
    /// Linux kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the receive buffer in bytes. The Linux kernel counts its own overhead as a part of this
    /// size, and therefore doubles the requested size. If the limit `net.core.rmem_max` applies and is lower than the
    /// requested size, the Linux kernel doubles this limit instead.
    pub fn recv_buffer(&self) -> usize {
        self.recv_buffer
    }

    /// Returns true if the Linux kernel may merge received datagrams.
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Returns true if super-packets may be sent. The result is false after the interface has refused a
    /// super-packet.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// Receives the messages that have arrived, without waiting. A message here is a datagram, or several datagrams
    /// that the Linux kernel merged. Returns the number of messages that are now in `batch`; 0 means that no usable
    /// message has arrived. If [`RecvBatch::is_full`] is true, the socket may have more messages.
    ///
    /// # Errors
    /// Fails if the operating system cannot receive on the socket. Some errors only report what happened to datagrams
    /// that this socket sent earlier. Each call ignores up to eight errors of this kind.
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        // These errors are reports from routers and peers about datagrams that were sent earlier. Each failed system
        // call removes one report, so another attempt to receive can succeed.
        const REPORTED: [i32; 8] = [
            libc::ECONNREFUSED,
            libc::EHOSTUNREACH,
            libc::ENETUNREACH,
            libc::EHOSTDOWN,
            libc::ENETDOWN,
            libc::ENOPROTOOPT,
            libc::EPROTO,
            libc::EMSGSIZE,
        ];
        let mut reports = 0;
        loop {
            let error = match batch.fill(self.as_fd()) {
                Ok(messages) => return Ok(messages),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(0),
                io::ErrorKind::Interrupted => {}
                _ if error.raw_os_error().is_some_and(|code| REPORTED.contains(&code)) && reports < 8 => {
                    reports += 1;
                }
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets the socket options that every port has. Every Linux kernel since version 4.18 has these options.
fn required_options(socket: &impl AsRawFd, local: SocketAddr) -> io::Result<()> {
    let options: &[(option::SocketOption, libc::c_int)] = if local.is_ipv4() {
        &[
            // With this value of the option, an unconnected socket sends IPv4 packets with the flag DF and the
            // identification 0, as `Port` promises.
            ((libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_DO),
            ((libc::IPPROTO_IP, libc::IP_RECVTOS), 1),
        ]
    } else {
        &[
            ((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1),
            ((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER), libc::IPV6_PMTUDISC_DO),
            ((libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS), 1),
            // Protocols with a checksum of their own may send the UDP checksum 0 over IPv6 (RFC 6935), and a socket
            // drops such packets by default.
            ((libc::SOL_UDP, libc::UDP_NO_CHECK6_RX), 1),
        ]
    };
    options.iter().try_for_each(|(name, value)| option::set(socket, *name, *value))?;
    option::set(socket, (libc::SOL_SOCKET, libc::SO_RXQ_OVFL), 1)
}

/// Returns the MTU, in bytes, of the interface that has the local address `ip`.
///
/// # Errors
/// Fails with [`Error::NotLocal`] if no interface of this machine has the address, and with [`Error::Io`] if the MTU
/// cannot be read.
pub fn local_mtu(ip: IpAddr) -> Result<u32, Error> {
    interface::mtu(ip).map_err(Error::io(format!("read the MTU at {ip}")))?.ok_or(Error::NotLocal(ip))
}

/// What ended a wait; all fields are false if the time was over or a signal came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A port has datagrams to receive.
    pub readable: bool,
    /// A port can send.
    pub writable: bool,
    /// The waker was used and must be [drained](Waker::drain).
    pub woken: bool,
    /// The file descriptor `beside` can be read. Only [`wait_beside`] watches such a file descriptor.
    pub beside: bool,
}

/// Sleeps until one of at most 31 ports is readable (or writable, if `want_write`), until `waker` is used, or until
/// `timeout` has passed. If `timeout` is `None`, the sleep has no time limit.
///
/// The time limit has a resolution of nanoseconds. The Linux kernel may wake the thread later than this limit, by up to
/// the thread's timer slack, which is 50 us by default.
///
/// # Errors
/// Fails with [`io::ErrorKind::InvalidInput`] if there are too many ports, and otherwise with the errors of ppoll(2).
/// If a signal interrupts the sleep, the function does not fail, and all fields of the returned [`Ready`] are false.
pub fn wait(
    ports: &[&Port],
    waker: Option<&Waker>,
    want_write: bool,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    wait_beside(ports, waker, None, want_write, timeout)
}

/// Waits like [`wait`] on at most 30 ports, and also until the file descriptor `beside` can be read.
///
/// # Errors
/// Fails with the errors of [`wait`].
pub fn wait_beside(
    ports: &[&Port],
    waker: Option<&Waker>,
    beside: Option<BorrowedFd<'_>>,
    want_write: bool,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    const READ: i16 = libc::POLLIN | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let wanted = libc::POLLIN | if want_write { libc::POLLOUT } else { 0 };
    let sources = ports.iter().map(|port| (port.as_fd(), wanted));
    let sources = sources.chain(beside.map(|fd| (fd, libc::POLLIN)));
    let sources = sources.chain(waker.map(|waker| (waker.as_fd(), libc::POLLIN)));
    let waker_at = ports.len() + usize::from(beside.is_some());
    let mut ready = Ready::default();
    wait::wait(sources, timeout, |place, came| {
        if place < ports.len() {
            ready.readable |= came & READ != 0;
            ready.writable |= came & libc::POLLOUT != 0;
        } else if place < waker_at {
            ready.beside |= came != 0;
        } else {
            ready.woken |= came != 0;
        }
    })?;
    Ok(ready)
}
