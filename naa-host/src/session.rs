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

/// Whether `len` bytes at `offset` lie inside parameter `index`.
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
    /// Its WRITEs are acknowledged, so the device reads the regions no more.
    written: bool,
    answer: Option<CallOutcome>,
    overdue: Overdue,
}

/// Where a probe, a WRITE of no bytes, goes: no responder looks at the address.
pub(crate) fn probe_target(machine: &HostSession) -> RemoteAddr {
    let first = machine.peer_regions().and_then(<[_]>::first);
    first.map_or(RemoteAddr { addr: 0, rkey: 0 }, |first| RemoteAddr { addr: first.addr, rkey: first.rkey })
}

/// A connection to an accelerator with its regions. One call at a time; several sessions may run in parallel.
///
/// Regions are numbered as the parameters were given, internal ones left out. After an error other than a wrong
/// argument or a function's own failure the session is over; its regions can still be leased.
/// Dropping a session disconnects it.
///
/// Between calls the accelerator has no access to the regions. The embedded provider takes it back with each answer. NICs
/// cannot do that at a reasonable price: over the verbs provider an accelerator can write outputs as long as the session
/// lasts. One that keeps to the protocol does not, but nothing stops one that does not, so there are no slices of outputs
/// there. What works where:
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
    /// For a program that sleeps elsewhere.
    alarm: Option<Alarm>,
    // Before the regions: its queue pair goes first.
    link: Link,
    regions: Regions,
    /// Elements of the WRITE that is being posted.
    elements: Vec<Sge>,
    _claim: Option<Claim>,
    // Last: everything above is of this device.
    device: Device,
}

/// Of a session that goes on as a stream.
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
    /// [`Error::ConnectionRefused`], [`Error::Unreachable`], [`Error::SetupTimedOut`] or [`Error::PeerGone`] without a
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

    /// As [`connect`](Self::connect), on memory that was there before: one buffer for each parameter that is not
    /// internal, in order and as long. What they hold stays, but where a parameter starts as a copy. After an error
    /// they are gone.
    ///
    /// # Errors
    /// [`Error::Buffers`] or [`Error::Buffer`] if they do not fit; else as [`connect`](Self::connect).
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

    /// Posts a call and returns. `user` are 24 bits the function may look at.
    ///
    /// # Errors
    /// [`Error::InCall`]; [`Error::Over`] if it ended before; after all others the session is over.
    pub fn invoke(&mut self, function: FunctionCode, user: U24) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::InCall);
        }
        self.not_over()?;
        if self.machine.is_ready() {
            // An answer that nobody asked for must not be taken for this call's.
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

    /// Whether the call has ended, without waiting. If not, the [descriptor](Self::descriptor) is armed, should there be
    /// one.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<Option<Outcome>, Error> {
        if self.running.is_none() {
            return Err(Error::NoCall);
        }
        let ended = self.step_armed();
        ended.map_err(|error| self.fail(error))
    }

    /// A descriptor that becomes readable when [`test`](Self::test) has something to do after it said that the call has
    /// not ended: for event loops. Nothing is to be read from it. It serves as long as the session.
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

    /// As [`test`](Self::test), arming nothing.
    pub(crate) fn look(&mut self) -> Result<Option<Outcome>, Error> {
        let ended = self.step();
        ended.map_err(|error| self.fail(error))
    }

    /// Lets the device do what there is to do at `now`. What is wrong with it, the next look tells.
    pub(crate) fn turn(&self, now: Instant) {
        let _ = self.link.wait(WaitMode::Spin, Some(now));
    }

    /// How waiting threads wait.
    pub fn wait_mode(&self) -> WaitMode {
        self.wait
    }

    /// From now on.
    pub fn set_wait_mode(&mut self, wait: WaitMode) {
        self.wait = wait;
    }

    pub(crate) fn shares_device_with(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn step_armed(&mut self) -> Result<Option<Outcome>, Error> {
        loop {
            if self.alarm.is_some() {
                // It may be the clock that rang.
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
    /// [`Error::NoCall`]; [`Error::PeerGone`], [`Error::Peer`], [`Error::CallTimedOut`] and [`Error::Device`], after
    /// which the session is over.
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
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Outcome>, Error> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits for the call to end; `None` if it is still running at `deadline`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
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
    /// [`Error::Function`] if it fails; else as [`invoke`](Self::invoke) and [`wait`](Self::wait).
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

    /// Disconnects as [`finalize`](Self::finalize) does and returns the memory of the parameters, with what it holds,
    /// for another session. After a call that was given up outputs may hold part of its results.
    ///
    /// # Errors
    /// [`Error::Device`] if memory could not be taken back.
    pub fn into_buffers(mut self) -> Result<Vec<Buffer>, Error> {
        // Whether or not the accelerator could be told, no work request is left.
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

    /// The bytes of parameter `index` in place, to be changed.
    ///
    /// # Errors
    /// As [`lease`](Self::lease).
    pub fn lease_mut(&mut self, index: usize) -> Result<&mut [u8], Error> {
        self.region_mut(index)?.bytes_mut()
    }

    /// Bytes of parameter `index`: in place where nobody else can write them, and a copy where an accelerator could. So this
    /// works with every device, and costs nothing where access is taken back.
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
    /// As [`write`](Self::write).
    pub fn read(&self, index: usize, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let region = self.region(index)?;
        inside(index, offset, out.len(), region.len())?;
        region.read(offset, out)
    }

    /// Bytes of parameter `index`.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`].
    pub fn param_len(&self, index: usize) -> Result<usize, Error> {
        Ok(self.region(index)?.len())
    }

    /// Sends only the first `bytes` of an input with the calls to come; `None`: all of it.
    ///
    /// # Errors
    /// As [`set_part_to_send`](Self::set_part_to_send).
    pub fn set_bytes_to_send(&mut self, index: usize, bytes: Option<u64>) -> Result<(), Error> {
        self.set_part_to_send(index, bytes.map(Part::prefix))
    }

    /// Sends only a part of an input with the calls to come, to the same place of the accelerator's region; `None`:
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
    /// [`Error::Status`] if there is none; [`Error::InCall`].
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

    /// The accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// The layout that is used: the symmetric one if the accelerator does not take another.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes that are registered with the device for the parameters.
    pub fn registered_bytes(&self) -> u64 {
        self.regions.registered_bytes()
    }

    /// Bytes of the accelerator's regions that can be written to.
    pub fn accelerator_bytes(&self) -> u64 {
        self.machine.peer_regions().map_or(0, |regions| regions.iter().map(|r| u64::from(r.size)).sum())
    }

    /// Bytes of payload per packet on the way there and back.
    pub fn path_mtu(&self) -> u32 {
        self.link.path_mtu
    }

    /// Parameters, internal ones left out.
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

    /// Takes what has happened, and sees to it that the accelerator is alive.
    fn step(&mut self) -> Result<Option<Outcome>, Error> {
        let drained = self.drain();
        let Some(running) = &mut self.running else { return Ok(None) };
        match (running.answer, drained) {
            (Some(answer), Ok(())) if running.written => self.end(answer).map(Some),
            // The function's word counts though the accelerator left right after it.
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

    /// What a stream goes on with: its call was posted, and nothing that happened since was looked at.
    pub(crate) fn into_parts(self) -> Parts {
        let Self { machine, link, regions, device, wait, .. } = self;
        Parts { machine, link, regions, wait, device }
    }

    /// Receives beyond the one that is always posted.
    pub(crate) fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.link.post_receive())
    }

    /// When there is something to do about a call that goes on, whatever the accelerator does.
    fn due(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        let liveness = &self.link.liveness;
        [liveness.next(), running.overdue.next(liveness)].into_iter().flatten().min()
    }

    /// Does what is due about a call that goes on.
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

    /// From now on, for a call that is running too. [`SessionConfig::call_timeout`] was the first.
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

    /// Ends the session. Its regions are the program's again, since the queue pair is gone.
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
