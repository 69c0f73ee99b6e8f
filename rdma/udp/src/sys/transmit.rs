//! Sends batches of datagrams by `sendmmsg`. A datagram can contain copied bytes, and bytes that the Linux kernel
//! gathers from the caller's memory. Segments of one size are grouped into super-packets (UDP GSO).

use std::{
    fmt, io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use super::{address::RawAddress, batch_bytes::BatchBytes, check, empty_header};
use crate::Port;

/// The maximum number of pieces of one segment: the sum of its copied and gathered pieces.
pub const MAX_PIECES: usize = 40;
/// The maximum number of segments of a super-packet. This number is the limit UDP_MAX_SEGMENTS of the first Linux
/// kernels with super-packets.
pub(crate) const GROUP_SEGMENTS: usize = 64;
/// The maximum number of bytes of a super-packet, below the largest UDP payload of IPv4 and of IPv6.
const GROUP_BYTES: usize = 65_000;
/// The maximum number of pieces that the Linux kernel takes for one message (UIO_MAXIOV).
const GROUP_PIECES: usize = 1024;
/// The largest number of messages that one system call sends; the limit bounds the size of the headers on the stack.
const MOST: usize = 32;
/// A batch of at most this number of messages is sent with an array of only `FEW` message headers. Clearing an array of
/// [`MOST`] message headers would take longer. The number is sufficient for the most frequent batch, which has the
/// response of one call and an ACK.
const FEW: usize = 4;

/// A batch of datagrams, which [`SendBatch::flush`] sends.
///
/// Consecutive segments to one destination are grouped into a super-packet if they have the same length; only the last
/// segment of a super-packet may be shorter. The Linux kernel splits a super-packet into datagrams, and numbers them
/// from 0 in the IPv4 identification. Because the Linux kernel numbers the segments in order, the identification of a
/// segment is known before the segment is sent ([`DatagramBuilder::ip_id`]).
pub struct SendBatch {
    messages: Vec<GsoMessage>,
    /// The index of the first unsent message.
    next: usize,
    segments: Vec<BatchRecord>,
    pieces: Vec<libc::iovec>,
    copied: BatchBytes,
    gso: bool,
}

/// A message: one segment, or several segments that are sent as one super-packet.
#[derive(Clone, Copy, Debug)]
struct GsoMessage {
    to: SocketAddr,
    first_segment: usize,
    segments: usize,
    /// The length in bytes of every segment except the last segment, which may be shorter.
    segment_len: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct BatchRecord {
    len: usize,
    first_piece: usize,
    /// The offset of the datagram's trailer from the start of the copied bytes.
    trailer: usize,
    trailer_len: usize,
}

/// The result of [`SendBatch::flush`].
#[derive(Debug)]
pub struct SendOutcome {
    /// The number of datagrams that the Linux kernel accepted for sending.
    pub sent: usize,
    /// The number of datagrams that the Linux kernel refused to send, for example because there is no route. Refused
    /// datagrams are lost, like datagrams that a network loses.
    pub dropped: usize,
    /// The error of the last datagram that the Linux kernel refused to send; `None` if no datagram was refused.
    pub error: Option<io::Error>,
    /// The destination of a datagram that was refused because there is no route; `None` if there is no such datagram.
    pub unreachable: Option<SocketAddr>,
    /// Says whether messages are left in the batch, and for which reason.
    pub rest: Rest,
}

/// Says whether messages are left in the batch, and for which reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The batch is empty.
    Empty,
    /// The socket's send buffer is full: flush again when the port is writable.
    Blocked,
    /// The interface refused a super-packet, so [`Port::gso`] is false from now on. When a flush ends with
    /// `GsoRefused`, the caller must call [`SendBatch::ungroup`] and flush again.
    GsoRefused,
}

// SAFETY: the pointers lead to the batch's own memory, and to memory that the caller of `DatagramBuilder::gather` keeps
// readable. Any thread can read both.
unsafe impl Send for SendBatch {}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch")
            .field("messages", &self.messages.len())
            .field("next", &self.next)
            .field("segments", &self.segments.len())
            .field("gso", &self.gso)
            .finish_non_exhaustive()
    }
}

impl SendBatch {
    /// Makes a batch with room for `segments` datagrams. `copied` is the size in bytes of the memory into which
    /// [`DatagramBuilder::copy`] copies. If `gso` is true, segments are grouped into super-packets; callers usually
    /// pass [`Port::gso`].
    pub fn new(segments: usize, copied: usize, gso: bool) -> Self {
        let segments = segments.max(1);
        Self {
            messages: Vec::with_capacity(segments),
            next: 0,
            segments: Vec::with_capacity(segments),
            pieces: Vec::with_capacity(segments * 4 + MAX_PIECES),
            copied: BatchBytes::new(copied),
            gso,
        }
    }

    /// Returns true if the batch has nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Begins a datagram of `len` bytes; returns `None` if the batch must be flushed first.
    ///
    /// A caller may copy all bytes of the datagram into the batch's memory for copied pieces. If this memory has fewer
    /// than `len` bytes left, the batch must be flushed first, too.
    pub fn segment(&mut self, to: SocketAddr, len: usize) -> Option<DatagramBuilder<'_>> {
        let room = self.segments.len() < self.segments.capacity()
            && self.pieces.capacity() - self.pieces.len() >= MAX_PIECES
            && self.copied.left() >= len;
        let (pieces_before, copied_before) = (self.pieces.len(), self.copied.used);
        room.then(|| DatagramBuilder {
            grouped: self.grows(to, len),
            batch: self,
            to,
            len,
            written: 0,
            pieces_before,
            copied_before,
            finished: false,
        })
    }

    /// Returns the number of segments in the last unsent message of the batch, or 0 if a datagram of `len` bytes to
    /// `to` cannot be added to this message.
    fn grows(&self, to: SocketAddr, len: usize) -> usize {
        let Some(group) = self.messages.get(self.next..).and_then(<[_]>::last) else { return 0 };
        let pieces = self.pieces.len() - self.segments[group.first_segment].first_piece;
        let fits = self.gso
            && group.to == to
            && (1..=group.segment_len).contains(&len)
            && group.bytes == group.segments * group.segment_len
            && group.segments < GROUP_SEGMENTS
            && group.bytes + len <= GROUP_BYTES
            && pieces + MAX_PIECES <= GROUP_PIECES;
        if fits { group.segments } else { 0 }
    }

    /// Sends all messages (super-packets and single datagrams), or as many as the socket's send buffer can take. The
    /// unsent messages stay in the batch in their order. When all messages have been sent, the batch is empty and its
    /// memory is free for new segments.
    ///
    /// Each message is sent whole or not at all. If the Linux kernel refuses a message, the message is dropped and
    /// counted. If the interface cannot split a super-packet, the super-packet stays in the batch, and
    /// [`Rest::GsoRefused`] is returned.
    ///
    /// # Errors
    /// Fails only if the socket itself is unusable.
    pub fn flush(&mut self, port: &Port) -> io::Result<SendOutcome> {
        let mut outcome =
            SendOutcome { sent: 0, dropped: 0, error: None, unreachable: None, rest: Rest::Empty };
        while let Some(group) = self.messages.get(self.next) {
            let (to, segments) = (group.to, group.segments);
            let grouped = segments > 1 && to.port() != 0;
            let error = match self.send_some(port.as_fd()) {
                Ok(messages) => {
                    let end = self.next + messages;
                    outcome.sent += self.messages[self.next..end].iter().map(|m| m.segments).sum::<usize>();
                    self.next = end;
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                libc::EAGAIN => {
                    outcome.rest = Rest::Blocked;
                    return Ok(outcome);
                }
                libc::EIO | libc::EINVAL if grouped => {
                    port.refuse_gso();
                    outcome.rest = Rest::GsoRefused;
                    return Ok(outcome);
                }
                libc::EBADF | libc::ENOTSOCK => return Err(error),
                code => {
                    if matches!(code, libc::ENETUNREACH | libc::EHOSTUNREACH) {
                        outcome.unreachable = Some(to);
                    }
                    outcome.dropped += segments;
                    outcome.error = Some(error);
                    self.next += 1;
                }
            }
        }
        self.clear();
        self.gso &= port.gso();
        Ok(outcome)
    }

    /// Drops all unsent segments.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.next = 0;
        self.segments.clear();
        self.pieces.clear();
        self.copied.used = 0;
    }

    /// Splits all unsent super-packets, so that each of their segments is sent as a single datagram. Later segments are
    /// not grouped into super-packets either.
    ///
    /// The IPv4 identification of every unsent segment becomes 0, because each segment is sent as a single datagram.
    /// The checksum of a protocol may cover the identification. The function therefore calls `renumber`, which can
    /// correct the checksum, for each segment whose identification was not 0. The arguments of `renumber` are the
    /// segment's length in bytes, its former identification, and its trailer. `renumber` does not get the datagram's
    /// bytes. A CRC in the trailer can be corrected without them: a CRC is linear, so the difference between the old and
    /// the new CRC depends only on the datagram's length and on the two identifications.
    pub fn ungroup(&mut self, mut renumber: impl FnMut(usize, u16, &mut [u8])) {
        self.gso = false;
        let groups = mem::replace(&mut self.messages, Vec::with_capacity(self.segments.capacity()));
        for group in &groups[mem::take(&mut self.next)..] {
            for ip_id in 0..group.segments {
                let first_segment = group.first_segment + ip_id;
                let BatchRecord { len, trailer, trailer_len, .. } = self.segments[first_segment];
                if ip_id > 0 {
                    // The cast is lossless because `ip_id` is less than `GROUP_SEGMENTS`, which is 64.
                    renumber(len, ip_id as u16, self.copied.bytes_mut(trailer, trailer_len));
                }
                let single =
                    GsoMessage { to: group.to, first_segment, segments: 1, segment_len: len, bytes: len };
                self.messages.push(single);
            }
        }
    }

    /// Calls `sendmmsg` once, from the first unsent message on. Returns the number of messages sent.
    fn send_some(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        if self.messages.len() - self.next <= FEW {
            self.send_up_to::<FEW>(socket)
        } else {
            self.send_up_to::<MOST>(socket)
        }
    }

    fn send_up_to<const N: usize>(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut names = [RawAddress::unspecified(); N];
        let mut sizes = [SegmentSize::EMPTY; N];
        let mut headers = [empty_header(); N];
        let mut count = 0;
        for (index, group) in self.messages.iter().enumerate().skip(self.next).take(N) {
            let header = &mut headers[count].msg_hdr;
            let (name, name_len) = RawAddress::new(group.to);
            names[count] = name;
            header.msg_name = (&raw mut names[count]).cast();
            header.msg_namelen = name_len;
            let first = self.segments[group.first_segment].first_piece;
            let end = match self.messages.get(index + 1) {
                Some(following) => self.segments[following.first_segment].first_piece,
                None => self.pieces.len(),
            };
            header.msg_iov = self.pieces[first..end].as_mut_ptr();
            header.msg_iovlen = (end - first) as _;
            if group.segments > 1 {
                // The cast is lossless because `segment_len` is at most `GROUP_BYTES`, which is 65,000.
                sizes[count].set(header, group.segment_len as u16);
            }
            count += 1;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: each of the first `count` headers points to a live address, and to a live control block or null. Each
        // header also points to the live array of its `iovec` entries. The bytes of each entry are readable, because
        // the batch owns them or the caller of `gather` keeps them readable.
        let sent = check(unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as _, flags as _)
        })?;
        Ok(sent as usize)
    }
}

/// A datagram being built: its pieces in the order of the wire. If the builder is dropped before
/// [`finish`](Self::finish), the batch stays as it was before the builder was made.
#[derive(Debug)]
pub struct DatagramBuilder<'a> {
    batch: &'a mut SendBatch,
    to: SocketAddr,
    len: usize,
    written: usize,
    /// The number of datagrams in the message to which this datagram is added; 0 if this datagram begins a message.
    grouped: usize,
    pieces_before: usize,
    copied_before: usize,
    finished: bool,
}

impl DatagramBuilder<'_> {
    /// Returns the IPv4 identification with which the Linux kernel is going to send this datagram.
    pub fn ip_id(&self) -> u16 {
        // The cast is lossless because `grouped` is less than `GROUP_SEGMENTS`, which is 64.
        self.grouped as u16
    }

    /// Adds `len` bytes to the datagram; the caller must fill them in, because their previous content is unspecified.
    ///
    /// # Panics
    /// Panics if the datagram would become longer than the length that was passed to [`SendBatch::segment`], or if it
    /// would have more than [`MAX_PIECES`] pieces.
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        self.grow(len);
        if len == 0 {
            return &mut [];
        }
        // The bytes fit, because the memory for copied pieces had room for the whole datagram.
        let start = self.batch.copied.used;
        self.batch.copied.used += len;
        let at = self.batch.copied.at(start);
        match self.batch.pieces[self.pieces_before..].last_mut() {
            // The new bytes follow the last piece directly in memory, so the last piece is made longer.
            Some(last) if last.iov_base.addr() + last.iov_len == at.addr() => last.iov_len += len,
            _ => self.push(at, len),
        }
        self.batch.copied.bytes_mut(start, len)
    }

    /// Adds a copy of `bytes` to the datagram.
    ///
    /// # Panics
    /// Panics if the datagram would become longer than the length that was passed to [`SendBatch::segment`], or if it
    /// would have more than [`MAX_PIECES`] pieces.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    /// Adds `len` bytes, which the Linux kernel reads from `ptr` when the segment is flushed.
    ///
    /// # Safety
    /// The range must stay readable until the segment is sent, dropped or cleared. If the content of the range changes
    /// before the segment is flushed, the Linux kernel sends the changed content.
    ///
    /// # Panics
    /// Panics if the datagram would become longer than the length that was passed to [`SendBatch::segment`], or if it
    /// would have more than [`MAX_PIECES`] pieces.
    pub unsafe fn gather(&mut self, ptr: *const u8, len: usize) {
        self.grow(len);
        self.push(ptr.cast_mut(), len);
    }

    fn grow(&mut self, len: usize) {
        assert!(len <= self.len - self.written, "the datagram was announced as {} bytes", self.len);
        self.written += len;
    }

    fn push(&mut self, ptr: *mut u8, len: usize) {
        let pieces = &mut self.batch.pieces;
        assert!(pieces.len() - self.pieces_before < MAX_PIECES, "a datagram of over {MAX_PIECES} pieces");
        pieces.push(libc::iovec { iov_base: ptr.cast(), iov_len: len });
    }

    /// Ends the datagram with `trailer`: the bytes that depend on [`ip_id`](Self::ip_id).
    ///
    /// # Panics
    /// Panics if the datagram does not have the length that was passed to [`SendBatch::segment`], or if the datagram
    /// would have more than [`MAX_PIECES`] pieces.
    pub fn finish(mut self, trailer: &[u8]) {
        let trailer_at = self.batch.copied.used;
        self.copy(trailer);
        assert_eq!(self.written, self.len, "the datagram is not as long as announced");
        let batch = &mut *self.batch;
        let first_segment = batch.segments.len();
        batch.segments.push(BatchRecord {
            len: self.len,
            first_piece: self.pieces_before,
            trailer: trailer_at,
            trailer_len: trailer.len(),
        });
        match batch.messages.last_mut() {
            Some(group) if self.grouped > 0 => {
                group.segments += 1;
                group.bytes += self.len;
            }
            _ => batch.messages.push(GsoMessage {
                to: self.to,
                first_segment,
                segments: 1,
                segment_len: self.len,
                bytes: self.len,
            }),
        }
        self.finished = true;
    }
}

impl Drop for DatagramBuilder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.batch.pieces.truncate(self.pieces_before);
            self.batch.copied.used = self.copied_before;
        }
    }
}

/// The control message that tells the Linux kernel the length of the segments of a super-packet.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct SegmentSize([u8; Self::LEN]);

impl SegmentSize {
    // SAFETY: the function only computes a number.
    const LEN: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;
    pub(super) const EMPTY: Self = Self([0; Self::LEN]);

    pub(super) fn set(&mut self, header: &mut libc::msghdr, len: u16) {
        header.msg_control = (&raw mut self.0).cast();
        header.msg_controllen = Self::LEN as _;
        // SAFETY: the block is aligned and long enough for one control message with a u16.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = libc::UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(len);
        }
    }
}
