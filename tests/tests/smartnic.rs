//! Epochs of the EJFAT control plane, programmed rule by rule as into a SmartNIC, into our own data plane.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ejfat::{
    lb::{Forward, LbId, Member, Rule, Rules},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use ejfat_control::{
    calendar::{Calendar, MemberId},
    p4::{Change, Epochs},
};
use ejfat_lb::{
    SharedDataPlane,
    grpc::{RuleChange, SmartNicClient, serve},
};

const LB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

fn routed(plane: &SharedDataPlane, tick: u64) -> Option<MemberId> {
    let header = LbHeader { select: Select::V2 { entropy: 5 }, protocol: 1, tick };
    let datagram = [&header.encode()[..], &[0; 100]].concat();
    plane.path().route(LB, SENDER, &datagram).ok().map(|route| route.member)
}

fn rules(plane: &SharedDataPlane) -> Rules {
    plane.sets().unwrap().last().unwrap().rules.as_ref().clone()
}

fn changes(of: Vec<Change>) -> Vec<RuleChange> {
    let change = |change| match change {
        Change::Insert(rule) => RuleChange::Insert(rule),
        Change::Replace(rule) => RuleChange::Replace(rule),
        Change::Delete(key) => RuleChange::Delete(key),
    };
    of.into_iter().map(change).collect()
}

/// The changes that begin an epoch with one member.
fn begin(epochs: &mut Epochs, boundary: u64, to: MemberId, over: u64) -> Vec<RuleChange> {
    let calendar = Calendar::empty(512).unwrap().next(&[(to, 512)]);
    let forward = Forward {
        mac: Some([2, 0, 0, 0, 0, 1]),
        address: Ipv4Addr::new(10, 0, 0, 1).into(),
        port: 10_000 + to,
        port_bits: 0,
        keep_lb_header: false,
    };
    let members = [((to, IpVersion::V4), Member::Forward(forward))].into();
    changes(epochs.begin(boundary, &calendar, &members, over).unwrap())
}

#[test]
fn the_control_planes_epochs_are_in_the_data_plane_as_they_are_meant() {
    let lb = LbId::new(5).unwrap();
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    let server = serve((Ipv4Addr::LOCALHOST, 0).into(), plane.clone(), Some("secret".into())).unwrap();
    let mut smartnic = SmartNicClient::connect(&server.address().to_string(), Some("secret")).unwrap();
    smartnic.clear(None).unwrap();
    let around = [Rule::Destination { address: LB, lb }, Rule::Source { lb, address: SENDER }];
    smartnic.insert(&around).unwrap();

    let mut epochs = Epochs::new(lb);
    smartnic.change(&begin(&mut epochs, 100, 1, 0)).unwrap();
    assert_eq!((routed(&plane, 0), routed(&plane, 4999)), (Some(1), Some(1)));
    smartnic.change(&begin(&mut epochs, 5000, 2, 0)).unwrap();
    assert_eq!((routed(&plane, 0), routed(&plane, 4999), routed(&plane, 5000)), (Some(1), Some(1), Some(2)));

    // With the fifth the first one goes, and its member.
    for (boundary, to) in [(6000, 3), (7001, 4), (8000, 5)] {
        smartnic.change(&begin(&mut epochs, boundary, to, 5000)).unwrap();
    }
    let expected = [(4999, 5), (5000, 2), (5999, 2), (6000, 3), (7000, 3), (7001, 4), (7999, 4), (8000, 5)];
    for (tick, member) in expected {
        assert_eq!(routed(&plane, tick), Some(member), "tick {tick}");
    }
    let mut whole = Rules::default();
    for rule in epochs.whole().into_iter().chain(around) {
        whole.insert(rule, false).unwrap();
    }
    assert_eq!(rules(&plane), whole);

    // The same from nothing, as after a failure.
    smartnic.clear(None).unwrap();
    assert_eq!(rules(&plane), Rules::default());
    smartnic.insert(&whole.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(rules(&plane), whole);
}
