//! A small accelerator for tests. The accelerator has one thread, serves any number of sessions, and runs the function
//! `behaviour` for each call.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mrsp::{
    Abilities, AcceleratorSession, CallPlan, RegionFlags, RegionRequest, ReturnCode,
    accelerator::{RegionAddress, SessionLimits},
    immediate::CallRequest,
    plan::Part,
    region::HOST_MESSAGE_BYTES,
};
use roce_udp::EmbeddedConfig;
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, WaitOn, WcOpcode, WcStatus,
};

/// The parts of outputs that the accelerator sends after a call, or the return code of a failed call. The element with
/// the index i is for parameter i. An output is sent whole if its element is `None` or missing.
pub type CallResult = Result<Vec<Option<Part>>, ReturnCode>;

/// The reaction of the accelerator to a call.
#[derive(Debug)]
pub enum Action {
    Respond(CallResult),
    Later(Duration, CallResult),
    /// The call fails: the accelerator sends this return code, and bytes from the start of the first output. The `u32`
    /// is the number of these bytes.
    Fail(ReturnCode, u32),
    Disconnect,
    /// The accelerator stops acknowledging packets.
    Vanish,
    /// The accelerator sends two responses to one call.
    Twice,
    /// The accelerator sends an MRSP error instead of a response.
    Error,
    /// The accelerator sends a response, and directly afterwards as many WRITEs as the `u32` of this variant says. The
    /// n-th of these WRITEs has the immediate n, and writes n as the n-th 32-bit number of the first output.
    Stream(u32),
}

/// A region of the session. The accelerator has one `ModelRegion` for each region request of the AAR, including the
/// requests for internal regions.
#[derive(Debug)]
pub struct ModelRegion {
    pub flags: RegionFlags,
    pub mr: Mr,
}

impl ModelRegion {
    pub fn bytes(&self) -> Vec<u8> {
        self.mr.memory().to_vec(0, self.mr.memory().len())
    }

    pub fn write(&self, bytes: &[u8]) {
        self.mr.memory().write(0, bytes);
    }
}

pub type Behaviour = dyn FnMut(&[ModelRegion], CallRequest) -> Action + Send;

#[derive(Debug)]
pub struct AcceleratorModel {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AcceleratorModel {
    pub fn start(
        ip: &str,
        behaviour: impl FnMut(&[ModelRegion], CallRequest) -> Action + Send + 'static,
    ) -> Self {
        Self::start_with_abilities(ip, None, SessionLimits::default(), behaviour)
    }

    /// Starts an accelerator with `limits` that claims to have `abilities`, even if the accelerator does not have these
    /// abilities.
    pub fn start_with_abilities(
        ip: &str,
        abilities: Option<Abilities>,
        limits: SessionLimits,
        behaviour: impl FnMut(&[ModelRegion], CallRequest) -> Action + Send + 'static,
    ) -> Self {
        let ip: IpAddr = ip.parse().unwrap();
        let config = EmbeddedConfig { must_listen: true, ..EmbeddedConfig::default() };
        let context = roce_udp::open(ip, &config).unwrap();
        let channel = context.create_channel().unwrap();
        let (_, port) = channel.listen(0, 8).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut server = ModelThread {
                cq: context.create_cq(1024).unwrap(),
                sessions: HashMap::new(),
                abilities,
                limits,
                behaviour: Box::new(behaviour),
                channel,
                context,
            };
            while !stopped.load(Ordering::Acquire) {
                server.turn();
            }
        });
        Self { address: SocketAddr::new(ip, port), stop, thread: Some(thread) }
    }
}

impl Drop for AcceleratorModel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let joined = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            joined.unwrap();
        }
    }
}

struct ModelThread {
    sessions: HashMap<CmId, ModelSession>,
    cq: Cq,
    abilities: Option<Abilities>,
    limits: SessionLimits,
    behaviour: Box<Behaviour>,
    channel: Channel,
    context: Context,
}

struct ModelSession {
    qp: Qp,
    machine: AcceleratorSession,
    message: Mr,
    regions: Vec<ModelRegion>,
    due: Option<(Instant, CallResult)>,
    pd: Pd,
}

impl ModelThread {
    fn turn(&mut self) {
        let on = WaitOn { cq: Some(self.cq.id()), channel: Some(self.channel.id()) };
        let soon = Instant::now() + Duration::from_millis(20);
        self.context.wait(on, WaitMode::Block, Some(soon)).unwrap();
        while let Some(event) = self.channel.next_event().unwrap() {
            match event {
                CmEvent::ConnectRequest { id, .. } => self.accept(id),
                CmEvent::Disconnected { id } => {
                    self.sessions.remove(&id);
                    self.channel.destroy_id(id).unwrap();
                }
                _ => {}
            }
        }
        while let Some(wc) = self.cq.poll_one().unwrap() {
            let Some((&id, session)) = self.sessions.iter_mut().find(|(_, s)| s.qp.num() == wc.qp) else {
                continue;
            };
            match (wc.status, wc.opcode) {
                (WcStatus::Success, WcOpcode::Recv) => session.setup(wc.byte_len as usize),
                (WcStatus::Success, WcOpcode::RecvWriteWithImm) => {
                    let request = session.machine.handle_request(wc.imm.unwrap()).unwrap();
                    match (self.behaviour)(&session.regions, request) {
                        Action::Respond(result) => session.respond(result, 0),
                        Action::Fail(code, status_bytes) => session.respond(Err(code), status_bytes),
                        Action::Later(delay, result) => session.due = Some((Instant::now() + delay, result)),
                        Action::Disconnect => self.channel.disconnect(id).unwrap(),
                        Action::Vanish => drop(self.sessions.remove(&id)),
                        Action::Twice => session.twice(),
                        Action::Stream(count) => session.stream(count),
                        Action::Error => session.send(&mrsp::codec::encode_error(mrsp::ErrorCode::Memory)),
                    }
                }
                _ => {}
            }
        }
        for session in self.sessions.values_mut() {
            if session.due.as_ref().is_some_and(|(at, _)| *at <= Instant::now()) {
                let (_, result) = session.due.take().unwrap();
                session.respond(result, 0);
            }
        }
    }

    fn accept(&mut self, id: CmId) {
        let pd = self.context.alloc_pd().unwrap();
        let qp = pd.create_qp(&self.cq, &self.cq, QpCap::default()).unwrap();
        let memory = region::alloc(HOST_MESSAGE_BYTES).unwrap();
        let message = pd.reg_mr(&memory, Access::LOCAL).unwrap();
        let machine = AcceleratorSession::new(self.limits);
        let session = ModelSession { qp, machine, message, regions: Vec::new(), due: None, pd };
        session.receive();
        let private_data = self.abilities.map_or(Vec::new(), |abilities| abilities.encode().into());
        let param = ConnParam { private_data, ..ConnParam::default() };
        self.channel.accept(id, &session.qp, &param).unwrap();
        self.sessions.insert(id, session);
    }
}

impl ModelSession {
    fn receive(&self) {
        let sge = self.message.sge(0, self.message.memory().len() as u32);
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[sge] }).unwrap();
    }

    fn send(&self, message: &[u8]) {
        let flags = SendFlags::SIGNALED_SOLICITED;
        let wr = SendWr { wr_id: 0, op: SendOp::Send, payload: Payload::Inline(message), flags };
        self.qp.post_send(&[wr]).unwrap();
    }

    fn setup(&mut self, len: usize) {
        let bytes = self.message.memory().to_vec(0, len);
        let asked = match self.machine.handle_message(&bytes) {
            Ok(regions) => regions.to_vec(),
            Err(rejection) => return self.send(&rejection.reply().unwrap()),
        };
        self.regions = asked.iter().map(|request| self.allocate(request)).collect();
        let shared = self.regions.iter().filter(|r| !r.flags.contains(RegionFlags::INTERNAL));
        let addresses: Vec<_> =
            shared.map(|r| RegionAddress { addr: r.mr.addr(), rkey: r.mr.rkey() }).collect();
        let answer = self.machine.allocated(&addresses).unwrap();
        self.receive();
        self.send(&answer);
    }

    fn allocate(&self, request: &RegionRequest) -> ModelRegion {
        let memory = region::alloc(request.host.size as usize).unwrap();
        ModelRegion { flags: request.flags, mr: self.pd.reg_mr(&memory, Access::REMOTE_WRITE).unwrap() }
    }

    fn respond(&mut self, result: CallResult, status_bytes: u32) {
        let plan = self.plan(result, status_bytes);
        self.receive();
        self.post(&plan);
    }

    fn twice(&mut self) {
        let plan = self.plan(Ok(Vec::new()), 0);
        self.receive();
        self.post(&plan);
        self.post(&plan);
    }

    fn stream(&mut self, count: u32) {
        let plan = self.plan(Ok(Vec::new()), 0);
        self.post(&plan);
        let to = plan.writes()[0];
        for number in 1..=count {
            let addr = to.remote_addr + u64::from(number - 1) * 4;
            let wr = SendWr {
                wr_id: 0,
                op: SendOp::WriteWithImm(RemoteAddr { addr, rkey: to.rkey }, number),
                payload: Payload::Inline(&number.to_le_bytes()),
                flags: SendFlags::SIGNALED_SOLICITED,
            };
            self.qp.post_send(&[wr]).unwrap();
        }
    }

    fn plan(&mut self, result: CallResult, status_bytes: u32) -> CallPlan {
        let mut plan = CallPlan::default();
        let result = result.as_ref().map(|parts| &parts[..]).map_err(|code| *code);
        self.machine.respond(result, status_bytes, &mut plan).unwrap();
        plan
    }

    fn post(&self, plan: &CallPlan) {
        let places: Vec<_> = self.machine.places().map_or(Vec::new(), Iterator::collect);
        let shared: Vec<_> =
            self.regions.iter().filter(|r| !r.flags.contains(RegionFlags::INTERNAL)).collect();
        for write in plan.writes() {
            let own = || (&shared[write.param].mr, write.offset);
            let (mr, offset) = places.get(write.param).map_or_else(own, |place| {
                (&self.regions[usize::from(place.region)].mr, u64::from(place.offset) + write.offset)
            });
            let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
            let sge = mr.sge(offset, write.length);
            let last = write.immediate.is_some();
            let wr = SendWr {
                wr_id: 0,
                op: write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm)),
                payload: Payload::Sges(if write.length > 0 { std::slice::from_ref(&sge) } else { &[] }),
                flags: SendFlags { signaled: true, solicited: last, fence: false },
            };
            self.qp.post_send(&[wr]).unwrap();
        }
    }
}

/// A function for [`AcceleratorModel::start`] that adds 1 to every byte of every output and responds.
pub fn increment(regions: &[ModelRegion], _: CallRequest) -> Action {
    for region in regions.iter().filter(|r| r.flags.contains(RegionFlags::OUTPUT)) {
        let bytes: Vec<_> = region.bytes().into_iter().map(|byte| byte.wrapping_add(1)).collect();
        region.write(&bytes);
    }
    Action::Respond(Ok(Vec::new()))
}
