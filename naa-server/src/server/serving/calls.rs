//! This module handles the calls of sessions from the request to the response, and counts the calls whose hosts do not
//! get the result ([`Cut`]).

use std::{sync::Arc, time::Instant};

use mrsp::{ReturnCode, builtin::CATALOGUE, immediate::CallRequest, plan::Part};
use verbs::{Context, log_limit::LogLimit, source_network::SourceNetwork};

use super::{
    super::{peers::Peers, sizes},
    LoopServiceState,
};
use crate::{
    call::{Call, CallFailure, CallWork, ServerCall, SessionRegions, Stop},
    config::Config,
    counters::{Cut, ServerCounters},
    function::{Execution, Handler, Registry},
    loop_service::SubscribingHost,
    peer_line::peer_line,
    pool::Pool,
    session::{Calling, ServerSession, SessionEnd},
    tasks::{AsyncFunction, TaskCall, Tasks},
};

/// If the server must copy the regions of a call and they have more than this number of bytes, the pool executes the
/// call.
const COPIED_INLINE: u64 = 64 << 10;

/// Executes the calls of all sessions. It has all that a call needs beside its session. The server loop uses these parts, too. A method that returns a
/// [`SessionEnd`] has not closed the session. Its caller closes the session.
pub(super) struct CallExecutor {
    pub(super) config: Config,
    pub(super) registry: Registry,
    pub(super) stats: Arc<ServerCounters>,
    pub(super) pool: Pool,
    pub(super) tasks: Tasks,
    pub(super) peers: Peers,
    pub(super) lines: LogLimit,
    pub(super) loop_service: Option<LoopServiceState>,
    /// The time at which the current turn of the server loop began. The deadlines of all calls of a turn are computed
    /// from this time.
    pub(super) now: Instant,
    /// True while the server closes its remaining sessions before it ends. If a session ends without an error while
    /// `ending` is true, its unfinished call is counted under `Cut::ServerEnded` instead of `Cut::HostLeft`.
    pub(super) ending: bool,
    pub(super) context: Context,
}

impl CallExecutor {
    /// Executes a call, or gives it to the thread pool, to a task or to the loop service.
    ///
    /// # Errors
    /// Fails with the reason for which the session ends.
    pub(super) fn call(
        &mut self,
        session: &mut ServerSession,
        request: CallRequest,
    ) -> Result<(), SessionEnd> {
        let now = self.now;
        let handler = request.function.and_then(|code| self.registry.get(code));
        let (address, peer) = (session.peer, SourceNetwork::from(session.peer.ip()));
        if request.function == Some(CATALOGUE) {
            self.stats.catalogue_lookups.add(1);
        } else {
            self.stats.calls.add(1);
            self.peers.called(peer);
        }
        let Some(handler) = handler else {
            peer_line!(self.lines, INFO, address, now, ?request, "unknown function");
            return self.respond(session, Err(CallFailure::UnknownFunction));
        };
        session.revoke()?;
        if let Handler::Async(function) = handler {
            let function = function.clone();
            return self.start_task(session, request, &function);
        }
        let Some(work) = work_of(handler, session) else { return self.subscribe(session, request) };
        let regions = std::mem::take(&mut session.regions);
        let bytes = regions.iter().map(|r| r.allocation.len() as u64).sum();
        self.stats.bytes_in.add(bytes);
        // If the device does not revoke access, a function works on copies of the regions that the host can write. The
        // pool then executes each call with more than `COPIED_INLINE` bytes of regions, so that the server loop does
        // not spend time on these copies.
        let copies = bytes > COPIED_INLINE && !self.context.attr().revokes;
        // If the session has a process for kernels, the call runs on the pool, because the call must wait for this
        // process. A call of a kernel waits until the session's process has run the kernel. A call of any other
        // function first stops the session's process, and waits until the process has ended.
        let execution = match &work {
            CallWork::Function { function, process: None } if !copies => function.execution(bytes),
            _ => Execution::Pooled,
        };
        let deadline = now + self.config.call_time;
        let mut call =
            ServerCall { work, regions, session: session.serial, peer, user: request.user, deadline };
        if execution == Execution::Inline && self.peers.may_inline(peer, now) {
            let begun = self.peers.is_shared().then(Instant::now);
            let result = call.run(&Stop::at(call.deadline));
            if let Some(begun) = begun {
                self.peers.computed(peer, begun.elapsed());
            }
            session.regions = call.regions;
            return self.respond(session, result);
        }
        match self.pool.submit(call) {
            Ok(call) => {
                session.calling = Calling::Pooled { call, function: request.function };
                Ok(())
            }
            Err(refused) => {
                session.regions = refused.call.regions;
                self.respond(session, Err(CallFailure::Refused(refused.why)))
            }
        }
    }

    /// Starts a task that executes a call of an async function.
    fn start_task(
        &mut self,
        session: &mut ServerSession,
        request: CallRequest,
        function: &Arc<AsyncFunction>,
    ) -> Result<(), SessionEnd> {
        if session.process.as_ref().is_some_and(|process| process.is_alive()) {
            // The process would have to be stopped before the regions are read, and stopping it takes long.
            let why = "the session has a process for kernels; call this function on another session";
            return self.respond(session, Err(CallFailure::Arguments(why.into())));
        }
        let regions = std::mem::take(&mut session.regions);
        self.stats.bytes_in.add(regions.iter().map(|r| r.allocation.len() as u64).sum());
        let (peer, deadline) = (session.peer.ip().into(), self.now + self.config.call_time);
        let call = TaskCall { regions, session: session.serial, peer, user: request.user, deadline };
        match self.tasks.start(function, call) {
            Ok(task) => {
                session.calling = Calling::Task { task, function: request.function };
                Ok(())
            }
            Err(refused) => {
                let (why, regions) = *refused;
                session.regions = regions;
                self.respond(session, Err(CallFailure::Refused(why)))
            }
        }
    }

    /// Lets the loop service execute a call. If the loop service accepts the call, the loop service gets a
    /// `StreamingSession`, by which it writes to the session's host.
    fn subscribe(&mut self, session: &mut ServerSession, request: CallRequest) -> Result<(), SessionEnd> {
        let mut regions = std::mem::take(&mut session.regions);
        let result = match &mut self.loop_service {
            Some(_) if session.shares_regions() => {
                let why =
                    "each parameter of a subscription has a region of its own; take the symmetric layout";
                Err(CallFailure::Arguments(why.into()))
            }
            Some(loop_service) => {
                let stop = Stop::at(self.now + self.config.call_time);
                let host = SubscribingHost { peer: session.peer, params: session.params() };
                let service = &mut loop_service.service;
                Call::make(&mut regions, request.user, &stop, |call| service.subscribe(&host, call))
            }
            None => Err(CallFailure::Internal("nobody is there to subscribe with".into())),
        };
        session.regions = regions;
        let may = result.is_ok();
        self.respond(session, result)?;
        if may { self.begin_stream(session) } else { Ok(()) }
    }

    fn begin_stream(&mut self, session: &mut ServerSession) -> Result<(), SessionEnd> {
        let most_sends = sizes::stream_sends(&self.config, self.context.attr());
        let Some(loop_service) = &mut self.loop_service else { return Ok(()) };
        let Some(stream) = session.stream(most_sends)? else {
            let why = "a subscriber's parameters have a region each, and no kernel has them";
            return Err(SessionEnd::LoopService(why.into()));
        };
        loop_service.service.begin(stream, self.now);
        Ok(())
    }

    fn respond(
        &mut self,
        session: &mut ServerSession,
        result: Result<Vec<Option<Part>>, CallFailure>,
    ) -> Result<(), SessionEnd> {
        if let Err(why) = &result {
            self.note_failure(session, why);
        }
        let answer = result.as_deref().map_err(CallFailure::code);
        self.stats.bytes_out.add(session.respond(answer, self.now)?);
        Ok(())
    }

    /// Counts and logs a failed call of `session`.
    fn note_failure(&mut self, session: &mut ServerSession, why: &CallFailure) {
        let code = session.calling.function();
        // `calls_failed` does not count a failed call of the function that returns the catalogue. Hosts that do not
        // know the size of the catalogue make such a call to learn the size.
        if code != Some(CATALOGUE) {
            self.stats.calls_failed.add(1);
        }
        match why {
            // The log already has a line about a call with an unknown function code, so this function logs no second
            // line.
            CallFailure::UnknownFunction => return,
            CallFailure::Refused(_) => self.peers.call_refused(session.peer.ip().into()),
            _ => {}
        }
        let function = self.registry.name(code);
        if why.code() == ReturnCode::KERNEL_TIMEOUT {
            let cause = Cut::TimeUp;
            self.stats.calls_cut(cause).add(1);
            let cause = cause.name();
            peer_line!(self.lines, WARN, session.peer, self.now, function, cause, %why, "a call was cut");
            session.set_counted_as_cut();
        } else if why.is_for_the_log() {
            peer_line!(self.lines, WARN, session.peer, self.now, function, %why, "a call failed");
        } else {
            peer_line!(self.lines, INFO, session.peer, self.now, function, %why, "a call failed");
        }
    }

    /// Responds to a call of the thread pool or of an async function that has ended. If `regions` is `None`, the function
    /// of the call still runs.
    ///
    /// # Errors
    /// Fails with the reason for which the session ends.
    pub(super) fn conclude(
        &mut self,
        session: &mut ServerSession,
        result: Result<Vec<Option<Part>>, CallFailure>,
        regions: Option<SessionRegions>,
    ) -> Result<(), SessionEnd> {
        let Some(regions) = regions else {
            // The call timed out, but its function still runs and uses the regions. The host therefore gets a response
            // without results, and the session ends after the host has acknowledged this response.
            let cause = Cut::TimeUp;
            let code = session.calling.function();
            if code != Some(CATALOGUE) {
                self.stats.calls_failed.add(1);
            }
            self.stats.calls_cut(cause).add(1);
            if let Err(why) = &result {
                let (function, cause) = (self.registry.name(code), cause.name());
                let text = "a call was cut; the session ends with its function";
                peer_line!(self.lines, WARN, session.peer, self.now, function, cause, %why, "{text}");
            }
            return session.respond_timed_out(self.now);
        };
        session.regions = regions;
        self.respond(session, result)
    }

    /// If the end of `session` prevents the host from getting the result of a call, counts and logs this call.
    pub(super) fn count_cut(&mut self, session: &ServerSession, end: Option<&SessionEnd>) {
        let code = match (&session.calling, end) {
            (Calling::Waiting(request), _) => request.function,
            // If no call waits or runs, the state has the function of the last call until the response to this call is
            // acknowledged. If an error ends the session before the acknowledgement, it is not certain that the host
            // has the result, so the call counts as cut off. If the host disconnects without an error, `end` is `None`.
            // The server then assumes that the host has received the response, and does not count the call.
            (Calling::Idle { .. }, None) => None,
            (calling, _) => calling.function(),
        };
        let Some(code) = code.filter(|&code| code != CATALOGUE) else { return };
        if matches!(session.calling, Calling::Waiting(_)) {
            self.stats.calls.add(1);
        }
        let cause = match end {
            Some(_) => Cut::ConnectionFailed,
            None if self.ending => Cut::ServerEnded,
            None => Cut::HostLeft,
        };
        self.stats.calls_cut(cause).add(1);
        let (function, cause) = (self.registry.name(Some(code)), cause.name());
        peer_line!(self.lines, WARN, session.peer, self.now, function, cause, "a call was cut");
    }

    /// Writes what each source network has in use to the counters of the server.
    pub(super) fn survey_peers(&mut self) {
        let calls = |peer| self.pool.calls(peer) + self.tasks.calls(peer);
        self.stats.set_peers(self.peers.survey(calls));
    }
}

/// Returns the function or kernel that a call with the handler `handler` executes, or `None` if a task or the loop
/// service executes the call. If `handler` is a kernel and `session` has no `SessionProcess` yet, `work_of` creates the
/// `SessionProcess`.
fn work_of(handler: &Handler, session: &mut ServerSession) -> Option<CallWork> {
    match handler {
        Handler::Function(function) => {
            let process = session.process.clone().filter(|process| process.is_alive());
            Some(CallWork::Function { function: function.clone(), process })
        }
        Handler::Kernel(kernel) => {
            let process = session.process.get_or_insert_with(|| Arc::new(kernel.session())).clone();
            Some(CallWork::Kernel { kernel: kernel.clone(), process })
        }
        Handler::Async(_) | Handler::Subscription(_) => None,
    }
}
