//! The host's side of a session.
//!
//! | state | on | goes to | gives |
//! |---|---|---|---|
//! | Idle | [`start`](HostSession::start) | AwaitAdvertisement | AAR |
//! | AwaitAdvertisement | fitting A | Ready | |
//! | AwaitAdvertisement | ERR, unfitting A, anything else | Failed | [`PeerError`] |
//! | Ready | [`begin_call`](HostSession::begin_call) | Calling | plan |
//! | Calling | [`call_not_posted`](HostSession::call_not_posted) | Ready | |
//! | Calling | response | Ready | outcome |
//! | Idle, Ready, Calling | a message | Failed | [`PeerError`] |
//! | Idle, AwaitAdvertisement, Ready | a response | Failed | [`PeerError`] |
//! | Ready, Calling | [`signal_error`](HostSession::signal_error) | Failed | plan |
//! | any | [`fail`](HostSession::fail) | Failed | |
//! | Failed | a message or response | Failed | [`PeerError`] |
//!
//! What the host's own program asks at the wrong time gives a [`CallError`] and changes nothing. An answer
//! nobody asked for ends the session: the next call could not tell its own answer from it.
//!
//! Single-send parameters are written by the first call and no more; the immediate is then on the last input
//! that is left, or on a write of no bytes. They count as sent once a response shows that the writes arrived.

mod arranged;
mod setup;

use crate::{
    address::OutOfAddresses,
    codec::{self, DecodeError, RemoteRegions},
    immediate::{Answer, Dialect, FunctionCode, Request, U24},
    layout::Placed,
    message::{ErrorCode, Message},
    plan::{self, CallPlan, Part, PrefixError},
    region::{NaaAddress, RegionRequest, RemoteRegion},
};

use arranged::Arranged;
pub use setup::{HostConfig, Param, SetupError};

/// The accelerator breaks the protocol or refuses. The session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("the accelerator refuses the regions: {0}")]
    Refused(ErrorCode),
    #[error("the accelerator sent no MRSP message: {0}")]
    Malformed(#[from] DecodeError),
    #[error("the accelerator sent {message} while the session was {state}")]
    UnexpectedMessage { message: &'static str, state: &'static str },
    #[error("the accelerator announced {announced} regions for {asked} parameters")]
    RegionCount { asked: usize, announced: usize },
    #[error("the accelerator announced {announced} bytes for parameter {param} of {asked}")]
    RegionTooSmall { param: usize, asked: u32, announced: u32 },
    #[error("the accelerator announced a region for parameter {param} that ends beyond 64-bit addresses")]
    RegionWraps { param: usize },
    #[error("the accelerator answered ({immediate:#010x}) though the session was {state}")]
    UnsolicitedResponse { immediate: u32, state: &'static str },
}

/// The host's own program asks what cannot be done. The session is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the session is {state}, it must be {needed} for this")]
    State { state: &'static str, needed: &'static str },
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    pub function: FunctionCode,
    pub answer: Answer,
    /// Bytes of the last WRITE of the answer, that of the last output unless the call failed.
    pub last_write_bytes: u32,
}

/// What both sides agreed on.
#[derive(Debug)]
struct Agreed {
    /// The accelerator's region of each parameter; those the parameters lie in if they are arranged.
    peer: Vec<RemoteRegion>,
    single_send_done: bool,
}

#[derive(Debug)]
enum State {
    Idle,
    AwaitAdvertisement,
    Ready(Agreed),
    Calling { agreed: Agreed, function: FunctionCode },
    Failed,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "not set up",
            Self::AwaitAdvertisement => "waiting for the accelerator's regions",
            Self::Ready(_) => "ready",
            Self::Calling { .. } => "in a call",
            Self::Failed => "over",
        }
    }
}

/// One connection to an accelerator.
#[derive(Debug)]
pub struct HostSession {
    /// Parameters, or the regions they lie in, then internal regions, as on the wire.
    requests: Vec<RegionRequest>,
    /// Those that are not internal.
    shared: usize,
    /// Another layout than the symmetric one.
    arranged: Option<Arranged>,
    dialect: Dialect,
    state: State,
}

impl HostSession {
    /// A session with `params` on both sides and `internals`, sizes in bytes, on the accelerator only.
    ///
    /// # Errors
    /// If no message can ask for that, or the accelerator could never answer.
    pub fn new(config: &HostConfig, params: &[Param], internals: &[u64]) -> Result<Self, SetupError> {
        let requests = setup::requests(config, params, internals)?;
        let (shared, dialect) = (params.len(), config.dialect);
        Ok(Self { requests, shared, arranged: None, dialect, state: State::Idle })
    }

    /// A session whose parameters lie as `placed` says: those it was made of, in their order. For accelerators that
    /// know layouts. The addresses and keys of `params` are where their results go; the program sees to it that results
    /// which are copied together go to its staging region.
    ///
    /// # Errors
    /// As [`new`](Self::new); besides, if `placed` is of other parameters.
    pub fn arranged(
        config: &HostConfig,
        params: &[Param],
        internals: &[u64],
        placed: &Placed,
    ) -> Result<Self, SetupError> {
        let requests = setup::regions(config, &placed.regions, internals)?;
        let arranged = Some(Arranged::new(params, placed)?);
        let (shared, dialect) = (placed.regions.len(), config.dialect);
        Ok(Self { requests, shared, arranged, dialect, state: State::Idle })
    }

    /// Asks for these accelerator addresses, of parameters, then internal regions, instead of counting them up.
    /// Regions beyond them keep theirs.
    ///
    /// # Errors
    /// If a region does not end inside the address space.
    pub fn place(&mut self, addresses: &[NaaAddress]) -> Result<(), SetupError> {
        let fits =
            |(request, address): (&RegionRequest, &NaaAddress)| address.holds(request.host.size.into());
        if !self.requests.iter().zip(addresses).all(fits) {
            return Err(OutOfAddresses.into());
        }
        for (request, &address) in self.requests.iter_mut().zip(addresses) {
            request.naa_addr = address;
        }
        Ok(())
    }

    /// The AAR. Post a receive of [`message_buffer_bytes`](crate::region::message_buffer_bytes) first.
    ///
    /// # Errors
    /// If the session was started before.
    pub fn start(&mut self) -> Result<Vec<u8>, CallError> {
        let State::Idle = self.state else { return Err(self.wrong_state("fresh")) };
        self.state = State::AwaitAdvertisement;
        let message = match &self.arranged {
            None => codec::encode_request(&self.requests),
            Some(arranged) => codec::encode_arranged(&self.requests, arranged.slots()),
        };
        Ok(message.expect("a session has at most 255 regions"))
    }

    /// What arrived by SEND.
    ///
    /// # Errors
    /// If it is not an advertisement that fits what was asked for. The session has failed then.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        match self.agree(bytes) {
            Ok(agreed) => {
                self.state = State::Ready(agreed);
                Ok(())
            }
            Err(error) => {
                self.state = State::Failed;
                Err(error)
            }
        }
    }

    fn agree(&self, bytes: &[u8]) -> Result<Agreed, PeerError> {
        match (&self.state, codec::decode(bytes)?) {
            (_, Message::Error(code)) => Err(PeerError::Refused(code)),
            (State::AwaitAdvertisement, Message::Advertisement(regions)) => {
                Ok(Agreed { peer: self.check(&regions)?, single_send_done: false })
            }
            (state, message) => {
                Err(PeerError::UnexpectedMessage { message: message.name(), state: state.name() })
            }
        }
    }

    /// Larger regions than asked for are fine.
    fn check(&self, regions: &RemoteRegions<'_>) -> Result<Vec<RemoteRegion>, PeerError> {
        if regions.len() != self.shared {
            return Err(PeerError::RegionCount { asked: self.shared, announced: regions.len() });
        }
        let pairs = regions.iter().zip(self.shared());
        let checked = pairs.enumerate().map(|(param, (region, request))| {
            let (asked, announced) = (request.host.size, region.size);
            if announced < asked {
                Err(PeerError::RegionTooSmall { param, asked, announced })
            } else if !region.fits_address_space() {
                Err(PeerError::RegionWraps { param })
            } else {
                Ok(region)
            }
        });
        checked.collect()
    }

    /// Plans the writes that start a call. Post them in order; the receive for the answer comes first.
    ///
    /// `parts[i]` says what of parameter i is sent, for those that are sent; missing ones go whole.
    ///
    /// # Errors
    /// If the session is not ready, or a part does not fit. Nothing has changed then.
    pub fn begin_call(
        &mut self,
        function: FunctionCode,
        user: U24,
        parts: &[Option<Part>],
        plan: &mut CallPlan,
    ) -> Result<(), CallError> {
        let State::Ready(agreed) = &self.state else { return Err(self.wrong_state("ready")) };
        match &self.arranged {
            None => self.plan_symmetric(agreed, parts, plan)?,
            Some(arranged) => arranged.plan(&agreed.peer, agreed.single_send_done, parts, plan)?,
        }
        plan.finish(Request::call(function, user), first(agreed));
        self.step(|state| match state {
            State::Ready(agreed) => State::Calling { agreed, function },
            other => other,
        });
        Ok(())
    }

    fn plan_symmetric(
        &self,
        agreed: &Agreed,
        parts: &[Option<Part>],
        plan: &mut CallPlan,
    ) -> Result<(), PrefixError> {
        plan::check_parts(parts, self.shared().iter().map(|param| param.host.size))?;
        plan.clear();
        for (param, (request, peer)) in self.shared().iter().zip(&agreed.peer).enumerate() {
            if plan::is_sent(request.flags, agreed.single_send_done) {
                let (start, bytes) = plan::part(parts, param, request.host.size);
                plan.push(param, start, bytes, peer);
            }
        }
        Ok(())
    }

    /// The WRITE_WITH_IMM of the call was not posted: the accelerator knows nothing of it.
    ///
    /// # Errors
    /// If there is no call.
    pub fn call_not_posted(&mut self) -> Result<(), CallError> {
        let State::Calling { .. } = self.state else { return Err(self.wrong_state("in a call")) };
        self.step(|state| match state {
            State::Calling { agreed, .. } => State::Ready(agreed),
            other => other,
        });
        Ok(())
    }

    /// What arrived by WRITE_WITH_IMM: the immediate in host byte order and the bytes of that write.
    ///
    /// # Errors
    /// If there is no call. The session has failed then.
    pub fn handle_response(&mut self, immediate: u32, bytes: u32) -> Result<CallOutcome, PeerError> {
        let State::Calling { function, .. } = self.state else {
            let state = self.state.name();
            self.state = State::Failed;
            return Err(PeerError::UnsolicitedResponse { immediate, state });
        };
        self.step(|state| match state {
            State::Calling { agreed, .. } => State::Ready(Agreed { single_send_done: true, ..agreed }),
            other => other,
        });
        let answer = Answer::decode(immediate, self.dialect);
        Ok(CallOutcome { function, answer, last_write_bytes: bytes })
    }

    /// Plans the write that tells the accelerator that this host gives up, and ends the session.
    ///
    /// # Errors
    /// If the accelerator's regions are not known.
    pub fn signal_error(&mut self, plan: &mut CallPlan) -> Result<(), CallError> {
        let (State::Ready(agreed) | State::Calling { agreed, .. }) = &self.state else {
            return Err(self.wrong_state("ready"));
        };
        plan.clear();
        plan.finish(Request::HOST_ERROR, first(agreed));
        self.state = State::Failed;
        Ok(())
    }

    /// The connection broke, or nobody waits for an answer any more.
    pub fn fail(&mut self) {
        self.state = State::Failed;
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// The accelerator's region of each parameter, or those they lie in, once known.
    pub fn peer_regions(&self) -> Option<&[RemoteRegion]> {
        match &self.state {
            State::Ready(agreed) | State::Calling { agreed, .. } => Some(&agreed.peer),
            State::Idle | State::AwaitAdvertisement | State::Failed => None,
        }
    }

    /// What is asked for: parameters, or the regions they lie in, then internal regions.
    pub fn requests(&self) -> &[RegionRequest] {
        &self.requests
    }

    fn shared(&self) -> &[RegionRequest] {
        &self.requests[..self.shared]
    }

    fn wrong_state(&self, needed: &'static str) -> CallError {
        CallError::State { state: self.state.name(), needed }
    }

    /// Moves a state's data into the next.
    fn step(&mut self, next: impl FnOnce(State) -> State) {
        self.state = next(std::mem::replace(&mut self.state, State::Failed));
    }
}

fn first(agreed: &Agreed) -> &RemoteRegion {
    agreed.peer.first().expect("a session has at least one parameter")
}
