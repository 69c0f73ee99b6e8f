//! By RDMA: an accelerator with one function, `subscribe`, for one host.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use ejfat::ring::{
    BLOCK, DeliveryMode, Geometry, RingSlots, Run, SubscribeRefusal, SubscribeResponse, Subscription, shared,
};
use mrsp::{
    AcceleratorSession, CallPlan, RegionRequest,
    accelerator::{RegionAddress, SessionLimits},
    plan::Part,
    region::HOST_MESSAGE_BYTES,
};
use roce_udp::EmbeddedConfig;
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, WaitOn, Wc, WcOpcode,
};

use super::{BridgeSide, RingModel};

/// Parameters: subscription, credits, answer, descriptors, ring.
const CREDITS: usize = 1;
const ANSWER: usize = 2;
const DESCRIPTORS: usize = 3;
const RING: usize = 4;

pub struct RemoteBridgeModel {
    pub address: SocketAddr,
    context: Context,
    channel: Channel,
}

pub struct RdmaRingModel {
    geometry: Geometry,
    /// The host's descriptors and ring.
    theirs: [RemoteAddr; 2],
    qp: Option<Qp>,
    regions: Vec<Mr>,
    id: CmId,
    cq: Cq,
    channel: Channel,
    context: Context,
    _message: Mr,
    _pd: Pd,
}

impl RemoteBridgeModel {
    pub fn start(ip: &str, port: u16) -> Self {
        let options = EmbeddedConfig { must_listen: true, ..EmbeddedConfig::default() };
        let context = roce_udp::open(ip.parse().unwrap(), &options).unwrap();
        let channel = context.create_channel().unwrap();
        let (_, port) = channel.listen(port, 8).unwrap();
        Self { address: SocketAddr::new(ip.parse().unwrap(), port), context, channel }
    }

    /// Takes a subscription, with `early` events before the host has its answer.
    pub fn accept(&self, early: &[&[u8]]) -> BridgeSide<RdmaRingModel> {
        self.answer(Ok(()), early).unwrap()
    }

    pub fn refuse(&self, why: SubscribeRefusal) {
        assert!(self.answer(Err(why), &[]).is_none());
    }

    fn answer(
        &self,
        answer: Result<(), SubscribeRefusal>,
        early: &[&[u8]],
    ) -> Option<BridgeSide<RdmaRingModel>> {
        let id = loop {
            match self.channel.next_event().unwrap() {
                Some(CmEvent::ConnectRequest { id, .. }) => break id,
                Some(_) => {}
                None => drop(self.channel.wait(WaitMode::Block, None).unwrap()),
            }
        };
        let (context, channel) = (self.context.clone(), self.channel.clone());
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4096).unwrap();
        let cap = QpCap { max_send_wr: 2048, ..QpCap::default() };
        let qp = pd.create_qp(&cq, &cq, cap).unwrap();
        let message = pd.reg_mr(&region::alloc(HOST_MESSAGE_BYTES).unwrap(), Access::LOCAL).unwrap();
        let receive = || {
            let sge = message.sge(0, message.memory().len() as u32);
            qp.post_recv(&RecvWr { wr_id: 0, sges: &[sge] }).unwrap();
        };
        receive();
        channel.accept(id, &qp, &ConnParam::default()).unwrap();
        let mut machine = AcceleratorSession::new(SessionLimits::default());
        let asked = received(&context, &cq);
        let bytes = message.memory().to_vec(0, asked.byte_len as usize);
        let asked = machine.handle_message(&bytes).unwrap().to_vec();
        let made = |request: &RegionRequest| {
            let memory = region::alloc(request.host.size as usize).unwrap();
            pd.reg_mr(&memory, Access::REMOTE_WRITE).unwrap()
        };
        let regions: Vec<_> = asked.iter().map(made).collect();
        let addresses: Vec<_> =
            regions.iter().map(|mr| RegionAddress { addr: mr.addr(), rkey: mr.rkey() }).collect();
        let advertisement = machine.allocated(&addresses).unwrap();
        receive();
        let flags = SendFlags::SIGNALED_SOLICITED;
        let payload = Payload::Inline(&advertisement);
        qp.post_send(&[SendWr { wr_id: 0, op: SendOp::Send, payload, flags }]).unwrap();
        let call = received(&context, &cq);
        assert_eq!(machine.handle_request(call.imm.unwrap()).unwrap().function.unwrap().get(), 80);
        let mut block = [0; BLOCK];
        regions[0].memory().read(0, &mut block);
        let Subscription { geometry, redelivery, .. } = Subscription::decode(&block).unwrap();
        let taken = answer.map(|()| SubscribeResponse {
            worker: 1,
            placing: DeliveryMode::Store,
            instance: 7,
            redelivery,
        });
        regions[ANSWER].memory().write(0, &SubscribeResponse::encode(&taken));
        // Descriptors and ring are not sent with the answer.
        let nothing = Some(Part::prefix(0));
        let parts = [None, None, None, nothing, nothing];
        let mut plan = CallPlan::default();
        machine.respond(Ok(&parts), 0, &mut plan).unwrap();
        let theirs = [DESCRIPTORS, RING].map(|region| {
            let host = &asked[region].host;
            RemoteAddr { addr: host.addr, rkey: host.rkey }
        });
        for write in plan.writes() {
            let to = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
            let sge = regions[write.param].sge(write.offset, write.length);
            let op = write.immediate.map_or(SendOp::Write(to), |imm| SendOp::WriteWithImm(to, imm));
            let payload = Payload::Sges(std::slice::from_ref(&sge));
            qp.post_send(&[SendWr { wr_id: 0, op, payload, flags }]).unwrap();
        }
        let qp = Some(qp);
        let ring = RdmaRingModel {
            geometry,
            theirs,
            qp,
            regions,
            id,
            cq,
            channel,
            context,
            _message: message,
            _pd: pd,
        };
        let mut side = BridgeSide::new(ring, RingSlots::new(geometry));
        for (number, bytes) in (0..).zip(early) {
            assert!(side.put(number, bytes));
        }
        if taken.is_err() {
            // The host leaves when it has read that.
            side.ring.until_left();
            return None;
        }
        Some(side)
    }
}

fn received(context: &Context, cq: &Cq) -> Wc {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        match cq.poll_one().unwrap() {
            Some(wc) if matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteWithImm) => return wc,
            Some(_) => {}
            None => {
                let on = WaitOn { cq: Some(cq.id()), channel: None };
                context.wait(on, WaitMode::Block, Some(until)).unwrap();
            }
        }
    }
    panic!("the host sent nothing");
}

impl RdmaRingModel {
    fn until_left(&self) {
        loop {
            match self.channel.next_event().unwrap() {
                Some(CmEvent::Disconnected { .. }) => return,
                Some(_) => {}
                None => drop(self.channel.wait(WaitMode::Block, None).unwrap()),
            }
        }
    }

    /// Nothing is said any more, as by a killed process.
    pub fn vanish(&mut self) {
        self.qp = None;
    }
}

const IMMEDIATE: u64 = 1;

impl RingModel for RdmaRingModel {
    fn put(&mut self, run: Run, bytes: &[u8], at: usize, descriptor: &[u8; BLOCK], sequence: u32) {
        let [descriptors, ring] = self.theirs;
        let offset = self.geometry.offset(run.slot);
        let staging = &self.regions[RING];
        staging.memory().write(offset as usize, bytes);
        let sge = staging.sge(offset, bytes.len() as u32);
        let event = RemoteAddr { addr: ring.addr + offset, ..ring };
        let descriptor_addr = RemoteAddr { addr: descriptors.addr + at as u64, ..descriptors };
        let wrs = [
            SendWr {
                wr_id: 0,
                op: SendOp::Write(event),
                payload: Payload::Sges(&[sge]),
                flags: SendFlags::default(),
            },
            SendWr {
                wr_id: IMMEDIATE,
                op: SendOp::WriteWithImm(descriptor_addr, sequence),
                payload: Payload::Inline(descriptor),
                flags: SendFlags::SIGNALED_SOLICITED,
            },
        ];
        let empty = usize::from(bytes.is_empty());
        self.qp.as_ref().unwrap().post_send(&wrs[empty..]).unwrap();
    }

    fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        let ring = self.theirs[1];
        let staging = &self.regions[RING];
        staging.memory().write(offset as usize, bytes);
        let write = SendWr {
            wr_id: 0,
            op: SendOp::Write(RemoteAddr { addr: ring.addr + offset, ..ring }),
            payload: Payload::Sges(&[staging.sge(offset, bytes.len() as u32)]),
            flags: SendFlags::default(),
        };
        self.qp.as_ref().unwrap().post_send(&[write]).unwrap();
    }

    fn arrived(&mut self) -> u32 {
        let mut count = 0;
        while let Some(wc) = self.cq.poll_one().unwrap() {
            count += u32::from(wc.status.is_success() && wc.wr_id == IMMEDIATE);
        }
        count
    }

    fn words(&self, words: &mut [u32]) {
        let all = self.regions[CREDITS].memory().to_vec(0, self.geometry.credits_bytes());
        for (slot, word) in words.iter_mut().enumerate() {
            let at = self.geometry.credit_at(slot as u32);
            *word = u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        }
    }

    fn count(&self) -> u32 {
        let mut bytes = [0; 4];
        self.regions[CREDITS].memory().read(shared::COUNT_AT, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

impl Drop for RdmaRingModel {
    fn drop(&mut self) {
        if self.qp.is_some() {
            let _ = self.channel.disconnect(self.id);
        }
        let _ = self.channel.destroy_id(self.id);
        let _ = &self.context;
    }
}
