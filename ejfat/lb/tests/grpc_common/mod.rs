//! Data planes that are served, and what they are asked to route.
#![allow(dead_code, reason = "each test program uses some of it")]

#[path = "../engine_common/mod.rs"]
mod engine_common;

pub(crate) use engine_common::new_plane;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ejfat::{
    lb::{DropCause, Epoch, Forward, LbId, Member, Route, Rule, Rules, TickPrefix, calendar},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use ejfat_lb::{
    SharedDataPlane,
    grpc::{GrpcServer, serve},
};
use tonic::transport::{Channel, Endpoint};

/// A load balancer's address and a sender's.
pub(crate) const LB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
pub(crate) const LB_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456));
pub(crate) const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

pub(crate) fn lb() -> LbId {
    LbId::new(3).unwrap()
}

pub(crate) fn start(token: Option<&str>) -> (Arc<SharedDataPlane>, GrpcServer) {
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let server = serve(loopback, plane.clone(), token.map(str::to_owned)).unwrap();
    assert_ne!(server.address().port(), 0);
    (plane, server)
}

pub(crate) fn member(id: u16) -> Rule {
    let forward = Forward {
        mac: Some([2, 0, 0, 0, 0, 1]),
        address: Ipv4Addr::new(10, 0, 0, 1).into(),
        port: 10_000 + id,
        port_bits: 0,
        keep_lb_header: false,
    };
    Rule::Member { lb: lb(), ip: IpVersion::V4, id, member: Member::Forward(forward) }
}

/// All ticks to one member.
pub(crate) fn rules_to(id: u16) -> Rules {
    let mut rules = Rules::default();
    let ticks = TickPrefix::new(0, 0).unwrap();
    let mut all = vec![
        Rule::Destination { address: LB, lb: lb() },
        Rule::Source { lb: lb(), address: SENDER },
        Rule::Epoch { lb: lb(), ticks, epoch: Epoch::new(0) },
        member(id),
    ];
    all.extend(calendar(lb(), 0, &[id]));
    all.into_iter().for_each(|rule| rules.insert(rule, false).unwrap());
    rules
}

pub(crate) fn route(plane: &SharedDataPlane, tick: u64) -> Result<Route, DropCause> {
    let header = LbHeader { select: Select::V2 { entropy: 5 }, protocol: 1, tick };
    let datagram = [&header.encode()[..], &[0; 100]].concat();
    plane.path().route(LB, SENDER, &datagram)
}

/// Which member an event's segments go to.
pub(crate) fn routed(plane: &SharedDataPlane, tick: u64) -> Result<u16, DropCause> {
    route(plane, tick).map(|route| route.member)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) async fn channel(server: &GrpcServer) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect().await.unwrap()
}
