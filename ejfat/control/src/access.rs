//! Which call of the API needs which permission.

use crate::token::Right;

/// The calls of the service `loadbalancer.LoadBalancer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiCall {
    /// The call `ReserveLoadBalancer`, which takes a load balancer for a time.
    Reserve,
    /// The call `GetLoadBalancer`, which returns the addresses of a reservation.
    Get,
    /// The call `LoadBalancerStatus`, which returns the workers, the senders and the epoch of a reservation.
    Status,
    /// The call `FreeLoadBalancer`, which ends a reservation.
    Free,
    /// The call `ResetLoadBalancer`, which resets the parts of a reservation that the request names.
    Reset,
    /// The call `ExtendReservation`, which sets the time at which a reservation ends.
    Extend,
    /// The call `AddSenders`, which adds addresses to the list of a reservation's senders.
    AddSenders,
    /// The call `RemoveSenders`, which removes addresses from the list of a reservation's senders.
    RemoveSenders,
    /// The call `Register`, which registers a worker and so begins a worker session.
    Register,
    /// The call `SetSlotDemands`, which sets the slot demands of all worker sessions of a reservation.
    SetSlotDemands,
    /// The call `Deregister`, which ends a worker session.
    Deregister,
    /// The call `SendState`, which reports the state of a worker.
    SendState,
    /// The call `Overview`, which returns all reservations that the caller may read, with their status.
    Overview,
    /// The call `Timeseries`, which returns values that were measured over time, if the caller may read them.
    Timeseries,
    /// The call `Version`, which returns the version of the control plane's program.
    Version,
    /// The call `CreateToken`, which makes a new token as a child of the caller's token.
    CreateToken,
    /// The call `ListTokenPermissions`, which returns the permissions of a token.
    ListTokenPermissions,
    /// The call `ListChildTokens`, which returns the tokens whose parent is the token that the request names.
    ListChildTokens,
    /// The call `RevokeToken`, which revokes a token and all tokens that descend from it.
    RevokeToken,
    /// The call `ChainLoadBalancer`, which makes another load balancer a worker of the reservation's load balancer.
    /// The control plane of naa does not support chains, and refuses the call.
    Chain,
    /// The call `UnchainLoadBalancer`, which ends a chain that `ChainLoadBalancer` made. The control plane of naa does
    /// not support chains, and refuses the call.
    Unchain,
    /// The call `GetChainGraph`, which returns the graph of the chains that a reservation's load balancer is part of.
    /// The control plane of naa does not support chains, and returns an empty graph.
    GetChainGraph,
}

/// What the caller's token must have for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Any token that exists is enough. The reply contains only what the token may read.
    AnyToken,
    /// The token has this right on at least one load balancer. The caller gets only a load balancer on which the token
    /// has this right.
    SomeLoadBalancer(Right),
    /// The token has this right on the reservation that the request names.
    Reservation(Right),
    /// The token has this right on the worker session that the request names.
    Session(Right),
    /// The token's own permissions cover each permission that the request asks for.
    OwnRights,
    /// The request names the caller's token, or a token that descends from it.
    OwnTokens,
}

/// Each call in the order of [`ApiCall`], with the name of its gRPC method and what the caller's token must have.
pub const NEEDS: [(ApiCall, &str, Need); 22] = [
    (ApiCall::Reserve, "ReserveLoadBalancer", Need::SomeLoadBalancer(Right::Reserve)),
    (ApiCall::Get, "GetLoadBalancer", Need::Reservation(Right::ReadOnly)),
    (ApiCall::Status, "LoadBalancerStatus", Need::Reservation(Right::ReadOnly)),
    (ApiCall::Free, "FreeLoadBalancer", Need::Reservation(Right::Update)),
    (ApiCall::Reset, "ResetLoadBalancer", Need::Reservation(Right::Update)),
    (ApiCall::Extend, "ExtendReservation", Need::Reservation(Right::Update)),
    (ApiCall::AddSenders, "AddSenders", Need::Reservation(Right::Update)),
    (ApiCall::RemoveSenders, "RemoveSenders", Need::Reservation(Right::Update)),
    (ApiCall::Register, "Register", Need::Reservation(Right::Register)),
    (ApiCall::SetSlotDemands, "SetSlotDemands", Need::Reservation(Right::Update)),
    (ApiCall::Deregister, "Deregister", Need::Session(Right::Update)),
    (ApiCall::SendState, "SendState", Need::Session(Right::Update)),
    (ApiCall::Overview, "Overview", Need::AnyToken),
    (ApiCall::Timeseries, "Timeseries", Need::AnyToken),
    (ApiCall::Version, "Version", Need::AnyToken),
    (ApiCall::CreateToken, "CreateToken", Need::OwnRights),
    (ApiCall::ListTokenPermissions, "ListTokenPermissions", Need::OwnTokens),
    (ApiCall::ListChildTokens, "ListChildTokens", Need::OwnTokens),
    (ApiCall::RevokeToken, "RevokeToken", Need::OwnTokens),
    (ApiCall::Chain, "ChainLoadBalancer", Need::Reservation(Right::Update)),
    (ApiCall::Unchain, "UnchainLoadBalancer", Need::Reservation(Right::Update)),
    (ApiCall::GetChainGraph, "GetChainGraph", Need::Reservation(Right::ReadOnly)),
];

impl ApiCall {
    /// Returns what the caller's token must have for this call.
    pub fn need(self) -> Need {
        NEEDS[self as usize].2
    }

    /// Returns the name of the gRPC method of this call.
    pub fn name(self) -> &'static str {
        NEEDS[self as usize].1
    }
}

impl Need {
    /// Returns a description of a token that is enough for the call, as the end of a text that begins with "use a
    /// token".
    pub fn described(self) -> String {
        match self {
            Self::AnyToken => "that the control plane knows".into(),
            Self::SomeLoadBalancer(right) => format!("with the right {} on a load balancer", right.name()),
            Self::Reservation(right) => format!(
                "with the right {} on the reservation, as the one in its URI or the site's admin token",
                right.name()
            ),
            Self::Session(right) => {
                format!("with the right {} on the session, as the one that Register returned", right.name())
            }
            Self::OwnRights => "that has itself all rights that the new token is to have".into(),
            Self::OwnTokens => "that is the token in question, or one with which that was made".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_calls() {
        assert!(NEEDS.iter().enumerate().all(|(at, (call, ..))| *call as usize == at));
    }
}
