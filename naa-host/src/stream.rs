//! A session whose one call goes on: after the answer the accelerator writes outputs and sends immediates as it likes,
//! and the host writes to inputs.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use mrsp::{
    FunctionCode, HostSession, RegionFlags, U24,
    host::CallOutcome,
    layout::{Choice, Layout},
    region::RemoteRegion,
};
use verbs::{Memory, Payload, Qp, RemoteAddr, SendFlags, SendOp, SendWr, WaitMode, Wake};

use crate::{
    Device, Error, Outcome, Param, Session, SessionConfig,
    alarm::Alarm,
    link::{Event, Extra, Link, STREAMED},
    opening::Opening,
    regions::Regions,
    session::Parts,
};

/// What may be under way on a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRoom {
    /// Immediates that the accelerator may send before the program takes the first of them.
    pub immediates: u32,
    /// WRITEs of the program that are not acknowledged.
    pub writes: u32,
}

/// Who waits looks at the clock every so many times.
const TESTS: u32 = 8;

/// A connection on which one call was answered, and the accelerator goes on sending.
///
/// The regions belong to the device and the accelerator until the stream is dropped, so their bytes are no slices: they
/// are copied out of [`memory`](Self::memory), or whoever knows what the accelerator writes when makes slices of its own.
/// That memory stays mapped as long as somebody has it.
#[derive(Debug)]
pub struct Stream {
    machine: HostSession,
    acknowledged: Arc<AtomicU64>,
    wait: WaitMode,
    config: SessionConfig,
    next_probe: Option<Instant>,
    tests: u32,
    alarm: Option<Alarm>,
    // Before the regions: its queue pair goes first.
    link: Link,
    regions: Regions,
    // Last: everything above is of this device.
    _device: Device,
}

/// Writes to the accelerator's regions, from any thread. There is one for a [`Stream`], and it ends with it.
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

/// A completion is asked for with every so many WRITEs of a writer with room for `writes`.
fn told_every(writes: u64) -> u64 {
    (writes / 4).max(1)
}

impl Stream {
    /// Connects to `peer`, calls `function` and waits for its answer. Each parameter has a region of its own, whatever
    /// the layout of `config`.
    ///
    /// # Errors
    /// As [`Session::connect`]; [`Error::AnswerTimedOut`] after `config.setup_timeout`; [`Error::Function`] if the function
    /// fails; [`Error::Device`] if the device has not that much room.
    pub fn open(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
        function: FunctionCode,
        room: StreamRoom,
    ) -> Result<(Self, Writer), Error> {
        let config = SessionConfig { layout: Choice::Fixed(Layout::Symmetric), ..config.clone() };
        let writes = room.writes.max(1);
        let extra = Extra { sends: writes, receives: room.immediates, late_acks: false };
        let opening = Opening::with_extra(device, peer, params, &config, extra)?;
        let mut session = Session::complete(opening, params, None, &config)?;
        // One is posted, and one replaces that of the answer. All before the call: immediates follow the answer at once.
        session.post_receives(room.immediates.saturating_add(1))?;
        session.invoke(function, U24::ZERO)?;
        let Parts { machine, link, regions, wait, device } = session.into_parts();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut stream = Self {
            machine,
            acknowledged: acknowledged.clone(),
            wait,
            config,
            next_probe: None,
            tests: 0,
            alarm: None,
            link,
            regions,
            _device: device,
        };
        let outcome = stream.answer(function)?;
        let _ = outcome.into_result()?;
        let writer = stream.writer(writes.into(), acknowledged);
        Ok((stream, writer))
    }

    /// Takes no more than the answer of the call.
    fn answer(&mut self, function: FunctionCode) -> Result<Outcome, Error> {
        let limit = self.config.setup_timeout;
        let deadline = Instant::now() + limit;
        loop {
            while let Some(event) = self.link.next()? {
                let Event::Response { immediate, bytes } = event else {
                    self.other(event)?;
                    continue;
                };
                let peer = self.link.peer;
                let wrong = |source| Error::Peer { peer, source };
                let answered = self.machine.handle_response(immediate, bytes).map_err(wrong)?;
                self.link.post_receive()?;
                let CallOutcome { function, answer, last_write_bytes } = answered;
                return Ok(Outcome { peer, function, answer, last_write_bytes });
            }
            if Instant::now() >= deadline {
                return Err(Error::AnswerTimedOut { peer: self.link.peer, function, limit });
            }
            self.link.wait(self.wait, Some(deadline))?;
        }
    }

    fn writer(&self, room: u64, acknowledged: Arc<AtomicU64>) -> Writer {
        let regions = self.machine.peer_regions().unwrap_or_default();
        let is_input = |flags: RegionFlags| flags.intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND);
        let pairs = self.regions.params().iter().zip(regions);
        let target = |size: usize, region: &RemoteRegion| RemoteRegion {
            size: region.size.min(size as u32),
            ..*region
        };
        Writer {
            peer: self.link.peer,
            qp: self.link.queue_pair(),
            number: self.link.number(STREAMED),
            targets: pairs
                .map(|(own, region)| is_input(own.flags()).then(|| target(own.len(), region)))
                .collect(),
            max_bytes: self.link.max_inline_data(),
            room,
            posted: 0,
            acknowledged,
        }
    }

    /// The next immediate, if there is one. The accelerator may then send one more.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::Peer`] and [`Error::Device`], after which the stream is over.
    pub fn try_next(&mut self) -> Result<Option<u32>, Error> {
        while let Some(event) = self.link.next()? {
            let Event::Response { immediate, .. } = event else {
                self.other(event)?;
                continue;
            };
            self.link.post_receive()?;
            // It is alive.
            self.next_probe = None;
            return Ok(Some(immediate));
        }
        Ok(None)
    }

    fn other(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Message { len } => {
                let (peer, message) = (self.link.peer, self.link.message(len));
                self.machine.handle_message(&message).map_err(|source| Error::Peer { peer, source })?;
                self.link.post_receive()
            }
            Event::Streamed => {
                // As many as went with it.
                self.acknowledged.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Event::Response { .. } | Event::Written | Event::Established => Ok(()),
        }
    }

    /// The next immediate, at `deadline` at the latest, or `None`; before that also if a WRITE was acknowledged, or for
    /// nothing. Meanwhile the accelerator is asked for a sign of life as `probe_interval` has it.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<u32>, Error> {
        if let Some(immediate) = self.try_next()? {
            return Ok(Some(immediate));
        }
        self.tests += 1;
        if self.tests >= TESTS {
            self.probe()?;
        }
        let until = [deadline, self.due()].into_iter().flatten().min();
        if self.link.wait(self.wait, until)? == Wake::TimedOut {
            self.probe()?;
        }
        self.try_next()
    }

    /// As [`try_next`](Self::try_next), and arms the [descriptor](Self::descriptor) if there is none.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn test(&mut self) -> Result<Option<u32>, Error> {
        loop {
            if let Some(immediate) = self.try_next()? {
                return Ok(Some(immediate));
            }
            // It may be the clock that rang.
            self.probe()?;
            let until = self.due();
            let Some(alarm) = &self.alarm else { return Ok(None) };
            if self.link.arm(alarm, until)? {
                return Ok(None);
            }
        }
    }

    /// A descriptor that becomes readable when [`test`](Self::test) has something to do after it gave nothing: for event
    /// loops. Nothing is to be read from it. It serves as long as the stream.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => {
                let alarm = self.link.alarm()?;
                // Nothing was armed when `test` last looked.
                alarm.set(Some(Instant::now())).map_err(|e| verbs::Error::io("cannot set a timer", e))?;
                alarm
            }
        };
        let alarm: &Alarm = self.alarm.insert(alarm);
        Ok(alarm.as_fd())
    }

    /// When the accelerator is to be asked for a sign of life.
    fn due(&mut self) -> Option<Instant> {
        let interval = self.config.probe_interval?;
        if self.next_probe.is_none() {
            self.next_probe = Instant::now().checked_add(interval);
        }
        self.next_probe
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.tests = 0;
        let now = Instant::now();
        if self.due().is_none_or(|at| now < at) {
            return Ok(());
        }
        self.next_probe = None;
        match self.machine.peer_regions().and_then(<[_]>::first) {
            Some(first) => self.link.probe(RemoteAddr { addr: first.addr, rkey: first.rkey }),
            None => Ok(()),
        }
    }

    /// The memory of parameter `index`, internal ones left out.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`].
    pub fn memory(&self, index: usize) -> Result<&Memory, Error> {
        let params = self.regions.params();
        let memory = params.get(index).and_then(|region| region.memory());
        memory.ok_or(Error::NoSuchParam { index, params: params.len() })
    }

    /// The accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }
}

/// WRITEs posted at once.
const CHUNK: usize = 16;

const EMPTY: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Send,
    payload: Payload::Inline(&[]),
    flags: SendFlags { signaled: false, solicited: false, fence: false },
};

impl Writer {
    /// Bytes of a WRITE at most; at least one credit word on any device that copies while posting.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// WRITEs that can be posted now.
    pub fn room(&self) -> usize {
        let done = self.acknowledged.load(Ordering::Acquire).saturating_mul(told_every(self.room));
        usize::try_from(self.room.saturating_sub(self.posted.saturating_sub(done))).unwrap_or(usize::MAX)
    }

    /// Writes each of `parts`, offset and bytes, into input `param`, in order; they are copied. Returns how many were
    /// posted: fewer than there are if others are under way. There is room again when [`Stream`] has taken
    /// acknowledgements, for which [`Stream::wait`] wakes.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`], [`Error::NotInput`], [`Error::OutOfBounds`], also for more than
    /// [`max_bytes`](Self::max_bytes); [`Error::PeerGone`] and [`Error::Device`], after which there will be no room.
    pub fn write(&mut self, param: usize, parts: &[(usize, &[u8])]) -> Result<usize, Error> {
        let target = *self.target(param)?;
        for &(offset, bytes) in parts {
            let (len, size) = (bytes.len(), target.size as usize);
            if len > self.max_bytes || offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(Error::OutOfBounds { index: param, offset, len, size });
            }
        }
        let parts = &parts[..parts.len().min(self.room())];
        let Some(qp) = self.qp.upgrade() else {
            return Err(Error::PeerGone { peer: self.peer, why: crate::Gone::Disconnected });
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
        let signaled = self.posted.is_multiple_of(told_every(self.room));
        SendWr {
            wr_id: self.number,
            op: SendOp::Write(RemoteAddr { addr: to.addr + offset as u64, rkey: to.rkey }),
            payload: Payload::Inline(bytes),
            flags: SendFlags { signaled, ..SendFlags::default() },
        }
    }
}
