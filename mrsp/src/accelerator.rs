//! The accelerator's side of a session.
//!
//! | state | on | goes to | gives |
//! |---|---|---|---|
//! | AwaitRequest | acceptable AAR | Allocating | regions to allocate |
//! | AwaitRequest | other AAR | Failed | [`Rejection`] with ERR |
//! | Allocating | [`allocated`](AcceleratorSession::allocated) | Ready | A |
//! | Allocating | [`allocation_failed`](AcceleratorSession::allocation_failed) | Failed | ERR |
//! | Ready | immediate of a call | Calculating | call |
//! | Ready, Calculating | immediate 0 | Failed | [`RequestError`] |
//! | Calculating | [`respond`](AcceleratorSession::respond) | Ready | plan |
//! | Calculating | another call | Failed | [`RequestError`] |
//! | AwaitRequest, Allocating | any immediate | Failed | [`RequestError`] |
//! | any except AwaitRequest | AAR | Failed | [`Rejection`] with ERR |
//! | any | other or malformed message | Failed | [`Rejection`] |
//! | any | [`fail`](AcceleratorSession::fail) | Failed | |
//!
//! The caller must disconnect a failed session, but not before the host has acknowledged the session's last message. A
//! second AAR ends the session and does not replace the session's regions, because a call may be using these regions.
//! If a session fails while a function is running, the function may continue, but no response is sent.
//!
//! An AAR with a [layout block](crate::layout::block) leads to the same states as any other AAR. The layout entries of
//! a layout block must keep the rules that [`layout::block`](crate::layout::block) documents.
//!
//! An AAR may contain unknown flag bits, regions of 0 bytes, parameters that are neither input nor output, and internal
//! regions before parameters. An internal region may have any host address and RKey, because the accelerator never
//! writes an internal region to the host. The session accepts a requested accelerator address if a region at this
//! address ends inside the 56-bit address space. The requested addresses of two regions may be equal, because the
//! accelerator need not place a region at its requested address.

mod arranged;
mod limits;

use crate::{
    codec::{self, DecodeError},
    immediate::{CallRequest, CallResponse, RequestImmediate},
    layout::{LayoutEntry, ParamLocation},
    message::{ErrorCode, Message},
    plan::{self, CallPlan, Part, PartError},
    region::{RegionFlags, RegionRequest, RemoteRegion},
    return_code::ReturnCode,
};

use arranged::Arranged;
pub use limits::{RegionRefusal, SessionLimits};

/// The reason why a message of the host was rejected. After a rejection, the session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The accelerator cannot grant the regions that the AAR requests.
    #[error(transparent)]
    Refused(#[from] RegionRefusal),
    /// The host sent bytes that are not an MRSP message.
    #[error("the host sent no MRSP message: {0}")]
    Malformed(#[from] DecodeError),
    /// The host sent an ERR with this error code.
    #[error("the host gives up: {0}")]
    HostError(ErrorCode),
    /// The host sent a message that the protocol does not allow in the session's state.
    #[error("the host sent {message} while the session was {state}")]
    Unexpected {
        /// The name of the message's type.
        message: &'static str,
        /// The name of the state in which the message arrived.
        state: &'static str,
    },
}

impl Rejection {
    /// Returns the ERR that the server sends before it disconnects, or `None` if the host's message was an ERR.
    pub fn reply(&self) -> Option<[u8; 4]> {
        let code = match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Malformed(_) => ErrorCode::Address,
            Self::Unexpected { .. } => ErrorCode::TooManyRegions,
            Self::HostError(_) => return None,
        };
        Some(codec::encode_error(code))
    }
}

/// The reason why an immediate of the host starts no call. After this error, the session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The host sent the immediate 0, with which a host signals an error and ends the session.
    #[error("the host gives up (immediate 0)")]
    HostError,
    /// The host sent an immediate while the session was not ready for a call.
    #[error("the host called ({immediate:#010x}) while the session was {state}")]
    Unexpected {
        /// The immediate in native byte order.
        immediate: u32,
        /// The name of the state in which the immediate arrived.
        state: &'static str,
    },
}

/// The error of a method of [`AcceleratorSession`] that was called in the wrong state or with wrong values. After this
/// error, the session is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The session is not in the state that the method needs.
    #[error("the session is {state}, it must be {needed} for this")]
    State {
        /// The name of the state that the session had when the method was called.
        state: &'static str,
        /// The name of the state that the method needs.
        needed: &'static str,
    },
    /// The caller gave the addresses of more or fewer regions than the AAR requests. Internal regions are not counted.
    #[error("{given} regions were given for {params} parameters")]
    RegionCount {
        /// The number of [`RegionAddress`]s that the caller gave.
        given: usize,
        /// The number of requested regions that are not internal.
        params: usize,
    },
    /// The caller of [`AcceleratorSession::respond`] gave arguments that do not fit the parameters of the session.
    /// Either a part does not lie inside its parameter, or there are more parts than parameters, or the first output
    /// cannot contain the status bytes.
    #[error(transparent)]
    Part(#[from] PartError),
}

/// The address and RKey of a region on the accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionAddress {
    /// The virtual address of the region's first byte.
    pub addr: u64,
    /// The RKey with which the host writes the region.
    pub rkey: u32,
}

#[derive(Debug)]
enum State {
    AwaitRequest,
    Allocating { regions: Vec<RegionRequest>, entries: Vec<LayoutEntry> },
    Ready(AgreedRegions),
    Calculating(AgreedRegions),
    Failed,
}

#[derive(Debug)]
struct AgreedRegions {
    /// The parameters of the session. If parameters share regions, each parameter is nevertheless described as if it
    /// had its own region.
    params: Vec<RegionRequest>,
    /// The locations of the parameters in the regions; `None` if the AAR has no layout entries.
    arranged: Option<Arranged>,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::AwaitRequest => "waiting for the host's regions",
            Self::Allocating { .. } => "allocating",
            Self::Ready(_) => "ready",
            Self::Calculating(_) => "calculating",
            Self::Failed => "over",
        }
    }
}

/// The state machine of one connection from a host.
#[derive(Debug)]
pub struct AcceleratorSession {
    limits: SessionLimits,
    state: State,
}

impl AcceleratorSession {
    /// Creates a session that waits for the host's AAR and grants regions within `limits`.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, state: State::AwaitRequest }
    }

    /// Handles a message that arrived by SEND. Returns the regions that the caller must allocate, in the order of the
    /// AAR. The caller reports the result of the allocation with [`allocated`](Self::allocated) or
    /// [`allocation_failed`](Self::allocation_failed).
    ///
    /// # Errors
    /// Returns a [`Rejection`] if the message is not an AAR, or if the regions that the AAR requests cannot be granted.
    /// After an error, the session has failed.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<&[RegionRequest], Rejection> {
        self.state = self.allocating(bytes).inspect_err(|_| self.state = State::Failed)?;
        Ok(self.regions())
    }

    /// Decodes the message `bytes`. If the message is an AAR that can be granted, returns the state `Allocating` with
    /// the regions that the host requests. If the AAR has a layout block, the state also has the layout entries of this
    /// block.
    fn allocating(&self, bytes: &[u8]) -> Result<State, Rejection> {
        match (&self.state, codec::decode(bytes)?) {
            (_, Message::Error(code)) => Err(Rejection::HostError(code)),
            (State::AwaitRequest, Message::AdvertiseAndRequest(asked)) => {
                Ok(State::Allocating { regions: limits::grant(&self.limits, &asked)?, entries: Vec::new() })
            }
            (State::AwaitRequest, Message::Arranged(asked, entries)) => {
                let regions = limits::grant(&self.limits, &asked)?;
                let entries = limits::grant_entries(&self.limits, &regions, &entries)?;
                Ok(State::Allocating { regions, entries })
            }
            (state, message) => Err(Rejection::Unexpected { message: message.name(), state: state.name() }),
        }
    }

    /// Returns the advertisement (A). `addresses` has the address and RKey of each region that is not internal, in the
    /// order of the AAR. The caller must post the receive for the first call before it sends the advertisement.
    ///
    /// # Errors
    /// Returns an error if the session does not wait for the result of an allocation, or if the number of addresses is
    /// wrong. After an error, the session is unchanged.
    pub fn allocated(&mut self, addresses: &[RegionAddress]) -> Result<Vec<u8>, LocalError> {
        let State::Allocating { regions, entries } = &mut self.state else {
            return Err(self.wrong_state("allocating"));
        };
        let shared: Vec<_> = regions.iter().filter(|region| !region.is_internal()).copied().collect();
        if addresses.len() != shared.len() {
            return Err(LocalError::RegionCount { given: addresses.len(), params: shared.len() });
        }
        let announced: Vec<_> = addresses
            .iter()
            .zip(&shared)
            .map(|(&RegionAddress { addr, rkey }, param)| RemoteRegion { addr, rkey, size: param.host.size })
            .collect();
        let entries = std::mem::take(entries);
        self.state = State::Ready(if entries.is_empty() {
            AgreedRegions { params: shared, arranged: None }
        } else {
            let params = arranged::params(regions, &entries);
            AgreedRegions { params, arranged: Some(Arranged::new(&entries)) }
        });
        Ok(codec::encode_advertisement(&announced).expect("an AAR has at most 255 regions"))
    }

    /// Ends the session and returns the ERR that the caller sends before it disconnects.
    ///
    /// # Errors
    /// Returns an error if the session does not wait for the result of an allocation.
    pub fn allocation_failed(&mut self, code: ErrorCode) -> Result<[u8; 4], LocalError> {
        let State::Allocating { .. } = self.state else { return Err(self.wrong_state("allocating")) };
        self.state = State::Failed;
        Ok(codec::encode_error(code))
    }

    /// Handles a request that arrived by WRITE_WITH_IMM. `immediate` is the request's immediate in native byte order.
    ///
    /// # Errors
    /// Returns an error if the immediate is not a call, or if the session is not ready for a call. After an error, the
    /// session has failed.
    pub fn handle_request(&mut self, immediate: u32) -> Result<CallRequest, RequestError> {
        let request = match (&self.state, RequestImmediate::decode(immediate)) {
            (State::Ready(_), RequestImmediate::Call(request)) => Ok(request),
            (State::Ready(_) | State::Calculating(_), RequestImmediate::HostError) => {
                Err(RequestError::HostError)
            }
            (state, _) => Err(RequestError::Unexpected { immediate, state: state.name() }),
        };
        self.step(|state| match (state, &request) {
            (State::Ready(agreed), Ok(_)) => State::Calculating(agreed),
            _ => State::Failed,
        });
        request
    }

    /// Plans the WRITEs of the call's response. The caller must post the receive for the next call before it posts the
    /// WRITEs of the response.
    ///
    /// If the call succeeded, `result` is `Ok(parts)`. If parameter i is an output and `parts[i]` is not
    /// `None`, only the part `parts[i]` of the output is sent. `parts` has no elements for internal regions.
    /// If `parts` has fewer elements than the session has parameters, the outputs without an element are sent
    /// whole.
    ///
    /// If the call failed, `result` is `Err(code)`, where `code` is the return code that the host gets. The response to
    /// a failed call contains the first `status_bytes` bytes of the first output, which hold a status block or the
    /// header of a catalogue. If `status_bytes` is 0 or the session has no output, only the immediate is sent. If the
    /// call succeeded, `status_bytes` has no effect.
    ///
    /// # Errors
    /// Returns an error if no call is running. Returns an error if a part is not inside its parameter, or if `parts`
    /// has more elements than the session has parameters. Returns an error if the first output of a failed call is
    /// smaller than `status_bytes`. After an error, the session is unchanged.
    pub fn respond(
        &mut self,
        result: Result<&[Option<Part>], ReturnCode>,
        status_bytes: u32,
        plan: &mut CallPlan,
    ) -> Result<(), LocalError> {
        let State::Calculating(agreed) = &self.state else { return Err(self.wrong_state("calculating")) };
        match result {
            Ok(parts) => plan_success(agreed, parts, plan)?,
            Err(code) => plan_failure(&agreed.params, code, status_bytes, plan)?,
        }
        self.step(|state| match state {
            State::Calculating(agreed) => State::Ready(agreed),
            other => other,
        });
        Ok(())
    }

    /// Ends the session, for example after the connection broke.
    pub fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// Returns true if the session waits for the next call: the regions are agreed, and no call is running.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Returns true if the session has failed or was ended. A failed session never becomes ready again.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// Returns the regions of the session. While the caller allocates the regions, the method returns all regions of
    /// the AAR. While the session is ready or in a call, the method returns the parameters, each described as if it had
    /// its own region. In all other states, the method returns an empty list.
    pub fn regions(&self) -> &[RegionRequest] {
        match &self.state {
            State::Allocating { regions, .. } => regions,
            State::Ready(agreed) | State::Calculating(agreed) => &agreed.params,
            State::AwaitRequest | State::Failed => &[],
        }
    }

    /// Returns the locations of the parameters in the regions of the AAR. Returns `None` if the AAR has no layout
    /// entries, or if the session is neither ready nor in a call.
    pub fn places(&self) -> Option<impl ExactSizeIterator<Item = ParamLocation>> {
        let (State::Ready(agreed) | State::Calculating(agreed)) = &self.state else { return None };
        agreed.arranged.as_ref().map(Arranged::places)
    }

    fn wrong_state(&self, needed: &'static str) -> LocalError {
        LocalError::State { state: self.state.name(), needed }
    }

    /// Replaces the state of the session by the state that `next` returns for the old state.
    fn step(&mut self, next: impl FnOnce(State) -> State) {
        self.state = next(std::mem::replace(&mut self.state, State::Failed));
    }
}

fn outputs(params: &[RegionRequest]) -> impl Iterator<Item = (usize, &RemoteRegion)> {
    let outputs = params.iter().enumerate().filter(|(_, param)| param.flags.contains(RegionFlags::OUTPUT));
    outputs.map(|(index, param)| (index, &param.host))
}

fn first(params: &[RegionRequest]) -> &RemoteRegion {
    &params.first().expect("a granted AAR has a parameter").host
}

fn plan_success(
    agreed: &AgreedRegions,
    parts: &[Option<Part>],
    plan: &mut CallPlan,
) -> Result<(), LocalError> {
    let AgreedRegions { params, arranged } = agreed;
    plan::check_parts(parts, params.iter().map(|param| param.host.size))?;
    plan.clear();
    match arranged {
        Some(arranged) => arranged.plan(params, parts, plan),
        None => {
            for (param, to) in outputs(params) {
                let (start, bytes) = plan::part(parts, param, to.size);
                plan.push(param, start, bytes, to);
            }
        }
    }
    plan.finish(CallResponse::Success.encode(), first(params));
    Ok(())
}

/// Plans the WRITEs of a failed call's response. The immediate is sent by a WRITE of its own, which has no bytes and
/// comes after the status block. The WRITE with the immediate must not contain the status block, because the host's
/// program may read the length of this WRITE as the length of an output.
fn plan_failure(
    params: &[RegionRequest],
    code: ReturnCode,
    status_bytes: u32,
    plan: &mut CallPlan,
) -> Result<(), LocalError> {
    let status = if status_bytes > 0 { outputs(params).next() } else { None };
    if let Some((param, &RemoteRegion { size, .. })) = status.filter(|(_, to)| status_bytes > to.size) {
        return Err(PartError::TooLong { param, bytes: status_bytes.into(), size }.into());
    }
    plan.clear();
    if let Some((param, to)) = status {
        plan.push(param, 0, status_bytes, to);
    }
    plan.push(0, 0, 0, first(params));
    plan.finish(CallResponse::Failure(code).encode(), first(params));
    Ok(())
}
