//! What a caller gets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
};

use ejfat::{
    lb::LbId,
    uri::{DataAddress, EjfatUri},
};

use crate::{
    calendar::MemberId,
    reservation::{ReservationId, Strategy},
    session::{
        SessionId, Worker,
        liveness::{Readiness, WorkerState},
        slots::SlotRange,
    },
    token::{Permission, Secret, TokenId, TokenLimits},
    wall::WallTime,
};

/// The reply to each request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To `Reserve`, with a token, and to `Get`, without.
    Reserved(Box<ReservedLoadBalancer>),
    /// The reply to `Status`.
    Status(Box<LoadBalancerStatus>),
    /// What was asked for, again.
    Reset {
        /// True if the request asked to forget the ticks of the sync datagrams.
        sync: bool,
        /// True if the request asked to begin the epochs again.
        epochs: bool,
        /// True if the request asked to remove all senders.
        senders: bool,
        /// True if the request asked to end all worker sessions.
        workers: bool,
    },
    /// `None`: the reservation has no end.
    Extended {
        /// The new end of the reservation, or `None` if the reservation has no end.
        until: Option<WallTime>,
    },
    /// The reply to `Register`.
    Registered(RegisteredWorker),
    /// The reply to `Overview`.
    Overview(Vec<Overview>),
    /// To `Timeseries`: whether the caller may read what is no reservation's, and the reservations that it may read.
    Readable {
        /// True if the caller may read the time series that belong to no reservation.
        all: bool,
        /// The reservations whose time series the caller may read.
        reservations: Vec<ReservationId>,
    },
    /// The reply to `CreateToken`.
    Token(CreatedToken),
    /// The reply to `ListTokenPermissions`.
    TokenDetails(Box<TokenDetails>),
    /// The reply to `ListChildTokens`.
    ChildTokens(Vec<TokenDetails>),
    /// The reply to all other requests.
    Done,
}

/// A reservation with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedLoadBalancer {
    /// The token that came with the reservation, or `None` in the reply to `Get`.
    pub token: Option<Secret>,
    /// The id of the reservation.
    pub id: ReservationId,
    /// Which of the data plane's load balancers it is.
    pub lb: LbId,
    /// The name of the reservation.
    pub name: String,
    /// The strategy by which the calendar is computed.
    pub strategy: Strategy,
    /// Only those of the IP versions that were asked for.
    pub data_v4: Option<Ipv4Addr>,
    /// The IPv6 address to which segments are sent, if the reservation has one.
    pub data_v6: Option<Ipv6Addr>,
    /// The UDP ports to which segments may be sent.
    pub data_ports: RangeInclusive<u16>,
    /// The IPv4 address to which sync datagrams are sent, if the reservation has one.
    pub sync_v4: Option<Ipv4Addr>,
    /// The IPv6 address to which sync datagrams are sent, if the reservation has one.
    pub sync_v6: Option<Ipv6Addr>,
    /// The UDP port to which sync datagrams are sent.
    pub sync_port: u16,
}

impl ReservedLoadBalancer {
    /// The URI by which programs find the reservation, through the control plane at `host` and `port`.
    pub fn uri(&self, tls: bool, host: &str, port: u16) -> EjfatUri {
        let sync = self.sync_v4.map(IpAddr::V4).into_iter().chain(self.sync_v6.map(IpAddr::V6));
        EjfatUri {
            tls,
            token: self.token.as_ref().map(|token| token.as_str().to_owned()),
            lb_id: Some(self.id.to_string()),
            data_v4: self.data_v4.map(|ip| DataAddress { ip, ports: self.data_ports.clone() }),
            data_v6: self.data_v6.map(|ip| DataAddress { ip, ports: self.data_ports.clone() }),
            sync: sync.map(|ip| SocketAddr::new(ip, self.sync_port)).collect(),
            ..EjfatUri::new(host, port)
        }
    }
}

/// The registry's part of a reservation's status. Epoch, ticks and the slots that workers have are the publisher's.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerStatus {
    /// The time of day of the status.
    pub at: WallTime,
    /// The workers of the reservation.
    pub workers: Vec<WorkerStatus>,
    /// The addresses from which the load balancer takes segments.
    pub senders: Vec<IpAddr>,
    /// `None`: never.
    pub expires: Option<WallTime>,
    /// Slots of the calendar.
    pub slots: u32,
}

/// A worker, as it registered and as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    /// The id of the worker session.
    pub session: SessionId,
    /// The number of the worker in the load balancer's tables.
    pub member: MemberId,
    /// The registration of the worker.
    pub worker: Worker,
    /// The slots that the worker demanded and got.
    pub slot_demands: Vec<SlotRange>,
    /// The readiness of the worker, which decides whether the worker gets events.
    pub readiness: Readiness,
    /// The newest state, and when it came.
    pub state: Option<(WorkerState, WallTime)>,
}

/// A reservation that the caller may read.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The addresses of the reservation.
    pub reservation: ReservedLoadBalancer,
    /// The workers and senders of the reservation.
    pub status: LoadBalancerStatus,
}

/// The reply to a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredWorker {
    /// The token that came with the session.
    pub token: Secret,
    /// The id of the session.
    pub session: SessionId,
}

/// The reply to the call that makes a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedToken {
    /// The text of the new token.
    pub token: Secret,
    /// The number of the new token.
    pub id: TokenId,
}

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDetails {
    /// The number of the token.
    pub id: TokenId,
    /// The name of the token.
    pub name: String,
    /// The permissions of the token.
    pub permissions: Vec<Permission>,
    /// The limits that hold for the token: its own and those of its parents.
    pub limits: TokenLimits,
    /// `None`: the root token, which is the site's configuration.
    pub created: Option<WallTime>,
}
