//! Lets a program write to the accelerator's regions while a streaming call is open.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use mrsp::{RegionFlags, region::RemoteRegion};
use verbs::{Payload, Qp, RemoteAddr, SendFlags, SendOp, SendWr};

use crate::{
    Error, Gone,
    connection::{EMPTY, HostConnection, STREAMED},
    regions::HostRegions,
};

/// Writes to the accelerator's regions from any thread. A [`StreamingCall`](crate::StreamingCall) has one writer. After
/// the streaming call was dropped, the writer cannot write any more.
#[derive(Debug)]
pub struct Writer {
    peer: SocketAddr,
    qp: Weak<Qp>,
    number: u64,
    targets: Vec<Option<RemoteRegion>>,
    max_bytes: usize,
    room: u64,
    posted: u64,
    acknowledged: Arc<AtomicU64>,
}

/// Returns the number of WRITEs that share one completion, if a writer may have `writes` unacknowledged WRITEs.
fn writes_per_completion(writes: u64) -> u64 {
    (writes / 4).max(1)
}

/// The maximum number of WRITEs that are posted with one call of `post_send`.
const CHUNK: usize = 16;

impl Writer {
    /// Makes a writer to the inputs of a session. If the host's region and the accelerator's region of an input differ
    /// in size, WRITEs must fit into the smaller region. The streaming call counts the completions of the writer's
    /// WRITEs in `acknowledged`.
    pub(crate) fn new(
        connection: &HostConnection,
        own: &HostRegions,
        regions: &[RemoteRegion],
        room: u64,
        acknowledged: Arc<AtomicU64>,
    ) -> Self {
        let is_input = |flags: RegionFlags| flags.intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND);
        let target = |size: usize, region: &RemoteRegion| RemoteRegion {
            size: region.size.min(size as u32),
            ..*region
        };
        let pairs = own.params().iter().zip(regions);
        Self {
            peer: connection.peer,
            qp: connection.queue_pair(),
            number: connection.number(STREAMED),
            targets: pairs.map(|(own, to)| is_input(own.flags()).then(|| target(own.len(), to))).collect(),
            max_bytes: connection.max_inline_data(),
            room,
            posted: 0,
            acknowledged,
        }
    }

    /// Returns the maximum number of bytes of one WRITE, which is the device's limit for inline data.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Returns the number of WRITEs that can be posted now.
    pub fn room(&self) -> usize {
        let done = self.acknowledged.load(Ordering::Acquire).saturating_mul(writes_per_completion(self.room));
        usize::try_from(self.room.saturating_sub(self.posted.saturating_sub(done))).unwrap_or(usize::MAX)
    }

    /// Writes `parts` in order into input `param`. Each part consists of the offset in the input and the bytes to write
    /// there. The bytes are copied before the method returns. Returns the number of parts that were posted. If the
    /// writer reaches the limit [`StreamingLimits::writes`](crate::StreamingLimits::writes) for unacknowledged WRITEs,
    /// the method posts no further parts. If not all parts were posted, the [`StreamingCall`](crate::StreamingCall)
    /// must process an acknowledgement before the writer can post more WRITEs. The method
    /// [`StreamingCall::wait`](crate::StreamingCall::wait) waits for acknowledgements and processes them.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no parameter `param`, and with [`Error::NotInput`] if the
    /// parameter is not an input. Fails with [`Error::OutOfBounds`] if a part does not lie inside the input, and with
    /// [`Error::PartTooLong`] if a part has more than [`max_bytes`](Self::max_bytes) bytes. Fails with
    /// [`Error::PeerGone`] if the streaming call was dropped, and with [`Error::Device`] if the device refuses the work
    /// requests. After [`Error::PeerGone`] or [`Error::Device`], the writer cannot write any more.
    pub fn write(&mut self, param: usize, parts: &[(usize, &[u8])]) -> Result<usize, Error> {
        let target = *self.target(param)?;
        for &(offset, bytes) in parts {
            let (index, len, size) = (param, bytes.len(), target.size as usize);
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(Error::OutOfBounds { index, offset, len, size });
            }
            if len > self.max_bytes {
                return Err(Error::PartTooLong { index, len, max_bytes: self.max_bytes });
            }
        }
        let parts = &parts[..parts.len().min(self.room())];
        let Some(qp) = self.qp.upgrade() else {
            return Err(Error::PeerGone { peer: self.peer, function: None, why: Gone::Disconnected });
        };
        for parts in parts.chunks(CHUNK) {
            let mut wrs = [EMPTY; CHUNK];
            for (wr, &(offset, bytes)) in wrs.iter_mut().zip(parts) {
                *wr = self.request(&target, offset, bytes);
            }
            qp.post_send(&wrs[..parts.len()]).map_err(|(_, error)| error)?;
        }
        Ok(parts.len())
    }

    fn target(&self, param: usize) -> Result<&RemoteRegion, Error> {
        let params = self.targets.len();
        let found = self.targets.get(param).ok_or(Error::NoSuchParam { index: param, params })?;
        found.as_ref().ok_or(Error::NotInput { index: param })
    }

    fn request<'a>(&mut self, to: &RemoteRegion, offset: usize, bytes: &'a [u8]) -> SendWr<'a> {
        self.posted += 1;
        let signaled = self.posted.is_multiple_of(writes_per_completion(self.room));
        SendWr {
            wr_id: self.number,
            op: SendOp::Write(RemoteAddr { addr: to.addr + offset as u64, rkey: to.rkey }),
            payload: Payload::Inline(bytes),
            flags: SendFlags { signaled, ..SendFlags::default() },
        }
    }
}
