//! What a caller gets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
};

use ejfat::{
    lb::LbId,
    uri::{Data, EjfatUri},
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
    Status(Box<LoadBalancerStatus>),
    /// What was asked for, again.
    Reset {
        sync: bool,
        epochs: bool,
        senders: bool,
        workers: bool,
    },
    /// `None`: the reservation has no end.
    Extended {
        until: Option<WallTime>,
    },
    Registered(RegisteredWorker),
    Overview(Vec<Overview>),
    /// To `Timeseries`: whether the caller may read what is no reservation's, and the reservations that it may read.
    Readable {
        all: bool,
        reservations: Vec<ReservationId>,
    },
    Token(CreatedToken),
    TokenDetails(Box<TokenDetails>),
    ChildTokens(Vec<TokenDetails>),
    /// The reply to all other requests.
    Done,
}

/// A reservation with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedLoadBalancer {
    pub token: Option<Secret>,
    pub id: ReservationId,
    /// Which of the data plane's load balancers it is.
    pub lb: LbId,
    pub name: String,
    pub strategy: Strategy,
    /// Only those of the IP versions that were asked for.
    pub data_v4: Option<Ipv4Addr>,
    pub data_v6: Option<Ipv6Addr>,
    pub data_ports: RangeInclusive<u16>,
    pub sync_v4: Option<Ipv4Addr>,
    pub sync_v6: Option<Ipv6Addr>,
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
            data_v4: self.data_v4.map(|ip| Data { ip, ports: self.data_ports.clone() }),
            data_v6: self.data_v6.map(|ip| Data { ip, ports: self.data_ports.clone() }),
            sync: sync.map(|ip| SocketAddr::new(ip, self.sync_port)).collect(),
            ..EjfatUri::new(host, port)
        }
    }
}

/// The registry's part of a reservation's status. Epoch, ticks and the slots that workers have are the publisher's.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerStatus {
    pub at: WallTime,
    pub workers: Vec<WorkerStatus>,
    pub senders: Vec<IpAddr>,
    /// `None`: never.
    pub expires: Option<WallTime>,
    /// Slots of the calendar.
    pub slots: u32,
}

/// A worker, as it registered and as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    pub session: SessionId,
    pub member: MemberId,
    pub worker: Worker,
    pub slot_demands: Vec<SlotRange>,
    pub readiness: Readiness,
    /// The newest state, and when it came.
    pub state: Option<(WorkerState, WallTime)>,
}

/// A reservation that the caller may read.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    pub reservation: ReservedLoadBalancer,
    pub status: LoadBalancerStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredWorker {
    pub token: Secret,
    pub session: SessionId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedToken {
    pub token: Secret,
    pub id: TokenId,
}

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDetails {
    pub id: TokenId,
    pub name: String,
    pub permissions: Vec<Permission>,
    /// The limits that hold for the token: its own and those of its parents.
    pub limits: TokenLimits,
    /// `None`: the root token, which is the site's configuration.
    pub created: Option<WallTime>,
}
