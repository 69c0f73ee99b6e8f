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
    /// The time at which the request arrived, by the control plane's clock.
    pub now: ejfat::Time,
    /// The time of day at which the request arrived.
    pub wall: WallTime,
}

/// A call of the API that reads or changes what the registry keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Reserves a load balancer.
    Reserve(Reserve),
    /// Returns the addresses of a reservation.
    Get(LbName),
    /// Returns the workers and the senders of a reservation.
    Status(LbName),
    /// Ends a reservation.
    Free(LbName),
    /// Resets parts of a reservation.
    Reset(Reset),
    /// Changes the end of a reservation.
    Extend(Extend),
    /// Adds addresses to the list of a reservation's senders.
    AddSenders(Senders),
    /// Removes addresses from the list of a reservation's senders.
    RemoveSenders(Senders),
    /// Registers a worker.
    Register(Register),
    /// Sets the slot demands of all workers of a reservation.
    SetSlotDemands(SetSlotDemands),
    /// Ends a worker session.
    Deregister(Deregister),
    /// Reports the state of a worker.
    SendState(SendState),
    /// Returns all reservations that the caller may read.
    Overview,
    /// The registry says what the caller may read; it has no time series.
    Timeseries,
    /// The registry only checks that the token exists.
    Version,
    /// Makes a token.
    CreateToken(CreateToken),
    /// Returns the permissions of a token.
    ListTokenPermissions(TokenSelector),
    /// Returns the tokens that were made with a token.
    ListChildTokens(TokenSelector),
    /// Revokes a token and all tokens below it.
    RevokeToken(TokenSelector),
    /// The call `ChainLoadBalancer`. The registry has no chains, and only checks the right to the call.
    Chain(LbName),
    /// The call `UnchainLoadBalancer`. The registry has no chains, and only checks the right to the call.
    Unchain(LbName),
    /// The call `GetChainGraph`. The registry has no chains, and only checks the right to the call.
    GetChainGraph(LbName),
}

impl Request {
    /// Returns the call of the API to which the request belongs.
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

/// The arguments of the call that reserves a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// The name of the reservation, which is only shown to people.
    pub name: String,
    /// `None`: the site's default. 0: no end.
    pub until: Option<WallTime>,
    /// The addresses of the first senders, as texts.
    pub senders: Vec<String>,
    /// The IP versions that the caller needs.
    pub ip_family: IpFamily,
    /// No text: dynamic.
    pub strategy: String,
}

/// The reservation that a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbName {
    /// The id of the reservation.
    pub lb_id: String,
}

/// What of a reservation is to begin anew. Syncs and epochs are not the registry's: it only checks the right to reset them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// The id of the reservation.
    pub lb_id: String,
    /// True if the ticks of the sync datagrams are to be forgotten.
    pub sync: bool,
    /// True if the epochs are to begin again.
    pub epochs: bool,
    /// All senders are removed.
    pub senders: bool,
    /// All worker sessions end.
    pub workers: bool,
}

/// The arguments of the call that changes the end of a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extend {
    /// The id of the reservation.
    pub lb_id: String,
    /// The end of the reservation, as in [`Reserve`].
    pub until: Option<WallTime>,
}

/// The arguments of the calls that change the list of a reservation's senders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// The id of the reservation.
    pub lb_id: String,
    /// The addresses of the senders, as texts.
    pub addresses: Vec<String>,
}

/// The arguments of the call that registers a worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Register {
    /// The id of the reservation.
    pub lb_id: String,
    /// The name of the worker, which is only shown to people.
    pub name: String,
    /// The weight of the worker, until its capacity is known. Workers whose capacity is unknown share by their weights
    /// what the workers with a known capacity leave. The weight 1 stands for one equal part of this. The weights of
    /// workers with a known capacity do not count, so a single worker with the weight 1000 can get more than 99 % of
    /// the events until its capacity is known. With the strategy `static`, all workers share by their weights the slots
    /// that nobody demands.
    pub weight: f32,
    /// The IP address of the worker, as text.
    pub address: String,
    /// The first UDP port of the worker.
    pub port: u32,
    /// The worker has 2^`port_range` ports.
    pub port_range: u32,
    /// The least share of the worker, as a factor of an even share. The value 0 means no limit.
    pub min_factor: f32,
    /// The greatest share of the worker, as a factor of an even share. The value 0 means no limit.
    pub max_factor: f32,
    /// True if the load balancer leaves the LB header in the worker's segments.
    pub keep_lb_header: bool,
    /// The calendar slots that the worker demands for itself.
    pub slot_demands: Vec<SlotDemand>,
}

/// Slots that a worker wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotDemand {
    /// The first slot; -1: where the first gap is.
    pub index: i32,
    /// The number of adjacent slots.
    pub length: u32,
}

/// The arguments of the call that sets the slot demands of all workers of a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetSlotDemands {
    /// The id of the reservation.
    pub lb_id: String,
    /// Each session with its demands. Sessions of the reservation that are not named have none afterwards.
    pub sessions: Vec<(String, Vec<SlotDemand>)>,
}

/// The arguments of the call that ends a worker session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deregister {
    /// The id of the reservation.
    pub lb_id: String,
    /// The id of the worker session.
    pub session_id: String,
}

/// A worker's state. The time at which the worker sent it does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendState {
    /// It counts only if there is no such session: who has the right on this reservation learns it.
    pub lb_id: String,
    /// The id of the worker session.
    pub session_id: String,
    /// The part of its queue that is full. Above 1 it counts as 1.
    pub fill_level: f32,
    /// The control signal of the worker's own controller, or 0 if the control plane decides the worker's share.
    pub control_signal: f32,
    /// True if the worker takes new events.
    pub is_ready: bool,
    /// The number of events of which at least one segment arrived.
    pub events_received: i64,
    /// The number of events that became complete.
    pub events_reassembled: i64,
    /// The number of events that were given up before they were complete.
    pub reassembly_errors: i64,
    /// The number of events that the worker's program took.
    pub events_dequeued: i64,
    /// The number of complete events that were lost because there was no room for them.
    pub enqueue_errors: i64,
    /// The number of bytes of all segments that arrived.
    pub bytes_received: i64,
    /// The number of segments that arrived.
    pub packets_received: i64,
}

/// The arguments of the call that makes a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateToken {
    /// The name of the token, which is only shown to people.
    pub name: String,
    /// The permissions of the new token.
    pub permissions: Vec<AskedPermission>,
    /// Beside those of the calling token, which hold anyway.
    pub limits: TokenLimits,
}

/// A permission that a new token is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPermission {
    /// The kind of the resource.
    pub resource: ResourceType,
    /// Its id. None for all resources; for a load balancer none means every one of them.
    pub id: String,
    /// The right on the resource and on all resources inside it.
    pub right: Right,
}

/// The kinds of resources that a permission can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// All resources.
    All,
    /// One load balancer, or all load balancers if the permission names none.
    LoadBalancer,
    /// One reservation.
    Reservation,
    /// One worker session.
    Session,
}

/// The token that a request is for.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSelector {
    /// 0: the calling token.
    Id(u32),
    /// The text of a token.
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

/// Why a request was refused, in the classes of gRPC and with its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// An argument is not valid.
    InvalidArgument = 3,
    /// The reservation, the session or the token does not exist.
    NotFound = 5,
    /// Another worker session has the ports already.
    AlreadyExists = 6,
    /// The token is unknown, or has no right to the call.
    PermissionDenied = 7,
    /// A limit is reached.
    ResourceExhausted = 8,
    /// The state or the configuration of the control plane does not allow the call.
    FailedPrecondition = 9,
    /// The call has no token.
    Unauthenticated = 16,
}

impl RefusalKind {
    /// The code of gRPC.
    pub fn code(self) -> i32 {
        self as i32
    }
}

/// A refused request has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The class of the refusal.
    pub kind: RefusalKind,
    /// The reason as text for people.
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
