//! Requests of the API, replies and refusals, in types of our own.
//!
//! A request holds what a caller sent: texts and numbers that nobody has checked. Ids are texts, as in the API.

mod reply;

use std::{fmt, net::IpAddr, time::Duration};

use crate::{
    access::ApiCall,
    record::Change,
    reservation::IpFamily,
    token::{Right, TokenLimits},
    wall::WallTime,
};

pub use reply::{
    CreatedToken, LoadBalancerStatus, Overview, RegisteredWorker, Reply, ReservedLoadBalancer, TokenDetails,
    WorkerStatus,
};

/// The caller that makes a request.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The text of the token, if there is one.
    pub token: Option<&'a str>,
    /// The address from which the call comes, if it is known.
    pub peer: Option<IpAddr>,
}

/// Without the token, for logs.
impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// When a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now: ejfat::Time,
    pub wall: WallTime,
}

/// A call of the API that reads or changes what the registry keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Reserve(Reserve),
    Get(LbName),
    Status(LbName),
    Free(LbName),
    Reset(Reset),
    Extend(Extend),
    AddSenders(Senders),
    RemoveSenders(Senders),
    Register(Register),
    SetSlotDemands(SetSlotDemands),
    Deregister(Deregister),
    SendState(SendState),
    Overview,
    /// The registry says what the caller may read; it has no time series.
    Timeseries,
    /// The registry only checks that the token exists.
    Version,
    CreateToken(CreateToken),
    ListTokenPermissions(TokenSelector),
    ListChildTokens(TokenSelector),
    RevokeToken(TokenSelector),
    /// The registry only checks the right, here and in the next two: it has no chains.
    Chain(LbName),
    Unchain(LbName),
    GetChainGraph(LbName),
}

impl Request {
    pub fn call(&self) -> ApiCall {
        match self {
            Self::Reserve(_) => ApiCall::Reserve,
            Self::Get(_) => ApiCall::Get,
            Self::Status(_) => ApiCall::Status,
            Self::Free(_) => ApiCall::Free,
            Self::Reset(_) => ApiCall::Reset,
            Self::Extend(_) => ApiCall::Extend,
            Self::AddSenders(_) => ApiCall::AddSenders,
            Self::RemoveSenders(_) => ApiCall::RemoveSenders,
            Self::Register(_) => ApiCall::Register,
            Self::SetSlotDemands(_) => ApiCall::SetSlotDemands,
            Self::Deregister(_) => ApiCall::Deregister,
            Self::SendState(_) => ApiCall::SendState,
            Self::Overview => ApiCall::Overview,
            Self::CreateToken(_) => ApiCall::CreateToken,
            Self::ListTokenPermissions(_) => ApiCall::ListTokenPermissions,
            Self::ListChildTokens(_) => ApiCall::ListChildTokens,
            Self::RevokeToken(_) => ApiCall::RevokeToken,
            Self::Timeseries => ApiCall::Timeseries,
            Self::Version => ApiCall::Version,
            Self::Chain(_) => ApiCall::Chain,
            Self::Unchain(_) => ApiCall::Unchain,
            Self::GetChainGraph(_) => ApiCall::GetChainGraph,
        }
    }

    /// The reservation that is named; no text if there is none.
    pub(crate) fn lb_id(&self) -> &str {
        match self {
            Self::Get(name)
            | Self::Status(name)
            | Self::Free(name)
            | Self::Chain(name)
            | Self::Unchain(name)
            | Self::GetChainGraph(name) => &name.lb_id,
            Self::Reset(reset) => &reset.lb_id,
            Self::Extend(extend) => &extend.lb_id,
            Self::AddSenders(senders) | Self::RemoveSenders(senders) => &senders.lb_id,
            Self::Register(register) => &register.lb_id,
            Self::SetSlotDemands(demands) => &demands.lb_id,
            Self::Deregister(deregister) => &deregister.lb_id,
            Self::SendState(state) => &state.lb_id,
            _ => "",
        }
    }

    /// The session that is named; no text if there is none.
    pub(crate) fn session_id(&self) -> &str {
        match self {
            Self::Deregister(deregister) => &deregister.session_id,
            Self::SendState(state) => &state.session_id,
            _ => "",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    pub name: String,
    /// `None`: the site's default. 0: no end.
    pub until: Option<WallTime>,
    pub senders: Vec<String>,
    pub ip_family: IpFamily,
    /// No text: dynamic.
    pub strategy: String,
}

/// The reservation that a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbName {
    pub lb_id: String,
}

/// What of a reservation is to begin anew. Syncs and epochs are not the registry's: it only checks the right to reset them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    pub lb_id: String,
    pub sync: bool,
    pub epochs: bool,
    /// All senders are removed.
    pub senders: bool,
    /// All worker sessions end.
    pub workers: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extend {
    pub lb_id: String,
    /// The end of the reservation, as in [`Reserve`].
    pub until: Option<WallTime>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    pub lb_id: String,
    pub addresses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Register {
    pub lb_id: String,
    pub name: String,
    pub weight: f32,
    pub address: String,
    pub port: u32,
    /// The worker has 2^`port_range` ports.
    pub port_range: u32,
    pub min_factor: f32,
    pub max_factor: f32,
    pub keep_lb_header: bool,
    pub slot_demands: Vec<SlotDemand>,
}

/// Slots that a worker wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotDemand {
    /// The first slot; -1: where the first gap is.
    pub index: i32,
    pub length: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetSlotDemands {
    pub lb_id: String,
    /// Each session with its demands. Sessions of the reservation that are not named have none afterwards.
    pub sessions: Vec<(String, Vec<SlotDemand>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deregister {
    pub lb_id: String,
    pub session_id: String,
}

/// A worker's state. The time at which the worker sent it does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendState {
    /// It counts only if there is no such session: who has the right on this reservation learns it.
    pub lb_id: String,
    pub session_id: String,
    /// The part of its queue that is full. Above 1 it counts as 1.
    pub fill_level: f32,
    pub control_signal: f32,
    pub is_ready: bool,
    pub events_received: i64,
    pub events_reassembled: i64,
    pub reassembly_errors: i64,
    pub events_dequeued: i64,
    pub enqueue_errors: i64,
    pub bytes_received: i64,
    pub packets_received: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateToken {
    pub name: String,
    pub permissions: Vec<AskedPermission>,
    /// Beside those of the calling token, which hold anyway.
    pub limits: TokenLimits,
}

/// A permission that a new token is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPermission {
    pub resource: ResourceType,
    /// Its id. None for all resources; for a load balancer none means every one of them.
    pub id: String,
    pub right: Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    All,
    LoadBalancer,
    Reservation,
    Session,
}

/// The token that a request is for.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSelector {
    /// 0: the calling token.
    Id(u32),
    Token(String),
}

/// Without the token, for logs.
impl fmt::Debug for TokenSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "Id({id})"),
            Self::Token(_) => f.write_str("Token(hidden)"),
        }
    }
}

/// An accepted request.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The reply, to be sent when the changes are durable.
    pub reply: Reply,
    /// The changes for the store, which stores all or none of them. They are in force already.
    pub changes: Vec<Change>,
}

/// Why a request was refused, in the classes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unauthenticated,
}

impl RefusalKind {
    /// The code of gRPC.
    pub fn code(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::NotFound => 5,
            Self::AlreadyExists => 6,
            Self::PermissionDenied => 7,
            Self::ResourceExhausted => 8,
            Self::FailedPrecondition => 9,
            Self::Unauthenticated => 16,
        }
    }
}

/// A refused request has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    pub kind: RefusalKind,
    pub why: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidArgument, why)
    }

    pub(crate) fn not_found(why: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotFound, why)
    }

    pub(crate) fn denied(why: impl Into<String>) -> Self {
        Self::new(RefusalKind::PermissionDenied, why)
    }

    pub(crate) fn exhausted(why: impl Into<String>) -> Self {
        Self::new(RefusalKind::ResourceExhausted, why)
    }
}

/// What a reservation's end follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StayRules {
    pub(crate) default: Option<Duration>,
    pub(crate) longest: Option<Duration>,
}

impl StayRules {
    /// The end of a reservation; `None`: it has none.
    pub(crate) fn until(self, asked: Option<WallTime>, wall: WallTime) -> Result<Option<WallTime>, Refusal> {
        let latest = self.longest.map(|longest| wall + longest);
        match (asked, latest) {
            (None, _) => Ok(self.default.into_iter().chain(self.longest).min().map(|stay| wall + stay)),
            (Some(WallTime(0)), None) => Ok(None),
            (Some(WallTime(0)), Some(_)) => Err(Refusal::denied(
                "the token's reservations must have an end; name one, or none for the longest time",
            )),
            (Some(until), _) if until <= wall => {
                Err(Refusal::invalid("the reservation would end in the past; 0 means that it has no end"))
            }
            (Some(until), Some(latest)) if until > latest => {
                let longest = self.longest.unwrap_or_default().as_secs();
                Err(Refusal::denied(format!(
                    "the token's reservations may end at most {longest} seconds from now"
                )))
            }
            (Some(until), _) => Ok(Some(until)),
        }
    }
}
