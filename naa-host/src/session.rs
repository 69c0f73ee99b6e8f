//! A session: regions agreed on with an accelerator, and calls that work on them.

use std::{
    borrow::Cow,
    net::SocketAddr,
    ops::{Bound, RangeBounds},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use mrsp::{
    CallPlan, FunctionCode, HostSession, RegionFlags, ReturnCode, U24,
    builtin::{BLOCK_BYTES, StatusBlock},
    host::CallOutcome,
    immediate::Answer,
    layout::Layout,
    plan::Part,
};
use verbs::{RemoteAddr, Sge, WaitMode, Wake};

use crate::{
    Device, Error, Param, SessionConfig,
    alarm::Alarm,
    cut,
    error::Party,
    lease::{Buffer, Region},
    link::{Event, Link},
    opening::{Opening, Stage, Terms},
    overdue::{Call, Due, Limits, Overdue},
    post,
    regions::Regions,
    spec::Claim,
};

/// Checks that `len` bytes at `offset` lie inside parameter `index`.
fn inside(index: usize, offset: usize, len: usize, size: usize) -> Result<(), Error> {
    match offset.checked_add(len).filter(|&end| end <= size) {
        Some(_) => Ok(()),
        None => Err(Error::OutOfBounds { index, offset, len, size }),
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the function may have failed"]
pub struct Outcome {
    pub peer: SocketAddr,
    pub function: FunctionCode,
    pub answer: Answer,
    /// Bytes of the last output that were written; 0 if the function failed.
    pub last_write_bytes: u32,
}

impl Outcome {
    /// # Errors
    /// [`Error::Function`] if the function failed.
    pub fn into_result(self) -> Result<Self, Error> {
        match self.answer {
            Answer::Failure(code) => {
                Err(Error::Function { peer: self.peer, function: self.function, code, detail: 0 })
            }
            Answer::Success | Answer::User(_) => Ok(self),
        }
    }
}

/// A call that was posted.
#[derive(Clone, Copy, Debug)]
struct Running {
    function: FunctionCode,
    /// Whether its WRITEs are acknowledged, so that the device no longer reads the regions.
    written: bool,
    answer: Option<CallOutcome>,
    overdue: Overdue,
}

/// The target of a probe, which is a WRITE of no bytes: no responder looks at the address.
pub(crate) fn probe_target(machine: &HostSession) -> RemoteAddr {
    let first = machine.peer_regions().and_then(<[_]>::first);
    first.map_or(RemoteAddr { addr: 0, rkey: 0 }, |first| RemoteAddr { addr: first.addr, rkey: first.rkey })
}

/// A connection to an accelerator with its regions. A session has one call at a time; several sessions may run in parallel.
///
/// Regions are numbered in the order of the parameters, internal ones left out. An error other than a wrong argument or a
/// function's own failure ends the session; its regions can still be leased. Dropping a session disconnects it.
///
/// While no call runs, an accelerator has no access to the regions if the provider is the embedded one, which takes access
/// back with each response. NICs cannot do that at a reasonable price: over the verbs provider an accelerator can write
/// outputs as long as the session lasts. An accelerator that keeps to the protocol does not write then, but nothing stops
/// another one. So there are no slices of outputs over the verbs provider. This table says what works where:
///
/// | | inputs | outputs, embedded | outputs, verbs |
/// |---|---|---|---|
/// | [`bytes`](Self::bytes) | in place | in place | a copy |
/// | [`read`](Self::read), [`to_vec`](Self::to_vec), [`write`](Self::write) | a copy | a copy | a copy |
/// | [`lease`](Self::lease), [`lease_mut`](Self::lease_mut) | in place | in place | [`Error::InReach`] |
/// | [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator), `unsafe` | in place | in place | in place |
#[derive(Debug)]
pub struct Session {
    machine: HostSession,
    plan: CallPlan,
    parts: Vec<Option<Part>>,
    running: Option<Running>,
    /// What ended the session.
    over: Option<(Party, String)>,
    layout: Layout,
    wait: WaitMode,
    limits: Limits,
    /// The timer and file descriptor for a program that sleeps in its own event loop.
    alarm: Option<Alarm>,
    // This field is before the regions, so that its queue pair is destroyed first.
    link: Link,
    regions: Regions,
    /// Elements of the WRITE that is being posted.
    elements: Vec<Sge>,
    _claim: Option<Claim>,
    // This field is the last, because everything above belongs to the device.
    device: Device,
}

/// The parts of a session that goes on as a stream.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) machine: HostSession,
    pub(crate) link: Link,
    pub(crate) regions: Regions,
    pub(crate) wait: WaitMode,
    pub(crate) device: Device,
}

impl Session {
    /// Connects to the accelerator `peer` and agrees with it on `params`.
    ///
    /// # Errors
    /// [`Error::ConnectionRefused`], [`Error::Unreachable`], [`Error::SetupTimedOut`] or [`Error::PeerGone`] if there is no
    /// connection; [`Error::Peer`] if the accelerator refuses the regions; [`Error::Setup`] or
    /// [`Error::OutOfBounds`] if `params` make no session; [`Error::Device`] and [`Error::Memory`].
    pub fn connect(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::establish(device, peer, params, None, config)
    }

    /// Connects as [`connect`](Self::connect) does, on memory of the program: one buffer for each parameter that is not
    /// internal, in the same order and of the same length. The buffers keep what they hold, except where a parameter starts
    /// as a copy. An error drops the buffers.
    ///
    /// # Errors
    /// [`Error::Buffers`] or [`Error::Buffer`] if the buffers do not fit; else the same errors as
    /// [`connect`](Self::connect).
    pub fn connect_with(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        buffers: Vec<Buffer>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::establish(device, peer, params, Some(buffers), config)
    }

    fn establish(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        buffers: Option<Vec<Buffer>>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let opening = Opening::new(device, peer, params, config)?;
        Self::complete(opening, params, buffers, config)
    }

    pub(crate) fn complete(
        mut opening: Opening,
        params: &[Param<'_>],
        buffers: Option<Vec<Buffer>>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + config.setup_timeout;
        opening.prepare(params, buffers)?;
        opening.connect()?;
        opening.reach(Stage::Connected, deadline)?;
        opening.agree()?;
        opening.reach(Stage::Agreed, deadline)?;
        let late = opening.late();
        opening.into_session().ok_or(late)
    }

    pub(crate) fn of(
        terms: Terms,
        link: Link,
        (config, limits): (&SessionConfig, Limits),
        device: Device,
    ) -> Self {
        let layout = terms.layout();
        let Terms { machine, regions, plan, .. } = terms;
        Self {
            machine,
            plan,
            parts: vec![None; regions.params().len()],
            running: None,
            over: None,
            layout,
            wait: config.wait,
            limits,
            alarm: None,
            link,
            regions,
            elements: Vec::new(),
            _claim: None,
            device,
        }
    }

    /// Keeps `claim` until the session ends.
    pub(crate) fn holding(mut self, claim: Claim) -> Self {
        self._claim = Some(claim);
        self
    }

    /// Posts a call and returns. `user` are the 24 user bits, which the function may look at.
    ///
    /// # Errors
    /// [`Error::InCall`]; [`Error::Over`] if the session was over before. All other errors end the session.
    pub fn invoke(&mut self, function: FunctionCode, user: U24) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::InCall);
        }
        self.not_over()?;
        if self.machine.is_ready() {
            // A response that belongs to no call must not be taken for the response to this call.
            self.drain().map_err(|error| self.fail(error))?;
        }
        self.machine.begin_call(function, user, &self.parts, &mut self.plan)?;
        let now = self.link.clock.now();
        self.link.liveness.heard(now);
        self.link.liveness.expect(None);
        let overdue = Overdue::new(self.limits, now);
        self.running = Some(Running { function, written: false, answer: None, overdue });
        let posted = self
            .regions
            .lend()
            .map_err(Error::Device)
            .and_then(|()| post::post(&mut self.link, &self.regions, &self.plan, &mut self.elements));
        posted.map_err(|error| {
            // If the connection broke before, that is the better explanation.
            let error = self.drain().err().unwrap_or(error);
            self.fail(error)
        })
    }

    /// Returns the outcome if the call has ended, without waiting. If it has not, the [descriptor](Self::descriptor) is
    /// armed, if there is one.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<Option<Outcome>, Error> {
        if self.running.is_none() {
            return Err(Error::NoCall);
        }
        let ended = self.step_armed();
        ended.map_err(|error| self.fail(error))
    }

    /// A file descriptor for event loops. After [`test`](Self::test) returned that the call has not ended, it becomes
    /// readable when `test` has something to do. Nothing is to be read from it. It is valid as long as the session.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => {
                let alarm = self.link.alarm()?;
                // The last `test` did not arm anything.
                alarm.set(Some(Instant::now())).map_err(|e| verbs::Error::io("cannot set a timer", e))?;
                alarm
            }
        };
        let alarm: &Alarm = self.alarm.insert(alarm);
        Ok(alarm.as_fd())
    }

    /// Does the same as [`test`](Self::test), but does not arm the file descriptor.
    pub(crate) fn look(&mut self) -> Result<Option<Outcome>, Error> {
        let ended = self.step();
        ended.map_err(|error| self.fail(error))
    }

    /// Lets the device do what there is to do at `now`. Errors of the device are reported by the next look.
    pub(crate) fn turn(&self, now: Instant) {
        let _ = self.link.wait(WaitMode::Spin, Some(now));
    }

    /// The mode in which threads wait.
    pub fn wait_mode(&self) -> WaitMode {
        self.wait
    }

    /// Sets the mode in which threads wait from now on.
    pub fn set_wait_mode(&mut self, wait: WaitMode) {
        self.wait = wait;
    }

    pub(crate) fn shares_device_with(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn step_armed(&mut self) -> Result<Option<Outcome>, Error> {
        loop {
            if self.alarm.is_some() {
                // The timer may have ended the wait.
                self.link.clock.rang();
            }
            if let Some(outcome) = self.step()? {
                return Ok(Some(outcome));
            }
            let until = self.due();
            let Some(alarm) = &self.alarm else { return Ok(None) };
            if self.link.arm(alarm, until)? {
                return Ok(None);
            }
        }
    }

    /// Waits for the call to end.
    ///
    /// # Errors
    /// [`Error::NoCall`]; [`Error::PeerGone`], [`Error::Peer`], [`Error::CallTimedOut`] and [`Error::Device`], each of which
    /// ends the session.
    pub fn wait(&mut self) -> Result<Outcome, Error> {
        loop {
            if let Some(outcome) = self.wait_until(None)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for the call to end; `None` if it is still running after `timeout`.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Outcome>, Error> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits for the call to end; `None` if it is still running at `deadline`.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<Outcome>, Error> {
        if self.running.is_none() {
            return Err(Error::NoCall);
        }
        loop {
            let ended = self.step();
            if let Some(outcome) = ended.map_err(|error| self.fail(error))? {
                return Ok(Some(outcome));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            let until = [deadline, self.due()].into_iter().flatten().min();
            let waited = self.link.wait(self.wait, until);
            if waited.map_err(|error| self.fail(error))? == Wake::TimedOut {
                self.link.clock.rang();
            }
        }
    }

    /// Calls a function and waits for it to succeed.
    ///
    /// # Errors
    /// [`Error::Function`] if it fails; else the same errors as [`invoke`](Self::invoke) and [`wait`](Self::wait).
    pub fn call(&mut self, function: FunctionCode) -> Result<(), Error> {
        self.invoke(function, U24::ZERO)?;
        self.wait()?.into_result().map(drop)
    }

    /// Disconnects. A call that is running is given up. The accelerator's confirmation is not waited for.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn finalize(mut self) -> Result<(), Error> {
        self.link.close()
    }

    /// Disconnects as [`finalize`](Self::finalize) does and returns the memory of the parameters, with what it holds, for
    /// another session. If a call was given up, outputs may hold a part of its results.
    ///
    /// # Errors
    /// [`Error::Device`] if memory could not be taken back.
    pub fn into_buffers(mut self) -> Result<Vec<Buffer>, Error> {
        // No work request is left, even if the accelerator could not be notified.
        let _ = self.link.close();
        self.regions.take_back()?;
        self.regions
            .into_params()
            .into_iter()
            .map(|region| region.into_buffer().ok_or(Error::InCall))
            .collect()
    }

    /// The bytes of parameter `index`, in place.
    ///
    /// # Errors
    /// [`Error::InCall`] from [`invoke`](Self::invoke) until the outcome was returned, [`Error::NoSuchParam`];
    /// [`Error::InReach`] for an output over a device that does not take access back.
    pub fn lease(&self, index: usize) -> Result<&[u8], Error> {
        self.region(index)?.bytes()
    }

    /// The bytes of parameter `index` in place, mutable.
    ///
    /// # Errors
    /// The same errors as [`lease`](Self::lease).
    pub fn lease_mut(&mut self, index: usize) -> Result<&mut [u8], Error> {
        self.region_mut(index)?.bytes_mut()
    }

    /// Bytes of parameter `index`: in place where nobody else can write them, and a copy where an accelerator could. This
    /// works with every device, and copies nothing where access is taken back.
    ///
    /// # Errors
    /// [`Error::InCall`] from [`invoke`](Self::invoke) until the outcome was returned, [`Error::NoSuchParam`],
    /// [`Error::OutOfBounds`].
    pub fn bytes(&self, index: usize, range: impl RangeBounds<usize>) -> Result<Cow<'_, [u8]>, Error> {
        let region = self.region(index)?;
        let size = region.len();
        let offset = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => size,
        };
        let len = end.saturating_sub(offset);
        inside(index, offset, len, size)?;
        match region.bytes() {
            Ok(all) => Ok(Cow::Borrowed(&all[offset..offset + len])),
            Err(Error::InReach) => {
                let mut copy = vec![0; len];
                region.read(offset, &mut copy)?;
                Ok(Cow::Owned(copy))
            }
            Err(error) => Err(error),
        }
    }

    /// A copy of all bytes of parameter `index`.
    ///
    /// # Errors
    /// [`Error::InCall`] from [`invoke`](Self::invoke) until the outcome was returned, [`Error::NoSuchParam`].
    pub fn to_vec(&self, index: usize) -> Result<Vec<u8>, Error> {
        let region = self.region(index)?;
        let mut copy = vec![0; region.len()];
        region.read(0, &mut copy)?;
        Ok(copy)
    }

    /// Copies `bytes` into parameter `index`.
    ///
    /// # Errors
    /// [`Error::InCall`] from [`invoke`](Self::invoke) until the outcome was returned, [`Error::NoSuchParam`],
    /// [`Error::OutOfBounds`].
    pub fn write(&mut self, index: usize, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let region = self.region_mut(index)?;
        inside(index, offset, bytes.len(), region.len())?;
        region.write(offset, bytes)
    }

    /// Copies bytes of parameter `index` to `out`.
    ///
    /// # Errors
    /// The same errors as [`write`](Self::write).
    pub fn read(&self, index: usize, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let region = self.region(index)?;
        inside(index, offset, out.len(), region.len())?;
        region.read(offset, out)
    }

    /// The length of parameter `index` in bytes.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`].
    pub fn param_len(&self, index: usize) -> Result<usize, Error> {
        Ok(self.region(index)?.len())
    }

    /// Sends only the first `bytes` of an input with the calls to come; `None`: all of it.
    ///
    /// # Errors
    /// The same errors as [`set_part_to_send`](Self::set_part_to_send).
    pub fn set_bytes_to_send(&mut self, index: usize, bytes: Option<u64>) -> Result<(), Error> {
        self.set_part_to_send(index, bytes.map(Part::prefix))
    }

    /// Sends only a part of an input with the calls to come. The part keeps its offset in the accelerator's region. `None`:
    /// all of it.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`], [`Error::NotInput`], [`Error::OutOfBounds`].
    pub fn set_part_to_send(&mut self, index: usize, part: Option<Part>) -> Result<(), Error> {
        let region = self.region(index)?;
        if !region.flags().intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND) {
            return Err(Error::NotInput { index });
        }
        let size = region.len();
        if let Some(Part { offset, bytes }) = part
            && offset.checked_add(bytes).is_none_or(|end| end > size as u64)
        {
            let [offset, len] = [offset, bytes].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            return Err(Error::OutOfBounds { index, offset, len, size });
        }
        self.parts[index] = part;
        Ok(())
    }

    /// The status block of a built-in function, at the start of the first output.
    ///
    /// # Errors
    /// [`Error::Status`] if there is no status block; [`Error::InCall`].
    pub fn status_block(&self) -> Result<StatusBlock, Error> {
        let mut params = self.regions.params().iter();
        let mut block = [0; BLOCK_BYTES];
        let mut len = 0;
        if let Some(region) = params.find(|region| region.flags().contains(RegionFlags::OUTPUT)) {
            len = region.len().min(BLOCK_BYTES);
            region.read(0, &mut block[..len])?;
        }
        StatusBlock::decode(&block[..len]).map_err(|source| Error::Status { peer: self.link.peer, source })
    }

    /// Whether a call is under way.
    pub fn is_in_call(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the accelerator has all inputs of the call that is under way.
    pub fn is_sent(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.written)
    }

    /// Whether the session is over. Connect again for further calls.
    pub fn is_over(&self) -> bool {
        self.machine.is_failed()
    }

    /// Refuses a session that is over.
    ///
    /// # Errors
    /// [`Error::Over`] with what ended the session, if it is over.
    pub fn not_over(&self) -> Result<(), Error> {
        match &self.over {
            None => Ok(()),
            Some((party, why)) => Err(Error::Over { peer: self.link.peer, why: why.clone(), party: *party }),
        }
    }

    /// The address of the accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// The layout in use: the symmetric one if the accelerator does not take the one that was asked for.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The number of bytes that are registered with the device for the parameters.
    pub fn registered_bytes(&self) -> u64 {
        self.regions.registered_bytes()
    }

    /// The number of bytes in the accelerator's regions that can be written to.
    pub fn accelerator_bytes(&self) -> u64 {
        self.machine.peer_regions().map_or(0, |regions| regions.iter().map(|r| u64::from(r.size)).sum())
    }

    /// The most bytes of payload in a packet, in both directions.
    pub fn path_mtu(&self) -> u32 {
        self.link.path_mtu
    }

    /// The number of parameters, internal ones left out.
    pub fn params(&self) -> usize {
        self.regions.params().len()
    }

    pub(crate) fn region(&self, index: usize) -> Result<&Region, Error> {
        self.regions.params().get(index).ok_or(Error::NoSuchParam { index, params: self.params() })
    }

    pub(crate) fn region_mut(&mut self, index: usize) -> Result<&mut Region, Error> {
        let params = self.params();
        self.regions.params_mut().get_mut(index).ok_or(Error::NoSuchParam { index, params })
    }

    /// Handles what has happened, and checks that the accelerator is alive.
    fn step(&mut self) -> Result<Option<Outcome>, Error> {
        let drained = self.drain();
        let Some(running) = &mut self.running else { return Ok(None) };
        match (running.answer, drained) {
            (Some(answer), Ok(())) if running.written => self.end(answer).map(Some),
            // The response of the function counts even if the accelerator disconnected right after it.
            (Some(answer), Err(error)) => {
                let _ = self.fail(error);
                Ok(Some(self.outcome(answer)))
            }
            (None, Err(error)) => Err(error),
            (_, Ok(())) => {
                self.look_at_the_clock()?;
                Ok(None)
            }
        }
    }

    fn drain(&mut self) -> Result<(), Error> {
        while let Some(event) = self.link.next()? {
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Error> {
        let peer = self.link.peer;
        let wrong = |source| Error::Peer { peer, source };
        match event {
            Event::Response { immediate, bytes } => {
                let answer = self.machine.handle_response(immediate, bytes).map_err(wrong)?;
                if let Some(running) = &mut self.running {
                    running.answer = Some(answer);
                }
                self.link.post_receive()
            }
            Event::Message { len } => {
                self.machine.handle_message(&self.link.message(len)).map_err(wrong)?;
                self.link.post_receive()
            }
            Event::Written => {
                if let Some(running) = &mut self.running {
                    running.written = true;
                }
                Ok(())
            }
            Event::Established | Event::Streamed => Ok(()),
        }
    }

    /// Splits the session into what a stream goes on with. The call was posted, and nothing that happened since was handled.
    pub(crate) fn into_parts(self) -> Parts {
        let Self { machine, link, regions, device, wait, .. } = self;
        Parts { machine, link, regions, wait, device }
    }

    /// Posts `count` receives beyond the one that is always posted.
    pub(crate) fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.link.post_receive())
    }

    /// When there is something to do about a running call, even if nothing comes from the accelerator.
    fn due(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        let liveness = &self.link.liveness;
        [liveness.next(), running.overdue.next(liveness)].into_iter().flatten().min()
    }

    /// Does what is due about a running call.
    fn look_at_the_clock(&mut self) -> Result<(), Error> {
        let (Some(running), Some(now)) = (&mut self.running, self.link.clock.look()) else { return Ok(()) };
        let liveness = &self.link.liveness;
        let due = running.overdue.due(now, liveness);
        let (peer, function) = (self.link.peer, running.function);
        match due {
            Due::GiveUp(limit) => return Err(Error::CallTimedOut { peer, function, limit }),
            Due::Report => {
                let is_output = |region: &Region| region.flags().contains(RegionFlags::OUTPUT);
                let has_outputs = self.regions.params().iter().any(is_output);
                let call = Call { liveness, is_written: running.written, has_outputs };
                tracing::warn!("{}", running.overdue.report(now, (peer, function), &call));
            }
            Due::Nothing | Due::Probe => {}
        }
        if due == Due::Probe || liveness.is_probe_due(now) {
            self.link.probe(probe_target(&self.machine), now)?;
        }
        Ok(())
    }

    /// Sets how long a call may take, also for a call that is running. The initial value is [`SessionConfig::call_timeout`].
    pub fn set_call_timeout(&mut self, limit: Option<Duration>) {
        self.limits.call_timeout = limit;
        if let Some(running) = &mut self.running {
            running.overdue.set_limit(limit);
        }
    }

    /// How long a call may take.
    pub fn call_timeout(&self) -> Option<Duration> {
        self.limits.call_timeout
    }

    fn end(&mut self, answer: CallOutcome) -> Result<Outcome, Error> {
        self.regions.take_back()?;
        self.running = None;
        Ok(self.outcome(answer))
    }

    fn outcome(&self, answer: CallOutcome) -> Outcome {
        let CallOutcome { function, answer, last_write_bytes } = answer;
        let peer = self.link.peer;
        if answer == Answer::Failure(ReturnCode::KERNEL_TIMEOUT) {
            cut::cut(peer, function, &ReturnCode::KERNEL_TIMEOUT);
        }
        Outcome { peer, function, answer, last_write_bytes }
    }

    /// Ends the session. Its regions belong to the program again, since the queue pair is destroyed.
    fn fail(&mut self, mut error: Error) -> Error {
        if let (Error::PeerGone { function, .. }, Some(running)) = (&mut error, &self.running) {
            *function = Some(running.function);
        }
        if let Some(Running { function, answer: None, .. }) = self.running
            && !matches!(error, Error::CallTimedOut { .. })
        {
            cut::cut(self.link.peer, function, &error);
        }
        self.over.get_or_insert_with(|| (error.party(), error.to_string()));
        self.machine.fail();
        self.running = None;
        let _ = self.link.close();
        self.regions.take_back_what_goes();
        error
    }
}
