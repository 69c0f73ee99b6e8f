//! Sockets that send to one destination, and wait while they cannot.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    Error, bind,
    sys::{option, send, transmit::GROUP_SEGMENTS},
};

/// A UDP socket that is connected to one destination, for programs that only send. A call that sends blocks while the
/// send buffer is full. The Linux kernel reports to a connected socket that the destination's machine refused an earlier
/// datagram.
#[derive(Debug)]
pub struct ConnectedSocket {
    socket: UdpSocket,
    gso: AtomicBool,
}

impl ConnectedSocket {
    /// Opens a socket and connects it to `to`. `send_buffer` is the number of bytes that is requested for the send
    /// buffer, or `None` for the default of the operating system.
    ///
    /// # Errors
    /// Fails with [`Error::NoFiles`] if this process may have no more open files, and with [`Error::Io`] if no route
    /// leads to `to` or the operating system refuses the socket.
    pub fn connect(to: SocketAddr, send_buffer: Option<usize>) -> Result<Self, Error> {
        let failed = |what: &str| Error::io(format!("{what} for datagrams to {to}"));
        let socket = UdpSocket::from(bind::open(to)?);
        required_options(&socket, to).map_err(failed("set an option of the UDP socket"))?;
        if let Some(bytes) = send_buffer {
            let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
            option::set(&socket, (libc::SOL_SOCKET, libc::SO_SNDBUF), bytes)
                .map_err(failed("size the send buffer"))?;
        }
        socket.connect(to).map_err(Error::io(format!("reach {to}")))?;
        socket.set_nonblocking(false).map_err(failed("set an option of the UDP socket"))?;
        let gso = bind::knows_gso(&socket);
        Ok(Self { socket, gso: gso.into() })
    }

    /// Returns the maximum number of segments of a super-packet. It is 1 if the Linux kernel or the interface cannot
    /// split super-packets.
    pub fn max_segments(&self) -> usize {
        if self.gso.load(Ordering::Relaxed) { GROUP_SEGMENTS } else { 1 }
    }

    /// Sends `bytes` as datagrams of `segment_len` bytes, of which the last may be shorter. If there is more than one
    /// datagram, they are sent as one super-packet, which must have at most [`Self::max_segments`] segments. The call
    /// blocks until the send buffer has room for all of them.
    ///
    /// # Errors
    /// Fails with the errors of sendmsg(2); nothing was sent then. The error [`io::ErrorKind::ConnectionRefused`] says
    /// that the destination's machine refused an earlier datagram. If the interface cannot split super-packets, the
    /// error is EIO or EINVAL, and [`Self::max_segments`] is 1 from then on.
    pub fn send(&self, bytes: &[u8], segment_len: u16) -> io::Result<()> {
        loop {
            let Err(error) = send::send(self.socket.as_fd(), bytes, segment_len) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EIO | libc::EINVAL) if bytes.len() > usize::from(segment_len) => {
                    self.gso.store(false, Ordering::Relaxed);
                }
                _ => {}
            }
            return Err(error);
        }
    }

    /// Returns the socket, for waits and for the errors that the Linux kernel reports to it.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Lets the Linux kernel send datagrams of any length that fits the interface's MTU, unfragmented, whatever it believes
/// the path MTU to be.
fn required_options(socket: &UdpSocket, to: SocketAddr) -> io::Result<()> {
    let options: &[(option::SocketOption, libc::c_int)] = if to.is_ipv4() {
        &[((libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_PROBE)]
    } else {
        &[
            ((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1),
            ((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER), libc::IPV6_PMTUDISC_PROBE),
            ((libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG), 1),
        ]
    };
    options.iter().try_for_each(|(name, value)| option::set(socket, *name, *value))
}
