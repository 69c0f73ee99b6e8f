//! Receives datagrams into preallocated buffers by `recvmmsg`, and parses the control messages that come with the
//! datagrams.

use std::{
    fmt, io, iter,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use super::{address::RawAddress, check, empty_header};

/// The size of one receive buffer in bytes. A datagram fits into a buffer, because an IP packet is shorter than 64 KiB.
/// Datagrams that the Linux kernel merged into one message (GRO) fit, too: together they have less than 64 KiB.
const BUFFER: usize = 1 << 16;
/// The largest number of messages that one system call receives.
const MOST: usize = 32;

/// Memory for the control messages that are enabled on a port: ECN, GRO segment size, and overflow count. Each of the
/// three takes at most 24 bytes, so 8 of the 80 bytes stay unused.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Control([u8; 80]);

/// Preallocated buffers of 64 KiB, and the messages that the last [`Port::recv`](crate::Port::recv) received
/// into them.
pub struct RecvBatch {
    buffers: Vec<u8>,
    /// The structures into which the Linux kernel writes the sender's address and the control messages. The structures
    /// are kept between calls, because clearing them in each call would cost more than a call that receives nothing.
    metas: Vec<ReceiveMeta>,
    headers: Vec<libc::mmsghdr>,
    /// The number of messages that the next call of `recvmmsg` requests. Requesting more messages than have arrived
    /// costs some time, so this number is above 1 only if the last call received as many messages as it requested.
    ask: usize,
    received: Vec<ReceivedMessage>,
    overflows: Option<u32>,
}

/// The memory in which the Linux kernel describes a received message.
struct ReceiveMeta {
    name: RawAddress,
    control: Control,
    piece: libc::iovec,
}

// SAFETY: the pointers are to the batch's own memory and are set anew before each use.
unsafe impl Send for RecvBatch {}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("received", &self.received).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct ReceivedMessage {
    /// The index of the buffer that contains the message.
    buffer: usize,
    from: SocketAddr,
    len: usize,
    segment_len: usize,
    ecn: u8,
}

/// One received message: a datagram, or several datagrams of one sender that the Linux kernel merged (GRO).
#[derive(Clone, Copy, Debug)]
pub struct MergedDatagrams<'a> {
    /// The address and UDP port of the sender.
    pub from: SocketAddr,
    /// The ECN bits of the IP header: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
    bytes: &'a [u8],
    segment_len: usize,
}

impl<'a> MergedDatagrams<'a> {
    /// The datagrams in order of arrival, each with its index in the merged message.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = (u16, &'a [u8])> + use<'a> {
        // The cast is lossless because a buffer of 64 KiB has at most 65536 segments.
        self.bytes.chunks(self.segment_len).enumerate().map(|(index, bytes)| (index as u16, bytes))
    }
}

impl RecvBatch {
    /// Makes buffers for `messages` messages, at most 32, which is the number that one system call takes.
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MOST);
        let meta = || ReceiveMeta {
            name: RawAddress::unspecified(),
            control: Control([0; 80]),
            piece: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
        };
        Self {
            buffers: vec![0; messages * BUFFER],
            metas: iter::repeat_with(meta).take(messages).collect(),
            headers: vec![empty_header(); messages],
            ask: 1,
            received: Vec::with_capacity(messages),
            overflows: None,
        }
    }

    /// Returns the messages that the last call of [`Port::recv`](crate::Port::recv) received.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = MergedDatagrams<'_>> {
        self.received.iter().map(|got| MergedDatagrams {
            from: got.from,
            ecn: got.ecn,
            bytes: &self.buffers[got.buffer * BUFFER..][..got.len],
            segment_len: got.segment_len,
        })
    }

    /// Returns true if the last call of [`Port::recv`](crate::Port::recv) received as many messages as it
    /// requested. More messages may then be waiting. If the batch has only one buffer, the result is always false,
    /// although more messages may be waiting.
    pub fn is_full(&self) -> bool {
        self.ask > 1
    }

    /// The number of datagrams that the socket has lost since it was opened, because its receive buffer was full. The
    /// Linux kernel reports this number with each message as a 32-bit counter, which wraps. Returns `None` if the last
    /// call received no usable message, or if the Linux kernel reported no number because no datagram was lost.
    pub fn overflows(&self) -> Option<u32> {
        self.overflows
    }

    /// Calls `recvmmsg` once. Returns the number of usable messages: a truncated message, or a message without a
    /// sender's address, is ignored.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received.clear();
        self.overflows = None;
        let buffers = self.buffers.chunks_mut(BUFFER);
        let count = std::mem::replace(&mut self.ask, 1);
        for ((header, meta), buffer) in self.headers.iter_mut().zip(&mut self.metas).zip(buffers).take(count)
        {
            meta.piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut meta.name).cast();
            header.msg_namelen = RawAddress::LEN;
            header.msg_iov = &raw mut meta.piece;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut meta.control).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: each of the `count` headers has pointers to a live receive buffer, a live address and live memory for
        // control messages, and the length of each. No reference to this memory is used until `recvmmsg` returns.
        let got = check(unsafe {
            let flags = libc::MSG_DONTWAIT;
            let headers = self.headers.as_mut_ptr();
            libc::recvmmsg(socket.as_raw_fd(), headers, count as _, flags as _, ptr::null_mut())
        })?;
        let got = (got as usize).min(count);
        if got == count {
            self.ask = (count * 4).min(self.headers.len());
        }
        (0..got).for_each(|buffer| self.note(buffer));
        Ok(self.received.len())
    }

    fn note(&mut self, buffer: usize) {
        let header = &self.headers[buffer];
        let len = (header.msg_len as usize).min(BUFFER);
        let unusable = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || header.msg_hdr.msg_namelen == 0;
        let (Some(from), false) = (self.metas[buffer].name.get(), unusable) else { return };
        let (mut ecn, mut segment_len) = (0, len);
        for (level, kind, value) in controls(&header.msg_hdr) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    ecn = (value & 3) as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => segment_len = value as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.overflows = Some(value),
                _ => {}
            }
        }
        self.received.push(ReceivedMessage { buffer, from, len, segment_len: segment_len.max(1), ecn });
    }
}

/// Returns the level, type and value of each control message of a received message. The value is the integer in the
/// first 4 bytes of the data. If the data has fewer than 4 bytes, the value is the first byte of the data, or 0 if
/// there is no data.
fn controls(header: &libc::msghdr) -> impl Iterator<Item = (libc::c_int, libc::c_int, u32)> + '_ {
    // SAFETY: the Linux kernel wrote the control messages to which `header` points, and their total length.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    let mut next = ptr::NonNull::new(first);
    iter::from_fn(move || {
        let at = next?.as_ptr();
        // SAFETY: the control messages of `header` are valid, and `at` points to one of them.
        let (found, following) = unsafe { (control(at), libc::CMSG_NXTHDR(header, at)) };
        next = ptr::NonNull::new(following);
        Some(found)
    })
}

/// # Safety
/// `at` must point to a whole control message that is readable.
unsafe fn control(at: *const libc::cmsghdr) -> (libc::c_int, libc::c_int, u32) {
    // SAFETY: the length of a control message counts its header and its data, so the reads of 4 bytes and of 1 byte
    // below stay inside the data. The data's integers are in native byte order.
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
