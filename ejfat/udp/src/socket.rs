//! UDP sockets with large buffers.

use std::{io, net::SocketAddr, net::UdpSocket};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;

/// A bound socket. The kernel grants less than `receive` or `send` bytes where sysctls bound them; they do not bound what
/// a process with CAP_NET_ADMIN may receive.
pub(crate) fn bound(at: SocketAddr, receive: Option<usize>, send: Option<usize>) -> Result<UdpSocket, Error> {
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if let Some(bytes) = receive {
            // Beyond the sysctl for those who may.
            if set_socket_recv_buffer_size_force(&socket, bytes).is_err() {
                socket.set_recv_buffer_size(bytes)?;
            }
        }
        if let Some(bytes) = send {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&at.into())?;
        Ok(socket)
    };
    open().map(UdpSocket::from).map_err(Error::io(format!("bind UDP {at}")))
}
