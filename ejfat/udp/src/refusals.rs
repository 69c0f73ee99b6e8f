//! Refusals: ICMP's "port unreachable", by which a host answers a datagram to a port where nobody listens.

use std::{
    io,
    net::UdpSocket,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Lets the Linux kernel report ICMP errors, for example refusals, to a socket that is not connected. A connected
/// socket gets refusals without this option.
///
/// # Errors
/// Fails if the operating system refuses the socket option.
pub fn report_refusals(socket: &UdpSocket) -> io::Result<()> {
    naa_udp::report_icmp_errors(socket)
}

/// Whether an error is a refusal. It is about an earlier datagram, and the present one was not sent.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Whether an error may be an ICMP error about an earlier datagram. The present one was not sent then, and can be sent again.
pub fn may_be_earlier(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    is_refusal(error) || matches!(error.kind(), HostUnreachable | NetworkUnreachable)
}

/// Waits for at most `most` for refusals of the datagrams that were sent last. Returns the number of sockets that got a
/// refusal.
///
/// # Errors
/// Fails if the operating system cannot wait for the sockets.
pub fn wait_for_refusals<'a>(
    sockets: impl Iterator<Item = &'a UdpSocket> + Clone,
    most: Duration,
) -> io::Result<u64> {
    let (begin, mut refused) = (Instant::now(), 0);
    loop {
        let errors = sockets.clone().map(UdpSocket::take_error).filter_map(Result::transpose);
        refused += errors.filter(|error| error.as_ref().map_or_else(|_| false, is_refusal)).count() as u64;
        let left = most.saturating_sub(begin.elapsed());
        if refused > 0 || left.is_zero() {
            return Ok(refused);
        }
        // `poll` reports errors even if no event is asked for.
        let mut fds: Vec<_> =
            sockets.clone().map(|of| PollFd::from_borrowed_fd(of.as_fd(), PollFlags::empty())).collect();
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        match poll(&mut fds, Some(&left)) {
            // The kernel goes on to report an error of another kind, which was taken above.
            Ok(1..) => std::thread::sleep(Duration::from_millis(1)),
            Ok(0) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
