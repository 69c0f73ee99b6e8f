//! The calls of a control plane, one method each.

use std::{fmt, net::IpAddr};

use prost_types::Timestamp;
use proto::loadbalancer::{
    AddSendersRequest, CreateTokenReply, CreateTokenRequest, DeregisterRequest, ExtendReservationReply,
    ExtendReservationRequest, FreeLoadBalancerRequest, GetLoadBalancerRequest, ListChildTokensReply,
    ListChildTokensRequest, ListTokenPermissionsReply, ListTokenPermissionsRequest, LoadBalancerStatusReply,
    LoadBalancerStatusRequest, OverviewReply, OverviewRequest, RegisterReply, RegisterRequest,
    RemoveSendersRequest, ReserveLoadBalancerReply, ReserveLoadBalancerRequest, ResetLoadBalancerReply,
    ResetLoadBalancerRequest, RevokeTokenRequest, SendStateRequest, SetSlotDemandsRequest, TimeseriesRequest,
    TimeseriesResponse, TokenPermission, TokenSelector, VersionReply, VersionRequest,
};

use crate::{ClientError, Connection};

/// A call, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Reserve,
    Get,
    Status,
    Free,
    Reset,
    Extend,
    AddSenders,
    RemoveSenders,
    Register,
    SetSlotDemands,
    Deregister,
    SendState,
    Overview,
    Timeseries,
    Version,
    CreateToken,
    ListTokenPermissions,
    ListChildTokens,
    RevokeToken,
}

impl Call {
    /// The name in the service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserve => "ReserveLoadBalancer",
            Self::Get => "GetLoadBalancer",
            Self::Status => "LoadBalancerStatus",
            Self::Free => "FreeLoadBalancer",
            Self::Reset => "ResetLoadBalancer",
            Self::Extend => "ExtendReservation",
            Self::AddSenders => "AddSenders",
            Self::RemoveSenders => "RemoveSenders",
            Self::Register => "Register",
            Self::SetSlotDemands => "SetSlotDemands",
            Self::Deregister => "Deregister",
            Self::SendState => "SendState",
            Self::Overview => "Overview",
            Self::Timeseries => "Timeseries",
            Self::Version => "Version",
            Self::CreateToken => "CreateToken",
            Self::ListTokenPermissions => "ListTokenPermissions",
            Self::ListChildTokens => "ListChildTokens",
            Self::RevokeToken => "RevokeToken",
        }
    }

    /// What a token must have the right to.
    pub fn needs(self) -> &'static str {
        match self {
            Self::Reserve => "RESERVE on a load balancer",
            Self::Get | Self::Status => "READ_ONLY on the reservation",
            Self::Register => "REGISTER on the reservation",
            Self::Deregister | Self::SendState => "UPDATE on the session, as the one that Register returned",
            Self::Free
            | Self::Reset
            | Self::Extend
            | Self::AddSenders
            | Self::RemoveSenders
            | Self::SetSlotDemands => "UPDATE on the reservation",
            Self::Overview | Self::Version | Self::Timeseries => "anything",
            Self::CreateToken => "all that the new token is to have",
            Self::ListTokenPermissions | Self::ListChildTokens | Self::RevokeToken => {
                "the token that is meant: it is the token itself, or was made with it"
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Addresses as texts.
pub(crate) fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Each waits for its answer. All may fail as [`ClientError`] says.
impl Connection {
    /// Reserves a load balancer.
    pub fn reserve(
        &self,
        request: ReserveLoadBalancerRequest,
    ) -> Result<ReserveLoadBalancerReply, ClientError> {
        self.answer(Call::Reserve, async move |mut client| client.reserve_load_balancer(request).await)
    }

    /// The addresses of a reservation.
    pub fn get(&self, lb: &str) -> Result<ReserveLoadBalancerReply, ClientError> {
        let request = GetLoadBalancerRequest { lb_id: lb.to_owned() };
        self.answer(Call::Get, async move |mut client| client.get_load_balancer(request).await)
    }

    /// A reservation's workers and senders.
    pub fn status(&self, lb: &str) -> Result<LoadBalancerStatusReply, ClientError> {
        let request = LoadBalancerStatusRequest { lb_id: lb.to_owned() };
        self.answer(Call::Status, async move |mut client| client.load_balancer_status(request).await)
    }

    /// Ends a reservation.
    pub fn free(&self, lb: &str) -> Result<(), ClientError> {
        let request = FreeLoadBalancerRequest { lb_id: lb.to_owned() };
        self.answer(Call::Free, async move |mut client| client.free_load_balancer(request).await).map(drop)
    }

    /// Lets parts of a reservation begin anew.
    pub fn reset(&self, request: ResetLoadBalancerRequest) -> Result<ResetLoadBalancerReply, ClientError> {
        self.answer(Call::Reset, async move |mut client| client.reset_load_balancer(request).await)
    }

    /// Sets a reservation's end; `None` leaves it to the site.
    pub fn extend(&self, lb: &str, until: Option<Timestamp>) -> Result<ExtendReservationReply, ClientError> {
        let request = ExtendReservationRequest { lb_id: lb.to_owned(), until };
        self.answer(Call::Extend, async move |mut client| client.extend_reservation(request).await)
    }

    /// Lets segments of these addresses in.
    pub fn add_senders(&self, lb: &str, senders: &[IpAddr]) -> Result<(), ClientError> {
        let request = AddSendersRequest { lb_id: lb.to_owned(), sender_addresses: texts(senders) };
        self.answer(Call::AddSenders, async move |mut client| client.add_senders(request).await).map(drop)
    }

    /// Takes addresses off the list of senders.
    pub fn remove_senders(&self, lb: &str, senders: &[IpAddr]) -> Result<(), ClientError> {
        let request = RemoveSendersRequest { lb_id: lb.to_owned(), sender_addresses: texts(senders) };
        let removed =
            self.answer(Call::RemoveSenders, async move |mut client| client.remove_senders(request).await);
        removed.map(drop)
    }

    /// Registers a worker. [`Worker`](crate::Worker) does it for programs that stay.
    pub fn register(&self, request: RegisterRequest) -> Result<RegisterReply, ClientError> {
        self.answer(Call::Register, async move |mut client| client.register(request).await)
    }

    /// Sets which slots workers demand.
    pub fn set_slot_demands(&self, request: SetSlotDemandsRequest) -> Result<(), ClientError> {
        let set =
            self.answer(Call::SetSlotDemands, async move |mut client| client.set_slot_demands(request).await);
        set.map(drop)
    }

    /// Ends a worker's session.
    pub fn deregister(&self, lb: &str, session: &str) -> Result<(), ClientError> {
        let request = DeregisterRequest { lb_id: lb.to_owned(), session_id: session.to_owned() };
        self.answer(Call::Deregister, async move |mut client| client.deregister(request).await).map(drop)
    }

    /// Tells a worker's state.
    pub fn send_state(&self, request: SendStateRequest) -> Result<(), ClientError> {
        self.answer(Call::SendState, async move |mut client| client.send_state(request).await).map(drop)
    }

    /// All reservations that the token may read.
    pub fn overview(&self) -> Result<OverviewReply, ClientError> {
        self.answer(Call::Overview, async move |mut client| client.overview(OverviewRequest {}).await)
    }

    /// Series of numbers since a time; `selectors` are such as `/lb/1/*`.
    pub fn timeseries(
        &self,
        selectors: Vec<String>,
        since: Option<Timestamp>,
    ) -> Result<TimeseriesResponse, ClientError> {
        let request = TimeseriesRequest { series_selector: selectors, since };
        self.answer(Call::Timeseries, async move |mut client| client.timeseries(request).await)
    }

    /// Which program it is.
    pub fn version(&self) -> Result<VersionReply, ClientError> {
        self.answer(Call::Version, async move |mut client| client.version(VersionRequest {}).await)
    }

    /// Makes a token that may do no more than the one that is shown.
    pub fn create_token(
        &self,
        name: &str,
        permissions: Vec<TokenPermission>,
    ) -> Result<CreateTokenReply, ClientError> {
        let request = CreateTokenRequest { name: name.to_owned(), permissions };
        self.answer(Call::CreateToken, async move |mut client| client.create_token(request).await)
    }

    /// What a token may do.
    pub fn list_token_permissions(
        &self,
        target: TokenSelector,
    ) -> Result<ListTokenPermissionsReply, ClientError> {
        let request = ListTokenPermissionsRequest { target: Some(target) };
        self.answer(Call::ListTokenPermissions, async move |mut client| {
            client.list_token_permissions(request).await
        })
    }

    /// The tokens that were made with a token.
    pub fn list_child_tokens(&self, target: TokenSelector) -> Result<ListChildTokensReply, ClientError> {
        let request = ListChildTokensRequest { target: Some(target) };
        self.answer(Call::ListChildTokens, async move |mut client| client.list_child_tokens(request).await)
    }

    /// Takes a token back, with all that were made with it.
    pub fn revoke_token(&self, target: TokenSelector) -> Result<(), ClientError> {
        let request = RevokeTokenRequest { target: Some(target) };
        self.answer(Call::RevokeToken, async move |mut client| client.revoke_token(request).await).map(drop)
    }
}
