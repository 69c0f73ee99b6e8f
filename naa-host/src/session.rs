//! A session: regions that host and accelerator agreed on, and calls that work on these regions.

mod params;
#[cfg(feature = "tokio")]
mod pooled;

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use mrsp::{
    CallPlan, FunctionCode, HostSession, RegionFlags, ReturnCode, U24, builtin::StatusBlock,
    host::ReceivedResponse, immediate::CallResponse, layout::Layout, plan::Part,
};
use verbs::{RemoteAddr, Sge, WaitMode, Wake};

use crate::{
    Device, Error, Param, SessionConfig,
    buffer::{Buffer, HostRegion},
    clock,
    connection::{HostConnection, SessionEvent},
    cut,
    error::Party,
    overdue::{CallTimes, Due, Overdue, OverdueCall},
    post,
    regions::HostRegions,
    setup::{SessionSetup, SetupStage, Terms},
    spec::Claim,
};

/// The result of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the function may have failed"]
pub struct CallOutcome {
    /// The address of the accelerator to which the session is connected.
    pub peer: SocketAddr,
    /// The code of the function that the host called.
    pub function: FunctionCode,
    /// The meaning of the accelerator's response immediate. With [`Dialect::Next`](crate::Dialect::Next), the response
    /// immediate does not say whether the function failed, so `answer` is [`CallResponse::User`]. If a status block
    /// says that the function failed, [`with_status`](Self::with_status) replaces this value by
    /// [`CallResponse::Failure`].
    pub answer: CallResponse,
    /// The number of bytes that the accelerator wrote to the last output; 0 if the function failed.
    pub last_write_bytes: u32,
}

impl CallOutcome {
    /// Adds the return code in the status block of a built-in function, if the response immediate has no return code.
    /// With [`Dialect::Next`](crate::Dialect::Next), no response immediate has a return code: only the status block
    /// says that a built-in function failed. `status` must be the status block of this call.
    pub fn with_status(self, status: &StatusBlock) -> Self {
        match (self.answer, status.code) {
            (CallResponse::User(_), Some(code)) => {
                Self { answer: CallResponse::Failure(code), last_write_bytes: 0, ..self }
            }
            _ => self,
        }
    }

    /// # Errors
    /// Fails with [`Error::Function`] if the function failed.
    pub fn into_result(self) -> Result<Self, Error> {
        match self.answer {
            CallResponse::Failure(code) => {
                Err(Error::Function { peer: self.peer, function: self.function, code, detail: 0 })
            }
            CallResponse::Success | CallResponse::User(_) => Ok(self),
        }
    }
}

/// A call that was posted, and whose outcome was not returned yet.
#[derive(Clone, Copy, Debug)]
struct Running {
    function: FunctionCode,
    /// True if the WRITEs of the call are acknowledged, so that the device no longer reads the regions.
    written: bool,
    answer: Option<ReceivedResponse>,
    overdue: Overdue,
}

/// Returns the remote address and RKey for a liveness probe. A probe is a WRITE of no bytes, and no responder checks
/// the remote address and RKey of such a WRITE.
pub(crate) fn probe_target(machine: &HostSession) -> RemoteAddr {
    let first = machine.peer_regions().and_then(<[_]>::first);
    first.map_or(RemoteAddr { addr: 0, rkey: 0 }, |first| RemoteAddr { addr: first.addr, rkey: first.rkey })
}

/// A connection to an accelerator, with the regions that were agreed on. A session has one call at a time; several
/// sessions can have calls in parallel.
///
/// Regions are numbered in the order of the parameters, and internal regions have no number. The session is over if a
/// call fails with [`Error::PeerGone`], [`Error::Peer`], [`Error::CallTimedOut`] or [`Error::Device`]. Other errors do
/// not end the session. The regions of a session that is over can still be read. Dropping a session disconnects it.
///
/// With the embedded provider, an accelerator loses its access to the regions when its response arrives, so the
/// accelerator has no access to the regions while no call runs. On a NIC, revoking access would take too long, so over
/// the verbs provider an accelerator can write to outputs until the session ends. An accelerator that keeps to the
/// protocol does not write to outputs while no call runs. Over the verbs provider, however, nothing prevents a WRITE of
/// an accelerator that breaks the protocol. Because an accelerator can write to outputs between calls, a session over
/// the verbs provider returns slices of outputs only from a method that is `unsafe`. The table shows which methods work
/// with which provider:
///
/// | | inputs | outputs, embedded | outputs, verbs |
/// |---|---|---|---|
/// | [`bytes`](Self::bytes) | in place | in place | a copy |
/// | [`read`](Self::read), [`to_vec`](Self::to_vec), [`write`](Self::write) | a copy | a copy | a copy |
/// | [`slice`](Self::slice), [`slice_mut`](Self::slice_mut) | in place | in place | [`Error::InReach`] |
/// | [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator), `unsafe` | in place | in place | in place |
#[derive(Debug)]
pub struct Session {
    machine: HostSession,
    plan: CallPlan,
    parts: Vec<Option<Part>>,
    running: Option<Running>,
    /// The number of calls that were posted.
    posted: u64,
    /// The error that ended the session, or `None` if no error has ended the session. The [`Party`] is the
    /// one that has to remove the cause of the error. The `String` is the text of the error.
    over: Option<(Party, String)>,
    /// True if the session is over because the accelerator is gone.
    is_peer_gone: bool,
    layout: Layout,
    wait: WaitMode,
    limits: CallTimes,
    // This field is before `regions`, so that the queue pair is destroyed before the regions.
    connection: HostConnection,
    regions: HostRegions,
    /// The scatter-gather elements of the WRITE that is being posted. The vector is a field of the session so that the
    /// vector's allocation is used again for the next WRITE.
    elements: Vec<Sge>,
    _claim: Option<Claim>,
    // This field is the last, so that the device is dropped after all objects that belong to the device.
    device: Device,
}

impl Session {
    /// Connects to the accelerator `peer` and agrees with it on regions for `params`.
    ///
    /// # Errors
    /// Fails with [`Error::ConnectionRefused`] or [`Error::Unreachable`] if the connection cannot be set up, and with
    /// [`Error::PeerGone`] if the connection has ended. Fails with [`Error::SetupTimedOut`] if the accelerator does not
    /// answer the region request in time. Fails with [`Error::Peer`] if the accelerator refuses the regions or breaks
    /// the protocol. Fails with [`Error::Setup`] or [`Error::OutOfBounds`] if `params` are not valid for a session.
    /// Fails with [`Error::Environment`] if `NAA_TIMEOUT` or `NAA_LAYOUT_RULE` is used and is not valid. Fails with
    /// [`Error::Device`] if the device fails, and with [`Error::Memory`] if memory cannot be allocated.
    pub fn connect(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::complete(SessionSetup::new(device, peer, params, config)?, params, None, config)
    }

    /// Connects as [`connect`](Self::connect) does, but uses `buffers` as the memory of the parameters. `buffers` must
    /// have one buffer for each parameter that is not internal, in the order and with the lengths of the parameters. If
    /// a parameter has initial content, the content is copied to the start of the parameter's buffer. All other bytes
    /// of the buffers stay unchanged. If connecting fails, the buffers are dropped.
    ///
    /// # Errors
    /// Fails with [`Error::Buffers`] or [`Error::Buffer`] if the number or a length of the buffers is wrong, and with
    /// the same errors as [`connect`](Self::connect).
    pub fn connect_with(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        buffers: Vec<Buffer>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::complete(SessionSetup::new(device, peer, params, config)?, params, Some(buffers), config)
    }

    pub(crate) fn complete(
        mut setup: SessionSetup,
        params: &[Param<'_>],
        buffers: Option<Vec<Buffer>>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let deadline = clock::after(config.setup_timeout);
        setup.prepare(params, buffers)?;
        setup.connect()?;
        setup.reach(SetupStage::Connected, deadline)?;
        setup.agree()?;
        setup.reach(SetupStage::Agreed, deadline)?;
        let late = setup.late();
        setup.into_session().ok_or(late)
    }

    pub(crate) fn of(
        terms: Terms,
        connection: HostConnection,
        (config, limits): (&SessionConfig, CallTimes),
        device: Device,
    ) -> Self {
        let Terms { machine, regions, plan, placed, .. } = terms;
        Self {
            machine,
            plan,
            parts: vec![None; regions.params().len()],
            running: None,
            posted: 0,
            over: None,
            is_peer_gone: false,
            layout: placed.map_or(Layout::Symmetric, |placed| placed.layout),
            wait: config.wait,
            limits,
            connection,
            regions,
            elements: Vec::new(),
            _claim: None,
            device,
        }
    }

    /// Keeps `claim`, the exclusive use of the accelerator, until the session ends. Until then, the `Spec` of `claim`
    /// and the clones of this `Spec` do not give the accelerator to another session.
    pub(crate) fn holding(mut self, claim: Claim) -> Self {
        self._claim = Some(claim);
        self
    }

    /// Posts a call and does not wait for the end of the call. `user` are the 24 user bits, which the function can
    /// read.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] while another call runs, with [`Error::Over`] if the session is over, and with
    /// [`Error::Call`] if the call is not valid. An error other than [`Error::InCall`], [`Error::Over`] and
    /// [`Error::Call`] ends the session.
    pub fn invoke(&mut self, function: FunctionCode, user: U24) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::InCall);
        }
        self.not_over()?;
        if self.machine.is_ready() {
            // A response that has already arrived cannot belong to the new call, which is not posted yet. This response
            // is handled first, so that it is not taken for the response to the new call.
            self.drain().map_err(|error| self.fail(error))?;
        }
        self.machine.begin_call(function, user, &self.parts, &mut self.plan)?;
        let now = self.connection.clock.now();
        self.connection.liveness.received(now);
        self.connection.liveness.expect(None);
        let overdue = Overdue::new(self.limits, now);
        self.running = Some(Running { function, written: false, answer: None, overdue });
        self.posted += 1;
        let posted =
            self.regions.lend().map_err(Error::Device).and_then(|()| {
                post::post(&mut self.connection, &self.regions, &self.plan, &mut self.elements)
            });
        posted.map_err(|error| {
            // If posting failed because the connection has ended, the reason why the connection ended is reported as
            // the error.
            let error = self.drain().err().unwrap_or(error);
            self.fail(error)
        })
    }

    /// Returns the outcome if the call has ended, and `None` if the call is still running. The method does not wait.
    ///
    /// # Errors
    /// Fails with the same errors as [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<Option<CallOutcome>, Error> {
        if self.running.is_none() {
            return Err(Error::NoCall);
        }
        let ended = self.step_armed();
        ended.map_err(|error| self.fail(error))
    }

    /// Returns a file descriptor with which the event loop of a program can wait for the end of a call. After
    /// [`test`](Self::test) returned that the call has not ended, the file descriptor becomes readable when the program
    /// must call `test` again. The program must not read from the file descriptor. The file descriptor is valid as long
    /// as the session exists.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the file descriptor cannot be created.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        self.connection.descriptor()
    }

    /// Does the same as [`test`](Self::test), but does not arm the session's file descriptor. If no call is running,
    /// the method returns `None`.
    pub(crate) fn look(&mut self) -> Result<Option<CallOutcome>, Error> {
        let ended = self.step();
        ended.map_err(|error| self.fail(error))
    }

    /// Lets the device make progress once. If the device returns an error, the next call of [`look`](Self::look)
    /// reports the error.
    pub(crate) fn turn(&self, now: Instant) {
        let _ = self.connection.wait(WaitMode::Spin, Some(now));
    }

    /// Returns the mode in which threads wait for this session.
    pub fn wait_mode(&self) -> WaitMode {
        self.wait
    }

    /// Sets the mode in which threads wait for this session.
    pub fn set_wait_mode(&mut self, wait: WaitMode) {
        self.wait = wait;
    }

    pub(crate) fn shares_device_with(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn step_armed(&mut self) -> Result<Option<CallOutcome>, Error> {
        loop {
            self.connection.refresh_clock_if_armed();
            if let Some(outcome) = self.step()? {
                return Ok(Some(outcome));
            }
            if self.connection.arm(self.due())? {
                return Ok(None);
            }
        }
    }

    /// Waits for the call to end.
    ///
    /// # Errors
    /// Fails with [`Error::NoCall`] if no call was posted. Fails with [`Error::PeerGone`], [`Error::Peer`],
    /// [`Error::CallTimedOut`] or [`Error::Device`] if the call cannot be finished, and each of these four errors ends
    /// the session.
    pub fn wait(&mut self) -> Result<CallOutcome, Error> {
        loop {
            if let Some(outcome) = self.wait_until(None)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for the call to end, or returns `None` if the call is still running after `timeout`.
    ///
    /// # Errors
    /// Fails with the same errors as [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<CallOutcome>, Error> {
        self.wait_until(Some(clock::after(timeout)))
    }

    /// Waits for the call to end, or returns `None` if the call is still running at `deadline`.
    ///
    /// # Errors
    /// Fails with the same errors as [`wait`](Self::wait).
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<CallOutcome>, Error> {
        if self.running.is_none() {
            return Err(Error::NoCall);
        }
        loop {
            if let Some(outcome) = self.look()? {
                return Ok(Some(outcome));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            let until = [deadline, self.due()].into_iter().flatten().min();
            let waited = self.connection.wait(self.wait, until);
            if waited.map_err(|error| self.fail(error))? == Wake::TimedOut {
                self.connection.clock.refresh();
            }
        }
    }

    /// Calls a function and waits for the call to end.
    ///
    /// # Errors
    /// Fails with [`Error::Function`] if the function fails, and with the same errors as [`invoke`](Self::invoke) and
    /// [`wait`](Self::wait).
    pub fn call(&mut self, function: FunctionCode) -> Result<(), Error> {
        self.invoke(function, U24::ZERO)?;
        self.wait()?.into_result().map(drop)
    }

    /// Disconnects without waiting for the accelerator's confirmation. If a call is running, the call is given up.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the accelerator cannot be notified.
    pub fn finalize(mut self) -> Result<(), Error> {
        self.connection.close()
    }

    /// Disconnects as [`finalize`](Self::finalize) does, and returns the memory of the parameters for another session.
    /// The memory keeps its content. If this method gives up a running call, the outputs can contain a part of the
    /// call's results.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the accelerator's access to the memory cannot be taken back.
    pub fn into_buffers(mut self) -> Result<Vec<Buffer>, Error> {
        // After `close`, no work request uses the regions any more, even if `close` could not notify the accelerator
        // and failed.
        let _ = self.connection.close();
        self.regions.take_back()?;
        self.regions
            .into_params()
            .into_iter()
            .map(|region| region.into_buffer().ok_or(Error::InCall))
            .collect()
    }

    /// Returns true if a call was posted and its outcome was not returned yet.
    pub fn is_in_call(&self) -> bool {
        self.running.is_some()
    }

    /// Returns true if a call is running and the accelerator's device has acknowledged all WRITEs that the host posted
    /// for the call.
    pub fn is_sent(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.written)
    }

    /// Returns true if the session is over, so that further calls need a new session.
    pub fn is_over(&self) -> bool {
        self.machine.is_failed()
    }

    /// Returns an error if the session is over.
    ///
    /// # Errors
    /// Fails with [`Error::Over`] if the session is over. [`Error::Over`] contains the text of the error that ended the
    /// session.
    pub fn not_over(&self) -> Result<(), Error> {
        match &self.over {
            None => Ok(()),
            Some((party, why)) => {
                Err(Error::Over { peer: self.connection.peer, why: why.clone(), party: *party })
            }
        }
    }

    /// Returns the address of the accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    /// Returns the layout of the session. If the accelerator does not support the layout that the host wanted, the
    /// result is the symmetric layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the path MTU of the connection, which is the maximum number of payload bytes in a packet.
    pub fn path_mtu(&self) -> u32 {
        self.connection.path_mtu
    }

    /// Handles completions and CM events that have arrived. If a call is running, the method also sends a liveness
    /// probe if one is due, and logs a warning if the call takes long. Returns the outcome if the call has ended, and
    /// an error if the call has reached its time limit.
    fn step(&mut self) -> Result<Option<CallOutcome>, Error> {
        let drained = self.drain();
        let Some(running) = &mut self.running else { return Ok(None) };
        match (running.answer, drained) {
            (Some(answer), Ok(())) if running.written => self.end(answer).map(Some),
            // A response that has arrived is returned even if the connection ended after the response.
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
        while let Some(event) = self.connection.next()? {
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: SessionEvent) -> Result<(), Error> {
        let peer = self.connection.peer;
        let wrong = |source| Error::Peer { peer, source };
        match event {
            SessionEvent::Response { immediate, bytes } => {
                let answer = self.machine.handle_response(immediate, bytes).map_err(wrong)?;
                if let Some(running) = &mut self.running {
                    running.answer = Some(answer);
                }
                self.connection.post_receive()
            }
            SessionEvent::Message { len } => {
                self.machine.handle_message(&self.connection.message(len)).map_err(wrong)?;
                self.connection.post_receive()
            }
            SessionEvent::Written => {
                if let Some(running) = &mut self.running {
                    running.written = true;
                }
                Ok(())
            }
            SessionEvent::Established | SessionEvent::Streamed => Ok(()),
        }
    }

    /// Splits the session into the parts that a streaming call takes over. The caller must have posted the streaming
    /// call, and must not have handled any completion since.
    pub(crate) fn into_parts(self) -> (HostSession, HostConnection, HostRegions, WaitMode, Device) {
        (self.machine, self.connection, self.regions, self.wait, self.device)
    }

    /// Posts `count` receives, in addition to the receive that is always posted.
    pub(crate) fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.connection.post_receive())
    }

    /// Returns the time at which the session must act next if nothing arrives from the accelerator before this time.
    /// The session must act when a liveness probe is due, when a warning must be logged because the running call takes
    /// long, and when the time limit of the running call ends.
    fn due(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        let liveness = &self.connection.liveness;
        [liveness.next(), running.overdue.next(liveness)].into_iter().flatten().min()
    }

    /// Sends a liveness probe if one is due. Logs a warning if the running call takes long, and returns an error if the
    /// call has reached its time limit.
    fn look_at_the_clock(&mut self) -> Result<(), Error> {
        let (Some(running), Some(now)) = (&mut self.running, self.connection.clock.look()) else {
            return Ok(());
        };
        let liveness = &self.connection.liveness;
        let due = running.overdue.due(now, liveness);
        let (peer, function) = (self.connection.peer, running.function);
        match due {
            Due::GiveUp(limit) => return Err(Error::CallTimedOut { peer, function, limit }),
            Due::Report => {
                let is_output = |region: &HostRegion| region.flags().contains(RegionFlags::OUTPUT);
                let has_outputs = self.regions.params().iter().any(is_output);
                let call = OverdueCall { liveness, is_written: running.written, has_outputs };
                tracing::warn!("{}", running.overdue.report(now, (peer, function), &call));
            }
            Due::Nothing | Due::Probe => {}
        }
        if due == Due::Probe || liveness.is_probe_due(now) {
            self.connection.probe(probe_target(&self.machine), now)?;
        }
        Ok(())
    }

    /// Sets the time limit of later calls and of the running call. The initial time limit is
    /// [`SessionConfig::call_timeout`].
    pub fn set_call_timeout(&mut self, limit: Option<Duration>) {
        self.limits.call_timeout = limit;
        if let Some(running) = &mut self.running {
            running.overdue.set_limit(limit);
        }
    }

    /// Returns the time limit of a call, or `None` if there is no limit.
    pub fn call_timeout(&self) -> Option<Duration> {
        self.limits.call_timeout
    }

    fn end(&mut self, answer: ReceivedResponse) -> Result<CallOutcome, Error> {
        self.regions.take_back()?;
        self.running = None;
        Ok(self.outcome(answer))
    }

    fn outcome(&self, answer: ReceivedResponse) -> CallOutcome {
        let ReceivedResponse { function, answer, last_write_bytes } = answer;
        let peer = self.connection.peer;
        if answer == CallResponse::Failure(ReturnCode::KERNEL_TIMEOUT) {
            cut::cut(peer, function, &ReturnCode::KERNEL_TIMEOUT);
        }
        CallOutcome { peer, function, answer, last_write_bytes }
    }

    /// Ends the session because of `error`, and returns `error` with more detail. The method destroys the queue pair
    /// and gives the regions back to the program.
    fn fail(&mut self, mut error: Error) -> Error {
        if let (Error::PeerGone { function, .. }, Some(running)) = (&mut error, &self.running) {
            *function = Some(running.function);
        }
        if let Some(Running { function, answer: None, .. }) = self.running
            && !matches!(error, Error::CallTimedOut { .. })
        {
            cut::cut(self.connection.peer, function, &error);
        }
        self.is_peer_gone |= matches!(error, Error::PeerGone { .. });
        self.over.get_or_insert_with(|| (error.party(), error.to_string()));
        self.machine.fail();
        self.running = None;
        let _ = self.connection.close();
        self.regions.take_back_what_goes();
        error
    }
}
