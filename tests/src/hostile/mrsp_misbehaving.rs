//! A misbehaving accelerator: it follows the protocol as far as it likes, through the same driver interface as a good
//! one.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use mrsp::{Message, RegionRequest, RemoteRegion, codec};
use naa_host::{Device, Error, FunctionCode, Param, Session, SessionConfig, U24};
use roce_udp::{EmbeddedConfig, open};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, WaitOn, Wc, WcStatus,
};

use super::environment::Environment;

const BUFFER: usize = 8192;
/// Bytes of the region that hosts may write.
pub(super) const REGION: usize = 4096;
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How long the host is in no call, before each.
const IDLE: Duration = Duration::from_millis(30);
/// How long the host waits for regions.
const SETUP: Duration = Duration::from_millis(400);

/// A misbehaving accelerator's end of a connection.
pub(super) struct MisbehavingAccelerator {
    qp: Qp,
    id: CmId,
    channel: Channel,
    cq: Cq,
    /// Messages in, messages out, and bytes to write.
    buffer: Mr,
    region: Mr,
    context: Context,
    /// Completions nobody asked for yet.
    early: Vec<Wc>,
    /// What the host asked for.
    pub(super) asked: Vec<RegionRequest>,
}

/// What a misbehaving accelerator does with its connection.
pub(super) type Behaviour = fn(&mut MisbehavingAccelerator) -> Result<(), String>;

/// A host with one region that is sent and returned, and a misbehaving accelerator: connects, calls function 1 twice.
/// Returns how it ended for the host, in its words, without addresses.
pub(super) fn observe_host(env: &mut Environment, behaviour: Behaviour) -> Result<String, String> {
    let (peer, local) = (env.address(), env.address());
    let failed = |e: verbs::Error| e.to_string();
    let config = EmbeddedConfig { must_listen: true, ..EmbeddedConfig::default() };
    let context = open(peer, &config).map_err(failed)?;
    let channel = context.create_channel().map_err(failed)?;
    let (_, port) = channel.listen(0, 4).map_err(failed)?;
    std::thread::scope(|scope| {
        let attack = scope.spawn(move || {
            let mut peer = MisbehavingAccelerator::accept(context, channel).map_err(|e| e.to_string())?;
            behaviour(&mut peer)?;
            // Until the host has seen it, or gives up.
            peer.until_disconnected();
            Ok(())
        });
        let outcome = host(local, (peer, port).into());
        let attacked: Result<(), String> = attack.join().map_err(|_| "the liar panicked")?;
        attacked.map_err(|why| format!("the liar: {why}")).and(outcome)
    })
}

fn host(local: IpAddr, peer: SocketAddr) -> Result<String, String> {
    let device = Device::open(local).map_err(|e| e.to_string())?;
    let text = |error: &Error| error.to_string().replace(&peer.to_string(), "PEER");
    let config = SessionConfig { setup_timeout: SETUP, ..SessionConfig::default() };
    let mut session = match Session::connect(&device, peer, &[Param::in_out(REGION)], &config) {
        Ok(session) => session,
        Err(error) => return Ok(text(&error)),
    };
    for _ in 0..2 {
        std::thread::sleep(IDLE);
        session.slice_mut(0).map_err(|e| e.to_string())?.fill(1);
        let invoked = session.invoke(FunctionCode::constant(1), U24::ZERO);
        let outcome = match invoked.and_then(|()| session.wait_timeout(TIME_LIMIT)) {
            Ok(outcome) => outcome.ok_or("the host waits for ever")?,
            Err(error) => {
                let over = session.is_over() && session.slice(0).is_ok();
                return if over { Ok(text(&error)) } else { Err("the session is not over".into()) };
            }
        };
        if let Err(error) = outcome.into_result() {
            return Ok(text(&error));
        }
    }
    Ok("success".into())
}

impl MisbehavingAccelerator {
    fn accept(context: Context, channel: Channel) -> Result<Self, verbs::Error> {
        let deadline = Some(Instant::now() + TIME_LIMIT);
        let id = loop {
            match channel.next_event()? {
                Some(CmEvent::ConnectRequest { id, .. }) => break id,
                Some(_) => {}
                None => drop(channel.wait(WaitMode::Block, deadline)?),
            }
        };
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let qp = pd.create_qp(&cq, &cq, QpCap { max_send_wr: 16, max_recv_wr: 8, ..QpCap::default() })?;
        let memory = region::alloc(3 * BUFFER).map_err(|e| verbs::Error::io("a buffer", e))?;
        let buffer = pd.reg_mr(&memory, Access::LOCAL)?;
        let memory = region::alloc(REGION).map_err(|e| verbs::Error::io("a region", e))?;
        let region = pd.reg_mr(&memory, Access::REMOTE_WRITE)?;
        let (early, asked) = (Vec::new(), Vec::new());
        let mut peer = Self { qp, id, channel, cq, buffer, region, context, early, asked };
        peer.receive()?;
        peer.channel.accept(id, &peer.qp, &ConnParam::default())?;
        Ok(peer)
    }

    fn receive(&mut self) -> Result<(), verbs::Error> {
        self.qp.post_recv(&RecvWr { wr_id: 2, sges: &[self.buffer.sge(0, BUFFER as u32)] })
    }

    fn completion(&mut self, send: bool) -> Result<Wc, String> {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(at) = self.early.iter().position(|wc| (wc.wr_id == 1) == send) {
                return Ok(self.early.remove(at));
            }
            if let Some(wc) = self.cq.poll_one().map_err(|e| e.to_string())? {
                self.early.push(wc);
                continue;
            }
            self.cq.wait(WaitMode::Block, Some(deadline)).map_err(|e| e.to_string())?;
            if Instant::now() > deadline {
                return Err("no completion within 10 s".into());
            }
        }
    }

    /// Waits for the host's request for regions.
    pub(super) fn receive_request(&mut self) -> Result<(), String> {
        let wc = self.completion(false)?;
        let bytes = self.buffer.memory().to_vec(0, wc.byte_len as usize);
        match codec::decode(&bytes) {
            Ok(Message::AdvertiseAndRequest(asked)) => self.asked = asked.iter().collect(),
            other => return Err(format!("{other:?} instead of a request")),
        }
        self.receive().map_err(|e| e.to_string())
    }

    /// Waits for a call.
    pub(super) fn receive_call(&mut self) -> Result<(), String> {
        let wc = self.completion(false)?;
        match wc.imm {
            Some(_) if wc.status.is_success() => self.receive().map_err(|e| e.to_string()),
            _ => Err(format!("{wc:?} instead of a call")),
        }
    }

    fn post(&mut self, op: SendOp, bytes: &[u8]) -> Result<WcStatus, String> {
        self.buffer.memory().write(BUFFER, bytes);
        let sges = [self.buffer.sge(BUFFER as u64, bytes.len() as u32)];
        let wr = SendWr { wr_id: 1, op, payload: Payload::Sges(&sges), flags: SendFlags::SIGNALED_SOLICITED };
        self.qp.post_send(&[wr]).map_err(|(_, e)| e.to_string())?;
        Ok(self.completion(true)?.status)
    }

    pub(super) fn say(&mut self, message: &[u8]) -> Result<(), String> {
        self.post(SendOp::Send, message).map(drop)
    }

    /// The region as it should be announced.
    pub(super) fn region(&self) -> RemoteRegion {
        RemoteRegion { addr: self.region.addr(), rkey: self.region.rkey(), size: REGION as u32 }
    }

    pub(super) fn advertise(&mut self, regions: &[RemoteRegion]) -> Result<(), String> {
        let message = codec::encode_advertisement(regions).map_err(|e| e.to_string())?;
        self.say(&message)
    }

    /// The request, and the answer that is expected.
    pub(super) fn set_up(&mut self) -> Result<(), String> {
        self.receive_request()?;
        let region = self.region();
        self.advertise(&[region])
    }

    /// Writes to the host's region, with an immediate or without.
    pub(super) fn write(&mut self, offset: u64, bytes: usize, imm: Option<u32>) -> Result<WcStatus, String> {
        let host = self.asked.first().ok_or("no region was asked for")?.host;
        let to = RemoteAddr { addr: host.addr.wrapping_add(offset), rkey: host.rkey };
        let op = imm.map_or(SendOp::Write(to), |imm| SendOp::WriteWithImm(to, imm));
        self.post(op, &vec![0xee; bytes])
    }

    pub(super) fn disconnect(&mut self) -> Result<(), String> {
        self.channel.disconnect(self.id).map_err(|e| e.to_string())
    }

    fn until_disconnected(&self) {
        let on = WaitOn { cq: None, channel: Some(self.channel.id()) };
        let deadline = Instant::now() + TIME_LIMIT;
        while Instant::now() < deadline {
            match self.channel.next_event() {
                Ok(Some(CmEvent::Disconnected { .. })) | Err(_) => return,
                Ok(Some(_)) => {}
                // A device that fails has nothing more to say.
                Ok(None) => drop(self.context.wait(on, WaitMode::Block, Some(deadline))),
            }
        }
    }
}
