//! One host's connection: what its messages and completions lead to.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mrsp::{
    CallPlan, ErrorCode, FunctionCode, Liveness, NaaSession, RegionFlags, RegionRequest, ReturnCode, Write,
    codec::encode_error,
    immediate::CallRequest,
    naa::{Failure, Placement},
    plan::Prefix,
    region::HOST_MESSAGE_BYTES,
};
use naa_kernels::SessionProcess;
use smallvec::SmallVec;
use verbs::{
    Access, CmId, Mr, Payload, Pd, Qp, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode,
    WcStatus,
};

use crate::{
    arena::{ArenaError, Quota, Reservation},
    call::{Region, Regions},
    config::Config,
    pool::TaskId,
    regions::Params,
    resident::{Stream, StreamId, StreamRegion},
};

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub enum End {
    #[error("{0}")]
    Rejected(#[from] mrsp::naa::Rejection),
    #[error("{0}")]
    Request(#[from] mrsp::naa::RequestError),
    #[error("{0}")]
    Memory(#[from] ArenaError),
    #[error("the host cannot be reached any more: {0}")]
    Completion(WcStatus),
    #[error("the host sent a message longer than any of MRSP")]
    TooLong,
    #[error("this server's program gave up on the host")]
    GivenUp,
    #[error("the host asked for nothing in time")]
    Idle,
    #[error("the host sent a message or a call though it had subscribed")]
    Subscribed,
    #[error("{0}")]
    Resident(String),
    #[error("the host did not take an answer in time")]
    Unacknowledged,
    #[error("this server: {0}")]
    Device(#[from] verbs::Error),
    #[error("this server: {0}")]
    Local(#[from] mrsp::naa::LocalError),
}

/// Where a session's regions are.
#[derive(Debug)]
pub(crate) enum Calling {
    /// With the session, open to the host.
    No,
    /// A call's inputs are here, and the last response is not acknowledged yet.
    Waiting(CallRequest),
    /// A worker has them.
    Pooled(TaskId),
    /// A function that ran out of time has them.
    Lost,
    /// A resident has them, for as long as the session lives.
    Streaming,
}

/// What a connection's messages and completions come to. Its owner polls and waits, makes the calls and routes the
/// connection's events.
#[derive(Debug)]
pub struct Session {
    pub id: CmId,
    /// Its work requests carry it: queue pairs' numbers are used again while completions of earlier ones are queued.
    pub(crate) serial: u64,
    pub peer: SocketAddr,
    pub(crate) calling: Calling,
    /// The function of the last call, until its answer is acknowledged.
    pub(crate) function: Option<FunctionCode>,
    /// Where its kernels run, from the first call of one on.
    pub(crate) process: Option<Arc<SessionProcess>>,
    pub regions: Regions,
    machine: NaaSession,
    plan: CallPlan,
    quota: Quota,
    message: Mr,
    /// An advertisement too long to be copied into its work request.
    answer: Option<Mr>,
    /// Set when the last message is on its way: close once it is acknowledged.
    closing: bool,
    /// Why the host was told to go.
    pub refused: Option<End>,
    /// Its work requests were flushed; the reason may still come.
    pub(crate) flushed: bool,
    /// The owner sets it when it is told; the session does when the host's first message arrives.
    pub established: bool,
    pub(crate) since: Instant,
    /// Whether the host is alive. Kernel soft-RoCE repeats a packet for ever where the host asked for seven retries, and
    /// reports nothing, so every acknowledgement has a deadline.
    pub liveness: Liveness,
    // Last: its buffers outlive its work requests.
    pub qp: Arc<Qp>,
    pd: Pd,
}

/// What a completion asks of the server.
#[derive(Debug)]
pub enum Next {
    Nothing,
    /// Make this call.
    Call(CallRequest),
    /// Everything was said: close.
    Close,
}

/// Kinds of work requests.
const STREAM: u64 = 0;
const ACK: u64 = 1;
const RECEIVE: u64 = 2;
const PROBE: u64 = 3;
const KIND_BITS: u32 = 2;

fn number(serial: u64, kind: u64) -> u64 {
    serial << KIND_BITS | kind
}

/// Of what a resident posts.
pub(crate) fn stream_number(serial: u64) -> u64 {
    number(serial, STREAM)
}

/// It was a resident's.
pub(crate) fn is_stream(wc: &Wc) -> bool {
    wc.wr_id & ((1 << KIND_BITS) - 1) == STREAM
}

/// The session whose work request completed.
pub(crate) fn serial(wc: &Wc) -> u64 {
    wc.wr_id >> KIND_BITS
}

/// What a host may do to its session's regions outside of calls.
const GRANTED: Access = Access::REMOTE_WRITE;
/// A host acknowledges an answer within this, and a second per MiB: who posts no receive, or never acknowledges,
/// does not hold memory for ever.
const PATIENCE: Duration = Duration::from_secs(60);

impl Session {
    /// With its first receive posted, to be accepted. The serial is of this session alone on its completion queue.
    pub fn new(
        (id, serial): (CmId, u64),
        peer: SocketAddr,
        (pd, qp): (Pd, Qp),
        quota: Quota,
        config: &Config,
        now: Instant,
    ) -> Result<Self, End> {
        // Room for any AAR, so that one that asks for too much is refused by name.
        let memory = region::alloc(HOST_MESSAGE_BYTES)
            .map_err(|e| verbs::Error::io("cannot allocate a message buffer", e))?;
        let message = pd.reg_mr(&memory, Access::LOCAL)?;
        let interval = Some(config.probe_interval).filter(|interval| !interval.is_zero());
        let session = Self {
            id,
            serial,
            peer,
            calling: Calling::No,
            function: None,
            process: None,
            regions: Regions::default(),
            machine: NaaSession::new(config.limits),
            plan: CallPlan::default(),
            quota,
            message,
            answer: None,
            closing: false,
            refused: None,
            flushed: false,
            established: false,
            since: now,
            liveness: Liveness::new(interval, Some(PATIENCE), now),
            qp: Arc::new(qp),
            pd,
        };
        session.post_receive()?;
        Ok(session)
    }

    /// One receive is always posted: for the AAR, then for the next call. It has the message buffer in both
    /// cases, so that a host's message out of turn is refused by name.
    fn post_receive(&self) -> Result<(), verbs::Error> {
        let all = self.message.sge(0, self.message.memory().len() as u32);
        self.qp.post_recv(&RecvWr { wr_id: number(self.serial, RECEIVE), sges: &[all] })
    }

    pub fn is_ready(&self) -> bool {
        self.machine.is_ready()
    }

    /// The host's parameters, as it described them; none before it did.
    pub fn params(&self) -> &[RegionRequest] {
        self.machine.regions()
    }

    /// # Errors
    /// Why the session ends.
    pub fn completed(&mut self, wc: &Wc, now: Instant) -> Result<Next, End> {
        match wc.status {
            WcStatus::Success => {}
            WcStatus::LocalLengthError => return Err(End::TooLong),
            other => return Err(End::Completion(other)),
        }
        self.liveness.heard(now);
        if wc.wr_id == number(self.serial, PROBE) {
            self.liveness.answered();
            return Ok(Next::Nothing);
        }
        // Its confirmation may be late or lost, its messages are as good.
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
        self.function = None;
        if self.closing {
            return Next::Close;
        }
        match std::mem::replace(&mut self.calling, Calling::No) {
            Calling::Waiting(request) => Next::Call(request),
            other => {
                self.calling = other;
                Next::Nothing
            }
        }
    }

    /// The response to the last call may still be resent from the regions, so a call waits until it arrived.
    fn requested(&mut self, immediate: u32) -> Result<Next, End> {
        let request = self.machine.handle_request(immediate)?;
        if self.quota.sends().unfinished() {
            self.calling = Calling::Waiting(request);
            return Ok(Next::Nothing);
        }
        Ok(Next::Call(request))
    }

    /// A message of `len` bytes arrived: the host's regions.
    fn setup(&mut self, len: usize) -> Result<(), End> {
        let bytes = self.message.memory().to_vec(0, len);
        let asked = match self.machine.handle_message(&bytes) {
            Ok(regions) => regions.to_vec(),
            Err(rejection) => {
                // A host that gives up is not answered.
                let Some(reply) = rejection.reply() else { return Err(rejection.into()) };
                return self.refuse(&reply, rejection.into());
            }
        };
        let (regions, process_files) = match self.allocate_all(&asked) {
            Ok(allocated) => allocated,
            Err(End::Memory(error)) => {
                let reply = self.machine.allocation_failed(ErrorCode::Memory)?;
                return self.refuse(&reply, error.into());
            }
            Err(other) => return Err(other),
        };
        let shared = regions.iter().filter(|r| !r.flags.contains(RegionFlags::INTERNAL));
        let placements: Vec<_> = shared
            .map(|r| Placement { addr: r.allocation.addr(), rkey: r.allocation.rkey().unwrap_or(0) })
            .collect();
        let answer = self.machine.allocated(&placements)?;
        let regions = Regions::of(regions, &self.machine).with_quota(self.quota.clone());
        self.regions = regions.with_process(process_files);
        self.grant()?;
        let longest = self.pd.context().attr().max_msg;
        self.plan = CallPlan::with_capacity(self.machine.regions().len()).with_longest_write(longest);
        self.post_receive()?;
        self.say(&answer)
    }

    /// Allocates the regions, and charges the files of the session's process.
    fn allocate_all(&self, asked: &[RegionRequest]) -> Result<(Vec<Region>, Option<Reservation>), End> {
        let process_files = self.quota.reserve_process()?;
        // Room for these and no more: most sessions have one or two regions, and live long.
        let mut regions = Vec::with_capacity(asked.len());
        for region in asked {
            regions.push(self.allocate(region.flags, region.host.size)?);
        }
        Ok((regions, process_files))
    }

    fn allocate(&self, flags: RegionFlags, size: u32) -> Result<Region, End> {
        let mut allocation = self.quota.allocate(size.into())?;
        if !flags.contains(RegionFlags::INTERNAL) {
            // Devices that do not revoke leave what is registered. Hosts write no outputs but those that share a region.
            let is_output = flags == RegionFlags::OUTPUT && self.machine.places().is_none();
            allocation.register(&self.pd, if is_output { Access::LOCAL } else { GRANTED })?;
            if allocation.is_in_reach() {
                allocation.work_on(self.quota.allocate(size.into())?);
            }
        }
        Ok(Region { flags, allocation })
    }

    fn grant(&mut self) -> Result<(), verbs::Error> {
        let shared = self.machine.places().is_some();
        let its = self.regions.iter_mut().filter(|r| shared || r.flags != RegionFlags::OUTPUT);
        its.into_iter().try_for_each(|r| r.allocation.grant(GRANTED))
    }

    /// Its parameters do not have a region each.
    pub(crate) fn shares_regions(&self) -> bool {
        self.machine.places().is_some()
    }

    /// The session for a resident, after its call was answered. `None` if its parameters share regions, or a process
    /// may have them.
    pub(crate) fn stream(&mut self, most_sends: u32) -> Result<Option<Stream>, verbs::Error> {
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
        Ok(Some(Stream { id, peer, regions, most_sends, pd, qp }))
    }

    /// Takes the host's access to the regions, for the time of a call.
    ///
    /// # Errors
    /// The device's.
    pub fn revoke(&mut self) -> Result<(), verbs::Error> {
        self.regions.iter_mut().try_for_each(|r| r.allocation.revoke())
    }

    /// Sends an MRSP message, which fits what is copied inline or goes out from the message buffer.
    fn say(&mut self, message: &[u8]) -> Result<(), End> {
        let flags = SendFlags::SIGNALED_SOLICITED;
        let inline = self.pd.context().attr().max_inline_data as usize;
        self.expect_acknowledgement(0, self.liveness.since());
        let wr_id = number(self.serial, ACK);
        let wr = |payload| SendWr { wr_id, op: SendOp::Send, payload, flags };
        let posted = if message.len() <= inline {
            self.qp.post_send(&[wr(Payload::Inline(message))])
        } else {
            // A region of its own: the message buffer may be received into meanwhile.
            let memory =
                region::alloc(message.len()).map_err(|e| verbs::Error::io("cannot allocate an answer", e))?;
            memory.write(0, message);
            let mr = self.answer.insert(self.pd.reg_mr(&memory, Access::LOCAL)?);
            self.qp.post_send(&[wr(Payload::Sges(&[mr.sge(0, message.len() as u32)]))])
        };
        posted.map_err(|(_, error)| error.into())
    }

    /// Sends a message after which the session is closed.
    fn refuse(&mut self, message: &[u8], why: End) -> Result<(), End> {
        self.closing = true;
        self.refused = Some(why);
        self.say(message)
    }

    /// The program refuses the host: says so, and closes.
    ///
    /// # Errors
    /// The device's.
    pub fn give_up(&mut self, code: ErrorCode) -> Result<(), End> {
        self.machine.fail();
        self.refuse(&encode_error(code), End::GivenUp)
    }

    /// Answers the call: regions are the session's again, the host may write them, and the results go out. Returns
    /// their bytes.
    ///
    /// # Errors
    /// Why the session ends, or that there is no call.
    pub fn respond(&mut self, result: Result<&[Prefix], Failure>, now: Instant) -> Result<u64, End> {
        self.machine.respond(result, &mut self.plan)?;
        self.calling = Calling::No;
        self.grant()?;
        self.post_receive()?;
        self.post_plan(now)
    }

    /// The call's function keeps the regions: says so, and closes.
    pub(crate) fn respond_timed_out(&mut self, now: Instant) -> Result<(), End> {
        self.machine.respond(Err(ReturnCode::KERNEL_TIMEOUT.into()), &mut self.plan)?;
        self.calling = Calling::Lost;
        self.closing = true;
        self.post_plan(now).map(drop)
    }

    /// Posts the planned WRITEs; returns their bytes.
    fn post_plan(&mut self, now: Instant) -> Result<u64, End> {
        let bytes = self.plan.writes().iter().map(|w| u64::from(w.length)).sum();
        self.expect_acknowledgement(bytes, now);
        self.post_writes()?;
        Ok(bytes)
    }

    fn post_writes(&self) -> Result<(), End> {
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
        self.liveness.expect(Some(now + PATIENCE + Duration::from_secs(bytes >> 20)));
    }

    /// Nothing is being calculated or sent. Otherwise the session closes by itself when that is done.
    pub(crate) fn drain(&mut self) -> bool {
        self.closing = true;
        !self.quota.sends().unfinished() && matches!(self.calling, Calling::No | Calling::Streaming)
    }

    /// Asks the host for a sign of life by a WRITE of no bytes, whose key no responder looks at. An answer that is
    /// being sent asks for one already.
    ///
    /// # Errors
    /// The device's.
    pub fn probe(&mut self, now: Instant) -> Result<(), End> {
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

/// Where a planned WRITE takes its bytes from; nowhere if it has none.
fn source(params: &Params<'_>, write: &Write) -> Option<Sge> {
    let sge = params.sge(write.param, write.offset, write.length)?;
    (sge.length > 0).then_some(sge)
}

/// The last WRITE, with the immediate, is the one whose completion counts.
fn request<'a>(wr_id: u64, write: &Write, sge: &'a Option<Sge>) -> SendWr<'a> {
    let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
    let last = write.immediate.is_some();
    let op = write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm));
    let flags = SendFlags { signaled: last, solicited: last, fence: false };
    SendWr { wr_id, op, payload: Payload::Sges(sge.as_slice()), flags }
}
