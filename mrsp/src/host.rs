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
//! If the host's own program calls a method in the wrong state, the method returns a [`CallError`] and the session is
//! unchanged. If a response arrives while no call runs, the session fails, because the next call could not distinguish
//! this response from its own response.
//!
//! Single-send parameters are written by the first call only. The last WRITE of a call's inputs carries the request
//! immediate. If a call sends no input, a WRITE of no bytes carries the request immediate. Single-send parameters count
//! as sent when the first response arrives, because this response proves that the WRITEs of these parameters arrived.

mod arranged;
mod setup;

use crate::{
    address::OutOfAddresses,
    codec::{self, DecodeError, RemoteRegions},
    immediate::{CallResponse, Dialect, FunctionCode, RequestImmediate, U24},
    layout::Placed,
    message::{ErrorCode, Message},
    plan::{self, CallPlan, Part, PartError},
    region::{NaaAddress, RegionRequest, RemoteRegion},
};

use arranged::Arranged;
pub use setup::{AnnouncedParam, HostConfig, SetupError};

/// The error if the accelerator broke the protocol or refused the regions. After this error, the session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The accelerator sent an ERR with this error code.
    #[error("the accelerator refuses the regions: {0}")]
    Refused(ErrorCode),
    /// The accelerator sent bytes that are not an MRSP message.
    #[error("the accelerator sent no MRSP message: {0}")]
    Malformed(#[from] DecodeError),
    /// The accelerator sent a message that the protocol does not allow in the session's state.
    #[error("the accelerator sent {message} while the session was {state}")]
    UnexpectedMessage {
        /// The name of the type of the accelerator's message, for the text of the error.
        message: &'static str,
        /// The name of the session's state when the message arrived.
        state: &'static str,
    },
    /// The advertisement has more or fewer regions than the host requested. Internal regions are not counted, because
    /// the accelerator does not announce them.
    #[error("the accelerator announced {announced} regions for {asked} parameters")]
    RegionCount {
        /// The number of requested regions that are not internal.
        asked: usize,
        /// The number of regions in the advertisement.
        announced: usize,
    },
    /// The accelerator announced a region that is smaller than the requested region.
    #[error("the accelerator announced {announced} bytes for parameter {param} of {asked}")]
    RegionTooSmall {
        /// The number of the region in the advertisement, counted from 0.
        param: usize,
        /// The size in bytes that the host requested for the region.
        asked: u32,
        /// The size in bytes that the accelerator announced for the region.
        announced: u32,
    },
    /// The accelerator announced a region that does not end inside the 64-bit address space.
    #[error("the accelerator announced a region for parameter {param} that ends beyond 64-bit addresses")]
    RegionWraps {
        /// The number of the region in the advertisement, counted from 0.
        param: usize,
    },
    /// A response arrived while no call was running.
    #[error("the accelerator answered ({immediate:#010x}) though the session was {state}")]
    UnsolicitedResponse {
        /// The immediate of the response in native byte order.
        immediate: u32,
        /// The name of the session's state when the response arrived.
        state: &'static str,
    },
}

/// The error for a method that the host's own program called in the wrong state or with wrong values. After this error,
/// the session is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The called method is not allowed in the session's state.
    #[error("the session is {state}, it must be {needed} for this")]
    State {
        /// The name of the state that the session had when the method was called.
        state: &'static str,
        /// Describes a state in which the called method is allowed, for the text of the error.
        needed: &'static str,
    },
    /// The caller of [`HostSession::begin_call`] gave a part that does not lie inside its parameter, or more
    /// parts than the session has parameters.
    #[error(transparent)]
    Part(#[from] PartError),
}

/// The result of a call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedResponse {
    /// The function that the host called.
    pub function: FunctionCode,
    /// The meaning of the response immediate.
    pub answer: CallResponse,
    /// The number of bytes in the last WRITE of the response. In the symmetric layout, the last WRITE after a
    /// successful call goes to the last output, if the session has outputs. This WRITE usually contains all bytes that
    /// the output gets.
    pub last_write_bytes: u32,
}

/// The regions that the session setup has agreed on, and whether the single-send parameters have been sent.
#[derive(Debug)]
struct AgreedRegions {
    /// The accelerator's regions. In the symmetric layout, each parameter has one region; in other layouts, parameters
    /// share regions.
    peer: Vec<RemoteRegion>,
    single_send_done: bool,
}

#[derive(Debug)]
enum State {
    Idle,
    AwaitAdvertisement,
    Ready(AgreedRegions),
    Calling { agreed: AgreedRegions, function: FunctionCode },
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
    /// The region requests of the AAR in their order on the wire. The internal regions come after all other
    /// regions.
    requests: Vec<RegionRequest>,
    /// The number of region requests in `requests` that are not for internal regions.
    shared: usize,
    /// The layout of the parameters; `None` for the symmetric layout.
    arranged: Option<Arranged>,
    dialect: Dialect,
    state: State,
}

impl HostSession {
    /// Creates a session with the parameters `params`. `internals` has the sizes in bytes of the internal regions,
    /// which exist on the accelerator only.
    ///
    /// # Errors
    /// Returns an error if `params` is empty, if there are more regions than `config` allows, or if a parameter or an
    /// internal region is not valid. [`SetupError`] lists all reasons.
    pub fn new(
        config: &HostConfig,
        params: &[AnnouncedParam],
        internals: &[u64],
    ) -> Result<Self, SetupError> {
        let requests = setup::requests(config, params, internals)?;
        let (shared, dialect) = (params.len(), config.dialect);
        Ok(Self { requests, shared, arranged: None, dialect, state: State::Idle })
    }

    /// Creates a session whose parameters share regions of the accelerator as described by `placed`. The caller must
    /// have computed `placed` from the same parameters in the same order. The accelerator must accept layout blocks.
    /// The accelerator writes each output to the address in `params`, with the RKey in `params`. If
    /// [`Placed::is_staged`] returns true for an output, the host copies this output out of its staging region. The
    /// address of such an output in `params` must lie in the staging region.
    ///
    /// # Errors
    /// Returns an error if `params` is empty, or if there are more regions than `config` allows. Returns an error if a
    /// parameter or an internal region is not valid, or if `placed` was computed for another number of parameters.
    /// [`SetupError`] lists all reasons.
    pub fn arranged(
        config: &HostConfig,
        params: &[AnnouncedParam],
        internals: &[u64],
        placed: &Placed,
    ) -> Result<Self, SetupError> {
        let requests = setup::regions(config, &placed.regions, internals)?;
        let arranged = Some(Arranged::new(params, placed)?);
        let (shared, dialect) = (placed.regions.len(), config.dialect);
        Ok(Self { requests, shared, arranged, dialect, state: State::Idle })
    }

    /// Sets the accelerator addresses that the session requests, in the order of
    /// [`requests`](Self::requests). If `addresses` has fewer elements than there are regions, the other
    /// regions keep the consecutive addresses that the session has computed.
    ///
    /// # Errors
    /// Returns an error if a region does not end inside the accelerator's address space.
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

    /// Starts the session and returns the AAR. The caller must post a receive of
    /// [`message_buffer_bytes`](crate::region::message_buffer_bytes) bytes before it sends the AAR.
    ///
    /// # Errors
    /// Returns an error if the session was started before.
    pub fn start(&mut self) -> Result<Vec<u8>, CallError> {
        let State::Idle = self.state else { return Err(self.wrong_state("fresh")) };
        self.state = State::AwaitAdvertisement;
        let message = match &self.arranged {
            None => codec::encode_request(&self.requests),
            Some(arranged) => codec::encode_arranged(&self.requests, arranged.entries()),
        };
        Ok(message.expect("a session has at most 255 regions and 255 layout entries"))
    }

    /// Handles a message that arrived by SEND.
    ///
    /// # Errors
    /// Returns an error if the session does not wait for an advertisement, or if the message is not an advertisement.
    /// Returns an error if the number of announced regions is wrong. Returns an error if an announced region is smaller
    /// than requested, or if it does not end inside the 64-bit address space. After an error, the session has failed.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        self.state = self.agree(bytes).map(State::Ready).inspect_err(|_| self.state = State::Failed)?;
        Ok(())
    }

    fn agree(&self, bytes: &[u8]) -> Result<AgreedRegions, PeerError> {
        match (&self.state, codec::decode(bytes)?) {
            (_, Message::Error(code)) => Err(PeerError::Refused(code)),
            (State::AwaitAdvertisement, Message::Advertisement(regions)) => {
                Ok(AgreedRegions { peer: self.check(&regions)?, single_send_done: false })
            }
            (state, message) => {
                Err(PeerError::UnexpectedMessage { message: message.name(), state: state.name() })
            }
        }
    }

    /// Checks the regions that the accelerator announced. An announced region may be larger than the requested region.
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

    /// Plans the WRITEs that start a call. The caller must first post the receive for the response, and must then post
    /// the WRITEs in the order of the plan.
    ///
    /// If parameter i is sent and `parts[i]` is not `None`, the call sends only the part `parts[i]` of this
    /// parameter. If `parts` has fewer elements than the session has parameters, the parameters without an
    /// element are sent whole.
    ///
    /// # Errors
    /// Returns an error if the session is not ready. Returns an error if a part is not inside its parameter, or if
    /// `parts` has more elements than the session has parameters. After an error, the session is unchanged.
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
        plan.finish(RequestImmediate::call(function, user), first(agreed));
        self.step(|state| match state {
            State::Ready(agreed) => State::Calling { agreed, function },
            other => other,
        });
        Ok(())
    }

    fn plan_symmetric(
        &self,
        agreed: &AgreedRegions,
        parts: &[Option<Part>],
        plan: &mut CallPlan,
    ) -> Result<(), PartError> {
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

    /// Cancels a call whose WRITE_WITH_IMM was not posted, and which the accelerator therefore has not received. The
    /// session is then ready for the next call.
    ///
    /// # Errors
    /// Returns an error if no call is running.
    pub fn call_not_posted(&mut self) -> Result<(), CallError> {
        let State::Calling { .. } = self.state else { return Err(self.wrong_state("in a call")) };
        self.step(|state| match state {
            State::Calling { agreed, .. } => State::Ready(agreed),
            other => other,
        });
        Ok(())
    }

    /// Handles a response that arrived by WRITE_WITH_IMM. `immediate` is in native byte order, and `bytes` is the
    /// length of the WRITE_WITH_IMM.
    ///
    /// # Errors
    /// Returns an error if no call is running. After an error, the session has failed.
    pub fn handle_response(&mut self, immediate: u32, bytes: u32) -> Result<ReceivedResponse, PeerError> {
        let State::Calling { function, .. } = self.state else {
            let state = self.state.name();
            self.state = State::Failed;
            return Err(PeerError::UnsolicitedResponse { immediate, state });
        };
        self.step(|state| match state {
            State::Calling { agreed, .. } => State::Ready(AgreedRegions { single_send_done: true, ..agreed }),
            other => other,
        });
        let answer = CallResponse::decode(immediate, self.dialect);
        Ok(ReceivedResponse { function, answer, last_write_bytes: bytes })
    }

    /// Ends the session, and plans the WRITE that signals an error to the accelerator.
    ///
    /// # Errors
    /// Returns an error if the session is neither ready nor in a call, because the session then has no region of the
    /// accelerator to write to.
    pub fn signal_error(&mut self, plan: &mut CallPlan) -> Result<(), CallError> {
        let (State::Ready(agreed) | State::Calling { agreed, .. }) = &self.state else {
            return Err(self.wrong_state("ready"));
        };
        plan.clear();
        plan.finish(RequestImmediate::HOST_ERROR, first(agreed));
        self.state = State::Failed;
        Ok(())
    }

    /// Ends the session, for example after the connection broke.
    pub fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// Returns true if the session can start a call: the regions are agreed, and no call is running.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Returns true if the session has failed or was ended. A failed session never becomes ready again.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// Returns the regions that the accelerator announced, or `None` if the session is neither ready nor in a call. In
    /// the symmetric layout, each parameter has one region; in other layouts, parameters share regions.
    pub fn peer_regions(&self) -> Option<&[RemoteRegion]> {
        match &self.state {
            State::Ready(agreed) | State::Calling { agreed, .. } => Some(&agreed.peer),
            State::Idle | State::AwaitAdvertisement | State::Failed => None,
        }
    }

    /// Returns the requested regions in the order of the AAR. The internal regions come after all other regions.
    pub fn requests(&self) -> &[RegionRequest] {
        &self.requests
    }

    fn shared(&self) -> &[RegionRequest] {
        &self.requests[..self.shared]
    }

    fn wrong_state(&self, needed: &'static str) -> CallError {
        CallError::State { state: self.state.name(), needed }
    }

    /// Replaces the state of the session by the state that `next` returns for the old state.
    fn step(&mut self, next: impl FnOnce(State) -> State) {
        self.state = next(std::mem::replace(&mut self.state, State::Failed));
    }
}

fn first(agreed: &AgreedRegions) -> &RemoteRegion {
    agreed.peer.first().expect("a session has at least one parameter")
}
