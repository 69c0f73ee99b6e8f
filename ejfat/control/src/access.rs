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
    /// The call `CreateToken`, which makes a token below the calling token.
    CreateToken,
    /// The call `ListTokenPermissions`, which returns the permissions of a token.
    ListTokenPermissions,
    /// The call `ListChildTokens`, which returns the tokens that were made with a token.
    ListChildTokens,
    /// The call `RevokeToken`, which revokes a token and all tokens below it.
    RevokeToken,
    /// The call `ChainLoadBalancer`, which makes another load balancer a worker of the reservation's load balancer.
    /// Our control plane has no chains and refuses the call.
    Chain,
    /// The call `UnchainLoadBalancer`, which ends a chain that `ChainLoadBalancer` made. Our control plane has no
    /// chains and refuses the call.
    Unchain,
    /// The call `GetChainGraph`, which returns the graph of the chains that a reservation's load balancer is part of.
    /// Our control plane has no chains and returns an empty graph.
    GetChainGraph,
}

/// What a caller needs for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Any token that exists. What the reply shows is what the token may read.
    AnyToken,
    /// The right on at least one load balancer, and only such ones are given.
    SomeLoadBalancer(Right),
    /// The right on the reservation that the request names.
    Reservation(Right),
    /// The right on the session that the request names.
    Session(Right),
    /// Each permission that is asked for, as one of the caller's own or covered by one.
    OwnRights,
    /// That the request names the caller's token, or one below it.
    OwnTokens,
}

/// Each call, in the order of [`ApiCall`], with its name and what it needs.
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
    /// Returns what a caller needs for this call.
    pub fn need(self) -> Need {
        NEEDS[self as usize].2
    }

    /// The name of the method in the service.
    pub fn name(self) -> &'static str {
        NEEDS[self as usize].1
    }
}

impl Need {
    /// What a token has that meets the need, as the end of "use a token ...".
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
