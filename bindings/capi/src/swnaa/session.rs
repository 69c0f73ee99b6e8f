//! One host's connection, as the thread that works for it drives it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mrsp::{ErrorCode, ReturnCode, U24, immediate::CallRequest};
use naa_server::{
    call::SessionRegions,
    memory_budget::Quota,
    session::{Next, ServerSession, SessionEnd},
};
use verbs::{Context, Cq, WaitMode, WaitOn, Wc, WcOpcode, WcStatus};

use super::listener::SwnaaListener;

/// A thread looks after its host no more often than this.
const TICK: Duration = Duration::from_millis(500);

/// What the router tells a connection's thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    on: WaitOn,
    established: AtomicBool,
    /// The host left, or never confirmed.
    gone: AtomicBool,
    /// The listener ends.
    stopped: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new(cq: &Cq) -> Self {
        let on = WaitOn { cq: Some(cq.id()), channel: None };
        Self { on, established: false.into(), gone: false.into(), stopped: false.into() }
    }

    pub(crate) fn establish(&self) {
        self.established.store(true, Ordering::Release);
    }

    /// The host has confirmed; `None` while that is open.
    pub(crate) fn is_confirmed(&self) -> Option<bool> {
        match (self.established.load(Ordering::Acquire), self.gone.load(Ordering::Acquire)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    pub(crate) fn leave(&self, context: &Context) {
        self.gone.store(true, Ordering::Release);
        context.driver().interrupt(self.on);
    }

    pub(crate) fn stop(&self, context: &Context) {
        self.stopped.store(true, Ordering::Release);
        context.driver().interrupt(self.on);
    }
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Over {
    #[error("the host disconnected")]
    Left,
    #[error("the host was told why its session ends")]
    Closed,
    #[error("the program shuts the server down")]
    Stopped,
    #[error("{0}")]
    Failed(#[from] SessionEnd),
}

impl Over {
    /// Nothing went wrong.
    pub(crate) fn is_peaceful(&self) -> bool {
        matches!(self, Self::Left | Self::Stopped)
    }
}

impl From<verbs::Error> for Over {
    fn from(error: verbs::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A call that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedCall {
    /// 0 for a host's function 128.
    pub(crate) function: u8,
    pub(crate) user: U24,
    /// Bytes of the message that had the immediate.
    pub(crate) bytes: u32,
}

#[derive(Debug)]
pub(crate) struct SwnaaSession {
    session: ServerSession,
    quota: Quota,
    cq: Cq,
    mailbox: Arc<Mailbox>,
    /// A call that arrived and that the program has not taken yet.
    call: Option<CallRequest>,
    /// Bytes of the last message that had an immediate.
    bytes: u32,
    listener: Arc<SwnaaListener>,
}

impl SwnaaSession {
    pub(crate) fn new(
        listener: &Arc<SwnaaListener>,
        session: ServerSession,
        quota: Quota,
        cq: Cq,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self { session, quota, cq, mailbox, call: None, bytes: 0, listener: listener.clone() }
    }

    pub(crate) fn session(&self) -> &ServerSession {
        &self.session
    }

    pub(crate) fn is_established(&self) -> bool {
        self.session.established || self.mailbox.established.load(Ordering::Acquire)
    }

    /// Something that was sent is not acknowledged yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.quota.sends().unfinished()
    }

    /// Sleeps until something happens or `until`, and takes what did.
    pub(crate) fn turn(&mut self, until: Instant) -> Result<(), Over> {
        // A probe that is due may have to wait for the host to confirm.
        let soonest = Instant::now() + TICK;
        let due = self.session.liveness.next().map_or(until, |at| until.min(at.max(soonest)));
        self.listener.context().wait(self.mailbox.on, WaitMode::Adaptive, Some(due))?;
        self.take()
    }

    /// Takes what happened.
    pub(crate) fn take(&mut self) -> Result<(), Over> {
        if self.mailbox.stopped.load(Ordering::Acquire) {
            return Err(Over::Stopped);
        }
        // A host that left wants nothing more, also if a call of it arrived.
        if self.mailbox.gone.load(Ordering::Acquire) {
            return Err(Over::Left);
        }
        self.session.established |= self.mailbox.established.load(Ordering::Acquire);
        while let Some(wc) = self.cq.poll_one()? {
            self.completed(&wc)?;
        }
        self.look_after_host()
    }

    /// A completion leads to this.
    pub(crate) fn completed(&mut self, wc: &Wc) -> Result<(), Over> {
        if wc.status == WcStatus::Success && wc.opcode == WcOpcode::RecvWriteWithImm {
            self.bytes = wc.byte_len;
        }
        match self.session.completed(wc, Instant::now()) {
            Ok(Next::Nothing) => Ok(()),
            Ok(Next::Call(request)) => {
                self.call = Some(request);
                Ok(())
            }
            Ok(Next::Close) => Err(self.session.refused.take().map_or(Over::Closed, Over::Failed)),
            // What a disconnect does, before its event.
            Err(SessionEnd::Completion(WcStatus::WrFlushError)) => Err(Over::Left),
            Err(end) => Err(end.into()),
        }
    }

    fn look_after_host(&mut self) -> Result<(), Over> {
        let now = Instant::now();
        if self.session.liveness.is_dead(now) {
            return Err(SessionEnd::Unacknowledged.into());
        }
        if self.session.established && self.session.liveness.is_probe_due(now) {
            self.session.probe(now)?;
        }
        Ok(())
    }

    pub(crate) fn has_call(&self) -> bool {
        self.call.is_some()
    }

    /// The oldest call. The host has no access to the regions until it is answered.
    pub(crate) fn take_call(&mut self) -> Result<Option<ReceivedCall>, Over> {
        let Some(CallRequest { function, user }) = self.call.take() else { return Ok(None) };
        self.session.revoke()?;
        let function = function.map_or(0, |code| code.get());
        Ok(Some(ReceivedCall { function, user, bytes: self.bytes }))
    }

    /// Sends the results, or the reason why there are none.
    pub(crate) fn respond(&mut self, failure: Option<ReturnCode>) -> Result<(), Over> {
        let result = failure.map_or(Ok(&[][..]), Err);
        self.session.respond(result, Instant::now())?;
        Ok(())
    }

    /// Sends an MRSP error, after which the connection ends.
    pub(crate) fn give_up(&mut self, code: ErrorCode) -> Result<(), Over> {
        Ok(self.session.give_up(code)?)
    }

    /// Disconnects. The regions stay as long as they are kept: a kernel may be looking at them.
    pub(crate) fn end(mut self) -> SessionRegions {
        let regions = std::mem::take(&mut self.session.regions);
        self.listener.forget(self.session.id);
        regions
    }
}
