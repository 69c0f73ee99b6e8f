//! Tokens and their permissions.
//!
//! Anyone who has a token may use it, so only its SHA-256 is kept: nobody can make a token from what is stored. A
//! caller's token is found by its hash, so the time of a comparison tells nothing about the tokens that exist. Each
//! token has a parent, and ends when its parent ends. The root token is the site's configuration, has every right and
//! is never stored.

mod tree;

use std::{fmt, str::FromStr, time::Duration};

use ejfat::lb::LbId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{reservation::ReservationId, session::SessionId, wall::WallTime};

pub use tree::Tokens;

/// The text of a token. It is printed nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A new token of 32 hexadecimal digits from 16 random bytes.
    pub fn generate(random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut bytes = [0; 16];
        random(&mut bytes);
        Self(hex(&bytes))
    }

    /// Returns the text of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The SHA-256 of a token's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Returns the hash of a token's text.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The number by which tokens are spoken of. It is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl TokenId {
    /// The id of the root token. In a request 0 is the calling token, so only the root token can name the root token.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a permission allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// The right to read.
    ReadOnly,
    /// The right to register workers, which includes the right to read.
    Register,
    /// The right to reserve load balancers, which includes the right to read.
    Reserve,
    /// The right to change anything, which includes all other rights.
    Update,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Register, Self::Reserve, Self::Update];

    /// Whether a caller with this right may do what needs `other`. The right to reserve does not include the right to
    /// register.
    pub fn implies(self, other: Self) -> bool {
        self == other || self == Self::Update || other == Self::ReadOnly
    }

    /// The name of the right in requests and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "READ_ONLY",
            Self::Register => "REGISTER",
            Self::Reserve => "RESERVE",
            Self::Update => "UPDATE",
        }
    }
}

/// What a permission is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All resources.
    All,
    /// Every load balancer, with its reservations and their sessions.
    LoadBalancers,
    /// One load balancer with its reservations and their sessions.
    LoadBalancer(LbId),
    /// A reservation with its sessions.
    Reservation(ReservationId),
    /// One worker session.
    Session(SessionId),
}

/// A resource and all that it lies in. A reservation that does not exist lies in no load balancer, and such a session in
/// no reservation, so that only those learn of it who have the right on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// All resources.
    All,
    /// All load balancers.
    LoadBalancers,
    /// One load balancer.
    LoadBalancer(LbId),
    /// A reservation, with its load balancer if the reservation exists.
    Reservation(ReservationId, Option<LbId>),
    /// A worker session, with its reservation and load balancer if the session exists.
    Session(SessionId, Option<(ReservationId, LbId)>),
}

impl Scope {
    /// Returns true if the scope contains the resource.
    pub fn covers(self, resource: Resource) -> bool {
        match self {
            Self::All => true,
            Self::LoadBalancers => resource != Resource::All,
            Self::LoadBalancer(id) => match resource {
                Resource::All | Resource::LoadBalancers => false,
                Resource::LoadBalancer(lb) => lb == id,
                Resource::Reservation(_, lb) => lb == Some(id),
                Resource::Session(_, within) => within.is_some_and(|(_, lb)| lb == id),
            },
            Self::Reservation(id) => match resource {
                Resource::Reservation(reservation, _) => reservation == id,
                Resource::Session(_, within) => within.is_some_and(|(reservation, _)| reservation == id),
                _ => false,
            },
            Self::Session(id) => matches!(resource, Resource::Session(session, _) if session == id),
        }
    }
}

/// A right on a resource and on all that lies in it. As text `RESERVATION/5:UPDATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    /// The resources for which the permission holds.
    pub scope: Scope,
    /// The right on the resources.
    pub right: Right,
}

impl Permission {
    /// The most that a token may have.
    pub const MOST: usize = 32;

    /// Returns true if the permission gives the right `right` on the resource `resource`.
    pub fn allows(&self, right: Right, resource: Resource) -> bool {
        self.right.implies(right) && self.scope.covers(resource)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::All => f.write_str("ALL")?,
            Scope::LoadBalancers => f.write_str("LOAD_BALANCER")?,
            Scope::LoadBalancer(id) => write!(f, "LOAD_BALANCER/{}", id.get())?,
            Scope::Reservation(id) => write!(f, "RESERVATION/{id}")?,
            Scope::Session(id) => write!(f, "SESSION/{id}")?,
        }
        write!(f, ":{}", self.right.name())
    }
}

/// The text is no permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no permission; write it as ALL:UPDATE, LOAD_BALANCER/0:RESERVE or RESERVATION/5:READ_ONLY")]
pub struct PermissionError(String);

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| PermissionError(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Permission> {
    let (scope, right) = text.split_once(':')?;
    let right = Right::ALL.into_iter().find(|known| known.name() == right)?;
    let scope = match scope.split_once('/') {
        None if scope == "ALL" => Scope::All,
        None if scope == "LOAD_BALANCER" => Scope::LoadBalancers,
        Some(("LOAD_BALANCER", id)) => Scope::LoadBalancer(LbId::new(id.parse().ok()?).ok()?),
        Some(("RESERVATION", id)) => Scope::Reservation(id.parse().ok()?),
        Some(("SESSION", id)) => Scope::Session(id.parse().ok()?),
        _ => return None,
    };
    Some(Permission { scope, right })
}

/// What the reservations of a token and of all tokens below it may be. A token has the least of its own limits and those of
/// its parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// How many there may be at a time.
    pub reservations: Option<u32>,
    /// How far ahead their end may lie; with it, none is for ever.
    pub longest: Option<Duration>,
}

impl TokenLimits {
    /// The least of both.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        let least = |a: Option<Duration>, b: Option<Duration>| a.into_iter().chain(b).min();
        let fewest = self.reservations.into_iter().chain(other.reservations).min();
        Self { reservations: fewest, longest: least(self.longest, other.longest) }
    }
}

/// How a token came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// A token that `CreateToken` made.
    Created,
    /// A token that was made with a reservation, and ends with it.
    Reservation,
    /// A token that was made with a worker session, and ends with it.
    Session,
}

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The number of the token.
    pub id: TokenId,
    /// The number of the token with which the token was made.
    pub parent: TokenId,
    /// The way in which the token was made, which decides when the token ends.
    pub kind: TokenKind,
    /// The name of the token, which is only shown to people.
    pub name: String,
    /// The SHA-256 of the token's text.
    pub hash: TokenHash,
    /// The permissions of the token.
    pub permissions: Vec<Permission>,
    /// The token's own limits. The limits of its parents hold, too.
    pub limits: TokenLimits,
    /// The time of day at which the token was made.
    pub created: WallTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_imply_what_the_service_says_they_imply() {
        use Right::{ReadOnly, Register, Reserve, Update};
        let implied: Vec<_> = Right::ALL
            .into_iter()
            .map(|right| Right::ALL.into_iter().filter(|other| right.implies(*other)).collect::<Vec<_>>())
            .collect();
        assert_eq!(
            implied,
            [vec![ReadOnly], vec![ReadOnly, Register], vec![ReadOnly, Reserve], Right::ALL.to_vec()]
        );
        assert!(!Reserve.implies(Register) && !Register.implies(Reserve) && Update.implies(Reserve));
    }

    #[test]
    fn a_scope_covers_what_lies_in_it_and_nothing_else() {
        let lb = |id| LbId::new(id).expect("id");
        let reservation = Resource::Reservation(ReservationId(5), Some(lb(1)));
        let session = Resource::Session(SessionId(7), Some((ReservationId(5), lb(1))));
        let resources =
            [Resource::All, Resource::LoadBalancers, Resource::LoadBalancer(lb(1)), reservation, session];
        let covered = |scope: Scope| resources.map(|resource| scope.covers(resource));
        assert_eq!(covered(Scope::All), [true; 5]);
        assert_eq!(covered(Scope::LoadBalancers), [false, true, true, true, true]);
        assert_eq!(covered(Scope::LoadBalancer(lb(1))), [false, false, true, true, true]);
        assert_eq!(covered(Scope::LoadBalancer(lb(2))), [false; 5]);
        assert_eq!(covered(Scope::Reservation(ReservationId(5))), [false, false, false, true, true]);
        assert_eq!(covered(Scope::Reservation(ReservationId(6))), [false; 5]);
        assert_eq!(covered(Scope::Session(SessionId(7))), [false, false, false, false, true]);
        let missing = Resource::Reservation(ReservationId(9), None);
        assert!(Scope::LoadBalancers.covers(missing) && !Scope::LoadBalancer(lb(1)).covers(missing));
    }

    #[test]
    fn permissions_are_read_as_they_are_written() {
        let texts = [
            "ALL:UPDATE",
            "LOAD_BALANCER:RESERVE",
            "LOAD_BALANCER/7:READ_ONLY",
            "RESERVATION/5:REGISTER",
            "SESSION/9:UPDATE",
        ];
        for text in texts {
            assert_eq!(text.parse::<Permission>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "ALL",
            "ALL/1:UPDATE",
            "LOAD_BALANCER/64:UPDATE",
            "SESSION:UPDATE",
            "SESSION/-1:UPDATE",
            "ALL:update",
        ] {
            assert!(text.parse::<Permission>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let secret = Secret::generate(&mut |bytes| bytes.fill(0xab));
        assert_eq!(secret.as_str(), "ab".repeat(16));
        assert!(!format!("{secret:?}").contains("ab"));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(TokenHash::of("").to_string(), empty);
    }
}
