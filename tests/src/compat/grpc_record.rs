//! New recordings of gRPC: what a control plane asks for, made with today's messages.

use std::net::Ipv4Addr;

use prost::Message as _;
use proto::{lb::v1, sn_p4::v2};

use super::{
    HOST, SERVER,
    grpc::{self, Call, Recording, Route, Step},
    server::ServerProcess,
    wires::Wire,
};

/// UDP ports of two members at the host's address.
const MEMBERS: [u16; 2] = [20_001, 20_002];
const LB: u32 = 3;

/// The file's contents.
pub(super) fn record(wire: Wire, from: String) -> Result<Recording, String> {
    let steps = match wire {
        Wire::Tables => tables(),
        Wire::Smartnic => super::grpc_smartnic::steps(),
        _ => return Err("it is no wire of gRPC".into()),
    };
    let _server = ServerProcess::start(wire.server())?;
    let steps = grpc::replay(&steps)?;
    Ok(Recording { wire: wire.name().into(), recorded_from: from, what: wire.what().into(), steps })
}

pub(super) fn call(what: &str, path: &str, requests: Vec<Vec<u8>>) -> Step {
    let call = Call { path: path.into(), token: true, requests, ..Call::default() };
    Step { what: what.into(), call: Some(call), route: None }
}

/// The step with fields that are not compared.
pub(super) fn with_rules(mut step: Step, free: &[&str], unordered: &[&str]) -> Step {
    if let Some(call) = &mut step.call {
        call.free = free.iter().map(|path| (*path).to_owned()).collect();
        call.unordered = unordered.iter().map(|path| (*path).to_owned()).collect();
    }
    step
}

/// A datagram with this tick, which goes to one of the members.
pub(super) fn route(what: &str, tick: u64, member: usize) -> Step {
    // "LB", version 2, protocol 1, reserved, entropy 5, tick.
    let mut sent = vec![b'L', b'B', 2, 1, 0, 0, 0, 5];
    sent.extend(tick.to_be_bytes());
    sent.extend(b"an event's segment");
    let route = Route { sent, port: MEMBERS[member], forwarded: Vec::new() };
    Step { what: what.into(), call: None, route: Some(route) }
}

pub(super) fn member_port(member: usize) -> u16 {
    MEMBERS[member]
}

fn octets(address: Ipv4Addr) -> Vec<u8> {
    address.octets().to_vec()
}

fn rule(rule: v1::rule::Rule) -> v1::Rule {
    v1::Rule { rule: Some(rule) }
}

fn slots(member: u32) -> Vec<v1::Rule> {
    (0..4).map(|slot| rule(v1::rule::Rule::Slot(v1::Slot { lb: LB, epoch: 0, slot, member }))).collect()
}

fn member(id: u32) -> v1::Rule {
    let forward = v1::Forward {
        mac: vec![2, 0, 0, 0, 0, 1],
        address: octets(HOST),
        port: MEMBERS[id as usize - 1].into(),
        port_bits: 0,
        keep_lb_header: id == 2,
    };
    let action = Some(v1::member::Action::Forward(forward));
    rule(v1::rule::Rule::Member(v1::Member { lb: LB, ip: v1::IpVersion::IpVersion4.into(), id, action }))
}

fn at(when: v1::when::When) -> Option<v1::When> {
    Some(v1::When { when: Some(when) })
}

/// `naa.lb.v1.Tables`.
fn tables() -> Vec<Step> {
    use v1::when::When;
    let method = |name: &str| format!("/naa.lb.v1.Tables/{name}");
    let load = |what: &str, rules, when| {
        call(
            what,
            &method("Load"),
            vec![v1::LoadRequest { rules, when, ..Default::default() }.encode_to_vec()],
        )
    };
    let edit =
        |what: &str, request: v1::EditRequest| call(what, &method("Edit"), vec![request.encode_to_vec()]);
    let get = |what: &str| call(what, &method("Get"), vec![v1::GetRequest::default().encode_to_vec()]);
    let epoch = v1::Epoch { lb: LB, tick: 0, prefix_length: 0, epoch: 0, slot_bits: 2, xor: 1 };
    let mut rules = vec![
        rule(v1::rule::Rule::Destination(v1::Destination { address: octets(SERVER), lb: LB })),
        rule(v1::rule::Rule::Source(v1::Source { lb: LB, address: octets(HOST) })),
        rule(v1::rule::Rule::Epoch(epoch)),
        member(1),
    ];
    rules.extend(slots(1));
    let absent = v1::Key { key: Some(v1::key::Key::Member(v1::MemberKey { lb: LB, ip: 4, id: 9 })) };
    let bad = rule(v1::rule::Rule::Slot(v1::Slot { lb: 9, ..Default::default() }));
    let gone = v1::Member {
        lb: LB,
        ip: v1::IpVersion::IpVersion6.into(),
        id: 3,
        action: Some(v1::member::Action::Drop(v1::Drop::Deregistered.into())),
    };
    let second = [vec![member(2), rule(v1::rule::Rule::Member(gone))], slots(2)].concat();
    let mut stranger = get("a request without the token is refused");
    if let Some(call) = &mut stranger.call {
        call.token = false;
    }
    let counters = v1::GetCountersRequest::default().encode_to_vec();
    vec![
        stranger,
        get("there are no rules at first"),
        load("rules for all ticks, with one member", rules.clone(), None),
        route("tick 1000 goes to the first member", 1000, 0),
        edit(
            "from tick 5000 on, another member, and one that is gone",
            v1::EditRequest {
                insert: second,
                replace: true,
                when: at(When::Tick(5000)),
                ..Default::default()
            },
        ),
        get("both sets are told"),
        route("tick 4999 goes to the first member", 4999, 0),
        route("tick 5000 goes to the second member, with its header", 5000, 1),
        edit(
            "a rule that is not there cannot be removed",
            v1::EditRequest { remove: vec![absent], ..Default::default() },
        ),
        edit(
            "a rule that is there cannot be inserted",
            v1::EditRequest { insert: vec![member(2)], ..Default::default() },
        ),
        load("a field that does not fit is refused", vec![bad], None),
        load("a tick that was routed is refused", rules.clone(), at(When::Tick(4000))),
        with_rules(
            call("counters of load balancers and members", &method("GetCounters"), vec![counters]),
            &[],
            &["1.6", "3"],
        ),
        load("rules for a tick that was routed, by force", rules.clone(), at(When::Force(4000))),
        route("tick 5001 goes to the first member again", 5001, 0),
        load("rules for all ticks at once", rules, at(When::Now(v1::when::Now {}))),
        get("one set is left"),
        call("a method that is not there", &method("Forget"), vec![vec![]]),
    ]
}

/// The number of the load balancer that a SmartNIC's rules are for.
pub(super) fn lb() -> u128 {
    LB.into()
}

/// An address as a number.
pub(super) fn bits(address: Ipv4Addr) -> u128 {
    address.to_bits().into()
}

/// One batch's request with rules.
pub(super) fn batch(op: v2::BatchOperation, rules: Vec<v2::TableRule>) -> Vec<u8> {
    let request = v2::TableRuleRequest { dev_id: -1, pipeline_id: 0, rules };
    let item = Some(v2::batch_request::Item::TableRule(request));
    v2::BatchRequest { op: op.into(), item }.encode_to_vec()
}
