//! The calls of a control plane, one method each.

use std::net::IpAddr;

use ejfat_control::access::ApiCall;
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

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Each method waits until the control plane answers, and returns a [`ClientError`] if the call fails.
impl Connection {
    /// Reserves a load balancer.
    pub fn reserve(
        &self,
        request: ReserveLoadBalancerRequest,
    ) -> Result<ReserveLoadBalancerReply, ClientError> {
        self.answer(ApiCall::Reserve, async move |mut client| client.reserve_load_balancer(request).await)
    }

    /// Returns the addresses of a reservation.
    pub fn get(&self, lb: &str) -> Result<ReserveLoadBalancerReply, ClientError> {
        let request = GetLoadBalancerRequest { lb_id: lb.to_owned() };
        self.answer(ApiCall::Get, async move |mut client| client.get_load_balancer(request).await)
    }

    /// Returns the workers and the senders of a reservation.
    pub fn status(&self, lb: &str) -> Result<LoadBalancerStatusReply, ClientError> {
        let request = LoadBalancerStatusRequest { lb_id: lb.to_owned() };
        self.answer(ApiCall::Status, async move |mut client| client.load_balancer_status(request).await)
    }

    /// Ends a reservation.
    pub fn free(&self, lb: &str) -> Result<(), ClientError> {
        let request = FreeLoadBalancerRequest { lb_id: lb.to_owned() };
        self.answer(ApiCall::Free, async move |mut client| client.free_load_balancer(request).await).map(drop)
    }

    /// Resets the parts of a reservation that the request names.
    pub fn reset(&self, request: ResetLoadBalancerRequest) -> Result<ResetLoadBalancerReply, ClientError> {
        self.answer(ApiCall::Reset, async move |mut client| client.reset_load_balancer(request).await)
    }

    /// Sets the end of a reservation. If `until` is `None`, the control plane chooses the end.
    pub fn extend(&self, lb: &str, until: Option<Timestamp>) -> Result<ExtendReservationReply, ClientError> {
        let request = ExtendReservationRequest { lb_id: lb.to_owned(), until };
        self.answer(ApiCall::Extend, async move |mut client| client.extend_reservation(request).await)
    }

    /// Adds addresses to the list of a reservation's senders, whose segments the load balancer takes.
    pub fn add_senders(&self, lb: &str, senders: &[IpAddr]) -> Result<(), ClientError> {
        let request = AddSendersRequest { lb_id: lb.to_owned(), sender_addresses: texts(senders) };
        self.answer(ApiCall::AddSenders, async move |mut client| client.add_senders(request).await).map(drop)
    }

    /// Removes addresses from the list of a reservation's senders.
    pub fn remove_senders(&self, lb: &str, senders: &[IpAddr]) -> Result<(), ClientError> {
        let request = RemoveSendersRequest { lb_id: lb.to_owned(), sender_addresses: texts(senders) };
        let removed =
            self.answer(ApiCall::RemoveSenders, async move |mut client| client.remove_senders(request).await);
        removed.map(drop)
    }

    /// Registers a worker. A program that stays registered uses [`Worker`](crate::Worker), which also reports its state.
    pub fn register(&self, request: RegisterRequest) -> Result<RegisterReply, ClientError> {
        self.answer(ApiCall::Register, async move |mut client| client.register(request).await)
    }

    /// Sets the slot demands of all workers of a reservation.
    pub fn set_slot_demands(&self, request: SetSlotDemandsRequest) -> Result<(), ClientError> {
        let set = self
            .answer(ApiCall::SetSlotDemands, async move |mut client| client.set_slot_demands(request).await);
        set.map(drop)
    }

    /// Ends a worker session.
    pub fn deregister(&self, lb: &str, session: &str) -> Result<(), ClientError> {
        let request = DeregisterRequest { lb_id: lb.to_owned(), session_id: session.to_owned() };
        self.answer(ApiCall::Deregister, async move |mut client| client.deregister(request).await).map(drop)
    }

    /// Reports the state of a worker.
    pub fn send_state(&self, request: SendStateRequest) -> Result<(), ClientError> {
        self.answer(ApiCall::SendState, async move |mut client| client.send_state(request).await).map(drop)
    }

    /// Returns all reservations that the token may read.
    pub fn overview(&self) -> Result<OverviewReply, ClientError> {
        self.answer(ApiCall::Overview, async move |mut client| client.overview(OverviewRequest {}).await)
    }

    /// Returns the time series that the selectors name, as `/lb/1/*` does, with the samples since a time.
    pub fn timeseries(
        &self,
        selectors: Vec<String>,
        since: Option<Timestamp>,
    ) -> Result<TimeseriesResponse, ClientError> {
        let request = TimeseriesRequest { series_selector: selectors, since };
        self.answer(ApiCall::Timeseries, async move |mut client| client.timeseries(request).await)
    }

    /// Returns the name and the version of the control plane's program.
    pub fn version(&self) -> Result<VersionReply, ClientError> {
        self.answer(ApiCall::Version, async move |mut client| client.version(VersionRequest {}).await)
    }

    /// Makes a token, which cannot have more rights than the token of this connection.
    pub fn create_token(
        &self,
        name: &str,
        permissions: Vec<TokenPermission>,
    ) -> Result<CreateTokenReply, ClientError> {
        let request = CreateTokenRequest { name: name.to_owned(), permissions };
        self.answer(ApiCall::CreateToken, async move |mut client| client.create_token(request).await)
    }

    /// Returns the permissions of a token.
    pub fn list_token_permissions(
        &self,
        target: TokenSelector,
    ) -> Result<ListTokenPermissionsReply, ClientError> {
        let request = ListTokenPermissionsRequest { target: Some(target) };
        self.answer(ApiCall::ListTokenPermissions, async move |mut client| {
            client.list_token_permissions(request).await
        })
    }

    /// Returns the tokens that were made with a token.
    pub fn list_child_tokens(&self, target: TokenSelector) -> Result<ListChildTokensReply, ClientError> {
        let request = ListChildTokensRequest { target: Some(target) };
        self.answer(ApiCall::ListChildTokens, async move |mut client| client.list_child_tokens(request).await)
    }

    /// Revokes a token, and all tokens that were made with it.
    pub fn revoke_token(&self, target: TokenSelector) -> Result<(), ClientError> {
        let request = RevokeTokenRequest { target: Some(target) };
        self.answer(ApiCall::RevokeToken, async move |mut client| client.revoke_token(request).await)
            .map(drop)
    }
}
