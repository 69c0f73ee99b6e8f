//! Worker sessions: what is kept of a registered worker, and when a worker may register.

pub mod liveness;
pub mod slots;

use std::{fmt, net::IpAddr, num::ParseIntError, str::FromStr};

use ejfat::lb::{Forward, LbId};

use crate::{
    calendar::MemberId,
    config::AddressPolicy,
    request::{Refusal, Register},
    reservation::{ReservationId, check_label, parse_address},
    token::TokenId,
    wall::WallTime,
};

use slots::SlotRange;

/// The number of a worker session. It is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SessionId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The highest weight and factor of a worker. Calendars have fewer slots than this.
pub const MOST_FACTOR: f32 = 1e6;
/// The lowest weight: below it a worker would have no slot beside any other.
pub const LEAST_WEIGHT: f32 = 1e-6;

/// A registered worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSession {
    /// The number of the session.
    pub id: SessionId,
    /// The reservation to which the worker belongs.
    pub reservation: ReservationId,
    /// The load balancer of the reservation.
    pub lb: LbId,
    /// The token that came with the session, until it is revoked.
    pub token: Option<TokenId>,
    /// The worker's number in the tables of its load balancer.
    pub member: MemberId,
    /// The registration of the worker.
    pub worker: Worker,
    /// Its slot demands.
    pub slots: Vec<SlotRange>,
    /// The time of day at which the worker registered.
    pub registered: WallTime,
}

/// What a worker says of itself when it registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// The name of the worker, which is only shown to people.
    pub name: String,
    /// Its part of all slots beside others, before anything is known of it.
    pub weight: f32,
    /// The IP address to which the load balancer sends segments.
    pub address: IpAddr,
    /// The first of its 2^`port_bits` UDP ports.
    pub port: u16,
    /// The worker has 2^`port_bits` UDP ports, from 2^0 to 2^14.
    pub port_bits: u8,
    /// Slots that it gets at least and at most, as a part of an even share; the latter 0: as many as there are.
    pub min_factor: f32,
    /// The greatest share of slots, as a factor of an even share. The value 0 means no limit.
    pub max_factor: f32,
    /// True if the load balancer leaves the LB header in the worker's segments.
    pub keep_lb_header: bool,
}

impl Worker {
    /// Checks a registration. `peer` is where the call comes from.
    pub(crate) fn asked(
        request: &Register,
        policy: AddressPolicy,
        peer: Option<IpAddr>,
    ) -> Result<Self, Refusal> {
        check_label("worker", &request.name)?;
        let address = parse_address("worker", &request.address)?;
        check_policy(policy, address, peer)?;
        let Register { weight, min_factor, max_factor, .. } = *request;
        check_factors(weight, min_factor, max_factor)?;
        let (port, port_bits) = check_ports(request.port, request.port_range)?;
        Ok(Self {
            name: request.name.clone(),
            weight,
            address,
            port,
            port_bits,
            // Minus zero is zero.
            min_factor: min_factor.abs(),
            max_factor: max_factor.abs(),
            keep_lb_header: request.keep_lb_header,
        })
    }

    /// Whether some address and port belong to both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let end = |worker: &Self| u32::from(worker.port) + (1 << worker.port_bits);
        let meets = u32::from(self.port) < end(other) && u32::from(other.port) < end(self);
        self.address == other.address && meets
    }
}

fn check_policy(policy: AddressPolicy, address: IpAddr, peer: Option<IpAddr>) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::invalid(why));
    if address.is_loopback() && !policy.loopback {
        return refuse(format!("the worker's address {address} is loopback, which this site does not allow"));
    }
    let is_private = match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    };
    if is_private && !policy.private {
        return refuse(format!("the worker's address {address} is private, which this site does not allow"));
    }
    match peer {
        _ if !policy.own_only => Ok(()),
        Some(peer) if peer.to_canonical() == address => Ok(()),
        Some(peer) => refuse(format!(
            "the worker's address {address} is not {peer}, from which it registers; register from the worker's machine"
        )),
        None => refuse(
            "the address from which the worker registers is unknown, and this site wants it".to_owned(),
        ),
    }
}

pub(crate) fn check_factors(weight: f32, min_factor: f32, max_factor: f32) -> Result<(), Refusal> {
    if !(LEAST_WEIGHT..=MOST_FACTOR).contains(&weight) {
        return Err(Refusal::invalid(format!(
            "the weight {weight} is not from {LEAST_WEIGHT} to {MOST_FACTOR}"
        )));
    }
    for (name, factor) in [("minimum", min_factor), ("maximum", max_factor)] {
        if !(0.0..=MOST_FACTOR).contains(&factor) {
            return Err(Refusal::invalid(format!(
                "the {name} factor {factor} is not from 0 to {MOST_FACTOR}"
            )));
        }
    }
    if max_factor != 0.0 && min_factor > max_factor {
        return Err(Refusal::invalid(format!(
            "the minimum factor {min_factor} is above the maximum factor {max_factor}; 0 as maximum means no limit"
        )));
    }
    Ok(())
}

pub(crate) fn check_ports(port: u32, range: u32) -> Result<(u16, u8), Refusal> {
    let most = u32::from(Forward::MOST_BITS);
    if range > most {
        return Err(Refusal::invalid(format!("the port range {range} is not from 0 to {most}")));
    }
    let count = 1_u64 << range;
    match u16::try_from(port) {
        Ok(first) if first > 0 && u64::from(first) + count <= 65_536 => Ok((first, range as u8)),
        _ => Err(Refusal::invalid(format!("{count} ports from {port} on are not all from 1 to 65535"))),
    }
}
