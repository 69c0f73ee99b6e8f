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
//! If the host's own program calls a method in the wrong state, it gets a [`CallError`] and nothing changes. A response
//! without a call ends the session, because the next call could not tell its own response from it.
//!
//! Single-send parameters are written by the first call only. In later calls the immediate is on the last remaining
//! input, or on a write of no bytes. The parameters count as sent once a response shows that the writes arrived.

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

/// The accelerator broke the protocol or refused. The session has failed.
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

/// The host's own program requested something that is not possible. The session is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the session is {state}, it must be {needed} for this")]
    State { state: &'static str, needed: &'static str },
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// The result of a call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    pub function: FunctionCode,
    pub answer: Answer,
    /// The bytes of the last WRITE of the response, which is the last output unless the call failed.
    pub last_write_bytes: u32,
}

/// The result of the session setup.
#[derive(Debug)]
struct Agreed {
    /// The accelerator's region of each parameter; with a layout, the regions in which the parameters lie.
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

/// The state machine of one connection to an accelerator.
#[derive(Debug)]
pub struct HostSession {
    /// The entries of the AAR in their order on the wire: parameters, or the regions in which they lie, then internal
    /// regions.
    requests: Vec<RegionRequest>,
    /// The number of requests that are not internal.
    shared: usize,
    /// The layout, unless it is the symmetric one.
    arranged: Option<Arranged>,
    dialect: Dialect,
    state: State,
}

impl HostSession {
    /// A session with `params` on both sides, and with internal regions, whose sizes in bytes are `internals`, on the
    /// accelerator only.
    ///
    /// # Errors
    /// If no message can request these regions, or if the accelerator could never respond.
    pub fn new(config: &HostConfig, params: &[Param], internals: &[u64]) -> Result<Self, SetupError> {
        let requests = setup::requests(config, params, internals)?;
        let (shared, dialect) = (params.len(), config.dialect);
        Ok(Self { requests, shared, arranged: None, dialect, state: State::Idle })
    }

    /// A session whose parameters lie as described by `placed`, which must have been computed from the same parameters
    /// in the same order. The accelerator must support layouts. Results go to the addresses and keys in `params`; for
    /// results that are copied together, the program must pass addresses in its staging region.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); also an error if `placed` was computed from other parameters.
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

    /// Requests these accelerator addresses, for parameters and then for internal regions, instead of consecutive ones.
    /// Further regions keep their addresses.
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

    /// Starts the session and returns the AAR. The caller must first post a receive of
    /// [`message_buffer_bytes`](crate::region::message_buffer_bytes).
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

    /// Handles a message that arrived by SEND.
    ///
    /// # Errors
    /// If the message is not an advertisement that fits the request. The session has failed then.
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

    /// Checks the accelerator's regions. They may be larger than requested.
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

    /// Plans the writes that start a call. The caller must post the receive for the response first, then the writes in
    /// order.
    ///
    /// `parts[i]` says which part of parameter i is sent, if that parameter is sent; parameters without an entry are
    /// sent whole.
    ///
    /// # Errors
    /// If the session is not ready, or if a part is not inside its parameter. Nothing has changed then.
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

    /// Ends a call whose WRITE_WITH_IMM was not posted, so that the accelerator does not know of it.
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

    /// Handles a response that arrived by WRITE_WITH_IMM: the immediate in host byte order, and the bytes of that
    /// write.
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

    /// Plans the write which notifies the accelerator that this host gives up, and ends the session.
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

    /// Ends the session, because the connection broke or nobody waits for a response any more.
    pub fn fail(&mut self) {
        self.state = State::Failed;
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// The accelerator's region of each parameter, or the regions in which the parameters lie; `None` until they are
    /// known.
    pub fn peer_regions(&self) -> Option<&[RemoteRegion]> {
        match &self.state {
            State::Ready(agreed) | State::Calling { agreed, .. } => Some(&agreed.peer),
            State::Idle | State::AwaitAdvertisement | State::Failed => None,
        }
    }

    /// The requested regions: those of parameters, or the regions in which they lie, then internal regions.
    pub fn requests(&self) -> &[RegionRequest] {
        &self.requests
    }

    fn shared(&self) -> &[RegionRequest] {
        &self.requests[..self.shared]
    }

    fn wrong_state(&self, needed: &'static str) -> CallError {
        CallError::State { state: self.state.name(), needed }
    }

    /// Replaces the state by one that `next` makes from its data.
    fn step(&mut self, next: impl FnOnce(State) -> State) {
        self.state = next(std::mem::replace(&mut self.state, State::Failed));
    }
}

fn first(agreed: &Agreed) -> &RemoteRegion {
    agreed.peer.first().expect("a session has at least one parameter")
}
