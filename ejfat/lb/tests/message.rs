//! Messages stand for rules exactly, and hostile ones are refused by their field.

mod engine_common;
#[path = "../../ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use ejfat::lb::{DropCause, RuleError, Rules};
use ejfat_lb::{
    When,
    message::{self, FieldError, FrameError, MessageError},
};
use engine_common::new_plane;
use lb_common::{random_rules, seeds};
use prost::Message;
use proto::lb::v1::{self, key::Key as KeyKind, member::Action, rule::Rule as Kind};
use simnet::Random;

#[test]
fn random_rules_survive_the_wire() {
    for seed in 0..seeds() {
        let rules = random_rules(&mut Random::new(seed, 0));
        let request = v1::LoadRequest { rules: message::of_rules(&rules), ..Default::default() };
        let received = v1::LoadRequest::decode(request.encode_to_vec().as_slice()).unwrap();
        assert_eq!(message::rules(&received.rules), Ok(rules.clone()), "seed {seed}");
        for rule in rules.iter() {
            let key = message::of_key(&rule.key()).encode_to_vec();
            let key = v1::Key::decode(key.as_slice()).unwrap();
            assert_eq!(message::key(&key), Ok(rule.key()), "seed {seed}");
        }
    }
}

#[test]
fn tables_and_ticks_survive_the_wire() {
    let plane = new_plane(random_rules(&mut Random::new(1, 0)), 1);
    plane.load(&random_rules(&mut Random::new(2, 0)), When::Tick(u64::MAX)).unwrap();
    let reply = message::of_sets(&plane.sets().unwrap()).encode_to_vec();
    let reply = v1::GetReply::decode(reply.as_slice()).unwrap();
    assert_eq!(message::sets(&reply), Ok(plane.sets().unwrap()));
    for when in [When::Next, When::Tick(7), When::Force(u64::MAX), When::Now] {
        assert_eq!(message::when(Some(&message::of_when(when))), when);
    }
    assert_eq!(message::when(None), When::Next);
    assert_eq!(message::when(Some(&v1::When::default())), When::Next);
}

#[test]
fn counters_have_the_names_of_the_p4() {
    let plane = new_plane(Rules::default(), 1);
    let counters = message::of_counters(&plane.counters());
    assert_eq!(counters.lbs.len(), 8);
    for cause in DropCause::ALL {
        assert_eq!(counters.lbs[7].drops[cause.name()], 0);
    }
    assert_eq!((counters.members.len(), counters.newest_tick), (0, None));
}

fn refused(kind: Kind) -> String {
    let rule = v1::Rule { rule: Some(kind) };
    message::rules(&[rule]).expect_err("refused").to_string()
}

fn epoch() -> v1::Epoch {
    v1::Epoch { lb: 1, tick: 0, prefix_length: 0, epoch: 1, slot_bits: 9, xor: 0 }
}

fn forward() -> v1::Forward {
    v1::Forward { mac: vec![], address: vec![10, 0, 0, 1], port: 1, port_bits: 0, keep_lb_header: false }
}

fn member(action: Option<Action>) -> Kind {
    Kind::Member(v1::Member { lb: 1, ip: v1::IpVersion::IpVersion4.into(), id: 1, action })
}

#[test]
fn hostile_fields_are_named() {
    let address = vec![10, 0, 0, 1];
    let slot = v1::Slot { lb: 0, epoch: 0, slot: 0, member: 0 };
    let forwards = |forward| member(Some(Action::Forward(forward)));
    let destination = |address, lb| Kind::Destination(v1::Destination { address, lb });
    let cases = [
        (destination(vec![1; 5], 0), "rules[0].destination.address: 5 octets"),
        (destination(vec![], 0), "rules[0].destination.address: 0 octets"),
        (destination(vec![255; 4], 0), "rules[0]: 255.255.255.255 is not"),
        (destination(address.clone(), 64), "rules[0].destination.lb: 64 is"),
        (Kind::Source(v1::Source { lb: u32::MAX, address }), "rules[0].source.lb: 4294967295 is too high"),
        (Kind::Epoch(v1::Epoch { prefix_length: 65, ..epoch() }), "rules[0].epoch.prefix_length: 65 is"),
        (Kind::Epoch(v1::Epoch { tick: 1, prefix_length: 63, ..epoch() }), "rules[0].epoch.tick: tick 0x1"),
        (Kind::Epoch(v1::Epoch { slot_bits: 15, ..epoch() }), "rules[0].epoch.slot_bits: 15"),
        (Kind::Epoch(v1::Epoch { xor: 65_536, ..epoch() }), "rules[0].epoch.xor: 65536"),
        (Kind::Slot(v1::Slot { slot: 16_384, ..slot }), "rules[0].slot.slot: 16384"),
        (Kind::Slot(v1::Slot { member: 65_536, ..slot }), "rules[0].slot.member: 65536"),
        (member(None), "rules[0].member.action: none"),
        (member(Some(Action::Drop(0))), "rules[0].member.drop: 0 is none"),
        (member(Some(Action::Drop(-3))), "rules[0].member.drop: -3 is none"),
        (forwards(v1::Forward { mac: vec![1; 7], ..forward() }), "rules[0].member.forward.mac: 7 octets"),
        (forwards(v1::Forward { port: 65_536, ..forward() }), "rules[0].member.forward.port: 65536"),
        (forwards(v1::Forward { port: 0, ..forward() }), "rules[0]: a member listens on UDP port 0"),
        (forwards(v1::Forward { port_bits: 15, ..forward() }), "rules[0].member.forward.port_bits: 15"),
        (forwards(v1::Forward { address: vec![1; 16], ..forward() }), "rules[0]: 101:101:"),
        (Kind::Member(v1::Member { ip: 5, ..Default::default() }), "rules[0].member.ip: 5 is none"),
    ];
    for (kind, said) in cases {
        let error = refused(kind.clone());
        assert!(error.starts_with(said), "{kind:?}: {error}");
    }
    let error = message::rules(&[v1::Rule::default()]).unwrap_err();
    assert_eq!(error, MessageError { field: "rules[0].rule".into(), cause: FieldError::Missing });
}

#[test]
fn a_rule_that_comes_twice_is_named() {
    let rule = v1::Rule { rule: Some(Kind::Epoch(epoch())) };
    let error = message::rules(&[rule.clone(), rule.clone()]).unwrap_err();
    assert_eq!(error.field, "rules[1]");
    assert!(matches!(error.cause, FieldError::Rule(RuleError::Exists(_))), "{error}");
    let set = v1::TableSet { from_tick: 0, rules: vec![v1::Rule::default()] };
    let error = message::sets(&v1::GetReply { sets: vec![v1::TableSet::default(), set], routed: vec![] })
        .unwrap_err();
    assert_eq!(error.field, "sets[1].rules[0].rule");
}

#[test]
fn hostile_keys_are_named() {
    let field = |kind| message::key(&v1::Key { key: kind }).unwrap_err().field;
    assert_eq!(field(None), "key");
    let key = v1::EpochKey { lb: 0, tick: 1, prefix_length: 3 };
    assert_eq!(field(Some(KeyKind::Epoch(key))), "epoch.tick");
    assert_eq!(field(Some(KeyKind::Slot(v1::SlotKey { lb: 64, epoch: 0, slot: 0 }))), "slot.lb");
    assert_eq!(field(Some(KeyKind::Member(v1::MemberKey { lb: 1, ip: 0, id: 0 }))), "member.ip");
    assert_eq!(field(Some(KeyKind::Destination(v1::DestinationKey::default()))), "destination.address");
}

#[test]
fn messages_in_regions_may_have_anything_behind() {
    let request = v1::LoadRequest {
        rules: message::of_rules(&random_rules(&mut Random::new(3, 0))),
        when: Some(message::of_when(When::Tick(9))),
        ..Default::default()
    };
    let mut region = message::encode(&request);
    let length = region.len();
    region.extend([0xff; 100]);
    assert_eq!(message::decode(&region), Ok(request));
    assert_eq!(message::decode(&message::encode(&v1::GetRequest::default())), Ok(v1::GetRequest::default()));

    let short = message::decode::<v1::LoadRequest>(&region[..length - 1]);
    assert!(matches!(short, Err(FrameError::Longer { claimed, held }) if claimed == held + 1), "{short:?}");
}

#[test]
fn hostile_regions_are_refused() {
    let decode = |region: &[u8]| message::decode::<v1::LoadRequest>(region);
    assert_eq!(decode(&[]), Err(FrameError::NoLength));
    assert_eq!(decode(&[0x80]), Err(FrameError::NoLength));
    assert_eq!(decode(&[0xff; 20]), Err(FrameError::NoLength), "a varint without end");
    let claims = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0];
    assert_eq!(decode(&claims), Err(FrameError::Longer { claimed: usize::MAX, held: 1 }));
    // Inside, a list element of 127 bytes, of which there are none.
    assert!(matches!(decode(&[2, 0x0a, 0x7f, 1, 2, 3]), Err(FrameError::Message(_))));
    assert!(matches!(decode(&[1, 0x0b]), Err(FrameError::Message(_))), "a wire type that is none");
    assert_eq!(decode(&[0]), Ok(v1::LoadRequest::default()));

    let mut random = Random::new(1, 0);
    for _ in 0..20_000 {
        let mut region = vec![0; random.below(200) as usize];
        random.fill(&mut region);
        if let Ok(request) = decode(&region) {
            let _ = message::rules(&request.rules);
        }
    }
}
