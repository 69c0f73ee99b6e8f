//! Ours: RDMA WRITEs through the driver interface, waiting as hosts and servers do unless told otherwise.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use roce_udp::{EmbeddedConfig, LossInjection, PortConfig, free_loopback};
use serde::{Deserialize, Serialize};
use verbs::{
    Access, Channel, CmEvent, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, Wake,
};

use super::{
    Running,
    fill::{START, fill, goodput},
    spawn,
};
use crate::side::{Effort, Measure, Work};

/// Bytes per message; the buffers of all streams have this size.
pub(crate) const MESSAGE: usize = 1 << 20;
/// Longer than any message takes, also when many packets are lost.
const TIME_LIMIT: Duration = Duration::from_secs(20);
const WAIT: WaitMode = WaitMode::Adaptive;
/// Where packets are lost a repeat takes so much longer: how long single losses take differs a lot.
const LOSSY_TIMES: f64 = 3.0;
/// Both ends lose other packets, the same in every run.
const FAR_SEED: u64 = 1;
const NEAR_SEED: u64 = 2;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) mtu: u32,
    /// Super-packets are sent and received.
    pub(crate) offload: bool,
    /// Received packets that are lost.
    pub(crate) loss_per_million: u32,
    pub(crate) messages: Messages,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Messages {
    bytes: u32,
    /// WRITEs posted and not completed.
    outstanding: u64,
    /// Each tells the other end, and their number counts; else the last one does, and bytes count.
    each_tells: bool,
}

impl Messages {
    pub(crate) const LARGE: Self = Self { bytes: MESSAGE as u32, outstanding: 8, each_tells: false };
    pub(crate) const SMALL: Self = Self { bytes: 8192, outstanding: 64, each_tells: true };

    /// Receives that are posted.
    fn receives(self) -> u32 {
        if self.each_tells { 2 * self.outstanding as u32 } else { 1 }
    }
}

impl Device {
    fn open(&self, local: IpAddr, seed: u64) -> anyhow::Result<Context> {
        let Self { mtu, offload, loss_per_million, .. } = *self;
        let port = PortConfig { gso: offload, gro: offload, ..PortConfig::default() };
        let loss = (loss_per_million > 0).then_some(LossInjection { per_million: loss_per_million, seed });
        let options = EmbeddedConfig {
            max_path_mtu: Some(mtu),
            port,
            loss,
            must_listen: true,
            ..EmbeddedConfig::default()
        };
        Ok(roce_udp::open(local, &options)?)
    }
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    // The fields are in the order in which they may be dropped.
    qp: Qp,
    memory: Mr,
    cq: Cq,
    channel: Channel,
    _pd: Pd,
}

impl End {
    fn new(context: &Context, messages: Messages) -> anyhow::Result<Self> {
        let pd = context.alloc_pd()?;
        let (cq, channel) = (context.create_cq(256)?, context.create_channel()?);
        let max_recv_wr = QpCap::default().max_recv_wr.max(messages.receives());
        let qp = pd.create_qp(&cq, &cq, QpCap { max_recv_wr, ..QpCap::default() })?;
        let memory = pd.reg_mr(&region::alloc(MESSAGE)?, Access::ALL)?;
        // Touched, as buffers with data in them are.
        memory.memory().write(0, &vec![0x5a; MESSAGE]);
        Ok(Self { qp, memory, cq, channel, _pd: pd })
    }

    fn event(&self) -> anyhow::Result<CmEvent> {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(event) = self.channel.next_event()? {
                return Ok(event);
            }
            if self.channel.wait(WAIT, Some(deadline))? == Wake::TimedOut {
                bail!("the other end does not answer");
            }
        }
    }
}

/// Where the source may write.
fn encode(memory: &Mr) -> Vec<u8> {
    [&memory.addr().to_be_bytes()[..], &memory.rkey().to_be_bytes()].concat()
}

fn decode(private_data: &[u8]) -> Option<RemoteAddr> {
    let (addr, rest) = private_data.split_first_chunk()?;
    let rkey = rest.first_chunk()?;
    Some(RemoteAddr { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rkey) })
}

/// A region to write to, and a thread that waits for messages to arrive, as a server's does.
pub(super) fn serve(device: &Device) -> anyhow::Result<(SocketAddr, Running)> {
    let context = device.open(free_loopback()?, FAR_SEED)?;
    let messages = device.messages;
    let end = End::new(&context, messages)?;
    let (_, port) = end.channel.listen(0, 1)?;
    let address = SocketAddr::new(context.attr().address, port);
    // The source notices by itself that this end fails; why, is told here.
    spawn("sink", "the end that is written to", move || receive(&end, messages))?;
    Ok((address, Box::new(context)))
}

fn receive(end: &End, messages: Messages) -> anyhow::Result<()> {
    let CmEvent::ConnectRequest { id, .. } = end.event()? else { bail!("an event before any request") };
    for _ in 0..messages.receives() {
        end.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] })?;
    }
    let param = ConnParam { private_data: encode(&end.memory), ..ConnParam::default() };
    end.channel.accept(id, &end.qp, &param)?;
    loop {
        let Some(wc) = end.cq.poll_one()? else {
            end.cq.wait(WAIT, None)?;
            continue;
        };
        if !wc.status.is_success() {
            // The other end has gone.
            return Ok(());
        }
        end.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] })?;
    }
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Source {
    end: End,
    target: RemoteAddr,
    /// Messages of a repeat.
    amount: u64,
    messages: Messages,
    lossy: bool,
}

impl Source {
    pub(super) fn connect(device: &Device, far: SocketAddr) -> anyhow::Result<Self> {
        let context = device.open(free_loopback()?, NEAR_SEED)?;
        let messages = device.messages;
        let end = End::new(&context, messages)?;
        end.channel.connect(&end.qp, far, &ConnParam::default())?;
        let param = match end.event()? {
            CmEvent::Established { param, .. } => param,
            other => bail!("no connection: {other:?}"),
        };
        ensure!(param.path_mtu == device.mtu, "the path MTU is {}, not {}", param.path_mtu, device.mtu);
        let target = decode(&param.private_data).context("the other end does not say where to write")?;
        Ok(Self { end, target, amount: START, messages, lossy: device.loss_per_million > 0 })
    }

    /// Writes so many messages, and waits until all have arrived.
    fn write(&self, messages: u64) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let deadline = start + TIME_LIMIT;
        let Messages { outstanding, each_tells, .. } = self.messages;
        let (mut posted, mut done) = (0, 0);
        while done < messages {
            while posted < messages && posted - done < outstanding {
                posted += 1;
                self.post(each_tells || posted == messages)?;
            }
            while let Some(wc) = self.end.cq.poll_one()? {
                ensure!(wc.status.is_success(), "a WRITE failed: {}", wc.status);
                done += 1;
            }
            if done < messages && (posted == messages || posted - done == outstanding) {
                let wake = self.end.cq.wait(WAIT, Some(deadline))?;
                ensure!(wake != Wake::TimedOut, "{done} of {messages} WRITEs completed");
            }
        }
        Ok(start.elapsed())
    }

    /// One that tells is as the last one of a call.
    fn post(&self, tells: bool) -> anyhow::Result<()> {
        let op = if tells { SendOp::WriteWithImm(self.target, 0) } else { SendOp::Write(self.target) };
        let sges = [self.end.memory.sge(0, self.messages.bytes)];
        let wr = SendWr { wr_id: 0, op, payload: Payload::Sges(&sges), flags: SendFlags::SIGNALED };
        self.end.qp.post_send(&[wr]).map_err(|(_, error)| error)?;
        Ok(())
    }
}

impl Measure for Source {
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        let seconds = effort.seconds * if self.lossy { LOSSY_TIMES } else { 1.0 };
        (self.amount, _) = fill(&Effort { seconds, ..*effort }, |messages| self.write(messages))?;
        Ok(format!("ours waits adaptively, {} WRITEs outstanding", self.messages.outstanding))
    }

    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let time = self.write(self.amount)?;
        let Messages { bytes, each_tells, .. } = self.messages;
        let work = goodput(self.amount * u64::from(bytes), time);
        let value = self.amount as f64 / time.as_secs_f64() / 1e3;
        Ok(if each_tells { Work { value, ..work } } else { work })
    }
}
