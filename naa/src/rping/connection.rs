//! One connection of rping: a queue pair, its buffers, and the waits for messages and completions.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use naa_provider::{DeviceConfig, Opened, ProviderChoice};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, Sge, WaitMode, WaitOn, Wake, Wc, WcOpcode, WcStatus,
};

/// Time limit of a wait, which is longer than a peer takes between two messages of a round.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const ADVERTISEMENT: usize = 16;

/// CM events that are handled later.
#[derive(Default)]
struct Others(Mutex<VecDeque<CmEvent>>);

impl Others {
    /// The most clients that wait; requests of further ones are dropped.
    const MOST: usize = 64;

    fn lock(&self) -> MutexGuard<'_, VecDeque<CmEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, event: CmEvent) {
        let mut events = self.lock();
        if matches!(event, CmEvent::ConnectRequest { .. }) {
            if events.len() < Self::MOST {
                events.push_back(event);
            }
        } else {
            // The client is gone, so its request is removed.
            events.retain(|waiting| waiting.id() != event.id());
        }
    }
}

pub(super) struct RpingDevice {
    pub(super) context: Context,
    pub(super) why: String,
    pub(super) pd: Pd,
    pub(super) channel: Channel,
    /// CM events of other connections, which came while the program waited for the current connection.
    others: Others,
    /// The connection that is ended when the process is told to end.
    current: Arc<Mutex<Option<CmId>>>,
}

impl RpingDevice {
    pub(super) fn open(local: IpAddr, choice: ProviderChoice, must_listen: bool) -> anyhow::Result<Self> {
        let config = DeviceConfig { must_listen, ..DeviceConfig::default() };
        let Opened { context, why, is_surprising } = naa_provider::open(local, choice, &config)?;
        crate::provider::report(&why, is_surprising);
        let (pd, channel) = (context.alloc_pd()?, context.create_channel()?);
        let current = Arc::new(Mutex::new(None));
        let (ours, its_channel) = (current.clone(), channel.clone());
        crate::signals::on_terminate(move || {
            if let Some(id) = *ours.lock().unwrap_or_else(PoisonError::into_inner) {
                // The DREQ is sent before this returns. An error does not matter, because the process ends.
                let _ = its_channel.disconnect(id);
            }
            std::process::exit(130);
        })?;
        Ok(Self { context, why, pd, channel, others: Others::default(), current })
    }

    /// Waits for the next CM event of any connection.
    pub(super) fn next_event(&self) -> anyhow::Result<CmEvent> {
        loop {
            if let Some(event) = self.others.lock().pop_front() {
                return Ok(event);
            }
            if let Some(event) = self.channel.next_event()? {
                return Ok(event);
            }
            self.channel.wait(WaitMode::Block, None)?;
        }
    }

    /// Waits for the next CM event of connection `id`, at most for `limit`.
    pub(super) fn next_event_of(&self, id: CmId, limit: Option<Duration>) -> anyhow::Result<CmEvent> {
        let deadline = limit.map(|p| Instant::now() + p);
        loop {
            match self.channel.next_event()? {
                Some(event) if event.id() == id => return Ok(event),
                Some(event) => self.others.keep(event),
                None if self.channel.wait(WaitMode::Block, deadline)? == Wake::TimedOut => {
                    bail!("the peer did not answer the handshake in time");
                }
                None => {}
            }
        }
    }
}

/// Parameters of rping's connections.
pub(super) fn conn_param() -> ConnParam {
    ConnParam { retry_count: 7, rnr_retry_count: 7, ..ConnParam::default() }
}

pub(super) struct RpingConnection<'a> {
    device: &'a RpingDevice,
    cq: Cq,
    pub(super) qp: Qp,
    /// The memory of messages: they are received in the first half, and sent from the second one.
    control: Mr,
    pub(super) buffer: Mr,
    id: Option<CmId>,
}

/// What a wait for a message returned.
pub(super) enum ReceiveResult {
    Advertised {
        remote: RemoteAddr,
        size: u32,
    },
    /// The connection is over.
    Closed,
}

impl<'a> RpingConnection<'a> {
    /// Makes the queue pair and posts the first receive, so that the peer never finds a queue pair without a receive.
    pub(super) fn new(device: &'a RpingDevice, size: u32) -> anyhow::Result<Self> {
        let cq = device.context.create_cq(32)?;
        let qp = device.pd.create_qp(
            &cq,
            &cq,
            QpCap { max_send_wr: 8, max_recv_wr: 2, max_sge: 1, ..QpCap::default() },
        )?;
        let register = |len: usize| -> anyhow::Result<Mr> {
            Ok(device.pd.reg_mr(&region::alloc(len).context("cannot allocate a buffer")?, Access::ALL)?)
        };
        let (control, buffer) = (register(2 * ADVERTISEMENT)?, register(size as usize)?);
        let connection = Self { device, cq, qp, control, buffer, id: None };
        connection.post_recv()?;
        Ok(connection)
    }

    /// Sets the CM ID of this connection.
    pub(super) fn bind(&mut self, id: CmId) {
        self.id = Some(id);
        *self.device.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn post_recv(&self) -> anyhow::Result<()> {
        Ok(self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[self.control.sge(0, ADVERTISEMENT as u32)] })?)
    }

    /// The next completion; `None` if the peer has closed the connection and all completions before were taken.
    fn completion(&self) -> anyhow::Result<Option<Wc>> {
        let deadline = Some(Instant::now() + TIME_LIMIT);
        let on = WaitOn { cq: Some(self.cq.id()), channel: Some(self.device.channel.id()) };
        loop {
            if let Some(wc) = self.cq.poll_one()? {
                return Ok(Some(wc));
            }
            match self.device.channel.next_event()? {
                Some(CmEvent::Disconnected { id }) if Some(id) == self.id => {
                    return Ok(self.cq.poll_one()?);
                }
                // It is the late confirmation of this connection.
                Some(event) if Some(event.id()) == self.id => {}
                Some(event) => self.device.others.keep(event),
                None if self.device.context.wait(on, WaitMode::Adaptive, deadline)? == Wake::TimedOut => {
                    bail!("the peer went silent for {} s", TIME_LIMIT.as_secs());
                }
                None => {}
            }
        }
    }

    /// Waits for the peer's next message. Send completions that come meanwhile are checked.
    pub(super) fn receive(&self) -> anyhow::Result<ReceiveResult> {
        loop {
            let Some(wc) = self.completion()? else { return Ok(ReceiveResult::Closed) };
            match (wc.status, wc.opcode) {
                (WcStatus::Success, WcOpcode::Recv) => break,
                (WcStatus::Success, _) => {}
                (WcStatus::WrFlushError, _) => return Ok(ReceiveResult::Closed),
                (status, opcode) => bail!("{opcode:?} failed: {status}"),
            }
        }
        let mut message = [0; ADVERTISEMENT];
        self.control.memory().read(0, &mut message);
        self.post_recv()?;
        let (addr, rest) = message.split_first_chunk::<8>().expect("16 bytes hold 8");
        let (rkey, size) = rest.split_first_chunk::<4>().expect("8 bytes hold 4");
        let remote = RemoteAddr { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rkey) };
        Ok(ReceiveResult::Advertised { remote, size: u32::from_be_bytes(size.try_into()?) })
    }

    /// Sends a message of 16 bytes: an advertisement of our buffer; from a server, it means "go ahead".
    pub(super) fn advertise(&self, size: u32) -> anyhow::Result<()> {
        let mut message = [0; ADVERTISEMENT];
        message[..8].copy_from_slice(&self.buffer.addr().to_be_bytes());
        message[8..12].copy_from_slice(&self.buffer.rkey().to_be_bytes());
        message[12..].copy_from_slice(&size.to_be_bytes());
        // The message before may be overwritten, because the peer has answered it.
        self.control.memory().write(ADVERTISEMENT, &message);
        self.post(SendOp::Send, self.control.sge(ADVERTISEMENT as u64, ADVERTISEMENT as u32))
    }

    fn post(&self, op: SendOp, sge: Sge) -> anyhow::Result<()> {
        let wr = SendWr { wr_id: 1, op, payload: Payload::Sges(&[sge]), flags: SendFlags::SIGNALED };
        self.qp.post_send(&[wr]).map_err(|(_, e)| e)?;
        Ok(())
    }

    /// Posts a READ or WRITE of our buffer's first `size` bytes and waits until it is complete.
    pub(super) fn transfer(&self, op: SendOp, size: u32) -> anyhow::Result<()> {
        let wanted = if matches!(op, SendOp::Read(_)) { WcOpcode::Read } else { WcOpcode::Write };
        self.post(op, self.buffer.sge(0, size))?;
        loop {
            let wc = self.completion()?.context("the peer closed the connection")?;
            if !wc.status.is_success() {
                bail!("{wanted:?} failed: {}", wc.status);
            }
            if wc.opcode == wanted {
                return Ok(());
            }
        }
    }

    /// Disconnects from the peer.
    pub(super) fn close(&mut self) {
        if let Some(id) = self.id.take() {
            *self.device.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // Errors do not matter: the connection is over, even if the peer was gone already.
            let _ = self.device.channel.disconnect(id);
            let _ = self.device.channel.destroy_id(id);
        }
    }
}

impl Drop for RpingConnection<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
