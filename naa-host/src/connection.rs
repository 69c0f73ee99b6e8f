//! A connection, with its queue pair, the completions of its work requests and its CM events.

use std::{
    net::SocketAddr,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use mrsp::{Abilities, Liveness, layout::block::block_bytes, region::message_buffer_bytes};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Cq, DeviceAttr, Mr, Payload, Pd, Qp, QpCap, RecvWr,
    RemoteAddr, SendFlags, SendOp, SendWr, Unreachable, WaitMode, WaitOn, Wake, Wc, WcOpcode, WcStatus,
};

use crate::{Device, Error, Gone, alarm::Alarm, clock::Clock};

/// The kind of the work requests that send the host's MRSP messages. The low bits of a work request's number (`wr_id`)
/// contain its kind, so that a completion shows to which kind of work request it belongs.
const MESSAGE: u64 = 1;
/// The kind of the work requests that WRITE the inputs of a call. Only the last WRITE of a call asks for a completion.
pub(crate) const CALL: u64 = 2;
const PROBE: u64 = 3;
const RECEIVE: u64 = 4;
/// The kind of the WRITEs that a `Writer` posts during a streaming call. When a signaled WRITE completes, all earlier
/// WRITEs of the `Writer` have arrived as well.
pub(crate) const STREAMED: u64 = 5;

/// The number of bits that the kind takes in a work request's number. The kind is in the low bits: `MESSAGE`, `CALL`,
/// `PROBE`, `RECEIVE` or `STREAMED`. The high bits contain the queue pair's generation. A new queue pair can get the
/// QPN of an earlier queue pair whose completions are still queued. The generation shows to which of these queue pairs
/// a completion belongs.
const KIND_BITS: u32 = 8;

/// The time for which the program waits for the CM event that explains why work requests were flushed. The completions
/// of flushed work requests may reach the program before the CM event that explains the flush, because completions and
/// CM events come from different queues.
const GRACE: Duration = Duration::from_millis(100);

/// The number of send work requests for which a queue pair has room, in addition to the work requests that [`Room`] and
/// [`Extra`] count. The queue pair needs this room for MRSP messages, liveness probes, and the WRITE of a call without
/// inputs.
const SPARE_SENDS: u32 = 4;
/// The maximum number of receives that a session has posted at the same time, not counting the receives of [`Extra`]. A
/// session always has at least one posted receive.
const RECEIVES: u32 = 2;

/// The additional settings of a connection: the room for work requests in addition to those of a session's calls, and
/// whether acknowledgements may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// True if the device may delay acknowledgements to send them together with the next request; see
    /// [`QpCap::late_acks`].
    pub(crate) late_acks: bool,
}

impl Extra {
    pub(crate) const NONE: Self = Self { sends: 0, receives: 0, late_acks: true };
}

/// The sizes for which a queue pair is made: the number of WRITEs of one call, and the number of scatter-gather
/// elements in each WRITE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The number of regions of the session. A call can have one WRITE for each region.
    pub(crate) regions: usize,
    /// The number of WRITEs of a call in addition to one WRITE for each region.
    pub(crate) further: u64,
    /// The maximum number of elements in the scatter-gather list of a WRITE.
    pub(crate) elements: u32,
}

/// The initial value of each element in a new array of work requests. Each element is replaced before it is posted, so
/// this value itself is never posted.
pub(crate) const EMPTY: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Send,
    payload: Payload::Inline(&[]),
    flags: SendFlags { signaled: false, solicited: false, fence: false },
};

/// The maximum number of completions that are taken from the completion queue at once.
const BATCH: usize = 4;

/// The recorded reason for the end of a connection, if the program knows only that a work request was flushed. A
/// flushed work request does not show why the connection ended. `FLUSHED` is replaced when the reason for the end of
/// the connection becomes known.
const FLUSHED: Gone = Gone::Failed(WcStatus::WrFlushError);

/// Something that happened on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionEvent {
    Established,
    /// A SEND of `len` bytes has been received from the accelerator and lies in the message buffer.
    Message {
        len: usize,
    },
    Response {
        immediate: u32,
        bytes: u32,
    },
    /// The WRITEs of the call are acknowledged.
    Written,
    /// A signaled WRITE of a `Writer` is acknowledged. All WRITEs that were posted before this WRITE are then
    /// acknowledged, too.
    Streamed,
}

#[derive(Debug)]
pub(crate) struct HostConnection {
    pub(crate) peer: SocketAddr,
    /// The maximum number of bytes of payload in a packet; 0 until the connection is established.
    pub(crate) path_mtu: u32,
    /// The accelerator's abilities beyond MRSP. The field is set when the connection is established.
    pub(crate) abilities: Abilities,
    /// The queue pair; `None` once the connection is closed.
    qp: Option<Arc<Qp>>,
    cap: QpCap,
    id: Option<CmId>,
    /// The reason why the connection ended, if it ended. The reason is reported only after all completions that arrived
    /// before the end of the connection were handled.
    gone: Option<Gone>,
    /// True if the host has already waited for the CM event that explains why work requests were flushed.
    waited: bool,
    /// The end of the time in which the CM event may come that explains why work requests were flushed, for a program that
    /// waits in its own event loop.
    grace: Option<Instant>,
    generation: u64,
    pub(crate) clock: Clock,
    /// Says when the next liveness probe of the accelerator is due. If a probe is not answered, the device completes
    /// the probe with an error.
    pub(crate) liveness: Liveness,
    /// The timer and the file descriptor, which exist if the program waits for the connection in its own event loop.
    alarm: Option<Alarm>,
    taken: [Wc; BATCH],
    /// The indexes of the completions in `taken` that are not handled yet.
    fresh: std::ops::Range<usize>,
    /// A CM event that was taken and is handled after the completions.
    event: Option<CmEvent>,
    /// Memory for a received message, followed by memory for a message to send.
    messages: Mr,
    message_bytes: usize,
    cq: Cq,
    channel: Channel,
    pub(crate) pd: Pd,
    // Fields are dropped in the order of their declaration. This field is the last, so that the objects in the other
    // fields, which belong to the device, are dropped before it.
    device: Device,
}

impl HostConnection {
    /// Makes everything that a connection needs, but does not connect. `room` says how many WRITEs a call has, and
    /// `extra` says how many additional work requests there can be. The queue pair has room for all of them.
    /// `probe_interval` is the interval of liveness probes, as in [`Liveness::new`].
    pub(crate) fn new(
        device: &Device,
        peer: SocketAddr,
        room: Room,
        extra: Extra,
        probe_interval: Option<Duration>,
    ) -> Result<Self, Error> {
        let context = device.context();
        let pd = context.alloc_pd()?;
        let regions = u8::try_from(room.regions).unwrap_or(u8::MAX);
        let further = u32::try_from(room.further).unwrap_or(u32::MAX);
        let max_send_wr =
            (u32::from(regions) + SPARE_SENDS).saturating_add(further).saturating_add(extra.sends);
        let max_recv_wr = RECEIVES.saturating_add(extra.receives);
        let completions = max_send_wr.saturating_add(max_recv_wr);
        if extra != Extra::NONE {
            check(context.attr(), max_send_wr.max(max_recv_wr), completions)?;
        }
        let cq = context.create_cq(completions)?;
        let cap = QpCap { max_send_wr, max_recv_wr, max_sge: room.elements, late_acks: extra.late_acks };
        let message_bytes = message_buffer_bytes(regions) + block_bytes(regions);
        let memory = region::alloc(2 * message_bytes).map_err(Error::Memory)?;
        Ok(Self {
            peer,
            path_mtu: 0,
            abilities: Abilities::default(),
            qp: Some(Arc::new(pd.create_qp(&cq, &cq, cap)?)),
            cap,
            id: None,
            gone: None,
            waited: false,
            grace: None,
            generation: 0,
            clock: Clock::new(),
            liveness: Liveness::new(probe_interval, None, Instant::now()),
            alarm: None,
            taken: [Wc::EMPTY; BATCH],
            fresh: 0..0,
            event: None,
            messages: pd.reg_mr(&memory, Access::LOCAL)?,
            message_bytes,
            cq,
            channel: context.create_channel()?,
            pd,
            device: device.clone(),
        })
    }

    /// Replaces the queue pair by a new one with another QPN, after a connection was refused.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        let qp = self.pd.create_qp(&self.cq, &self.cq, self.cap)?;
        if let Some(id) = self.id.take() {
            // If an error occurs, the old connection ID can still exist. This does no harm, because the method `next`
            // ignores all CM events whose connection ID is not `self.id`.
            let _ = self.channel.destroy_id(id);
        }
        (self.qp, self.gone, self.waited, self.fresh) = (Some(Arc::new(qp)), None, false, 0..0);
        self.event = None;
        self.grace = None;
        self.generation += 1;
        Ok(())
    }

    pub(crate) fn connect(&mut self, param: &ConnParam) -> Result<(), Error> {
        let Some(qp) = &self.qp else { return Err(self.lost()) };
        self.id = Some(self.channel.connect(qp, self.peer, param)?);
        Ok(())
    }

    /// Posts a receive with the message buffer. Receives are posted during session setup and also during calls, because
    /// the accelerator may send an error message during a call.
    pub(crate) fn post_receive(&self) -> Result<(), Error> {
        let Some(qp) = &self.qp else { return Err(self.lost()) };
        let buffer = self.messages.sge(0, self.message_bytes as u32);
        Ok(qp.post_recv(&RecvWr { wr_id: self.number(RECEIVE), sges: &[buffer] })?)
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        // The message fits into the buffer, because the buffer has room for one entry for each region and one layout
        // entry for each parameter.
        self.messages.memory().write(self.message_bytes, message);
        let sge = self.messages.sge(self.message_bytes as u64, message.len() as u32);
        self.post(&[SendWr {
            wr_id: self.number(MESSAGE),
            op: SendOp::Send,
            payload: Payload::Sges(&[sge]),
            flags: SendFlags::SIGNALED_SOLICITED,
        }])
    }

    pub(crate) fn message(&self, len: usize) -> Vec<u8> {
        self.messages.memory().to_vec(0, len.min(self.message_bytes))
    }

    pub(crate) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), Error> {
        let Some(qp) = &self.qp else { return Err(self.lost()) };
        Ok(qp.post_send(wrs).map_err(|(_, error)| error)?)
    }

    /// Sends a liveness probe, which is a WRITE of no bytes, unless the last probe is still unanswered.
    pub(crate) fn probe(&mut self, to: RemoteAddr, now: Instant) -> Result<(), Error> {
        if self.is_probing() {
            return Ok(());
        }
        self.liveness.probed(now);
        let (op, payload) = (SendOp::Write(to), Payload::Inline(&[]));
        self.post(&[SendWr { wr_id: self.number(PROBE), op, payload, flags: SendFlags::SIGNALED }])
    }

    /// Returns true if a liveness probe was sent and is not answered yet.
    pub(crate) fn is_probing(&self) -> bool {
        self.liveness.probing_since().is_some()
    }

    /// Returns the queue pair, so that a `Writer` can post work requests from another thread. If the connection is
    /// closed, the result is an empty `Weak`.
    pub(crate) fn queue_pair(&self) -> Weak<Qp> {
        self.qp.as_ref().map_or_else(Weak::new, Arc::downgrade)
    }

    /// Returns the number (`wr_id`) for a new work request with the kind `kind`. It consists of the queue pair's
    /// generation and the kind.
    pub(crate) fn number(&self, kind: u64) -> u64 {
        self.generation << KIND_BITS | kind
    }

    pub(crate) fn max_inline_data(&self) -> usize {
        self.device.context().attr().max_inline_data as usize
    }

    /// Returns the next event of the connection, or `None` if no event has arrived. Completions are handled in the
    /// order in which they arrived, and before CM events. After an error, the connection has no further events, unless
    /// [`renew`](Self::renew) is called.
    pub(crate) fn next(&mut self) -> Result<Option<SessionEvent>, Error> {
        loop {
            if let Some(at) = self.fresh.next() {
                let wc = self.taken[at];
                if let Some(event) = self.completed(&wc) {
                    return Ok(Some(event));
                }
                continue;
            }
            let count = self.poll()?;
            if count > 0 {
                self.fresh = 0..count;
                continue;
            }
            let event = self.event.take();
            if event.as_ref().is_some_and(|event| Some(event.id()) != self.id) {
                // A CM event whose connection ID is not `self.id` belongs to an earlier connection and is ignored.
                continue;
            }
            match event {
                // Completions that arrived before the disconnect are handled before the disconnect is reported.
                Some(CmEvent::Disconnected { .. }) => self.note(Gone::Disconnected),
                Some(CmEvent::Established { param, .. }) => {
                    self.path_mtu = param.path_mtu;
                    self.abilities = Abilities::decode(&param.private_data);
                    return Ok(Some(SessionEvent::Established));
                }
                Some(CmEvent::Rejected { reason, private_data, .. }) => {
                    let (peer, said) = (self.peer, words(&private_data));
                    return Err(Error::ConnectionRefused { peer, reason, said });
                }
                Some(CmEvent::Unreachable { why, .. }) => return Err(self.unreachable(why)),
                Some(_) => {}
                // A program that waits in its own event loop must not be blocked here. The file descriptor becomes readable
                // at the end of `grace`.
                None if self.gone == Some(FLUSHED) && !self.waited && self.alarm.is_some() => {
                    let now = Instant::now();
                    if now < *self.grace.get_or_insert(now + GRACE) {
                        return Ok(None);
                    }
                    self.waited = true;
                }
                None if self.gone == Some(FLUSHED) && !self.waited => {
                    self.waited = true;
                    let on = WaitOn { cq: None, channel: Some(self.channel.id()) };
                    self.device.context().wait(on, WaitMode::Block, Some(Instant::now() + GRACE))?;
                }
                None if self.gone.is_some() => return Err(self.lost()),
                None => return Ok(None),
            }
        }
    }

    /// Takes completions, and a CM event if there is none that is not handled yet. Returns the number of completions.
    fn poll(&mut self) -> Result<usize, Error> {
        if self.event.is_some() {
            return Ok(self.cq.poll(&mut self.taken)?);
        }
        let (count, event) = self.device.context().poll(&self.cq, &self.channel, &mut self.taken)?;
        self.event = event;
        Ok(count)
    }

    fn completed(&mut self, wc: &Wc) -> Option<SessionEvent> {
        let (generation, kind) = (wc.wr_id >> KIND_BITS, wc.wr_id & ((1 << KIND_BITS) - 1));
        if generation != self.generation {
            // The completion belongs to an earlier queue pair and is ignored.
            return None;
        }
        match wc.status {
            WcStatus::Success => {}
            WcStatus::RetryExceeded => {
                self.note(Gone::Silent);
                return None;
            }
            status => {
                self.note(Gone::Failed(status));
                return None;
            }
        }
        match kind {
            PROBE => self.liveness.answered(),
            CALL => self.liveness.acknowledged(),
            _ => {}
        }
        match (wc.opcode, kind) {
            (WcOpcode::Recv, _) => Some(SessionEvent::Message { len: wc.byte_len as usize }),
            (WcOpcode::RecvWriteWithImm, _) => {
                Some(SessionEvent::Response { immediate: wc.imm.unwrap_or(0), bytes: wc.byte_len })
            }
            (_, CALL) => Some(SessionEvent::Written),
            (_, STREAMED) => Some(SessionEvent::Streamed),
            _ => None,
        }
    }

    /// Records why the connection ended. The first reason for the end of the connection is kept. Only the reason
    /// `FLUSHED` is replaced by a later reason, because a flushed work request does not show why the connection ended.
    fn note(&mut self, why: Gone) {
        if self.gone.is_none_or(|before| before == FLUSHED) {
            self.gone = Some(why);
        }
    }

    fn lost(&self) -> Error {
        let why = self.gone.unwrap_or(FLUSHED);
        Error::PeerGone { peer: self.peer, function: None, why }
    }

    pub(crate) fn unreachable(&self, why: Unreachable) -> Error {
        Error::Unreachable { peer: self.peer, why, device: self.device.describe().to_owned() }
    }

    /// Waits until there is a completion or a CM event to poll, until `deadline`, or until an interrupt ends the wait.
    pub(crate) fn wait(&self, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        Ok(self.device.context().wait(self.on(), mode, deadline)?)
    }

    fn on(&self) -> WaitOn {
        WaitOn { cq: Some(self.cq.id()), channel: Some(self.channel.id()) }
    }

    /// Returns the file descriptor for event loops, and makes the file descriptor if the connection has none.
    pub(crate) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        self.alarm().map(Alarm::as_fd)
    }

    /// Returns the same file descriptor as [`descriptor`](Self::descriptor), and keeps it open beyond the connection.
    #[cfg(feature = "tokio")]
    pub(crate) fn shared_descriptor(&mut self) -> Result<Arc<std::os::fd::OwnedFd>, Error> {
        self.alarm().map(Alarm::shared)
    }

    fn alarm(&mut self) -> Result<&Alarm, Error> {
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => {
                let failed = |e| verbs::Error::io("cannot make a descriptor to sleep on", e);
                let alarm = Alarm::new(self.device.context().descriptor(self.on())?).map_err(failed)?;
                // The new file descriptor becomes readable at once, so that the program calls `Session::test` or
                // `StreamingCall::test`. These methods arm the file descriptor.
                set(&alarm, Some(Instant::now()))?;
                alarm
            }
        };
        Ok(self.alarm.insert(alarm))
    }

    /// Makes `self.clock` read the exact time at the next use of the clock, if the connection has a file descriptor for
    /// event loops. The timer of this file descriptor may have woken the program, and only the exact time shows
    /// reliably whether this timer has expired.
    pub(crate) fn refresh_clock_if_armed(&mut self) {
        if self.alarm.is_some() {
            self.clock.refresh();
        }
    }

    /// Arms the file descriptor for event loops. The file descriptor then becomes readable when a completion or a CM
    /// event arrives, and also at the time `until`. Returns false if a completion or a CM event has already arrived. If
    /// the connection has no file descriptor for event loops, the method does nothing and returns true.
    pub(crate) fn arm(&self, until: Option<Instant>) -> Result<bool, Error> {
        let Some(alarm) = &self.alarm else { return Ok(true) };
        let grace = self.grace.filter(|_| !self.waited);
        set(alarm, until.into_iter().chain(grace).min())?;
        Ok(self.device.context().arm(self.on())?)
    }

    /// Ends the connection without waiting for the peer. The queue pair is destroyed, so the connection has no work
    /// requests any more.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let Some(qp) = self.qp.take() else { return Ok(()) };
        let disconnected = self.id.map_or(Ok(()), |id| self.channel.disconnect(id));
        drop(qp);
        if let Some(id) = self.id.take() {
            // An error of `destroy_id` is ignored, because the connection has already ended.
            let _ = self.channel.destroy_id(id);
        }
        if self.gone.is_some() { Ok(()) } else { Ok(disconnected?) }
    }
}

fn set(alarm: &Alarm, at: Option<Instant>) -> Result<(), verbs::Error> {
    alarm.set(at).map_err(|error| verbs::Error::io("cannot set a timer", error))
}

/// Checks that the device supports `work_requests` work requests and `completions` completions. The check is made here
/// because the error that the device itself would return does not name a remedy.
fn check(attr: &DeviceAttr, work_requests: u32, completions: u32) -> Result<(), verbs::Error> {
    const REMEDY: &str = "let fewer messages be under way, as a ring of fewer slots does";
    if work_requests > attr.max_qp_wr {
        let (what, limit) = ("work requests of a queue pair", attr.max_qp_wr.into());
        return Err(verbs::Error::Exhausted { what, limit, remedy: REMEDY });
    }
    if completions > attr.max_cqe {
        let (what, limit) = ("entries of a completion queue", attr.max_cqe.into());
        return Err(verbs::Error::Exhausted { what, limit, remedy: REMEDY });
    }
    Ok(())
}

/// Returns the text in the private data of a rejection, up to the first zero byte. Returns `None` if the text is empty
/// or has bytes that are not printable ASCII characters.
fn words(private_data: &[u8]) -> Option<String> {
    let text = private_data.split(|&byte| byte == 0).next()?;
    let is_text = !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    is_text.then(|| String::from_utf8_lossy(text).into_owned())
}

impl Drop for HostConnection {
    fn drop(&mut self) {
        // `drop` cannot return the error of `close`, so the error is ignored.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn only_text_is_repeated() {
        assert_eq!(words(b"full; try again\0\0\0").as_deref(), Some("full; try again"));
        for nonsense in [&b""[..], b"\0text", b"\x1b[2Jtext", b"caf\xc3\xa9", &[0xff; 148]] {
            assert_eq!(words(nonsense), None, "{nonsense:?}");
        }
    }
}
