//! The server loop handles CM events and completions, executes calls or submits them to the pool, and sends responses.
//! The server loop is one thread, which also lets the device make progress while it waits.
//!
//! ```text
//! completion ─ serial number ─► Sessions ─ &mut ServerSession ─► CallExecutor ─ Result<(), SessionEnd> ─► Serving
//! ended call or task ─ serial number ─┘                                                   Err: close the session
//! ```
//!
//! `Serving` finds the session of a completion, and of a call that has ended, once. The state of the session's call is in
//! [`ServerSession`] alone.

mod calls;
mod sessions;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::{Duration, Instant},
};

use mrsp::{Abilities, plan::Part};
use verbs::{
    Channel, CmEvent, CmId, ConnParam, Context, Endpoints, Error, WaitMode, WaitOn, Wc, WcOpcode, WcStatus,
    log_limit::LogLimit,
};

use super::{Orders, StartError, peers::Peers, queue::SharedCq, sizes};
use crate::{
    call::{CallFailure, SessionRegions},
    config::{Config, shares_of_files},
    counters::ServerCounters,
    function::Registry,
    loop_service::{LoopService, StreamId},
    memory_budget::MemoryBudget,
    peer_line::peer_line,
    pool::Pool,
    session::{self, Calling, Next, ServerSession, SessionEnd},
    tasks::Tasks,
};
use calls::CallExecutor;
use sessions::Sessions;

/// The longest time between two checks of the sessions' timers.
const TIMER_PERIOD: Duration = Duration::from_millis(500);
/// After the work requests of a session were flushed, the server waits at most this time for the CM event of the host's
/// disconnect. CM events and completions may reach the program on different paths, so the CM event of a disconnect may
/// arrive before or after the flushed completions.
const GRACE: Duration = Duration::from_millis(100);

/// The time for which the server loop polls after a turn in which the loop service had work. After this time, the
/// server loop waits.
const POLL_TIME: Duration = Duration::from_micros(50);

pub(super) struct Serving {
    budget: MemoryBudget,
    sessions: Sessions,
    /// The sessions whose work requests were flushed. Each element has the time at which the session is closed if it is
    /// still open, and the serial number of the session.
    flushed: VecDeque<(Instant, u64)>,
    executor: CallExecutor,
    channel: Channel,
    queue: SharedCq,
    listener: Option<CmId>,
    next_timer_check: Instant,
}

impl Serving {
    pub(super) fn new(
        context: &Context,
        mut config: Config,
        registry: Registry,
        stats: Arc<ServerCounters>,
        loop_service: Option<Box<dyn LoopService>>,
    ) -> Result<(Self, u16), StartError> {
        if loop_service.is_none() {
            config.stream_sends = 0;
        }
        let addr = config.listen;
        let failed = |source| StartError::Device { addr, source };
        let channel = context.create_channel().map_err(failed)?;
        sizes::limit_regions(&mut config, context.attr());
        let queue = SharedCq::new(context, config.max_sessions, sizes::completions(&config, context.attr()))
            .map_err(failed)?;
        config.max_sessions = queue.places();
        let backlog = config.max_sessions.min(128) as u32;
        let (listener, port) = channel.listen(addr.port(), backlog).map_err(failed)?;
        let on = WaitOn { cq: Some(queue.id()), channel: Some(channel.id()) };
        // Pool threads call `wake` to end the wait of the server loop. A pool thread may outlive the server and must
        // not keep the server's address in use, so `wake` has only a weak reference to the driver.
        let driver = Arc::downgrade(context.driver());
        let wake = move || {
            if let Some(driver) = driver.upgrade() {
                driver.interrupt(on);
            }
        };
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(wake);
        let its_wake = wake.clone();
        let pool = Pool::new(config.pool, move || its_wake())?;
        let budget = MemoryBudget::divided(
            config.shares(),
            registry.has_kernels().then(|| shares_of_files(config.shares(), config.limits.max_regions)),
        );
        let now = Instant::now();
        let executor = CallExecutor {
            config,
            registry,
            stats,
            pool,
            tasks: Tasks::new(wake),
            peers: Peers::default(),
            lines: LogLimit::default(),
            loop_service: loop_service.map(LoopServiceState::new),
            now,
            ending: false,
            context: context.clone(),
        };
        let serving = Self {
            budget,
            sessions: Sessions::default(),
            flushed: VecDeque::new(),
            executor,
            channel,
            queue,
            listener: Some(listener),
            next_timer_check: now + TIMER_PERIOD,
        };
        Ok((serving, port))
    }

    pub(super) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    pub(super) fn wait_on(&self) -> WaitOn {
        WaitOn { cq: Some(self.queue.id()), channel: Some(self.channel.id()) }
    }

    pub(super) fn run(mut self, orders: &Orders, ending: &OnceLock<String>) {
        let on = self.wait_on();
        while !orders.stop.load(Ordering::Acquire) {
            if orders.drain.load(Ordering::Acquire) && self.drained() {
                break;
            }
            if let Err(error) = self.wait(on) {
                let why = format!("the server cannot wait on its device: {error}");
                tracing::error!("{why}");
                let _ = ending.set(why);
                break;
            }
            self.executor.now = Instant::now();
            if let Some(event) = self.queue.poll_with(&self.executor.context, &self.channel) {
                self.event(event);
                self.events();
            }
            self.completions();
            self.ended_calls();
            self.end_flushed();
            self.check_timers();
            self.turn_loop_service();
        }
        self.close_all();
    }

    fn wait(&mut self, on: WaitOn) -> Result<(), Error> {
        let until = self.deadline();
        let CallExecutor { context, config, loop_service, .. } = &mut self.executor;
        match loop_service {
            Some(loop_service) => loop_service.wait(context, on, until),
            None => context.wait(on, config.wait, Some(until)).map(drop),
        }
    }

    fn turn_loop_service(&mut self) {
        let Some(loop_service) = &mut self.executor.loop_service else { return };
        loop_service.turn(self.executor.now);
        for (serial, why) in std::mem::take(&mut loop_service.closing) {
            self.close(serial, Some(SessionEnd::LoopService(why)));
        }
    }

    /// Returns the time at which the server loop must stop waiting, even if no completion and no CM event has arrived.
    fn deadline(&self) -> Instant {
        let flushed = self.flushed.front().map(|(at, _)| *at);
        let calls = [self.executor.pool.next_deadline(), self.executor.tasks.next_deadline()];
        calls.into_iter().chain([flushed]).flatten().fold(self.next_timer_check, Instant::min)
    }

    /// Stops listening and closes the sessions that are in no call. Returns true when no session is left.
    fn drained(&mut self) -> bool {
        if let Some(listener) = self.listener.take() {
            let sessions = self.sessions.len();
            tracing::info!(sessions, "the server shuts down: sessions end when they are in no call");
            let _ = self.channel.destroy_id(listener);
        }
        if self.executor.loop_service.as_mut().is_some_and(|loop_service| !loop_service.service.finish()) {
            return false;
        }
        let idle: Vec<_> = self.sessions.iter_mut().filter_map(|s| s.drain().then_some(s.serial)).collect();
        idle.into_iter().for_each(|serial| self.close(serial, None));
        self.sessions.len() == 0
    }

    fn close_all(&mut self) {
        self.executor.ending = true;
        self.sessions.serials().into_iter().for_each(|serial| self.close(serial, None));
        self.executor.pool.close();
        self.executor.tasks.leave_all();
    }

    fn completions(&mut self) {
        while let Some(wc) = self.queue.next() {
            self.completed(&wc);
        }
    }

    fn completed(&mut self, wc: &Wc) {
        let now = self.executor.now;
        let serial = session::serial(wc);
        // Completions of sessions that have ended also arrive here, and are dropped.
        let Some(session) = self.sessions.get_mut(serial).filter(|session| !session.flushed) else { return };
        let streams = matches!(session.calling, Calling::Streaming);
        if session::is_stream(wc) && wc.status.is_success() {
            session.liveness.received(now);
            if let Some(loop_service) = &mut self.executor.loop_service {
                loop_service.service.completed(StreamId(serial), now);
            }
            return;
        }
        if streams
            && wc.status.is_success()
            && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteWithImm)
        {
            return self.close(serial, Some(SessionEnd::Subscribed));
        }
        let ended = match session.completed(wc, now) {
            Ok(Next::Nothing) => Ok(()),
            Ok(Next::Call(request)) => self.executor.call(session, request),
            Ok(Next::Close) => return self.close(serial, None),
            // Work requests are flushed not only after a failure, but also when the host disconnects. The CM event of a
            // disconnect says more about the end of the session than the flush does. The session therefore ends only
            // when this CM event arrives, or after [`GRACE`].
            Err(SessionEnd::Completion(WcStatus::WrFlushError)) => {
                session.flushed = true;
                if let Some(loop_service) = self.executor.loop_service.as_mut().filter(|_| streams) {
                    loop_service.service.ended(StreamId(serial), now);
                }
                self.flushed.push_back((now + GRACE, serial));
                return self.events();
            }
            Err(end) => Err(end),
        };
        if let Err(end) = ended {
            self.close(serial, Some(end));
        }
    }

    /// Responds to the calls of the thread pool and of async functions that have ended, or whose time is over.
    fn ended_calls(&mut self) {
        let now = self.executor.now;
        while let Some(ended) = self.executor.pool.next_done() {
            self.conclude(ended.session, ended.result, ended.regions);
        }
        for expired in self.executor.pool.expire(now) {
            self.conclude(expired.session, expired.result, expired.regions);
        }
        while let Some(ended) = self.executor.tasks.next_ended() {
            self.conclude(ended.session, ended.result, ended.regions);
        }
        for stuck in self.executor.tasks.expire(now) {
            self.conclude(stuck.session, stuck.result, stuck.regions);
        }
    }

    /// Responds to a call of the session with the serial number `serial`. The thread pool and the tasks report a call at
    /// most once, and not after [`close`](Self::close) has abandoned it, so the session is in this call.
    fn conclude(
        &mut self,
        serial: u64,
        result: Result<Vec<Option<Part>>, CallFailure>,
        regions: Option<SessionRegions>,
    ) {
        let Some(session) = self.sessions.get_mut(serial) else { return };
        debug_assert!(
            matches!(session.calling, Calling::Pooled { .. } | Calling::Task { .. }),
            "{session:?}"
        );
        if let Err(end) = self.executor.conclude(session, result, regions) {
            self.close(serial, Some(end));
        }
    }

    fn end_flushed(&mut self) {
        while let Some(&(at, serial)) = self.flushed.front()
            && at <= self.executor.now
        {
            self.flushed.pop_front();
            self.close(serial, Some(SessionEnd::Completion(WcStatus::WrFlushError)));
        }
    }

    fn events(&mut self) {
        while let Ok(Some(event)) = self.channel.next_event() {
            self.event(event);
        }
    }

    fn event(&mut self, event: CmEvent) {
        if let CmEvent::ConnectRequest { id, endpoints, .. } = event {
            return self.requested(id, &endpoints);
        }
        let Some(serial) = self.sessions.serial_of(event.id()) else { return };
        let CmEvent::Established { param, .. } = event else { return self.close(serial, None) };
        let Some(session) = self.sessions.get_mut(serial) else { return };
        session.established = true;
        let path_mtu = param.path_mtu;
        peer_line!(self.executor.lines, INFO, session.peer, self.executor.now, path_mtu, "session begins");
    }

    /// Handles a host's request to connect.
    fn requested(&mut self, id: CmId, endpoints: &Endpoints) {
        let peer = endpoints.remote;
        let refusal = self.refusal(peer);
        let accepted = match refusal {
            None => self.accept(id, peer).map_err(|end| end.to_string()),
            Some(why) => Err(why.to_owned()),
        };
        if let Err(why) = accepted {
            let executor = &mut self.executor;
            executor.stats.sessions_rejected.add(1);
            let refused = executor.stats.sessions_rejected.get();
            peer_line!(executor.lines, WARN, peer, executor.now, why, refused, "refused a host");
            // Hosts in C use the private data of a REJ as a format string, so `text` contains no `%` and ends with a
            // zero byte.
            let mut text: Vec<u8> = why.bytes().filter(|b| *b != b'%' && *b != 0).take(147).collect();
            text.push(0);
            let _ = self.channel.reject(id, &text);
            let _ = self.channel.destroy_id(id);
        }
    }

    fn refusal(&self, peer: SocketAddr) -> Option<&'static str> {
        let CallExecutor { config, peers, .. } = &self.executor;
        if !config.allow.permits(peer.ip()) {
            Some("your address is not on the server's allow-list")
        } else if self.sessions.len() >= config.max_sessions {
            Some("the server has as many sessions as it may; try again later")
        } else if peers.sessions(peer.ip().into()) >= config.max_sessions_per_peer {
            Some("your address has as many sessions as one may; end some")
        } else {
            None
        }
    }

    fn accept(&mut self, id: CmId, peer: SocketAddr) -> Result<(), SessionEnd> {
        let CallExecutor { config, context, peers, stats, .. } = &mut self.executor;
        self.queue.make_room(self.sessions.len())?;
        let pd = context.alloc_pd()?;
        let cq = self.queue.cq();
        let qp = pd.create_qp(cq, cq, sizes::queue_pair(config, context.attr()))?;
        let serial = self.sessions.new_serial();
        let most = config.limits.max_session_bytes.saturating_add(sizes::page_slack(config));
        let quota = self.budget.quota_of(&peers.account(peer.ip().into()), most);
        let session = ServerSession::new((id, serial), peer, (pd, qp), quota, config, Instant::now())?;
        let abilities = Abilities { slots: config.limits.max_slots };
        let param = ConnParam { private_data: abilities.encode().into(), ..ConnParam::default() };
        self.channel.accept(id, &session.qp, &param)?;
        self.sessions.insert(session);
        peers.session_began(peer.ip().into());
        stats.sessions_accepted.add(1);
        stats.sessions.set(self.sessions.len() as u64);
        Ok(())
    }

    /// Ends a session after either side disconnected, or because of an error.
    fn close(&mut self, serial: u64, end: Option<SessionEnd>) {
        let Some(mut session) = self.sessions.remove(serial) else { return };
        let executor = &mut self.executor;
        // The loop service is notified before the session's queue pair and memory are dropped.
        if let (Calling::Streaming, Some(loop_service)) = (&session.calling, &mut executor.loop_service) {
            loop_service.service.ended(StreamId(serial), executor.now);
        }
        executor.peers.session_ended(session.peer.ip().into());
        self.queue.session_ended();
        match session.calling {
            // If the function of the call still runs, the regions of the call are dropped when the function returns.
            Calling::Pooled { call, .. } => drop(executor.pool.abandon(call)),
            Calling::Task { task, .. } => executor.tasks.leave(task),
            _ => {}
        }
        if let Some(process) = &session.process {
            process.end();
        }
        let seconds = session.since.elapsed().as_secs_f64();
        let end = session.refused.take().or(end);
        executor.count_cut(&session, end.as_ref());
        match end {
            None => peer_line!(executor.lines, INFO, session.peer, executor.now, seconds, "session ends"),
            Some(end) => {
                executor.stats.sessions_failed.add(1);
                if matches!(end, SessionEnd::Memory(_)) {
                    executor.peers.memory_refused(session.peer.ip().into());
                }
                peer_line!(executor.lines, WARN, session.peer, executor.now, seconds, why = %end, "session fails");
            }
        }
        let _ = self.channel.destroy_id(session.id);
        executor.stats.sessions.set(self.sessions.len() as u64);
    }

    /// Does the periodic work: sends liveness probes to silent hosts, and ends the sessions of hosts that do not
    /// answer. Sessions whose regions were not set up in time are ended, too.
    fn check_timers(&mut self) {
        let now = self.executor.now;
        if now < self.next_timer_check {
            return;
        }
        let interval = self.executor.config.probe_interval;
        let until_next = if interval.is_zero() { TIMER_PERIOD } else { TIMER_PERIOD.min(interval / 2) };
        self.next_timer_check = now + until_next;
        let mut over = Vec::new();
        for session in self.sessions.iter_mut() {
            let fresh = !session.is_ready() && matches!(session.calling, Calling::Idle { .. });
            if fresh && now - session.since > self.executor.config.setup_time {
                over.push((session.serial, SessionEnd::Idle));
            } else if session.liveness.is_dead(now) {
                over.push((session.serial, SessionEnd::Unacknowledged));
            } else if session.established
                && session.liveness.is_probe_due(now)
                && let Err(end) = session.probe(now)
            {
                over.push((session.serial, end));
            }
        }
        over.into_iter().for_each(|(serial, end)| self.close(serial, Some(end)));
        self.executor.survey_peers();
    }
}

/// A loop service, and what the server loop remembers of it.
#[derive(Debug)]
struct LoopServiceState {
    service: Box<dyn LoopService>,
    poll_until: Instant,
    closing: VecDeque<(u64, String)>,
}

impl LoopServiceState {
    fn new(service: Box<dyn LoopService>) -> Self {
        Self { service, poll_until: Instant::now(), closing: VecDeque::new() }
    }

    fn turn(&mut self, now: Instant) {
        if self.service.turn(now) {
            self.poll_until = now + POLL_TIME;
        }
        while let Some((stream, why)) = self.service.poll_closing() {
            self.closing.push_back((stream.0, why));
        }
    }

    /// Lets the device make progress, and waits if neither the device nor the loop service has work.
    fn wait(&mut self, context: &Context, on: WaitOn, until: Instant) -> Result<(), Error> {
        let now = Instant::now();
        if now < self.poll_until {
            return context.wait(on, WaitMode::Spin, Some(now)).map(drop);
        }
        let until = self.service.deadline().map_or(until, |at| until.min(at));
        context.wait_beside(on, self.service.descriptor(), Some(until))?;
        self.service.woken();
        Ok(())
    }
}
