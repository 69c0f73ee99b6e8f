//! The server's end of a session with one host. It handles the host's messages and the completions of the session's
//! work requests.

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mrsp::{
    AcceleratorSession, CallPlan, ErrorCode, FunctionCode, Liveness, RegionFlags, RegionRequest, ReturnCode,
    Write, accelerator::RegionAddress, codec::encode_error, immediate::CallRequest, plan::Part,
    region::HOST_MESSAGE_BYTES,
};
use naa_kernels::SessionProcess;
use smallvec::SmallVec;
use verbs::{
    Access, CmId, Mr, Payload, Pd, Qp, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode,
    WcStatus,
};

use crate::{
    call::{SessionRegion, SessionRegions},
    config::Config,
    loop_service::{StreamId, StreamRegion, StreamingSession},
    memory_budget::{AllocationError, Quota, Reservation},
    pool::CallId,
    regions::Params,
    tasks::TaskId,
};

/// The reason for which a session ends.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// The host sent a message that MRSP does not allow, or requested regions that the server refuses.
    #[error("{0}")]
    Rejected(#[from] mrsp::accelerator::Rejection),
    /// The host sent an immediate that starts no call.
    #[error("{0}")]
    Request(#[from] mrsp::accelerator::RequestError),
    /// The server has no memory for the regions that the host requested.
    #[error("{0}")]
    Memory(#[from] AllocationError),
    /// A work request of the session failed, for example because the host does not acknowledge packets any more.
    #[error("the host cannot be reached any more: {0}")]
    Completion(WcStatus),
    /// The host sent a message that is longer than the longest MRSP message.
    #[error("the host sent a message longer than any of MRSP")]
    TooLong,
    /// The program of the server called [`ServerSession::give_up`].
    #[error("this server's program gave up on the host")]
    GivenUp,
    /// The host did not complete the session setup within [`Config::setup_time`](crate::Config::setup_time).
    #[error("the host asked for nothing in time")]
    Idle,
    /// The host sent a message or a call after it had subscribed.
    #[error("the host sent a message or a call though it had subscribed")]
    Subscribed,
    /// The loop service closed the session. The text is the reason.
    #[error("{0}")]
    LoopService(String),
    /// The host did not acknowledge a message, a response or a liveness probe in time.
    #[error("the host did not take an answer in time")]
    Unacknowledged,
    /// The device of the server failed.
    #[error("this server: {0}")]
    Device(#[from] verbs::Error),
    /// The server called a method that the state of the session does not permit.
    #[error("this server: {0}")]
    Local(#[from] mrsp::accelerator::LocalError),
}

/// The state of the session's call, which decides who uses the session's regions.
///
/// | from | on | to |
/// |---|---|---|
/// | `Idle` | the inputs of a call arrive | `Begun`, or `Waiting` if a response is not acknowledged |
/// | `Idle` | the host acknowledges the response | `Idle` without a function |
/// | `Waiting` | the host acknowledges the response to the previous call | `Begun` |
/// | `Begun` | the thread pool takes the call | `Pooled` |
/// | `Begun` | a task of an async function takes the call | `Task` |
/// | `Begun`, `Pooled`, `Task` | the call is counted as cut, because its time is over | `Begun` without a function |
/// | `Begun`, `Pooled`, `Task` | the response is posted | `Idle` with the function of the state before |
/// | `Pooled`, `Task` | the call timed out, and its function still runs | `Lost` |
/// | `Idle` | the host subscribed | `Streaming` |
#[derive(Debug)]
pub(crate) enum Calling {
    /// No call waits or runs. The `ServerSession` has the regions, and the host may write them. `answered` is the function
    /// of the last call until the host acknowledges the response to this call. It is `None` if the call is already counted
    /// as cut.
    Idle { answered: Option<FunctionCode> },
    /// The inputs of a call have arrived, but the response to the previous call is not acknowledged yet.
    Waiting(CallRequest),
    /// The owner of the session executes the call, or is about to give it to another thread.
    Begun { function: Option<FunctionCode> },
    /// The thread pool has the regions, and executes the call.
    Pooled { call: CallId, function: Option<FunctionCode> },
    /// A task of an async function has the regions, and executes the call.
    Task { task: TaskId, function: Option<FunctionCode> },
    /// The call timed out, but its function still runs and uses the regions.
    Lost,
    /// A loop service uses the regions until the session ends.
    Streaming,
}

impl Calling {
    /// Returns the function of the call that is cut if the session ends now. The result is `None` in the state `Waiting`,
    /// whose request has the function, and if the call is already counted as cut.
    pub(crate) fn function(&self) -> Option<FunctionCode> {
        match *self {
            Self::Idle { answered: function }
            | Self::Begun { function }
            | Self::Pooled { function, .. }
            | Self::Task { function, .. } => function,
            Self::Waiting(_) | Self::Lost | Self::Streaming => None,
        }
    }
}

/// The server's end of a session with one host. The owner of a session polls and waits, executes the calls, and passes
/// completions and CM events to the session.
#[derive(Debug)]
pub struct ServerSession {
    /// The CM's identifier of the connection.
    pub id: CmId,
    /// The serial number of the session, which is a part of the number of each work request. A queue pair number cannot
    /// take its place: a device may reuse a queue pair number while completions of the earlier queue pair are still
    /// queued.
    pub(crate) serial: u64,
    /// The address of the host.
    pub peer: SocketAddr,
    pub(crate) calling: Calling,
    /// The process in which the session's kernels run, or `None` until the first call of a kernel.
    pub(crate) process: Option<Arc<SessionProcess>>,
    /// The regions of the session. While a call has the regions, this value is empty.
    pub regions: SessionRegions,
    machine: AcceleratorSession,
    plan: CallPlan,
    quota: Quota,
    message: Mr,
    /// The memory of an advertisement that is too long to be sent as inline data.
    answer: Option<Mr>,
    /// True if the session closes when its last message is acknowledged.
    closing: bool,
    /// The reason for which the host was refused.
    pub refused: Option<SessionEnd>,
    /// True if the queue pair's work requests were flushed. The CM event with the reason of the flush may still arrive.
    pub(crate) flushed: bool,
    /// True if the connection is established. The owner of the session sets this flag when the CM event `Established`
    /// arrives, and the session sets this flag when the host's first message arrives.
    pub established: bool,
    pub(crate) since: Instant,
    /// The liveness of the host. If the host requested the highest retry count, which is 7, soft-RoCE of the Linux
    /// kernel retransmits forever without an error. So the session has its own deadline for each acknowledgement.
    pub liveness: Liveness,
    // Fields are dropped in the order of their declaration, so the memory regions above are deregistered before the
    // queue pair is destroyed.
    /// The queue pair of the connection.
    pub qp: Arc<Qp>,
    pd: Pd,
}

/// The next action of the server after a completion.
#[derive(Debug)]
pub enum Next {
    /// The server has nothing to do.
    Nothing,
    /// The host made a call, which the server now executes.
    Call(CallRequest),
    /// The host acknowledged the last message of the session, so the server now closes the session.
    Close,
}

/// The lowest [`KIND_BITS`] bits of the number (`wr_id`) of a work request are its kind, which says for what the work
/// request was posted. `STREAM` is the kind of all work requests that a loop service posts.
const STREAM: u64 = 0;
const ACK: u64 = 1;
const RECEIVE: u64 = 2;
const PROBE: u64 = 3;
const KIND_BITS: u32 = 2;

fn number(serial: u64, kind: u64) -> u64 {
    serial << KIND_BITS | kind
}

/// Returns the `wr_id` that a loop service uses for all its work requests on one session. `serial` is the serial number
/// of the session.
pub(crate) fn stream_number(serial: u64) -> u64 {
    number(serial, STREAM)
}

/// Returns true if a loop service posted the work request of `wc`.
pub(crate) fn is_stream(wc: &Wc) -> bool {
    wc.wr_id & ((1 << KIND_BITS) - 1) == STREAM
}

/// Returns the serial number of the session whose work request completed.
pub(crate) fn serial(wc: &Wc) -> u64 {
    wc.wr_id >> KIND_BITS
}

/// The access that a host has to its session's regions while no call runs.
const GRANTED: Access = Access::REMOTE_WRITE;
/// The time in which a host must acknowledge an MRSP message, a response or a liveness probe. For a response, the time
/// is longer by one second for each whole MiB of the response. The time is limited, because otherwise a host that posts
/// no receive, or never acknowledges, would keep memory forever.
const ACKNOWLEDGEMENT_TIME: Duration = Duration::from_secs(60);

impl ServerSession {
    /// Makes a session with its first receive posted, so that its connection can be accepted. `serial` must differ from
    /// the serial numbers of all other sessions on the same completion queue.
    ///
    /// # Errors
    /// Fails with [`SessionEnd::Device`] if the message buffer cannot be allocated or registered, or if the device
    /// refuses the receive.
    pub fn new(
        (id, serial): (CmId, u64),
        peer: SocketAddr,
        (pd, qp): (Pd, Qp),
        quota: Quota,
        config: &Config,
        now: Instant,
    ) -> Result<Self, SessionEnd> {
        // The buffer has room for the longest AAR. The server can therefore read an AAR that requests too much, and
        // send an ERR to its host.
        let memory = region::alloc(HOST_MESSAGE_BYTES)
            .map_err(|e| verbs::Error::io("cannot allocate a message buffer", e))?;
        let message = pd.reg_mr(&memory, Access::LOCAL)?;
        let interval = Some(config.probe_interval).filter(|interval| !interval.is_zero());
        let session = Self {
            id,
            serial,
            peer,
            calling: Calling::Idle { answered: None },
            process: None,
            regions: SessionRegions::default(),
            machine: AcceleratorSession::new(config.limits),
            plan: CallPlan::default(),
            quota,
            message,
            answer: None,
            closing: false,
            refused: None,
            flushed: false,
            established: false,
            since: now,
            liveness: Liveness::new(interval, Some(ACKNOWLEDGEMENT_TIME), now),
            qp: Arc::new(qp),
            pd,
        };
        session.post_receive()?;
        Ok(session)
    }

    /// Posts a receive for the host's next message or call. Session setup posts receives for the AAR and for the first
    /// call. Before each response, a receive for the next call is posted, except if the call timed out and its function
    /// still runs. All receives use the message buffer. A receive that is posted for a call therefore also has room for
    /// an MRSP message. If a host sends an MRSP message at a wrong time, the session can receive it and reply with an
    /// ERR.
    fn post_receive(&self) -> Result<(), verbs::Error> {
        let all = self.message.sge(0, self.message.memory().len() as u32);
        self.qp.post_recv(&RecvWr { wr_id: number(self.serial, RECEIVE), sges: &[all] })
    }

    /// Returns true if host and server have agreed on regions and no call is in progress.
    pub fn is_ready(&self) -> bool {
        self.machine.is_ready()
    }

    /// Returns the parameters as the host described them. The result is empty before the host's AAR has arrived.
    pub fn params(&self) -> &[RegionRequest] {
        self.machine.regions()
    }

    /// Handles a completion of the session, and returns the next action of the server.
    ///
    /// # Errors
    /// Fails with the reason for which the session ends.
    pub fn completed(&mut self, wc: &Wc, now: Instant) -> Result<Next, SessionEnd> {
        match wc.status {
            WcStatus::Success => {}
            WcStatus::LocalLengthError => return Err(SessionEnd::TooLong),
            other => return Err(SessionEnd::Completion(other)),
        }
        self.liveness.received(now);
        if wc.wr_id == number(self.serial, PROBE) {
            self.liveness.answered();
            return Ok(Next::Nothing);
        }
        // The RTU, with which the CM of the host confirms the connection, may be late or lost. A message of the host
        // also proves that the connection is established.
        self.established |= matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteWithImm);
        match wc.opcode {
            WcOpcode::Recv => {
                self.setup(wc.byte_len as usize)?;
                Ok(Next::Nothing)
            }
            WcOpcode::RecvWriteWithImm => self.requested(wc.imm.unwrap_or(0)),
            WcOpcode::Send | WcOpcode::Write | WcOpcode::Read => Ok(self.sent()),
        }
    }

    fn sent(&mut self) -> Next {
        if !self.quota.sends().complete() {
            return Next::Nothing;
        }
        self.liveness.acknowledged();
        if let Calling::Idle { answered } = &mut self.calling {
            *answered = None;
        }
        if self.closing {
            return Next::Close;
        }
        match self.calling {
            Calling::Waiting(request) => self.begin(request),
            _ => Next::Nothing,
        }
    }

    /// Handles the request immediate of a call. If the host has not acknowledged the response to its previous call, a
    /// retransmission of that response may still read the regions. The new call therefore waits for the
    /// acknowledgement.
    fn requested(&mut self, immediate: u32) -> Result<Next, SessionEnd> {
        let request = self.machine.handle_request(immediate)?;
        if self.quota.sends().unfinished() {
            self.calling = Calling::Waiting(request);
            return Ok(Next::Nothing);
        }
        Ok(self.begin(request))
    }

    fn begin(&mut self, request: CallRequest) -> Next {
        self.calling = Calling::Begun { function: request.function };
        Next::Call(request)
    }

    /// Handles the MRSP message of `len` bytes that describes the host's regions.
    fn setup(&mut self, len: usize) -> Result<(), SessionEnd> {
        let bytes = self.message.memory().to_vec(0, len);
        let asked = match self.machine.handle_message(&bytes) {
            Ok(regions) => regions.to_vec(),
            Err(rejection) => {
                // If the host's message was an error itself, the host gets no reply.
                let Some(reply) = rejection.reply() else { return Err(rejection.into()) };
                return self.refuse(&reply, rejection.into());
            }
        };
        let (regions, process_files) = match self.allocate_all(&asked) {
            Ok(allocated) => allocated,
            Err(SessionEnd::Memory(error)) => {
                let reply = self.machine.allocation_failed(ErrorCode::Memory)?;
                return self.refuse(&reply, error.into());
            }
            Err(other) => return Err(other),
        };
        let shared = regions.iter().filter(|r| !r.flags.contains(RegionFlags::INTERNAL));
        let addresses: Vec<_> = shared
            .map(|r| RegionAddress { addr: r.allocation.addr(), rkey: r.allocation.rkey().unwrap_or(0) })
            .collect();
        let answer = self.machine.allocated(&addresses)?;
        let regions = SessionRegions::of(regions, &self.machine).with_quota(self.quota.clone());
        self.regions = regions.with_process(process_files);
        self.grant()?;
        let longest = self.pd.context().attr().max_msg;
        self.plan = CallPlan::with_capacity(self.machine.regions().len()).with_longest_write(longest);
        self.post_receive()?;
        self.send_message(&answer)
    }

    /// Allocates the regions. Charges the files of the process that runs the session's kernels to the source network
    /// and to the server.
    fn allocate_all(
        &self,
        asked: &[RegionRequest],
    ) -> Result<(Vec<SessionRegion>, Option<Reservation>), SessionEnd> {
        let process_files = self.quota.reserve_process()?;
        // The vector has no spare capacity, because spare capacity would take memory until the session ends.
        let mut regions = Vec::with_capacity(asked.len());
        for region in asked {
            regions.push(self.allocate(region.flags, region.host.size)?);
        }
        Ok((regions, process_files))
    }

    fn allocate(&self, flags: RegionFlags, size: u32) -> Result<SessionRegion, SessionEnd> {
        let mut allocation = self.quota.allocate(size.into())?;
        if !flags.contains(RegionFlags::INTERNAL) {
            // On a device that does not revoke access, peers keep the access that a region gets at its registration.
            // The region is therefore registered only with the access that the host needs. The host does not write a
            // parameter that is only an output. The region of such a parameter is therefore registered without access
            // for peers, unless parameters share regions.
            let is_output = flags == RegionFlags::OUTPUT && self.machine.places().is_none();
            allocation.register(&self.pd, if is_output { Access::LOCAL } else { GRANTED })?;
            if allocation.is_in_reach() {
                allocation.work_on(self.quota.allocate(size.into())?);
            }
        }
        Ok(SessionRegion { flags, allocation })
    }

    fn grant(&mut self) -> Result<(), verbs::Error> {
        let shared = self.machine.places().is_some();
        let its = self.regions.iter_mut().filter(|r| shared || r.flags != RegionFlags::OUTPUT);
        its.into_iter().try_for_each(|r| r.allocation.grant(GRANTED))
    }

    /// Returns true if several parameters share a region.
    pub(crate) fn shares_regions(&self) -> bool {
        self.machine.places().is_some()
    }

    /// Makes the [`StreamingSession`] through which a loop service writes to the host. The caller must post the
    /// response to the host's call before the loop service writes. Returns `None` if parameters share regions, or if
    /// the files of the regions are lent to a process.
    pub(crate) fn stream(&mut self, most_sends: u32) -> Result<Option<StreamingSession>, verbs::Error> {
        if self.machine.places().is_some() {
            return Ok(None);
        }
        let mut regions = Vec::new();
        for (region, param) in self.regions.iter_mut().zip(self.machine.regions()) {
            let access = if region.flags == RegionFlags::OUTPUT { Access::LOCAL } else { GRANTED };
            let Some((memory, lkey)) = region.allocation.stream(access)? else { return Ok(None) };
            let remote = RemoteAddr { addr: param.host.addr, rkey: param.host.rkey };
            regions.push(StreamRegion { memory, lkey, remote });
        }
        self.calling = Calling::Streaming;
        let (id, peer, pd, qp) = (StreamId(self.serial), self.peer, self.pd.clone(), self.qp.clone());
        Ok(Some(StreamingSession { id, peer, regions, most_sends, pd, qp }))
    }

    /// Revokes the host's access to the regions for the time of a call.
    ///
    /// # Errors
    /// Fails with the device's error.
    pub fn revoke(&mut self) -> Result<(), verbs::Error> {
        self.regions.iter_mut().try_for_each(|r| r.allocation.revoke())
    }

    /// Sends an MRSP message, either as inline data or from separate memory.
    fn send_message(&mut self, message: &[u8]) -> Result<(), SessionEnd> {
        let flags = SendFlags::SIGNALED_SOLICITED;
        let inline = self.pd.context().attr().max_inline_data as usize;
        self.expect_acknowledgement(0, self.liveness.since());
        let wr_id = number(self.serial, ACK);
        let wr = |payload| SendWr { wr_id, op: SendOp::Send, payload, flags };
        let posted = if message.len() <= inline {
            self.qp.post_send(&[wr(Payload::Inline(message))])
        } else {
            // The message is sent from separate memory, because the message buffer may receive a message of the host at
            // the same time.
            let memory =
                region::alloc(message.len()).map_err(|e| verbs::Error::io("cannot allocate an answer", e))?;
            memory.write(0, message);
            let mr = self.answer.insert(self.pd.reg_mr(&memory, Access::LOCAL)?);
            self.qp.post_send(&[wr(Payload::Sges(&[mr.sge(0, message.len() as u32)]))])
        };
        posted.map_err(|(_, error)| error.into())
    }

    /// Refuses the host for the reason `why`. Sends the MRSP message `message`, and closes the session after the
    /// message is acknowledged.
    fn refuse(&mut self, message: &[u8], why: SessionEnd) -> Result<(), SessionEnd> {
        self.closing = true;
        self.refused = Some(why);
        self.send_message(message)
    }

    /// Refuses the host at the request of the server's program: sends the error `code`, and closes the session after
    /// the error is acknowledged.
    ///
    /// # Errors
    /// Fails with the device's error.
    pub fn give_up(&mut self, code: ErrorCode) -> Result<(), SessionEnd> {
        self.machine.fail();
        self.refuse(&encode_error(code), SessionEnd::GivenUp)
    }

    /// Lets the host write the regions of the session again, and sends the response with the results of the call. If
    /// the call failed, the response has only the status bytes that the function wrote, and no results. Returns the
    /// number of bytes that are sent.
    ///
    /// # Errors
    /// Fails with the reason for which the session ends, or with an error if the session has no call.
    pub fn respond(
        &mut self,
        result: Result<&[Option<Part>], ReturnCode>,
        now: Instant,
    ) -> Result<u64, SessionEnd> {
        let status_bytes = self.regions.take_status_bytes();
        self.machine.respond(result, status_bytes, &mut self.plan)?;
        self.calling = Calling::Idle { answered: self.calling.function() };
        self.grant()?;
        self.post_receive()?;
        self.post_plan(now)
    }

    /// Responds that the call timed out, and closes the session. The regions of the call stay with the function, which
    /// still runs.
    pub(crate) fn respond_timed_out(&mut self, now: Instant) -> Result<(), SessionEnd> {
        self.machine.respond(Err(ReturnCode::KERNEL_TIMEOUT), 0, &mut self.plan)?;
        self.calling = Calling::Lost;
        self.closing = true;
        self.post_plan(now).map(drop)
    }

    /// Posts the planned WRITEs, and returns the number of their bytes.
    fn post_plan(&mut self, now: Instant) -> Result<u64, SessionEnd> {
        let bytes = self.plan.writes().iter().map(|w| u64::from(w.length)).sum();
        self.expect_acknowledgement(bytes, now);
        self.post_writes()?;
        Ok(bytes)
    }

    fn post_writes(&self) -> Result<(), SessionEnd> {
        let params = self.regions.params();
        let sges: SmallVec<[Option<Sge>; 8]> =
            self.plan.writes().iter().map(|w| source(&params, w)).collect();
        let wr_id = number(self.serial, ACK);
        let wrs: SmallVec<[SendWr<'_>; 8]> =
            self.plan.writes().iter().zip(&sges).map(|(write, sge)| request(wr_id, write, sge)).collect();
        self.qp.post_send(&wrs).map_err(|(_, error)| error.into())
    }

    fn expect_acknowledgement(&mut self, bytes: u64, now: Instant) {
        self.quota.sends().begin();
        self.liveness.expect(Some(now + ACKNOWLEDGEMENT_TIME + Duration::from_secs(bytes >> 20)));
    }

    /// Records that the session's call is counted as cut. If the session ends before the response to this call is
    /// acknowledged, the call is then not counted a second time.
    pub(crate) fn set_counted_as_cut(&mut self) {
        self.calling = Calling::Begun { function: None };
    }

    /// Marks the session to be closed when its call has ended and its sends are finished. Returns true if the caller
    /// can close the session now, because the session has neither a call nor unfinished sends.
    pub(crate) fn drain(&mut self) -> bool {
        self.closing = true;
        !self.quota.sends().unfinished() && matches!(self.calling, Calling::Idle { .. } | Calling::Streaming)
    }

    /// Sends a liveness probe, which is a WRITE of no bytes whose RKey the responder does not check. While a response
    /// waits for its acknowledgement, no probe is sent, because this acknowledgement also proves that the host is
    /// alive.
    ///
    /// # Errors
    /// Fails with the device's error.
    pub fn probe(&mut self, now: Instant) -> Result<(), SessionEnd> {
        if !self.liveness.may_probe() {
            return Ok(());
        }
        self.liveness.probed(now);
        let host = self.machine.regions().first().map(|r| r.host);
        let remote =
            host.map_or(RemoteAddr { addr: 0, rkey: 0 }, |h| RemoteAddr { addr: h.addr, rkey: h.rkey });
        let (op, flags) = (SendOp::Write(remote), SendFlags::SIGNALED);
        let wr = SendWr { wr_id: number(self.serial, PROBE), op, payload: Payload::Inline(&[]), flags };
        self.qp.post_send(&[wr]).map_err(|(_, error)| error.into())
    }
}

/// Returns the memory from which a planned WRITE takes its bytes, or `None` for a WRITE without bytes.
fn source(params: &Params<'_>, write: &Write) -> Option<Sge> {
    let sge = params.sge(write.param, write.offset, write.length)?;
    (sge.length > 0).then_some(sge)
}

/// Makes the work request of `write`. Only the last WRITE of a response, which has the immediate, requests a
/// completion.
fn request<'a>(wr_id: u64, write: &Write, sge: &'a Option<Sge>) -> SendWr<'a> {
    let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
    let last = write.immediate.is_some();
    let op = write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm));
    let flags = SendFlags { signaled: last, solicited: last, fence: false };
    SendWr { wr_id, op, payload: Payload::Sges(sge.as_slice()), flags }
}
