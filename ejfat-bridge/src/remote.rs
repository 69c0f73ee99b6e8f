//! The ring of a remote worker, which is a worker that the bridge reaches by RDMA. A remote worker may be on another
//! machine or on the bridge's machine.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use ejfat::ring::{BLOCK, DeliveryMode, Descriptor, Geometry, call::Parameter};
use naa_server::loop_service::{StreamRegion, StreamingSession};
use verbs::{Mr, Payload, SendFlags, SendOp, SendWr, Sge};

use crate::buffers::Buffers;

/// The maximum number of scatter-gather elements of a WRITE.
pub(crate) const ELEMENTS: usize = naa_server::sizes::STREAM_ELEMENTS as usize;
/// The maximum number of queued WRITEs and announcements of events that one call of
/// [`StreamingSession::post`] posts.
const TOGETHER: usize = 16;
/// The maximum number of bytes that one WRITE writes to a worker's ring. A longer event is written by several WRITEs.
/// The acknowledgements of these WRITEs then show during the transfer that the worker is alive.
const LONGEST: u32 = 1 << 20;
/// The maximum number of queued WRITEs and announcements with which a worker still gets new events. If more of them are
/// queued, the worker gets no new events. It gets new events again when at most half of this number are queued.
const BEHIND: usize = 4096;

/// A WRITE to one contiguous range of the worker's ring.
#[derive(Debug)]
struct RingWrite {
    at: u64,
    length: u32,
    elements: ArrayVec<Sge, ELEMENTS>,
    /// The receive buffer that has the bytes of this WRITE; `None` if the bytes are in the staging ring.
    buffer: Option<u32>,
}

/// A WRITE of event bytes, or the announcement of an event. Each worker has a queue of such WRITEs and
/// announcements.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "in cut-through nearly all are writes, and none is worth an allocation"
)]
enum Post {
    Write(RingWrite),
    /// Announces an event to the worker. If `whole` is true, the whole event is written from the staging ring before it
    /// is announced.
    Event {
        descriptor: Descriptor,
        whole: bool,
    },
}

impl Post {
    /// Returns the number of work requests that this WRITE or announcement needs.
    fn cost(&self) -> u32 {
        match self {
            Self::Write(_) | Self::Event { whole: false, .. } => 1,
            Self::Event { whole: true, .. } => 2,
        }
    }
}

/// The kind of a posted [`Post`], which decides what the bridge does when the WRITEs of this `Post` have
/// completed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteKind {
    Bytes { buffer: Option<u32> },
    Event,
}

#[derive(Debug)]
pub(crate) struct RdmaRing {
    geometry: Geometry,
    placing: DeliveryMode,
    /// The maximum number of bytes of a WRITE to this worker.
    longest: u32,
    elements: usize,
    /// The WRITEs and announcements that are not posted yet, in the order in which they will be posted.
    waiting: VecDeque<Post>,
    posted: VecDeque<(WriteKind, u32)>,
    /// The time since which the bridge waits for the next acknowledgement of a WRITE. `progress` is set when a WRITE is
    /// acknowledged, and when a WRITE is posted after all earlier WRITEs were acknowledged.
    progress: Instant,
    pub(crate) was_behind: bool,
    in_flight: u32,
    /// The registration of the receive buffers in the protection domain of the worker's session; `None` if the delivery
    /// mode is not cut-through. This field is declared before `stream`, so that the registration is dropped before
    /// `stream`.
    receive: Option<Mr>,
    stream: StreamingSession,
}

impl RdmaRing {
    /// Makes the ring of a remote worker. Returns `None` if `stream` does not have as many regions as
    /// [`Parameter::ALL`] has parameters.
    pub(crate) fn new(
        stream: StreamingSession,
        geometry: Geometry,
        placing: DeliveryMode,
        buffers: &Buffers,
    ) -> Result<Option<Self>, verbs::Error> {
        if stream.regions.len() != Parameter::ALL.len() {
            return Ok(None);
        }
        let attr = stream.pd.context().attr();
        let longest = u32::try_from(attr.max_msg).unwrap_or(u32::MAX).min(LONGEST);
        let elements = ELEMENTS.min(attr.max_sge.max(1) as usize);
        let receive = (placing == DeliveryMode::Cut).then(|| buffers.register(&stream.pd)).transpose()?;
        let (waiting, posted) = (VecDeque::new(), VecDeque::new());
        let remote = Self {
            geometry,
            placing,
            longest,
            elements,
            waiting,
            posted,
            progress: Instant::now(),
            was_behind: false,
            in_flight: 0,
            receive,
            stream,
        };
        Ok(Some(remote))
    }

    pub(crate) fn stream(&self) -> &StreamingSession {
        &self.stream
    }

    pub(crate) fn credits(&self) -> &StreamRegion {
        &self.stream.regions[Parameter::Credits.number()]
    }

    pub(crate) fn ring(&self) -> &StreamRegion {
        &self.stream.regions[Parameter::Ring.number()]
    }

    /// Returns true if segments are sent directly from their receive buffers (cut-through).
    pub(crate) fn is_cut(&self) -> bool {
        self.placing == DeliveryMode::Cut
    }

    /// Queues the transfer of `length` bytes from the offset `from` of the receive buffer `buffer` to the offset `at`
    /// of the worker's ring. The bytes become a part of the last queued WRITE if possible, otherwise a new WRITE.
    pub(crate) fn cut(&mut self, buffers: &mut Buffers, buffer: u32, from: usize, length: u32, at: u64) {
        let Some(receive) = &self.receive else { return };
        let element = Sge { addr: buffers.addr(buffer, from), length, lkey: receive.lkey() };
        if let Some(Post::Write(write)) = self.waiting.back_mut()
            && write.buffer == Some(buffer)
            && write.at + u64::from(write.length) == at
            && write.elements.len() < self.elements
            && write.length.checked_add(length).is_some_and(|length| length <= self.longest)
        {
            write.elements.push(element);
            write.length += length;
            return;
        }
        buffers.hold(buffer);
        let elements = ArrayVec::from_iter([element]);
        self.waiting.push_back(Post::Write(RingWrite { at, length, elements, buffer: Some(buffer) }));
    }

    /// Queues WRITEs that copy `length` bytes from the offset `at` of the staging ring to the same offset of the
    /// worker's ring.
    pub(crate) fn copy(&mut self, at: u64, length: u32) {
        let (mut at, mut left) = (at, length);
        while left > 0 {
            let length = left.min(self.longest);
            let elements = ArrayVec::from_iter([self.ring().sge(at, length)]);
            self.waiting.push_back(Post::Write(RingWrite { at, length, elements, buffer: None }));
            (at, left) = (at + u64::from(length), left - length);
        }
    }

    /// Queues the announcement of an event. If `is_in_staging` is true, the event's bytes are in the staging ring, and
    /// are written to the worker's ring before the announcement. If `is_in_staging` is false, the WRITEs of the event's
    /// bytes were queued before.
    pub(crate) fn deliver(&mut self, descriptor: Descriptor, is_in_staging: bool) {
        let whole = is_in_staging && descriptor.length <= self.longest;
        if is_in_staging && !whole {
            self.copy(descriptor.offset, descriptor.length);
        }
        self.waiting.push_back(Post::Event { descriptor, whole });
    }

    /// Posts queued WRITEs and announcements until none is left, or until the maximum number of posted work requests is
    /// unacknowledged.
    pub(crate) fn pump(&mut self) -> Result<(), verbs::Error> {
        while !self.waiting.is_empty() && self.post_some()? {}
        Ok(())
    }

    fn post_some(&mut self) -> Result<bool, verbs::Error> {
        let mut room = self.stream.most_sends.saturating_sub(self.in_flight);
        let mut count = 0;
        for post in self.waiting.iter().take(TOGETHER) {
            let Some(left) = room.checked_sub(post.cost()) else { break };
            (room, count) = (left, count + 1);
        }
        if count == 0 {
            return Ok(false);
        }
        let mut blocks = ArrayVec::<[u8; BLOCK], TOGETHER>::new();
        let mut whole = ArrayVec::<[Sge; 1], TOGETHER>::new();
        for post in self.waiting.iter().take(count) {
            if let Post::Event { descriptor, whole: is_whole } = post {
                blocks.push(descriptor.encode());
                if *is_whole {
                    whole.push([self.ring().sge(descriptor.offset, descriptor.length)]);
                }
            }
        }
        let wrs = self.requests(count, &blocks, &whole);
        let posted = self.stream.post(&wrs);
        drop(wrs);
        posted.map_err(|(_, error)| error)?;
        if self.posted.is_empty() {
            self.progress = Instant::now();
        }
        for post in self.waiting.drain(..count) {
            let cost = post.cost();
            self.in_flight += cost;
            let done = match post {
                Post::Write(write) => WriteKind::Bytes { buffer: write.buffer },
                Post::Event { .. } => WriteKind::Event,
            };
            self.posted.push_back((done, cost));
        }
        Ok(true)
    }

    fn requests<'a>(
        &'a self,
        count: usize,
        blocks: &'a [[u8; BLOCK]],
        whole: &'a [[Sge; 1]],
    ) -> ArrayVec<SendWr<'a>, { 2 * TOGETHER }> {
        let (mut blocks, mut whole) = (blocks.iter(), whole.iter());
        let (wr_id, ring) = (self.stream.number(), self.ring());
        let mut wrs = ArrayVec::new();
        for post in self.waiting.iter().take(count) {
            match post {
                Post::Write(write) => {
                    let (op, payload) =
                        (SendOp::Write(ring.remote(write.at)), Payload::Sges(&write.elements));
                    wrs.push(SendWr { wr_id, op, payload, flags: SendFlags::SIGNALED });
                }
                Post::Event { descriptor, whole: is_whole } => {
                    if let Some(elements) = is_whole.then(|| whole.next()).flatten() {
                        let op = SendOp::Write(ring.remote(descriptor.offset));
                        let (payload, flags) = (Payload::Sges(elements), SendFlags::default());
                        wrs.push(SendWr { wr_id, op, payload, flags });
                    }
                    let Some(block) = blocks.next() else { continue };
                    let at = self.geometry.descriptor_at(descriptor.sequence) as u64;
                    let at = self.stream.regions[Parameter::Descriptors.number()].remote(at);
                    let op = SendOp::WriteWithImm(at, descriptor.sequence);
                    let flags = SendFlags::SIGNALED_SOLICITED;
                    wrs.push(SendWr { wr_id, op, payload: Payload::Inline(block), flags });
                }
            }
        }
        wrs
    }

    /// Removes the oldest posted [`Post`] and returns its kind. The caller calls this function when the last
    /// WRITE of this `Post` has completed.
    pub(crate) fn completed(&mut self) -> Option<WriteKind> {
        let (done, cost) = self.posted.pop_front()?;
        self.in_flight -= cost;
        self.progress = Instant::now();
        Some(done)
    }

    /// Drops the ring, so that no further WRITEs are posted, and releases the receive buffers that the queued and
    /// unacknowledged WRITEs use.
    pub(crate) fn end(self, buffers: &mut Buffers) {
        let posted = self.posted.iter().filter_map(|(done, _)| match done {
            WriteKind::Bytes { buffer } => *buffer,
            WriteKind::Event => None,
        });
        let waiting = self.waiting.iter().filter_map(|post| match post {
            Post::Write(write) => write.buffer,
            Post::Event { .. } => None,
        });
        posted.chain(waiting).for_each(|buffer| buffers.release(buffer));
    }

    /// Returns how long the bridge has waited for the next acknowledgement of a WRITE; zero if no WRITE is
    /// unacknowledged.
    pub(crate) fn waits_since(&self, now: Instant) -> Duration {
        if self.posted.is_empty() { Duration::ZERO } else { now.saturating_duration_since(self.progress) }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.len() > if self.was_behind { BEHIND / 2 } else { BEHIND }
    }

    /// Returns true if no WRITE is queued or unacknowledged.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.posted.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
