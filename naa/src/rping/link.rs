//! One connection of rping: a queue pair, its buffers, and waiting for what comes next.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, Wake, Wc, WcOpcode, WcStatus,
};

/// Longer than a peer takes between two messages of a round.
const PATIENCE: Duration = Duration::from_secs(60);
const ADVERTISEMENT: usize = 16;

pub(super) struct Device {
    pub(super) context: Context,
    pub(super) pd: Pd,
    pub(super) channel: Channel,
    /// The connection to end when the process is told to.
    current: Arc<Mutex<Option<CmId>>>,
}

impl Device {
    pub(super) fn open(local: IpAddr, must_listen: bool) -> anyhow::Result<Self> {
        let options = roce_udp::Options { must_listen, ..roce_udp::Options::default() };
        let context = roce_udp::open(local, &options).context("cannot open the embedded device")?;
        let (pd, channel) = (context.alloc_pd()?, context.create_channel()?);
        let current = Arc::new(Mutex::new(None));
        let (ours, told) = (current.clone(), channel.clone());
        crate::signals::on_terminate(move || {
            if let Some(id) = *ours.lock().unwrap_or_else(PoisonError::into_inner) {
                // The peer is told before this returns; more cannot be done for it.
                let _ = told.disconnect(id);
            }
            std::process::exit(130);
        })?;
        Ok(Self { context, pd, channel, current })
    }

    pub(super) fn next_event(&self, patience: Option<Duration>) -> anyhow::Result<CmEvent> {
        let deadline = patience.map(|p| Instant::now() + p);
        loop {
            if let Some(event) = self.channel.next_event()? {
                return Ok(event);
            }
            if self.channel.wait(WaitMode::Block, deadline)? == Wake::TimedOut {
                bail!("the peer did not answer the handshake in time");
            }
        }
    }
}

/// Parameters of rping's connections.
pub(super) fn conn_param() -> ConnParam {
    ConnParam { retry_count: 7, rnr_retry_count: 7, ..ConnParam::default() }
}

pub(super) struct Link {
    cq: Cq,
    pub(super) qp: Qp,
    /// What the two ends tell each other: received in the first half, sent from the second.
    control: Mr,
    pub(super) buffer: Mr,
    id: Option<CmId>,
    current: Arc<Mutex<Option<CmId>>>,
    channel: Channel,
}

/// What a link saw.
pub(super) enum Seen {
    Advertised {
        remote: RemoteAddr,
        size: u32,
    },
    /// The connection is over.
    Closed,
}

impl Link {
    /// Makes the queue pair and posts the first receive, so that the peer never meets an unready one.
    pub(super) fn new(device: &Device, size: u32) -> anyhow::Result<Self> {
        let cq = device.context.create_cq(32)?;
        let qp = device.pd.create_qp(
            &cq,
            &cq,
            QpCap { max_send_wr: 8, max_recv_wr: 2, max_sge: 1, ..QpCap::default() },
        )?;
        let register = |len: usize| -> anyhow::Result<Mr> {
            Ok(device.pd.reg_mr(&region::alloc(len).context("cannot allocate a buffer")?, Access::ALL)?)
        };
        let link = Self {
            cq,
            qp,
            control: register(2 * ADVERTISEMENT)?,
            buffer: register(size as usize)?,
            id: None,
            current: device.current.clone(),
            channel: device.channel.clone(),
        };
        link.post_recv()?;
        Ok(link)
    }

    /// The connection this link is.
    pub(super) fn bind(&mut self, id: CmId) {
        self.id = Some(id);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn post_recv(&self) -> anyhow::Result<()> {
        Ok(self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[self.control.sge(0, ADVERTISEMENT as u32)] })?)
    }

    fn completion(&self) -> anyhow::Result<Wc> {
        let deadline = Some(Instant::now() + PATIENCE);
        loop {
            if let Some(wc) = self.cq.poll_one()? {
                return Ok(wc);
            }
            if self.cq.wait(WaitMode::Adaptive, deadline)? == Wake::TimedOut {
                bail!("the peer went silent for {} s", PATIENCE.as_secs());
            }
        }
    }

    /// Waits for the peer's next message. Send completions met on the way are checked.
    pub(super) fn receive(&self) -> anyhow::Result<Seen> {
        loop {
            let wc = self.completion()?;
            match (wc.status, wc.opcode) {
                (WcStatus::Success, WcOpcode::Recv) => break,
                (WcStatus::Success, _) => {}
                (WcStatus::WrFlushError, _) => return Ok(Seen::Closed),
                (status, opcode) => bail!("{opcode:?} failed: {status}"),
            }
        }
        let mut message = [0; ADVERTISEMENT];
        self.control.memory().read(0, &mut message);
        self.post_recv()?;
        let (addr, rest) = message.split_first_chunk::<8>().expect("16 bytes hold 8");
        let (rkey, size) = rest.split_first_chunk::<4>().expect("8 bytes hold 4");
        let remote = RemoteAddr { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rkey) };
        Ok(Seen::Advertised { remote, size: u32::from_be_bytes(size.try_into()?) })
    }

    /// Sends the 16 bytes: an advertisement of our buffer, or, from a server, "go ahead".
    pub(super) fn advertise(&self, size: u32) -> anyhow::Result<()> {
        let mut message = [0; ADVERTISEMENT];
        message[..8].copy_from_slice(&self.buffer.addr().to_be_bytes());
        message[8..12].copy_from_slice(&self.buffer.rkey().to_be_bytes());
        message[12..].copy_from_slice(&size.to_be_bytes());
        self.control.memory().write(ADVERTISEMENT, &message);
        self.post(SendOp::Send, Payload::Inline(&message))
    }

    pub(super) fn post(&self, op: SendOp, payload: Payload<'_>) -> anyhow::Result<()> {
        let wr = SendWr { wr_id: 1, op, payload, flags: SendFlags::SIGNALED };
        self.qp.post_send(&[wr]).map_err(|(_, e)| e)?;
        Ok(())
    }

    /// Posts a READ or WRITE of our buffer's first `size` bytes and waits until it is complete.
    pub(super) fn transfer(&self, op: SendOp, size: u32) -> anyhow::Result<()> {
        let wanted = if matches!(op, SendOp::Read(_)) { WcOpcode::Read } else { WcOpcode::Write };
        self.post(op, Payload::Sges(&[self.buffer.sge(0, size)]))?;
        loop {
            let wc = self.completion()?;
            if !wc.status.is_success() {
                bail!("{wanted:?} failed: {}", wc.status);
            }
            if wc.opcode == wanted {
                return Ok(());
            }
        }
    }

    /// Tells the peer that it is over.
    pub(super) fn close(&mut self) {
        if let Some(id) = self.id.take() {
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // Whether the peer was told or had gone, the link is over.
            let _ = self.channel.disconnect(id);
            let _ = self.channel.destroy_id(id);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn socket(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}
