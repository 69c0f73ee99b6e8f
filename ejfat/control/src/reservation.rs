//! Reservations of load balancers, and their senders.

use std::{fmt, net::IpAddr, num::ParseIntError, str::FromStr};

use ejfat::lb::LbId;
use serde::{Deserialize, Serialize};

use crate::{config::LoadBalancerConfig, request::Refusal, token::TokenId, wall::WallTime};

/// The number of a reservation, `lbId` in the API. It is never given twice, so that an old token fits no new reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ReservationId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Which IP versions a reservation has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpFamily {
    /// Both, as far as the load balancer has them.
    #[default]
    #[serde(rename = "dual")]
    DualStack,
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
}

impl IpFamily {
    /// Whether `address` is of a version that is wanted and that the load balancer has.
    pub fn takes(self, lb: &LoadBalancerConfig, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self != Self::V6 && lb.data_v4.is_some(),
            IpAddr::V6(_) => self != Self::V4 && lb.data_v6.is_some(),
        }
    }

    /// Whether the load balancer has what is wanted.
    pub fn is_met_by(self, lb: &LoadBalancerConfig) -> bool {
        match self {
            Self::DualStack => true,
            Self::V4 => lb.data_v4.is_some(),
            Self::V6 => lb.data_v6.is_some(),
        }
    }
}

/// How the calendar follows from weights and slot demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The calendar follows the workers' reports.
    #[default]
    Dynamic,
    /// Slot demands first, the other slots by weight.
    Static,
    /// Slot demands only.
    Explicit,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::Dynamic, Self::Static, Self::Explicit];

    /// Returns the name of the strategy in requests and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
            Self::Explicit => "explicit",
        }
    }

    /// Parses the strategy of a request, where an empty text means the default.
    pub(crate) fn asked(text: &str) -> Result<Self, Refusal> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let text = shown(text);
            Refusal::invalid(format!("strategy {text} is unknown; say dynamic, static or explicit"))
        })
    }
}

/// A load balancer that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The number of the reservation.
    pub id: ReservationId,
    /// The load balancer that is reserved.
    pub lb: LbId,
    /// The name of the reservation, which is only shown to people.
    pub name: String,
    /// The token against whose limits, and whose parents', the reservation counts.
    pub owner: TokenId,
    /// The token that came with the reservation, until it is revoked.
    pub token: Option<TokenId>,
    /// The IP versions that the reservation has.
    pub ip_family: IpFamily,
    /// The strategy by which the calendar is computed.
    pub strategy: Strategy,
    /// `None`: it has no end.
    pub until: Option<WallTime>,
    /// The time of day at which the reservation was made.
    pub created: WallTime,
}

/// An address from which a load balancer takes segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SenderAddress {
    /// The load balancer that takes the segments.
    pub lb: LbId,
    /// The source address of the segments.
    pub address: IpAddr,
}

/// Checks a reservation's name: none, or at most 253 characters in labels with dots between them. A label has 1 to 63
/// letters, digits or any of `- _ : /`, and begins and ends with a letter or digit.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_label = |label: &str| {
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_:/".contains(byte);
        (1..=63).contains(&bytes.len())
            && is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes.iter().all(fits)
    };
    if name.is_empty() || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "{} is no name of a reservation; use at most 253 letters, digits, dots and any of - _ : / between them, with no \
         more than 63 from dot to dot",
        shown(name)
    )))
}

/// Checks a name that is only shown.
pub(crate) fn check_label(what: &str, name: &str) -> Result<(), Refusal> {
    if name.len() <= 253 && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(format!("the {what}'s name {} is too long or has control characters", shown(name))))
}

/// Reads an address that a data plane can have in its tables.
pub(crate) fn parse_address(what: &str, text: &str) -> Result<IpAddr, Refusal> {
    let address: IpAddr = text.parse().map_err(|_| {
        Refusal::invalid(format!(
            "the {what}'s address {} is neither an IPv4 nor an IPv6 address",
            shown(text)
        ))
    })?;
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    if is_mapped {
        return Err(Refusal::invalid(format!("the {what}'s address {address} is IPv4; write it as such")));
    }
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(Refusal::invalid(format!(
            "the {what}'s address {address} is not the address of one machine"
        )));
    }
    Ok(address)
}

/// Text of a caller as it is repeated in an error: quoted, and not longer than a line.
pub(crate) fn shown(text: &str) -> String {
    if text.chars().nth(80).is_none() {
        return format!("{text:?}");
    }
    format!("{:?}...", text.chars().take(80).collect::<String>())
}
