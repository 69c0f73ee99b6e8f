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
/// The maximum number of messages that one system call receives.
pub const MAX_MESSAGES: usize = 32;

/// Memory for the control messages that are enabled on a port: ECN, GRO segment size, and overflow count. Each of the
/// three takes at most 24 bytes, so 8 of the 80 bytes stay unused.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Control([u8; 80]);

/// The memory in which the Linux kernel describes the messages that one system call receives: senders, lengths and
/// control messages. The memory is kept between calls, because clearing it in each call would cost more than a call that
/// receives nothing.
pub struct RecvHeaders {
    metas: Vec<ReceiveMeta>,
    headers: Vec<libc::mmsghdr>,
    /// The number of messages that the last call received.
    received: usize,
}

/// The memory in which the Linux kernel describes a received message.
struct ReceiveMeta {
    name: RawAddress,
    control: Control,
    piece: libc::iovec,
}

// SAFETY: the pointers are to the headers' own memory and to buffers of one call. They are set anew before each use.
unsafe impl Send for RecvHeaders {}

impl fmt::Debug for RecvHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvHeaders").field("received", &self.received).finish_non_exhaustive()
    }
}

/// The description of a received message: a datagram, or several datagrams of one sender that the Linux kernel merged
/// (GRO).
#[derive(Clone, Copy, Debug)]
pub struct ReceivedMessage {
    /// The address and UDP port of the sender.
    pub from: SocketAddr,
    /// The number of bytes of all datagrams together.
    pub len: usize,
    /// The number of bytes of each datagram except the last, which may be shorter; at least 1.
    pub segment_len: usize,
    /// The ECN bits of the IP header, as in [`MergedDatagrams::ecn`]. They are 0 for messages of a
    /// [`ReceiveSocket`](crate::ReceiveSocket), which does not ask for them.
    pub ecn: u8,
    /// The number of datagrams that the socket has lost, as in [`RecvBatch::overflows`].
    overflows: Option<u32>,
}

impl RecvHeaders {
    /// Makes room for `messages` messages per call, at most [`MAX_MESSAGES`].
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MAX_MESSAGES);
        let meta = || ReceiveMeta {
            name: RawAddress::unspecified(),
            control: Control([0; 80]),
            piece: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
        };
        Self {
            metas: iter::repeat_with(meta).take(messages).collect(),
            headers: vec![empty_header(); messages],
            received: 0,
        }
    }

    /// Calls `recvmmsg` once, and receives at most one message into each of `buffers`. Returns the number of messages.
    pub(crate) fn fill<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        self.received = 0;
        let mut count = 0;
        for ((header, meta), buffer) in self.headers.iter_mut().zip(&mut self.metas).zip(buffers) {
            meta.piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut meta.name).cast();
            header.msg_namelen = RawAddress::LEN;
            header.msg_iov = &raw mut meta.piece;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut meta.control).cast();
            header.msg_controllen = size_of::<Control>() as _;
            count += 1;
        }
        // SAFETY: each of the `count` headers has pointers to a live receive buffer, a live address and live memory for
        // control messages, and the length of each. No reference to this memory is used until `recvmmsg` returns: the
        // buffers are borrowed exclusively for `'a`, which is longer than this call.
        let got = check(unsafe {
            let flags = libc::MSG_DONTWAIT;
            let headers = self.headers.as_mut_ptr();
            libc::recvmmsg(socket.as_raw_fd(), headers, count as _, flags as _, ptr::null_mut())
        })?;
        self.received = (got as usize).min(count);
        Ok(self.received)
    }

    /// Returns the description of the message in the buffer with the index `buffer`. Returns `None` if the last call
    /// received no message into this buffer, or if the message is truncated or has no sender's address.
    pub fn message(&self, buffer: usize) -> Option<ReceivedMessage> {
        let (header, meta) = (self.headers[..self.received].get(buffer)?, &self.metas[buffer]);
        let len = (header.msg_len as usize).min(meta.piece.iov_len);
        let header = &header.msg_hdr;
        if header.msg_flags & libc::MSG_TRUNC != 0 || header.msg_namelen == 0 {
            return None;
        }
        let from = meta.name.get()?;
        let mut message = ReceivedMessage { from, len, segment_len: len, ecn: 0, overflows: None };
        for (level, kind, value) in controls(header) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    message.ecn = (value & 3) as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => message.segment_len = value as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => message.overflows = Some(value),
                _ => {}
            }
        }
        message.segment_len = message.segment_len.max(1);
        Some(message)
    }
}

/// Preallocated buffers of 64 KiB, and the messages that the last [`Port::recv`](crate::Port::recv) received into them.
pub struct RecvBatch {
    buffers: Vec<u8>,
    headers: RecvHeaders,
    /// The number of messages that the next call of `recvmmsg` requests. Requesting more messages than have arrived
    /// costs some time, so this number is above 1 only if the last call received as many messages as it requested.
    ask: usize,
    /// The usable messages, each with the index of its buffer.
    received: Vec<(usize, ReceivedMessage)>,
    overflows: Option<u32>,
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("received", &self.received).finish_non_exhaustive()
    }
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
    /// Makes buffers for `messages` messages, at most [`MAX_MESSAGES`].
    pub fn new(messages: usize) -> Self {
        let headers = RecvHeaders::new(messages);
        let messages = headers.headers.len();
        Self {
            buffers: vec![0; messages * BUFFER],
            headers,
            ask: 1,
            received: Vec::with_capacity(messages),
            overflows: None,
        }
    }

    /// Returns the messages that the last call of [`Port::recv`](crate::Port::recv) received.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = MergedDatagrams<'_>> {
        self.received.iter().map(|(buffer, got)| MergedDatagrams {
            from: got.from,
            ecn: got.ecn,
            bytes: &self.buffers[buffer * BUFFER..][..got.len],
            segment_len: got.segment_len,
        })
    }

    /// Returns true if the last call of [`Port::recv`](crate::Port::recv) received as many messages as it requested.
    /// More messages may then be waiting. If the batch has only one buffer, the result is always false, although more
    /// messages may be waiting.
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
        let count = std::mem::replace(&mut self.ask, 1);
        let got = self.headers.fill(socket, self.buffers.chunks_mut(BUFFER).take(count))?;
        if got == count {
            self.ask = (count * 4).min(self.headers.headers.len());
        }
        let messages = (0..got).filter_map(|buffer| Some((buffer, self.headers.message(buffer)?)));
        self.received.extend(messages);
        self.overflows = self.received.iter().rev().find_map(|(_, message)| message.overflows);
        Ok(self.received.len())
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
