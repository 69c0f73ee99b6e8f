//! One end of a bare connection.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use naa_provider::{DeviceConfig, ProviderChoice};
use verbs::{
    Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, SendWr, Sge,
    WaitMode, WcStatus,
};

use super::{
    super::{calls::pattern, control::Answer, far::answer},
    wire::{CmEventReport, Connect, Done, Load, Part, Queue, Remote, Request, Wr},
};

/// Completions a queue holds.
const DEPTH: u32 = 128;

/// Dropped from the first to the last.
pub(in super::super) struct End {
    listener: Option<CmId>,
    id: Option<CmId>,
    /// A request that waits for its answer.
    asking: Option<CmId>,
    qp: Option<Qp>,
    regions: Vec<Option<Mr>>,
    pub(super) send_cq: Cq,
    recv_cq: Cq,
    pub(super) channel: Channel,
    pd: Pd,
    foreign: Pd,
    pub(super) context: Context,
}

impl End {
    pub(in super::super) fn open(
        local: IpAddr,
        choice: ProviderChoice,
        must_listen: bool,
    ) -> Result<Self, verbs::Error> {
        let config = DeviceConfig { must_listen, ..DeviceConfig::default() };
        let opened = naa_provider::open(local, choice, &config)?;
        let context = opened.context;
        eprintln!("{}; {}", context.attr().name, opened.why);
        Self::new(context)
    }

    fn new(context: Context) -> Result<Self, verbs::Error> {
        Ok(Self {
            listener: None,
            id: None,
            asking: None,
            qp: None,
            regions: Vec::new(),
            send_cq: context.create_cq(DEPTH)?,
            recv_cq: context.create_cq(DEPTH)?,
            channel: context.create_channel()?,
            pd: context.alloc_pd()?,
            foreign: context.alloc_pd()?,
            context,
        })
    }

    pub(in super::super) fn perform(&mut self, request: Request) -> Answer {
        match request {
            Request::Fresh { max_recv_wr } => answer(self.fresh(max_recv_wr)?),
            Request::Listen => answer(self.listen()?),
            Request::Region { len, access, foreign } => {
                answer(self.region(len, access.into(), foreign).map_err(|e| e.to_string())?)
            }
            Request::Deregister { region } => answer(self.deregister(region)?),
            Request::Fill { part, seed } => answer(self.fill(part, seed)?),
            Request::Differs { part, seed } => answer(self.differs(part, seed)?),
            Request::Untouched { part } => answer(self.bytes(part)?.iter().all(|byte| *byte == 0)),
            Request::Receive { id, part } => answer(self.receive(id, part)?),
            Request::Post { wrs } => answer(self.post(&wrs)?),
            Request::Next { queue, ms } => answer(self.next(queue, ms).map_err(|e| e.to_string())?),
            Request::Event { ms } => answer(self.event(ms).map_err(|e| e.to_string())?),
            connection => self.connection(connection).map_err(|e| e.to_string()).and_then(answer),
        }
    }

    fn connection(&mut self, request: Request) -> Result<(), verbs::Error> {
        let missing = verbs::Error::Invalid("no queue pair, or no request");
        match request {
            Request::Connect(Connect { ip, port, private_data, rnr_retry_count, ack_timeout }) => {
                let Some(qp) = &self.qp else { return Err(missing) };
                let ack_timeout = Some(ack_timeout);
                let param = ConnParam { private_data, rnr_retry_count, ack_timeout, ..param() };
                self.id = Some(self.channel.connect(qp, SocketAddr::new(ip, port), &param)?);
            }
            Request::Accept { private_data } => {
                let (Some(qp), Some(id)) = (&self.qp, self.asking.take()) else { return Err(missing) };
                self.channel.accept(id, qp, &ConnParam { private_data, ..param() })?;
                self.id = Some(id);
            }
            Request::Reject { private_data } => {
                let Some(id) = self.asking.take() else { return Err(missing) };
                self.channel.reject(id, &private_data)?;
                self.channel.destroy_id(id)?;
            }
            Request::Disconnect => {
                if let Some(id) = self.id {
                    self.channel.disconnect(id)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fresh(&mut self, max_recv_wr: u32) -> Result<u32, String> {
        self.forget();
        let cap = QpCap { max_send_wr: 64, max_recv_wr, max_sge: 4, late_acks: false };
        let qp = self.pd.create_qp(&self.send_cq, &self.recv_cq, cap).map_err(|e| e.to_string())?;
        self.qp = Some(qp);
        Ok(self.context.attr().max_inline_data)
    }

    /// Ends what there was, completions included.
    fn forget(&mut self) {
        self.qp = None;
        for id in [self.id.take(), self.asking.take(), self.listener.take()].into_iter().flatten() {
            // Gone already where the peer said goodbye.
            let _ = self.channel.destroy_id(id);
        }
        self.regions.clear();
        while matches!(self.channel.next_event(), Ok(Some(_))) {}
        for cq in [&self.send_cq, &self.recv_cq] {
            while matches!(cq.poll_one(), Ok(Some(_))) {}
        }
    }

    fn listen(&mut self) -> Result<u16, String> {
        let (listener, port) = self.channel.listen(0, 8).map_err(|e| e.to_string())?;
        self.listener = Some(listener);
        Ok(port)
    }

    fn region(&mut self, len: usize, access: verbs::Access, foreign: bool) -> Result<Remote, verbs::Error> {
        let memory = region::alloc(len).map_err(|e| verbs::Error::io("cannot allocate a region", e))?;
        let pd = if foreign { &self.foreign } else { &self.pd };
        let mr = pd.reg_mr(&memory, access)?;
        let remote = Remote { addr: mr.addr(), rkey: mr.rkey() };
        self.regions.push(Some(mr));
        Ok(remote)
    }

    fn mr(&self, part: Part) -> Result<&Mr, String> {
        let mr = self.regions.get(part.region).and_then(Option::as_ref).ok_or("no such region")?;
        let inside = part.offset.checked_add(part.len).is_some_and(|end| end <= mr.memory().len());
        if inside { Ok(mr) } else { Err("the part does not lie inside the region".into()) }
    }

    fn sge(&self, part: &Part) -> Result<Sge, String> {
        Ok(self.mr(*part)?.sge(part.offset as u64, part.len as u32))
    }

    fn deregister(&mut self, region: usize) -> Result<(), String> {
        let slot = self.regions.get_mut(region).ok_or("no such region")?;
        *slot = None;
        Ok(())
    }

    fn fill(&mut self, part: Part, seed: u32) -> Result<(), String> {
        self.mr(part)?.memory().write(part.offset, &pattern(seed, part.len));
        Ok(())
    }

    fn bytes(&self, part: Part) -> Result<Vec<u8>, String> {
        Ok(self.mr(part)?.memory().to_vec(part.offset, part.len))
    }

    fn differs(&self, part: Part, seed: u32) -> Result<Option<usize>, String> {
        let (found, expected) = (self.bytes(part)?, pattern(seed, part.len));
        Ok(found.iter().zip(&expected).position(|(a, b)| a != b))
    }

    fn receive(&self, id: u64, part: Part) -> Result<(), String> {
        let qp = self.qp.as_ref().ok_or("no queue pair")?;
        qp.post_recv(&RecvWr { wr_id: id, sges: &[self.sge(&part)?] }).map_err(|e| e.to_string())
    }

    fn post(&self, wrs: &[Wr]) -> Result<(), String> {
        let qp = self.qp.as_ref().ok_or("no queue pair")?;
        for wr in wrs {
            let sges = match &wr.load {
                Load::Parts(parts) => {
                    parts.iter().map(|part| self.sge(part)).collect::<Result<Vec<_>, _>>()?
                }
                Load::Inline(_) => Vec::new(),
            };
            let payload = match &wr.load {
                Load::Parts(_) => Payload::Sges(&sges),
                Load::Inline(bytes) => Payload::Inline(bytes),
            };
            let posted =
                qp.post_send(&[SendWr { wr_id: wr.id, op: wr.op.into(), payload, flags: wr.flags() }]);
            posted.map_err(|(_, error)| error.to_string())?;
        }
        Ok(())
    }

    fn next(&self, queue: Queue, ms: u64) -> Result<Option<Done>, verbs::Error> {
        let cq = if queue == Queue::Send { &self.send_cq } else { &self.recv_cq };
        let deadline = Instant::now() + Duration::from_millis(ms);
        loop {
            if let Some(wc) = cq.poll_one()? {
                let success = wc.status == WcStatus::Success;
                return Ok(Some(Done {
                    id: wc.wr_id,
                    status: format!("{:?}", wc.status),
                    opcode: if success { format!("{:?}", wc.opcode) } else { String::new() },
                    len: if success { wc.byte_len } else { 0 },
                    imm: wc.imm.filter(|_| success),
                }));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            cq.wait(WaitMode::Adaptive, Some(deadline))?;
        }
    }

    fn event(&mut self, ms: u64) -> Result<Option<CmEventReport>, verbs::Error> {
        let deadline = Instant::now() + Duration::from_millis(ms);
        loop {
            if let Some(event) = self.channel.next_event()? {
                return Ok(Some(self.report(event)));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.channel.wait(WaitMode::Block, Some(deadline))?;
        }
    }

    fn report(&mut self, event: CmEvent) -> CmEventReport {
        match event {
            CmEvent::ConnectRequest { id, param, .. } => {
                self.asking = Some(id);
                CmEventReport::Request { private_data: param.private_data }
            }
            CmEvent::Established { param, .. } => {
                CmEventReport::Established { private_data: param.private_data, path_mtu: param.path_mtu }
            }
            CmEvent::Rejected { reason, private_data, .. } => {
                CmEventReport::Rejected { reason: reason.0, private_data }
            }
            CmEvent::Disconnected { .. } => CmEventReport::Disconnected,
            _ => CmEventReport::Unreachable,
        }
    }
}

fn param() -> ConnParam {
    ConnParam { connect_timeout: Some(Duration::from_secs(20)), ..ConnParam::default() }
}
