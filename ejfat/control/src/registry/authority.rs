//! Whether a caller may make a request: the table of [`access`](crate::access), applied.

use std::net::IpAddr;

use ejfat::lb::LbId;

use super::Registry;
use crate::{
    access::Need,
    request::{
        AskedPermission, Caller, CreateToken, Refusal, RefusalKind, Request, ResourceType, TokenSelector,
    },
    reservation::{ReservationId, shown},
    session::SessionId,
    token::{Permission, Resource, Right, Scope, TokenHash, TokenId},
};

/// What the root token may do.
pub(super) const ROOT_PERMISSIONS: [Permission; 1] = [Permission { scope: Scope::All, right: Right::Update }];

/// A token that exists, with what it may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authority<'a> {
    pub(super) id: TokenId,
    pub(super) permissions: &'a [Permission],
    /// Where the call comes from, if that is known.
    pub(super) peer: Option<IpAddr>,
}

impl Authority<'_> {
    pub(super) fn may(&self, right: Right, resource: Resource) -> bool {
        self.permissions.iter().any(|permission| permission.allows(right, resource))
    }
}

/// The refusal of a caller who lacks the right. If the token is one of other reservations, it says so: many a caller has set the URI
/// of another reservation.
fn no_right(by: &Authority<'_>, request: &Request) -> Refusal {
    let call = request.call();
    let of = |permission: &Permission| match permission.scope {
        Scope::Reservation(id) if id.to_string() != request.lb_id() => Some(id),
        _ => None,
    };
    let other = by.permissions.iter().find_map(of).filter(|_| matches!(call.need(), Need::Reservation(_)));
    let here = match other {
        Some(other) => {
            format!("on reservation {}, since it is a token of reservation {other}", request.lb_id())
        }
        None => "here".to_owned(),
    };
    let (name, need) = (call.name(), call.need().described());
    Refusal::denied(format!("the token has no right to {name} {here}; use a token {need}"))
}

impl Registry {
    pub(super) fn authenticate(&self, caller: Caller<'_>) -> Result<Authority<'_>, Refusal> {
        let text = caller.token.ok_or_else(|| {
            Refusal::new(
                RefusalKind::Unauthenticated,
                "the call has no token; send it as metadata `authorization: Bearer <token>`",
            )
        })?;
        let hash = TokenHash::of(text);
        if hash == self.root {
            return Ok(Authority { id: TokenId::ROOT, permissions: &ROOT_PERMISSIONS, peer: caller.peer });
        }
        let token = self.durable.tokens.find(&hash).ok_or_else(|| {
            Refusal::denied(
                "the token is unknown: it is mistyped, or it was revoked, or what it came with has ended; get a new one",
            )
        })?;
        Ok(Authority { id: token.id, permissions: &token.permissions, peer: caller.peer })
    }

    pub(super) fn authorize(&self, by: &Authority<'_>, request: &Request) -> Result<(), Refusal> {
        let is_allowed = match request.call().need() {
            Need::AnyToken => true,
            Need::SomeLoadBalancer(right) => {
                self.config.load_balancers().any(|(lb, _)| by.may(right, Resource::LoadBalancer(lb)))
            }
            Need::Reservation(right) => {
                by.may(right, self.reservation_resource(reservation_id(request.lb_id())?))
            }
            Need::Session(right) => {
                let id = session_id(request.session_id())?;
                by.may(right, self.session_resource(id, request.lb_id().parse().ok()))
            }
            Need::OwnRights => match request {
                Request::CreateToken(create) => {
                    let asked = asked_permissions(create)?;
                    asked.iter().all(|asked| by.may(asked.right, self.resource(asked.scope)))
                }
                _ => false,
            },
            Need::OwnTokens => match selector(request) {
                Some(selector) => self.durable.tokens.is_within(self.select(by, selector)?, by.id),
                None => false,
            },
        };
        if is_allowed { Ok(()) } else { Err(no_right(by, request)) }
    }

    /// The token that is selected.
    pub(super) fn select(&self, by: &Authority<'_>, selector: &TokenSelector) -> Result<TokenId, Refusal> {
        let known = match selector {
            TokenSelector::Id(0) => Some(by.id),
            TokenSelector::Id(id) => self.durable.tokens.get(TokenId(*id)).map(|token| token.id),
            TokenSelector::Token(text) => {
                let hash = TokenHash::of(text);
                let root = (hash == self.root).then_some(TokenId::ROOT);
                root.or_else(|| self.durable.tokens.find(&hash).map(|token| token.id))
            }
        };
        known.ok_or_else(|| Refusal::not_found("there is no such token"))
    }

    pub(super) fn reservation_resource(&self, id: ReservationId) -> Resource {
        Resource::Reservation(id, self.durable.reservation(id).map(|reservation| reservation.lb))
    }

    fn session_resource(&self, id: SessionId, named: Option<ReservationId>) -> Resource {
        let within = match self.durable.sessions.get(&id) {
            Some(session) => Some((session.reservation, session.lb)),
            None => named
                .and_then(|id| self.durable.reservation(id))
                .map(|reservation| (reservation.id, reservation.lb)),
        };
        Resource::Session(id, within)
    }

    fn resource(&self, scope: Scope) -> Resource {
        match scope {
            Scope::All => Resource::All,
            Scope::LoadBalancers => Resource::LoadBalancers,
            Scope::LoadBalancer(lb) => Resource::LoadBalancer(lb),
            Scope::Reservation(id) => self.reservation_resource(id),
            Scope::Session(id) => self.session_resource(id, None),
        }
    }
}

pub(super) fn reservation_id(text: &str) -> Result<ReservationId, Refusal> {
    text.parse()
        .map_err(|_| Refusal::invalid(format!("lbId {} is not the number of a reservation", shown(text))))
}

pub(super) fn session_id(text: &str) -> Result<SessionId, Refusal> {
    text.parse()
        .map_err(|_| Refusal::invalid(format!("sessionId {} is not the number of a session", shown(text))))
}

fn selector(request: &Request) -> Option<&TokenSelector> {
    match request {
        Request::ListTokenPermissions(selector)
        | Request::ListChildTokens(selector)
        | Request::RevokeToken(selector) => Some(selector),
        _ => None,
    }
}

/// The permissions that a new token is to have.
pub(super) fn asked_permissions(create: &CreateToken) -> Result<Vec<Permission>, Refusal> {
    let CreateToken { permissions, .. } = create;
    if permissions.is_empty() || permissions.len() > Permission::MOST {
        let most = Permission::MOST;
        return Err(Refusal::invalid(format!(
            "a token has 1 to {most} permissions, not {}",
            permissions.len()
        )));
    }
    permissions.iter().map(asked).collect()
}

fn asked(permission: &AskedPermission) -> Result<Permission, Refusal> {
    let AskedPermission { resource, id, right } = permission;
    let scope = match resource {
        ResourceType::All => Scope::All,
        ResourceType::LoadBalancer if id.is_empty() => Scope::LoadBalancers,
        ResourceType::LoadBalancer => {
            let lb = id.parse().ok().and_then(|id| LbId::new(id).ok());
            let most = LbId::COUNT - 1;
            Scope::LoadBalancer(lb.ok_or_else(|| {
                Refusal::invalid(format!("{} is not the number of a load balancer, 0 to {most}", shown(id)))
            })?)
        }
        ResourceType::Reservation => Scope::Reservation(reservation_id(id)?),
        ResourceType::Session => Scope::Session(session_id(id)?),
    };
    Ok(Permission { scope, right: *right })
}
