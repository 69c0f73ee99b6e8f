//! `recvmmsg` into preallocated buffers, and the control messages that come with the datagrams.

use std::{
    io, iter,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use super::{address::RawAddress, check, empty_header};

/// The longest datagram, merged or not, is shorter than an IP packet can be.
const BUFFER: usize = 1 << 16;
/// Messages per system call: their headers live on the stack.
const MOST: usize = 32;

/// Room for the control messages enabled on a port: ECN, GRO segment size, overflow count (24 bytes each).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Control([u8; 80]);

/// Preallocated buffers of 64 KiB and what the last [`Port::recv`](crate::socket::Port::recv) put into them.
#[derive(Debug)]
pub struct RecvBatch {
    buffers: Vec<u8>,
    received: Vec<Received>,
    overflows: u32,
}

#[derive(Clone, Copy, Debug)]
struct Received {
    /// Which buffer.
    slot: usize,
    from: SocketAddr,
    len: usize,
    segment_len: usize,
    ecn: u8,
}

/// One received message: a datagram, or several of one sender that the kernel merged (GRO).
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub from: SocketAddr,
    /// The ECN bits of the IP header: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
    bytes: &'a [u8],
    segment_len: usize,
}

impl<'a> Message<'a> {
    /// The datagrams in order of arrival, each with its index in the merged message.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = (u16, &'a [u8])> + use<'a> {
        // A 64 KiB buffer has at most 65536 segments, so the index fits.
        self.bytes.chunks(self.segment_len).enumerate().map(|(index, bytes)| (index as u16, bytes))
    }
}

impl RecvBatch {
    /// Room for `messages` messages; at most 32, what one system call takes.
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MOST);
        Self { buffers: vec![0; messages * BUFFER], received: Vec::with_capacity(messages), overflows: 0 }
    }

    /// What the last call received.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        self.received.iter().map(|got| Message {
            from: got.from,
            ecn: got.ecn,
            bytes: &self.buffers[got.slot * BUFFER..][..got.len],
            segment_len: got.segment_len,
        })
    }

    /// Datagrams that found the socket's receive buffer full, in all, as of the last message received; wraps.
    pub fn overflows(&self) -> u32 {
        self.overflows
    }

    /// One `recvmmsg`. Returns how many messages there are now.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received.clear();
        let mut controls = [Control([0; 80]); MOST];
        let mut names = [RawAddress::unspecified(); MOST];
        let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MOST];
        let mut headers = [empty_header(); MOST];
        let buffers = self.buffers.chunks_mut(BUFFER);
        let count = buffers.len();
        for (((header, piece), buffer), (name, control)) in
            headers.iter_mut().zip(&mut pieces).zip(buffers).zip(names.iter_mut().zip(&mut controls))
        {
            *piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = RawAddress::LEN;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut *control).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: each of the first `count` headers names a live buffer, name and control block of the given
        // lengths, and no reference to them is used before the call returns.
        let got = check(unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as _, flags as _, ptr::null_mut())
        })?;
        for (slot, (header, name)) in headers.iter().zip(&names).enumerate().take(got as usize) {
            self.note(slot, header, name);
        }
        Ok(self.received.len())
    }

    fn note(&mut self, slot: usize, header: &libc::mmsghdr, name: &RawAddress) {
        let len = (header.msg_len as usize).min(BUFFER);
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let (Some(from), false) = (name.get(), truncated) else { return };
        let (mut ecn, mut segment_len) = (0, len);
        for (level, kind, value) in controls(&header.msg_hdr) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    ecn = (value & 3) as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => segment_len = value as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.overflows = value,
                _ => {}
            }
        }
        self.received.push(Received { slot, from, len, segment_len: segment_len.max(1), ecn });
    }
}

/// The control messages of a received message: level, type, and value when it is an integer of 1 to 4 bytes.
fn controls(header: &libc::msghdr) -> impl Iterator<Item = (libc::c_int, libc::c_int, u32)> + '_ {
    // SAFETY: the kernel wrote the control block that `header` names and set its length.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    let mut next = ptr::NonNull::new(first);
    iter::from_fn(move || {
        let at = next?.as_ptr();
        // SAFETY: as above; `at` is a control header inside the block.
        let (found, following) = unsafe { (control(at), libc::CMSG_NXTHDR(header, at)) };
        next = ptr::NonNull::new(following);
        Some(found)
    })
}

/// # Safety
/// A whole control message must be readable at `at`.
unsafe fn control(at: *const libc::cmsghdr) -> (libc::c_int, libc::c_int, u32) {
    // SAFETY: a control message begins with its header, and its length covers that and the data; both reads stay
    // inside the data, whose integers are in native order.
    unsafe {
        let head = &*at;
        let data = libc::CMSG_DATA(at);
        let value = match head.cmsg_len as u64 - u64::from(libc::CMSG_LEN(0)) {
            4.. => data.cast::<u32>().read_unaligned(),
            1.. => u32::from(*data),
            0 => 0,
        };
        (head.cmsg_level, head.cmsg_type, value)
    }
}
