//! What a worker's `struct naaice_communication_context` stands for, and how its state goes on.
//!
//! | state | on | goes to |
//! |---|---|---|
//! | READY | the host confirms the connection | CONNECTED |
//! | READY, CONNECTED | MRSP begins | MRSP_RECEIVING |
//! | MRSP_RECEIVING | the host's regions are made and announced | MRSP_SENDING |
//! | MRSP_SENDING | the host has the announcement | MRSP_DONE |
//! | MRSP_DONE | the program waits for a call | DATA_RECEIVING |
//! | DATA_RECEIVING | a call's data are here | CALCULATING |
//! | CALCULATING | results go out | DATA_SENDING |
//! | DATA_SENDING | the host has them | DATA_RECEIVING |
//! | any | the connection is over | FINISHED |

use std::time::{Duration, Instant};

use mrsp::{ErrorCode, RegionFlags, ReturnCode, U24};
use naa_server::call::{SessionRegion, SessionRegions};
use verbs::Wc;

use super::{
    server_log,
    session::{Over, SwnaaSession},
};
use crate::naaice::{
    context::{HeaderVersion, Public, State},
    layout::{MrInternal, MrLocal, MrPeer},
    registry::{Misuse, Object},
};

/// A function did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Misuse(#[from] Misuse),
    #[error("the connection is over: {0}")]
    Over(#[from] Over),
    #[error("the connection of this context is over, or there was none yet")]
    NoConnection,
    #[error("the context's state is {is}; this function needs {needed}")]
    State { is: String, needed: &'static str },
    #[error("the host did not go on within the context's timeout of {0} s")]
    TimedOut(f64),
    #[error("{0}")]
    Argument(&'static str),
}

/// A host that a worker waits for is reported after this time.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// A worker's context.
pub(crate) struct ThreadContext {
    pub(crate) public: Public,
    stage: ThreadStage,
}

enum ThreadStage {
    /// No host yet, or none any more.
    Idle,
    Open(Box<SwnaaSession>),
    /// The regions stay until the clean-up: a kernel may be looking at them.
    Over(#[expect(dead_code, reason = "kept, and dropped")] SessionRegions),
}

impl Object for ThreadContext {
    const KIND: &'static str = "a software accelerator's context";
}

impl ThreadContext {
    pub(crate) fn new(version: HeaderVersion, id: u8) -> Self {
        let public = Public::new(version);
        public.set_connection_id(id);
        Self { public, stage: ThreadStage::Idle }
    }

    pub(crate) fn connect(&mut self, connection: SwnaaSession) {
        self.stage = ThreadStage::Open(Box::new(connection));
        self.public.set_state(State::Ready);
    }

    /// There is a host.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, ThreadStage::Open(_))
    }

    /// Forgets the host, politely, and gives its memory back.
    pub(crate) fn clean_up(&mut self) {
        if let ThreadStage::Open(connection) = std::mem::replace(&mut self.stage, ThreadStage::Idle) {
            drop(connection.end());
        }
        self.public.set_locals(Vec::new());
        self.public.set_peers(Vec::new());
        self.public.set_internals(Vec::new());
        self.public.set_state(State::Finished);
    }

    /// Ends the connection; what the program looks at stays.
    pub(crate) fn end(&mut self, state: State) {
        if let ThreadStage::Open(connection) = std::mem::replace(&mut self.stage, ThreadStage::Idle) {
            self.stage = ThreadStage::Over(connection.end());
        }
        self.public.set_state(state);
    }

    /// What `act` makes of the connection, which ends if it says so.
    fn with_connection<T>(
        &mut self,
        act: impl FnOnce(&mut SwnaaSession, &mut Public) -> Result<T, Over>,
    ) -> Result<T, StepError> {
        let ThreadStage::Open(connection) = &mut self.stage else { return Err(StepError::NoConnection) };
        let peer = connection.session().peer;
        let done = act(connection, &mut self.public);
        done.map_err(|over| {
            if !over.is_peaceful() {
                server_log::warn(&format_args!("the connection of {peer} ends: {over}"));
            }
            self.end(State::Finished);
            over.into()
        })
    }

    fn state(&self) -> Option<State> {
        self.public.state()
    }

    /// The state is one of `states`, or an error says so.
    fn needs(&self, states: &[State], needed: &'static str) -> Result<(), StepError> {
        let state = self.state();
        if state.is_some_and(|state| states.contains(&state)) {
            return Ok(());
        }
        let is = state.map_or("none of NAAICE's".into(), |state| state.name().to_string_lossy().into_owned());
        Err(StepError::State { is, needed })
    }

    /// One step of the table, if what arrived allows one. True if the state changed.
    fn step(&mut self) -> Result<bool, StepError> {
        let before = self.state();
        self.with_connection(step)?;
        Ok(self.state() != before)
    }

    /// Steps until the state is none of `waiting`. Without a timeout the host may take its time, so nothing is said
    /// about it.
    fn steps_beyond(&mut self, waiting: &[State], timeout: Option<f64>) -> Result<(), StepError> {
        let deadline = timeout.and_then(|seconds| deadline(seconds).map(|at| (at, seconds)));
        let mut report = timeout.map(|_| Instant::now() + REPORT_AFTER);
        loop {
            let changed = self.step()?;
            if !self.state().is_some_and(|state| waiting.contains(&state)) {
                return Ok(());
            }
            if changed {
                continue;
            }
            let now = Instant::now();
            if let Some((at, seconds)) = deadline
                && now >= at
            {
                self.end(State::Finished);
                return Err(StepError::TimedOut(seconds));
            }
            if report.is_some_and(|at| now >= at) {
                report = None;
                self.report(now);
            }
            let until = deadline.map_or(now + Duration::from_secs(3600), |(at, _)| at);
            let until = report.map_or(until, |at| until.min(at));
            self.with_connection(|connection, _| connection.turn(until))?;
        }
    }

    /// Says whose turn it is.
    fn report(&self, now: Instant) {
        let (ThreadStage::Open(connection), Some(state)) = (&self.stage, self.state()) else { return };
        let session = connection.session();
        let waited = REPORT_AFTER.as_secs();
        let awaited = match state {
            State::MrspReceiving => "sent its regions",
            State::MrspSending => "acknowledged the announcement of its regions",
            _ => "acknowledged the results of its call",
        };
        let alive = match session.liveness.probing_since() {
            Some(probe) => {
                let ago = now.saturating_duration_since(probe).as_secs_f64();
                format!("it has not answered the probe of {ago:.1} s ago")
            }
            None if session.liveness.may_probe() => "it still answers probes".to_owned(),
            None => "it acknowledges nothing".to_owned(),
        };
        tracing::warn!("{} has not {awaited} for {waited} s: {alive}", session.peer);
    }

    pub(crate) fn init_mrsp(&mut self) -> Result<(), StepError> {
        self.needs(&[State::Ready, State::Connected], "READY or CONNECTED")?;
        self.with_connection(|connection, _| connection.take())?;
        self.public.set_state(State::MrspReceiving);
        Ok(())
    }

    /// The receive for the host's regions was posted before the connection was accepted.
    pub(crate) fn has_receive(&mut self) -> Result<(), StepError> {
        self.needs(
            &[State::Ready, State::Connected, State::MrspReceiving],
            "READY, CONNECTED or MRSP_RECEIVING",
        )?;
        self.with_connection(|connection, _| connection.take())
    }

    pub(crate) fn do_mrsp(&mut self) -> Result<(), StepError> {
        if !matches!(self.state(), Some(State::MrspReceiving | State::MrspSending)) {
            self.init_mrsp()?;
        }
        let timeout = self.public.timeout();
        self.steps_beyond(&[State::MrspReceiving, State::MrspSending], Some(timeout))
    }

    /// The next call may come; its receive was posted with the last answer.
    pub(crate) fn expect_call(&mut self) -> Result<(), StepError> {
        self.needs(&[State::MrspDone, State::DataReceiving], "MRSP_DONE or DATA_RECEIVING")?;
        self.with_connection(|connection, _| connection.take())?;
        self.public.set_state(State::DataReceiving);
        Ok(())
    }

    /// False if the host left instead of calling.
    pub(crate) fn receive_data_transfer(&mut self) -> Result<bool, StepError> {
        unless_left(self.expect_call().and_then(|()| self.steps_beyond(&[State::DataReceiving], None)))
    }

    /// Posts the answer to the call.
    pub(crate) fn write_data(&mut self, error: u8) -> Result<(), StepError> {
        self.needs(&[State::Calculating], "CALCULATING")?;
        let failure = U24::new(error.into()).and_then(ReturnCode::new);
        self.public.set_state(State::DataSending);
        self.with_connection(|connection, public| {
            connection.respond(failure)?;
            public.set_calls(public.calls().wrapping_add(1));
            Ok(())
        })
    }

    /// False if the host left; it may have had the answer.
    pub(crate) fn do_data_transfer(&mut self, error: u8) -> Result<bool, StepError> {
        let timeout = self.public.timeout();
        let sent = self.write_data(error);
        unless_left(sent.and_then(|()| self.steps_beyond(&[State::DataSending], Some(timeout))))
    }

    /// Takes what arrived, waiting `limit` for it. False if the host left.
    pub(crate) fn poll(&mut self, limit: Duration) -> Result<bool, StepError> {
        unless_left(self.poll_once(limit))
    }

    fn poll_once(&mut self, limit: Duration) -> Result<(), StepError> {
        if !self.step()? {
            let until = Instant::now() + limit;
            self.with_connection(|connection, _| connection.turn(until))?;
            self.step()?;
        }
        Ok(())
    }

    /// A completion the program has got hold of.
    pub(crate) fn completed(&mut self, wc: &Wc) -> Result<(), StepError> {
        self.with_connection(|connection, _| connection.completed(wc))?;
        self.step().map(drop)
    }

    pub(crate) fn established(&mut self) -> Result<(), StepError> {
        self.needs(&[State::Ready, State::Connected], "READY or CONNECTED")?;
        self.with_connection(|connection, _| connection.take())?;
        if self.step()? || self.state() == Some(State::Connected) {
            return Ok(());
        }
        Err(StepError::Argument("the host has not confirmed the connection yet"))
    }

    /// The host's regions are made and announced as its message arrives.
    pub(crate) fn announced(&mut self) -> Result<(), StepError> {
        let done = [State::MrspSending, State::MrspDone];
        if self.needs(&done, "").is_err() {
            self.needs(&[State::MrspReceiving], "MRSP_RECEIVING")?;
            self.with_connection(|connection, _| connection.take())?;
            self.step()?;
        }
        self.needs(&done, "a message of the host, which has not come yet")
    }

    pub(crate) fn give_up(&mut self, code: u8) -> Result<(), StepError> {
        self.with_connection(|connection, _| connection.give_up(ErrorCode::from(code)))
    }
}

/// A host that leaves is no error: the state says it.
fn unless_left(done: Result<(), StepError>) -> Result<bool, StepError> {
    match done {
        Ok(()) => Ok(true),
        Err(StepError::Over(over)) if over.is_peaceful() => Ok(false),
        Err(failed) => Err(failed),
    }
}

/// `None` without end. NAAICE: seconds, none for 0 and below.
fn deadline(seconds: f64) -> Option<Instant> {
    let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())?;
    Instant::now().checked_add(wait)
}

fn step(connection: &mut SwnaaSession, public: &mut Public) -> Result<(), Over> {
    match public.state() {
        Some(State::Ready) if connection.is_established() => public.set_state(State::Connected),
        // The first call may be here too.
        Some(State::MrspReceiving) if !connection.session().params().is_empty() => {
            show_regions(connection, public);
            public.set_state(State::MrspSending);
        }
        Some(State::MrspSending) if !connection.is_sending() => public.set_state(State::MrspDone),
        Some(State::DataReceiving) if connection.has_call() => {
            if let Some(call) = connection.take_call()? {
                public.set_fncode(call.function);
                public.set_bytes_received(call.bytes);
                let user = call.user.get();
                // `main` keeps the user's bits where they were on the wire, `next` shifts them down.
                let immediate = if public.version() == HeaderVersion::Main { user << 8 } else { user };
                public.set_immediate(immediate.to_ne_bytes());
                public.set_writes_done(0);
                public.set_state(State::Calculating);
            }
        }
        Some(State::DataSending) if !connection.is_sending() => {
            public.set_writes_done(public.outputs());
            public.set_state(State::DataReceiving);
        }
        _ => {}
    }
    Ok(())
}

/// Shows the program where its kernels find their data.
fn show_regions(connection: &SwnaaSession, public: &mut Public) {
    let regions = &connection.session().regions;
    let (internal, params): (Vec<_>, Vec<_>) =
        regions.iter().partition(|region| region.flags.contains(RegionFlags::INTERNAL));
    let local = |region: &&SessionRegion| MrLocal {
        ibv: std::ptr::null_mut(),
        addr: region.allocation.addr() as *mut _,
        size: region.allocation.len(),
        to_write: region.flags.contains(RegionFlags::INPUT),
        single_send: region.flags.contains(RegionFlags::SINGLE_SEND),
    };
    let peers = connection.session().params().iter().map(|asked| MrPeer {
        addr: asked.host.addr,
        rkey: asked.host.rkey,
        size: asked.host.size as usize,
        to_write: asked.flags.contains(RegionFlags::OUTPUT),
        single_send: asked.flags.contains(RegionFlags::SINGLE_SEND),
    });
    public.set_peers(peers.collect());
    let count = |flag| {
        let with = params.iter().filter(|region| region.flags.contains(flag)).count();
        u8::try_from(with).unwrap_or(u8::MAX)
    };
    public.set_inputs(count(RegionFlags::INPUT));
    public.set_outputs(count(RegionFlags::OUTPUT));
    public.set_locals(params.iter().map(local).collect());
    let internals = internal
        .iter()
        .map(|region| MrInternal { addr: region.allocation.addr(), size: region.allocation.len() });
    public.set_internals(internals.collect());
}
