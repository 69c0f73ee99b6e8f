//! Makes requests from the messages of callers.

use ejfat_control::{
    access::ApiCall,
    request::{
        AskedPermission, CreateToken, Deregister, Extend, LbName, Refusal, RefusalKind, Register, Request,
        Reserve, Reset, ResourceType, SendState, Senders, SetSlotDemands, SlotDemand, TokenSelector,
    },
    reservation::IpFamily,
    token::{Right, TokenLimits},
    wall::WallTime,
};
use prost::Message;
use prost_types::Timestamp;
use proto::loadbalancer::{self as pb, token_permission, token_selector};

/// Makes a request from the bytes of a call's message, for tests without sockets. Returns `None` if the bytes cannot be decoded.
pub fn decode(call: ApiCall, bytes: &[u8]) -> Option<Result<Request, Refusal>> {
    fn read<M: Message + Default>(bytes: &[u8]) -> Option<M> {
        M::decode(bytes).ok()
    }
    let named = |lb_id: String| Ok(LbName { lb_id });
    Some(match call {
        ApiCall::Reserve => reserve(&read(bytes)?),
        ApiCall::Get => named(read::<pb::GetLoadBalancerRequest>(bytes)?.lb_id).map(Request::Get),
        ApiCall::Status => named(read::<pb::LoadBalancerStatusRequest>(bytes)?.lb_id).map(Request::Status),
        ApiCall::Free => named(read::<pb::FreeLoadBalancerRequest>(bytes)?.lb_id).map(Request::Free),
        ApiCall::Reset => Ok(reset(&read(bytes)?)),
        ApiCall::Extend => extend(&read(bytes)?),
        ApiCall::AddSenders => {
            let of: pb::AddSendersRequest = read(bytes)?;
            Ok(Request::AddSenders(senders(&of.lb_id, &of.sender_addresses)))
        }
        ApiCall::RemoveSenders => {
            let of: pb::RemoveSendersRequest = read(bytes)?;
            Ok(Request::RemoveSenders(senders(&of.lb_id, &of.sender_addresses)))
        }
        ApiCall::Register => register(&read(bytes)?),
        ApiCall::SetSlotDemands => Ok(slot_demands(&read(bytes)?)),
        ApiCall::Deregister => Ok(deregister(&read(bytes)?)),
        ApiCall::SendState => Ok(state(&read(bytes)?)),
        ApiCall::Overview => read::<pb::OverviewRequest>(bytes).map(|_| Ok(Request::Overview))?,
        ApiCall::Timeseries => {
            let of: pb::TimeseriesRequest = read(bytes)?;
            of.since.as_ref().map(wall_time).transpose().map(|_| Request::Timeseries)
        }
        ApiCall::Version => read::<pb::VersionRequest>(bytes).map(|_| Ok(Request::Version))?,
        ApiCall::CreateToken => create_token(&read(bytes)?),
        ApiCall::ListTokenPermissions => {
            let of: pb::ListTokenPermissionsRequest = read(bytes)?;
            selector(of.target.as_ref()).map(Request::ListTokenPermissions)
        }
        ApiCall::ListChildTokens => {
            let of: pb::ListChildTokensRequest = read(bytes)?;
            selector(of.target.as_ref()).map(Request::ListChildTokens)
        }
        ApiCall::RevokeToken => {
            let of: pb::RevokeTokenRequest = read(bytes)?;
            selector(of.target.as_ref()).map(Request::RevokeToken)
        }
        ApiCall::Chain => named(read::<pb::ChainLoadBalancerRequest>(bytes)?.lb_id).map(Request::Chain),
        ApiCall::Unchain => named(read::<pb::UnchainLoadBalancerRequest>(bytes)?.lb_id).map(Request::Unchain),
        ApiCall::GetChainGraph => {
            named(read::<pb::GetChainGraphRequest>(bytes)?.lb_id).map(Request::GetChainGraph)
        }
    })
}

fn invalid(why: impl Into<String>) -> Refusal {
    Refusal { kind: RefusalKind::InvalidArgument, why: why.into() }
}

/// Converts a timestamp, rounded down to milliseconds.
///
/// # Errors
/// If it is before 1970, or too late for a date.
pub(super) fn wall_time(of: &Timestamp) -> Result<WallTime, Refusal> {
    let seconds = u64::try_from(of.seconds).ok().filter(|seconds| *seconds < 1 << 38);
    let nanos = u64::try_from(of.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let time = seconds.zip(nanos).map(|(seconds, nanos)| WallTime(seconds * 1000 + nanos / 1_000_000));
    time.ok_or_else(|| {
        invalid(format!("{} s and {} ns are no valid UNIX time; give one from 1970 on", of.seconds, of.nanos))
    })
}

fn until(of: Option<&Timestamp>) -> Result<Option<WallTime>, Refusal> {
    of.map(wall_time).transpose()
}

pub(super) fn name(lb_id: &str) -> LbName {
    LbName { lb_id: lb_id.to_owned() }
}

pub(super) fn reserve(of: &pb::ReserveLoadBalancerRequest) -> Result<Request, Refusal> {
    let ip_family = match pb::IpFamily::try_from(of.ip_family) {
        Ok(pb::IpFamily::DualStack) => IpFamily::DualStack,
        Ok(pb::IpFamily::Ipv4) => IpFamily::V4,
        Ok(pb::IpFamily::Ipv6) => IpFamily::V6,
        Err(_) => return Err(invalid(format!("there is no IP family {}; give 0, 1 or 2", of.ip_family))),
    };
    Ok(Request::Reserve(Reserve {
        name: of.name.clone(),
        until: until(of.until.as_ref())?,
        senders: of.sender_addresses.clone(),
        ip_family,
        strategy: of.strategy.clone(),
    }))
}

pub(super) fn reset(of: &pb::ResetLoadBalancerRequest) -> Request {
    let pb::ResetLoadBalancerRequest { lb_id, sync, epochs, senders, workers } = of.clone();
    Request::Reset(Reset { lb_id, sync, epochs, senders, workers })
}

pub(super) fn extend(of: &pb::ExtendReservationRequest) -> Result<Request, Refusal> {
    Ok(Request::Extend(Extend { lb_id: of.lb_id.clone(), until: until(of.until.as_ref())? }))
}

pub(super) fn senders(lb_id: &str, addresses: &[String]) -> Senders {
    Senders { lb_id: lb_id.to_owned(), addresses: addresses.to_vec() }
}

fn demand(of: &pb::SlotRange) -> SlotDemand {
    SlotDemand { index: of.index, length: of.length }
}

pub(super) fn register(of: &pb::RegisterRequest) -> Result<Request, Refusal> {
    let port_range = u32::try_from(of.port_range);
    let port_range =
        port_range.map_err(|_| invalid(format!("{} is not a port range; give 0 to 14", of.port_range)))?;
    Ok(Request::Register(Register {
        lb_id: of.lb_id.clone(),
        name: of.name.clone(),
        weight: of.weight,
        address: of.ip_address.clone(),
        port: of.udp_port,
        port_range,
        min_factor: of.min_factor,
        max_factor: of.max_factor,
        keep_lb_header: of.keep_lb_header,
        slot_demands: of.slot_demands.iter().map(demand).collect(),
    }))
}

pub(super) fn slot_demands(of: &pb::SetSlotDemandsRequest) -> Request {
    let session = |of: &pb::SessionSlotRanges| (of.session_id.clone(), of.slots.iter().map(demand).collect());
    let sessions = of.slot_constraints.iter().map(session).collect();
    Request::SetSlotDemands(SetSlotDemands { lb_id: of.lb_id.clone(), sessions })
}

pub(super) fn deregister(of: &pb::DeregisterRequest) -> Request {
    Request::Deregister(Deregister { lb_id: of.lb_id.clone(), session_id: of.session_id.clone() })
}

pub(super) fn state(of: &pb::SendStateRequest) -> Request {
    Request::SendState(SendState {
        lb_id: of.lb_id.clone(),
        session_id: of.session_id.clone(),
        fill_level: of.fill_percent,
        control_signal: of.control_signal,
        is_ready: of.is_ready,
        events_received: of.total_events_recv,
        events_reassembled: of.total_events_reassembled,
        reassembly_errors: of.total_events_reassembly_err,
        events_dequeued: of.total_events_dequeued,
        enqueue_errors: of.total_event_enqueue_err,
        bytes_received: of.total_bytes_recv,
        packets_received: of.total_packets_recv,
    })
}

pub(super) fn create_token(of: &pb::CreateTokenRequest) -> Result<Request, Refusal> {
    let permissions = of.permissions.iter().map(permission).collect::<Result<_, _>>()?;
    Ok(Request::CreateToken(CreateToken {
        name: of.name.clone(),
        permissions,
        limits: TokenLimits::default(),
    }))
}

fn permission(of: &pb::TokenPermission) -> Result<AskedPermission, Refusal> {
    use token_permission::{PermissionType, ResourceType as Kind};
    let resource = match Kind::try_from(of.resource_type) {
        Ok(Kind::All) => ResourceType::All,
        Ok(Kind::LoadBalancer) => ResourceType::LoadBalancer,
        Ok(Kind::Reservation) => ResourceType::Reservation,
        Ok(Kind::Session) => ResourceType::Session,
        Err(_) => {
            return Err(invalid(format!("there is no type of resources {}; give 0 to 3", of.resource_type)));
        }
    };
    let right = match PermissionType::try_from(of.permission) {
        Ok(PermissionType::ReadOnly) => Right::ReadOnly,
        Ok(PermissionType::Register) => Right::Register,
        Ok(PermissionType::Reserve) => Right::Reserve,
        Ok(PermissionType::Update) => Right::Update,
        Err(_) => return Err(invalid(format!("there is no permission {}; give 0 to 3", of.permission))),
    };
    Ok(AskedPermission { resource, id: of.resource_id.clone(), right })
}

pub(super) fn selector(of: Option<&pb::TokenSelector>) -> Result<TokenSelector, Refusal> {
    match of.and_then(|of| of.token_selector.as_ref()) {
        Some(token_selector::TokenSelector::Id(id)) => Ok(TokenSelector::Id(*id)),
        Some(token_selector::TokenSelector::Token(token)) => Ok(TokenSelector::Token(token.clone())),
        None => Err(invalid("the target names no token; give its id, 0 for the calling one, or its text")),
    }
}
