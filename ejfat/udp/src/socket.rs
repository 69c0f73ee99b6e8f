//! UDP sockets with large buffers.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
};

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
    open().map(UdpSocket::from).map_err(|error| bind_error(at, error))
}

fn bind_error(at: SocketAddr, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::Busy { at },
        io::ErrorKind::AddrNotAvailable => Error::NotLocal { ip: at.ip(), hint: misread_port(at.ip()) },
        _ if error.raw_os_error() == Some(libc::EMFILE) => Error::Files { at, source: error },
        _ => Error::io(format!("bind UDP {at}"))(error),
    }
}

/// A hint if the end of an IPv6 address may be meant as a port, as in `fd00::1:9100`; otherwise empty.
fn misread_port(ip: IpAddr) -> String {
    let text = ip.to_string();
    let split = text.rsplit_once(':').filter(|(ip, _)| ip.parse::<std::net::Ipv6Addr>().is_ok());
    match split.and_then(|(ip, port)| Some((ip, port.parse::<u16>().ok()?))) {
        Some((ip, port)) => format!("; if {port} is meant for the port, write [{ip}]:{port}"),
        None => String::new(),
    }
}
