//! The host's side of a context: what its struct says, and the session behind it.

mod connection;
mod create;
mod polling;
mod regions;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use naa_host::{
    CallOutcome, CallResponse, Claim, Device, Dialect, FunctionCode, Session, SessionConfig, SessionSetup,
    U24,
};

use self::regions::Terms;
use super::{
    context::{DEFAULT_TIMEOUT, HeaderVersion, Public, State},
    error::Error,
    registry::Object,
};

pub(crate) use self::{
    connection::RdmaCmEventType,
    create::{Addresses, ContextConfig, ProgramMemory, check_amounts, function_code, sequential},
};

/// The regions are given up after this, whatever the context's timeout, unless `NAA_TIMEOUT` has another time: until the
/// accelerator answers, nothing tells that it is alive.
const AGREE_LIMIT: Duration = Duration::from_secs(20);
/// More for each GiB, which it has to map and register: NAAICE's takes a third of a second.
const AGREE_LIMIT_PER_GIB: Duration = Duration::from_secs(2);

/// A context made by `naaice_init_communication_context`, or by `naa_create`.
#[derive(Debug)]
pub(crate) struct HostContext {
    public: Public,
    peer: SocketAddr,
    phase: Phase,
    /// What is sent of each parameter; `None`: all.
    bytes_to_send: Vec<Option<u64>>,
    /// As registered last.
    registered: Option<Terms>,
    /// When the connection, or the regions, are given up.
    give_up: Option<Instant>,
    polling: polling::PollPacing,
    _claim: Option<Claim>,
    // Last: everything above is of this device.
    device: Device,
}

#[derive(Debug)]
enum Phase {
    /// Nothing of the device is used yet.
    Fresh,
    Opening(Box<SessionSetup>),
    Session(Box<Session>),
    /// The session is over, for this reason.
    Over(String),
}

impl Object for HostContext {
    const KIND: &'static str = "the context of a host (naaice_init_communication_context, naa_create)";
}

impl HostContext {
    pub(crate) fn public(&self) -> &Public {
        &self.public
    }

    /// The struct outlives this, as the program's.
    pub(crate) fn leave_struct(&mut self) {
        self.public.leave();
    }

    /// Keeps `claim` until the context ends.
    pub(crate) fn hold(&mut self, claim: Claim) {
        self._claim = Some(claim);
    }

    fn config(&self) -> SessionConfig {
        let dialect = match self.public.version() {
            HeaderVersion::Main => Dialect::Main,
            HeaderVersion::Next => Dialect::Next,
        };
        let retry_count = self.public.retry_count();
        SessionConfig { dialect, retry_count, ..SessionConfig::default() }
    }

    /// The context's timeout, as long as it is one.
    fn timeout(&self) -> Option<Duration> {
        let seconds = self.public.timeout();
        if seconds > 0.0 { Duration::try_from_secs_f64(seconds).ok() } else { None }
    }

    /// The program set the context's timeout, which then takes the place of `NAA_TIMEOUT` where this library waits.
    fn has_own_timeout(&self) -> bool {
        self.public.timeout() != DEFAULT_TIMEOUT
    }

    /// Nothing is possible any more but the clean-up.
    fn fail(&mut self, error: Error) -> Error {
        self.phase = Phase::Over(error.to_string());
        self.public.set_state(State::Error);
        error
    }

    /// The state for people.
    fn is(&self) -> &'static str {
        match &self.phase {
            Phase::Fresh => "not connected",
            Phase::Opening(opening) => match opening.stage() {
                naa_host::SetupStage::Idle | naa_host::SetupStage::Connecting => "not connected yet",
                naa_host::SetupStage::Connected => "connected, without agreed regions",
                naa_host::SetupStage::Agreeing | naa_host::SetupStage::Agreed => {
                    "agreeing on regions (naaice_init_mrsp)"
                }
            },
            Phase::Session(session) if session.is_in_call() => "in a call",
            Phase::Session(_) => "ready for a call",
            Phase::Over(_) => "in state ERROR",
        }
    }

    fn not_now(&self, call: &'static str, when: &'static str) -> Error {
        match &self.phase {
            Phase::Over(why) => Error::Over(why.clone()),
            _ => Error::State { call, when, is: self.is() },
        }
    }

    /// `naaice_set_immediate`.
    pub(crate) fn set_immediate(&mut self, [a, b, c]: [u8; 3]) -> Result<(), Error> {
        let [code, ..] = self.public.immediate();
        self.public.set_immediate([code, a, b, c]);
        Ok(())
    }

    /// `naaice_init_data_transfer`: posts a call of the function that the context names.
    pub(crate) fn invoke(&mut self) -> Result<(), Error> {
        self.post(self.public.fncode())
    }

    /// `naaice_write_data`, for this function; 0 tells the accelerator that the host gives up.
    pub(crate) fn write_data(&mut self, function: u8) -> Result<(), Error> {
        if function != 0 {
            return self.post(function);
        }
        if !matches!(self.phase, Phase::Session(_)) {
            return Err(self.not_now("an error of the host", "once the regions are agreed on"));
        }
        self.give_up_for("the program told the accelerator of an error (function code 0)");
        Ok(())
    }

    /// `naaice_send_message` with MSG_MR_ERR. What it says is that this side gives up, and so does a disconnect, which
    /// servers listen for.
    pub(crate) fn send_error(&mut self) -> Result<(), Error> {
        match &self.phase {
            Phase::Opening(opening) if opening.stage() >= naa_host::SetupStage::Connected => {
                self.give_up_for("the program told the accelerator of an error (MSG_MR_ERR)");
                Ok(())
            }
            Phase::Session(_) => {
                self.give_up_for("the program told the accelerator of an error (MSG_MR_ERR)");
                Ok(())
            }
            _ => Err(self.not_now("an error message", "once there is a connection")),
        }
    }

    /// `naaice_post_recv_mrsp`, `naaice_post_recv_data`: there are always enough.
    pub(crate) fn receives_are_posted(&mut self) -> Result<(), Error> {
        match &self.phase {
            Phase::Opening(_) | Phase::Session(_) => Ok(()),
            _ => Err(self.not_now("a receive", "once there are the resources of a connection")),
        }
    }

    /// `naaice_handle_work_completion`: a failure that the program tells of is believed. Successes come from this
    /// library's own queue, so what a program has of them is of something else.
    pub(crate) fn handle_foreign_completion(&mut self, success: bool) -> Result<(), Error> {
        if success {
            return Err(Error::Refused(
                "completions are taken from the queue by naaice_poll_cq_nonblocking, _blocking and _busy; call one of them",
            ));
        }
        match &self.phase {
            Phase::Over(why) => Err(Error::Over(why.clone())),
            _ => Err(self.fail(Error::Refused("the program handed in a work completion that failed"))),
        }
    }

    /// Disconnects, which tells the accelerator; what follows is the clean-up.
    fn give_up_for(&mut self, why: &'static str) {
        let _ = self.fail(Error::Refused(why));
    }

    fn post(&mut self, function: u8) -> Result<(), Error> {
        let Phase::Session(session) = &mut self.phase else {
            return Err(self.not_now("a data transfer", "once the regions are agreed on (naaice_do_mrsp)"));
        };
        let code = FunctionCode::new(function).ok_or(Error::FunctionCode(function.into()))?;
        let [_, user @ ..] = self.public.immediate();
        for (index, bytes) in self.bytes_to_send.iter().enumerate() {
            match session.set_bytes_to_send(index, *bytes) {
                // The number of bytes to send has no meaning for an output.
                Ok(()) | Err(naa_host::Error::NotInput { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Err(error) = session.invoke(code, U24::from_le_bytes(user)) {
            return Err(self.session_error(error));
        }
        self.public.set_response_received(false);
        self.public.set_writes_done(0);
        self.public.set_calls(self.public.calls().wrapping_add(1));
        self.public.set_state(State::DataSending);
        Ok(())
    }

    /// After an error of the session's, which may be over.
    fn session_error(&mut self, error: naa_host::Error) -> Error {
        match &self.phase {
            Phase::Session(session) if session.is_over() => self.fail(error.into()),
            _ => error.into(),
        }
    }

    /// The call has ended.
    fn finish(&mut self, outcome: CallOutcome) {
        self.public.set_bytes_received(outcome.last_write_bytes);
        self.public.set_answer(match outcome.answer {
            CallResponse::Success => 0,
            CallResponse::Failure(code) => code.get(),
            CallResponse::User(user) => user.get(),
        });
        self.public.set_writes_done(self.public.inputs());
        self.retire_single_sends();
        self.public.set_response_received(true);
        self.public.set_state(State::Finished);
    }

    /// They are sent no more, which programs see in the context.
    fn retire_single_sends(&mut self) {
        for index in self.public.locals().indices() {
            self.public.locals().update(index, |region| {
                if region.single_send && region.to_write {
                    region.to_write = false;
                    self.public.set_inputs(self.public.inputs().saturating_sub(1));
                }
            });
        }
    }
}
