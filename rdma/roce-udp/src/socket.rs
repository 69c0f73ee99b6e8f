//! UDP sockets for RoCEv2: batches in, batches out, and waiting.
//!
//! A device is one [`Port`]: an unconnected socket on one concrete local address. It sends IPv4 packets with DF and
//! the identification 0, or the segment's index in its super-packet, which the ICRC covers.

mod holder;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use verbs::Error;

pub use holder::{Held, Holder, holder_of, holders};

use crate::sys::{interface, option, wait};
pub use crate::sys::{
    interface::{InterfaceAddress, addresses},
    receive::{Message, RecvBatch},
    transmit::{MAX_PIECES, Rest, Segment, SendBatch, SendOutcome},
    wait::Waker,
};

/// The UDP port of RoCEv2 (IANA).
pub const ROCE_PORT: u16 = 4791;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Bytes of receive buffer to ask for. A stock buffer holds about 50 packets of 4 KiB.
    pub receive_buffer: usize,
    /// Whether to let the kernel merge received datagrams, where it can.
    pub gro: bool,
    /// Whether to let the kernel or the NIC segment, where they can.
    pub gso: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { receive_buffer: 4 << 20, gro: true, gso: true }
    }
}

/// A nonblocking, unconnected UDP socket. Safe to use from several threads.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    local: SocketAddr,
    recv_buffer: usize,
    gro: bool,
    gso: AtomicBool,
}

impl Port {
    /// Binds `local`: a concrete address of this machine, with port 0 for an ephemeral one.
    ///
    /// Errors: `Invalid` for a wildcard, multicast or broadcast address, `AddressInUse` with the holder, `NoDevice` for an
    /// address that is not this machine's, else `Io`.
    pub fn bind(local: SocketAddr, config: &PortConfig) -> Result<Self, Error> {
        let mut local = local;
        local.set_ip(local.ip().to_canonical());
        let ip = local.ip();
        if ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
            return Err(Error::Invalid("a device needs one concrete local address; `ip addr` lists them"));
        }
        let failed = |what: &str| {
            let what = format!("{what} on {local}");
            move |source| Error::io(what, source)
        };
        let socket = option::open(local).map_err(failed("cannot open a UDP socket"))?;
        // All before the bind: no datagram sees the defaults.
        required_options(&socket, local).map_err(failed("cannot set an option of the UDP socket"))?;
        let gro = config.gro && option::set(&socket, (libc::SOL_UDP, libc::UDP_GRO), 1).is_ok();
        // A kernel that cannot segment does not know the option, and would send a control message's
        // super-packet as one datagram.
        let gso = config.gso && option::get(&socket, (libc::SOL_UDP, libc::UDP_SEGMENT)).is_ok();
        let recv_buffer =
            enlarge(&socket, config.receive_buffer).map_err(failed("cannot size the receive buffer"))?;
        let socket = option::bind(socket, local).map_err(|error| bind_error(local, error))?;
        let local = socket.local_addr().map_err(failed("cannot read the address of the UDP socket"))?;
        Ok(Self { socket, local, recv_buffer, gro, gso: gso.into() })
    }

    /// The bound address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of receive buffer as the kernel accounts them: overhead included, twice what was asked for unless
    /// `net.core.rmem_max` forbade it.
    pub fn recv_buffer(&self) -> usize {
        self.recv_buffer
    }

    /// Whether the kernel may merge received datagrams.
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Whether super-packets may be sent; turns false when the interface refuses one.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// Receives some of what is there, without waiting. Returns the number of messages now in `batch`, 0 when there is
    /// nothing; [`RecvBatch::is_full`] tells whether there may be more.
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        // Errors that routers and peers report asynchronously are none of the receiver's; one call takes one.
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

/// What RoCEv2 cannot do without, and what every kernel since 4.18 has.
fn required_options(socket: &impl AsRawFd, local: SocketAddr) -> io::Result<()> {
    let options: &[(option::Name, libc::c_int)] = if local.is_ipv4() {
        &[
            // An unconnected socket then sends DF and the identification 0, which the ICRC covers.
            ((libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_DO),
            ((libc::IPPROTO_IP, libc::IP_RECVTOS), 1),
        ]
    } else {
        &[
            ((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1),
            ((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER), libc::IPV6_PMTUDISC_DO),
            ((libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS), 1),
            // RoCEv2 over IPv6 comes with UDP checksum 0, which a socket otherwise drops.
            ((libc::SOL_UDP, libc::UDP_NO_CHECK6_RX), 1),
        ]
    };
    options.iter().try_for_each(|(name, value)| option::set(socket, *name, *value))?;
    option::set(socket, (libc::SOL_SOCKET, libc::SO_RXQ_OVFL), 1)
}

/// Asks for a receive buffer, beyond the machine's limit if permitted. Returns what there is now.
fn enlarge(socket: &impl AsRawFd, bytes: usize) -> io::Result<usize> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    option::set(socket, (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), bytes)
        .or_else(|_| option::set(socket, (libc::SOL_SOCKET, libc::SO_RCVBUF), bytes))?;
    // Never negative.
    option::get(socket, (libc::SOL_SOCKET, libc::SO_RCVBUF)).map(|bytes| bytes as usize)
}

fn bind_error(local: SocketAddr, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse { addr: local, holder: holder_of(local) },
        io::ErrorKind::AddrNotAvailable => not_local(local.ip()),
        _ => Error::io(format!("cannot bind {local}"), error),
    }
}

fn not_local(ip: IpAddr) -> Error {
    Error::NoDevice(format!("{ip} is not an address of this machine; `ip addr` lists them"))
}

/// The MTU, in bytes of an IP packet, of the interface that owns the local address `ip`.
///
/// Errors: `NoDevice` when the address is not this machine's, else `Io`.
pub fn local_mtu(ip: IpAddr) -> Result<u32, Error> {
    interface::mtu(ip)
        .map_err(|error| Error::io(format!("cannot read the MTU at {ip}"), error))?
        .ok_or_else(|| not_local(ip))
}

/// What ended a wait; all false when the time was up or a signal came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A port has something to receive.
    pub readable: bool,
    /// A port can send.
    pub writable: bool,
    /// The waker was used; [`Waker::drain`] it.
    pub woken: bool,
    /// The other descriptor can be read.
    pub beside: bool,
}

/// Sleeps until a port can be read (or written, if `want_write`), `waker` is used, or `timeout` is over; `None`
/// waits for ever. At most 31 ports.
///
/// Sleeps in nanoseconds; the thread's timer slack, 50 us by default, is added to that.
pub fn wait(
    ports: &[&Port],
    waker: Option<&Waker>,
    want_write: bool,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    wait_beside(ports, waker, None, want_write, timeout)
}

/// As [`wait`], with another descriptor to be read; at most 30 ports.
pub(crate) fn wait_beside(
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
