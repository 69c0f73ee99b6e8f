//! Service `naa.lb.v1.Tables` over real sockets.

mod grpc_common;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener},
    num::NonZeroU64,
    sync::Arc,
};

use ejfat::lb::{BeyondHorizon, DataPlane, DropCause, LbId, Rule, RuleKey, Rules, calendar};
use ejfat_lb::{
    LbStage, When,
    grpc::{BadToken, Callers, Client, ClientError, GrpcServer, ServeError, serve, serve_to},
};
use grpc_common::{LB, SENDER, channel, member, new_plane, routed, rules_to, runtime, start};
use proto::lb::v1::{self, tables_client::TablesClient};
use tonic::{Code, transport::Endpoint};

fn client(server: &GrpcServer) -> Client {
    Client::connect(&server.address().to_string(), None).unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>, code: Code, says: &str) {
    match answer {
        Err(ClientError::Refused { status, .. }) => {
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(says), "{status}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn loaded_rules_route_and_are_counted() {
    let (plane, server) = start(None);
    let mut client = client(&server);
    assert_eq!(client.load(&rules_to(7), When::Next).unwrap(), 0);
    assert_eq!(routed(&plane, 1000), Ok(7));
    assert_eq!(routed(&plane, 1001), Ok(7));

    assert_eq!(client.load(&rules_to(8), When::Next).unwrap(), 1002, "the first tick that no packet had");
    assert_eq!((routed(&plane, 1001), routed(&plane, 1002)), (Ok(7), Ok(8)));
    let sets = client.get(None, false).unwrap();
    assert_eq!(sets, plane.sets().unwrap());
    assert_eq!(*sets[1].rules, rules_to(8));

    assert_eq!(plane.path().route(LB, LB, &[0; 20]), Err(DropCause::BlockedSrc));
    assert_eq!(plane.path().route(SENDER, SENDER, &[0; 20]), Err(DropCause::BadIp));
    let counters = client.counters().unwrap();
    let lb = &counters.lbs[3];
    assert_eq!((lb.lb, lb.lb_rx_pkt, lb.lb_rx_v2, lb.lb_rx_v3), (3, 5, 4, 0));
    assert_eq!(lb.lb_rx_byte, 4 * 116 + 20);
    assert_eq!(lb.drops["blocked_src"], 1);
    assert_eq!(counters.unaddressed["bad_ip"], 1);
    let sent = |member, packets| v1::MemberCounters {
        lb: 3,
        member,
        mbr_tx_pkt: packets,
        mbr_tx_byte: packets * 100,
    };
    assert_eq!(counters.members, [sent(7, 3), sent(8, 1)]);
    assert_eq!(counters.newest_tick, Some(1002));
}

#[test]
fn tables_do_not_take_ticks_that_packets_had() {
    let (plane, server) = start(None);
    let mut client = client(&server);
    client.load(&rules_to(1), When::Now).unwrap();
    assert_eq!(routed(&plane, 500), Ok(1));
    refused(
        client.load(&rules_to(2), When::Tick(500)),
        Code::FailedPrecondition,
        "ticks up to 500 were routed",
    );
    assert_eq!(client.load(&rules_to(2), When::Force(500)).unwrap(), 500);
    assert_eq!((routed(&plane, 499), routed(&plane, 500)), (Ok(1), Ok(2)));
    assert_eq!(client.load(&rules_to(3), When::Now).unwrap(), 0, "in the place of all");
    assert_eq!(routed(&plane, 500), Ok(3));
    for set in 1..=DataPlane::MOST_STAGED as u16 {
        client.load(&rules_to(3 + set), When::Tick(600 + u64::from(set))).unwrap();
    }
    refused(client.load(&rules_to(3), When::Tick(700)), Code::ResourceExhausted, "sets of tables");
}

#[test]
fn edits_are_made_whole_or_not_at_all() {
    let (plane, server) = start(None);
    let mut client = client(&server);
    client.load(&rules_to(1), When::Now).unwrap();
    let before = plane.sets().unwrap();

    let absent = RuleKey::Destination { address: SENDER };
    let edit = client.edit(&[member(1).key(), absent], &[], false, When::Now);
    refused(edit, Code::NotFound, "remove[1]: there is no rule with this key");
    let edit = client.edit(&[], &[member(2), member(1)], false, When::Now);
    refused(edit, Code::AlreadyExists, "insert[1]: member_info_lookup_table has a rule");
    let Rule::Member { lb, ip, member: forward, .. } = member(1) else { unreachable!("it is one") };
    let many: Vec<_> = (0..2049).map(|id| Rule::Member { lb, ip, id, member: forward }).collect();
    refused(client.edit(&[], &many, true, When::Now), Code::ResourceExhausted, "insert[2048]: ");
    assert_eq!(plane.sets().unwrap(), before);

    let slots: Vec<_> = calendar(lb, 0, &[2]);
    let inserted = [&[member(2)], slots.as_slice()].concat();
    client.edit(&[member(1).key()], &inserted, true, When::Now).unwrap();
    assert_eq!(plane.sets().unwrap()[0].rules, rules_to(2).into());
    assert_eq!(routed(&plane, 1), Ok(2));
}

#[test]
fn full_tables_fit_and_two_million_rules_do_not() {
    let (plane, server) = start(None);
    let mut blocking = client(&server);
    let mut rules = Rules::default();
    for id in 0..8 {
        for epoch in 0..4 {
            let members = [u16::MAX - 3, u16::MAX];
            for rule in calendar(LbId::new(id).unwrap(), u32::MAX - epoch, &members) {
                rules.insert(rule, false).unwrap();
            }
        }
    }
    for id in 0..2048 {
        let Rule::Member { lb, ip, member, .. } = member(1) else { unreachable!("it is one") };
        rules.insert(Rule::Member { lb, ip, id, member }, false).unwrap();
    }
    blocking.load(&rules, When::Now).unwrap();
    assert_eq!(plane.sets().unwrap()[0].rules, rules.clone().into());
    let mut others = rules.clone();
    for tick in 1..=DataPlane::MOST_STAGED as u64 {
        // The rules of all load balancers differ from those before.
        others = if others == rules { Rules::default() } else { rules.clone() };
        blocking.load(&others, When::Tick(tick)).unwrap();
    }
    assert_eq!(blocking.get(None, false).unwrap(), plane.sets().unwrap(), "all sets fit into an answer");

    let rules = vec![v1::Rule::default(); 2_000_000];
    let request = v1::LoadRequest { rules, ..Default::default() };
    let refused = runtime().block_on(async {
        TablesClient::new(channel(&server).await).load(request).await.expect_err("refused")
    });
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert_eq!(blocking.counters().unwrap().newest_tick, None, "others notice nothing");
}

#[test]
fn fields_that_do_not_fit_are_named() {
    let (_, server) = start(None);
    let bad = v1::Rule { rule: Some(v1::rule::Rule::Slot(v1::Slot { lb: 64, ..Default::default() })) };
    let request = v1::LoadRequest { rules: vec![bad], ..Default::default() };
    let refused = runtime().block_on(async {
        TablesClient::new(channel(&server).await).load(request).await.expect_err("refused")
    });
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "rules[0].slot.lb: 64 is too high; the highest is 63");
}

#[test]
fn a_token_is_asked_for() {
    let (plane, server) = start(Some("s3cret"));
    let address = server.address().to_string();
    for (token, says) in [
        (None, "no token"),
        (Some("s3cre"), "not the token"),
        (Some("s3cret "), "not the token"),
        (Some("s3creT"), "not the token"),
    ] {
        let mut client = Client::connect(&address, token).unwrap();
        refused(client.load(&rules_to(1), When::Now), Code::Unauthenticated, says);
    }
    assert_eq!(plane.sets().unwrap()[0].rules, Rules::default().into());
    Client::connect(&address, Some("s3cret")).unwrap().load(&rules_to(1), When::Now).unwrap();
    assert_eq!(routed(&plane, 1), Ok(1));
}

#[test]
fn a_token_that_is_none_is_refused_at_both_ends() {
    let (_, server) = start(None);
    let address = server.address().to_string();
    for (token, expected) in [
        ("", BadToken::Empty),
        (" ", BadToken::Empty),
        ("a\nb", BadToken::Characters),
        ("caf\u{e9}", BadToken::Characters),
    ] {
        let connected = Client::connect(&address, Some(token));
        assert!(matches!(connected, Err(ClientError::Token(bad)) if bad == expected), "{token:?}");
        let plane = Arc::new(new_plane(Rules::default(), 1));
        let served = serve((Ipv4Addr::LOCALHOST, 0).into(), plane, Some(token.into()));
        assert!(matches!(served, Err(ServeError::Token(bad)) if bad == expected), "{token:?}");
    }
}

#[test]
fn only_networks_that_are_permitted_get_in() {
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let far = IpAddr::from([127, 0, 0, 9]);
    let callers = Callers { permits: Some(Box::new(move |from| from == far)), ..Callers::default() };
    let server = serve_to(callers, (Ipv4Addr::LOCALHOST, 0).into(), plane.clone()).unwrap();
    let tried = Client::connect(&server.address().to_string(), None)
        .and_then(|mut client| client.load(&rules_to(1), When::Now));
    assert!(tried.is_err(), "{tried:?}");
    assert_eq!(routed(&plane, 1), Err(DropCause::BadIp));
    runtime().block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let channel = endpoint.local_address(Some(far)).connect().await.unwrap();
        let sets = TablesClient::new(channel).get(v1::GetRequest::default()).await.unwrap().into_inner().sets;
        assert_eq!(sets.len(), 1);
    });
}

#[test]
fn it_serves_ipv6() {
    let plane = Arc::new(new_plane(rules_to(1), 1));
    let server = match serve((Ipv6Addr::LOCALHOST, 0).into(), plane.clone(), None) {
        Ok(server) => server,
        Err(error) if !std::path::Path::new("/proc/net/if_inet6").exists() => {
            return println!("no IPv6: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(client(&server).get(None, false).unwrap(), plane.sets().unwrap());
}

#[test]
fn an_address_in_use_is_named_with_a_remedy() {
    let (_, server) = start(None);
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let error = serve(server.address(), plane.clone(), None).unwrap_err().to_string();
    assert!(error.contains(&server.address().to_string()), "{error}");
    assert!(error.ends_with("end the program that listens there, or give another port"), "{error}");
    let error = serve("192.0.2.1:0".parse().unwrap(), plane, None).unwrap_err().to_string();
    assert!(error.ends_with("give an address of this machine"), "{error}");
}

#[test]
fn it_ends_when_dropped() {
    let (plane, server) = start(None);
    let address = server.address();
    let mut client = client(&server);
    client.get(None, false).unwrap();
    drop(server);
    assert_eq!(Arc::strong_count(&plane), 1);
    assert!(client.get(None, false).is_err());
    let error = Client::connect(&address.to_string(), None).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
    TcpListener::bind(address).unwrap();
}

#[test]
fn addresses_that_are_none_are_refused() {
    for address in ["", "host", "http://host:1", "host:1/path", "[::1", "host:99999", "a b:1"] {
        assert!(matches!(Client::connect(address, None), Err(ClientError::Address(_))), "{address}");
    }
}

#[test]
fn another_service_there_is_told_from_this_one() {
    let (_, server) = start(None);
    let status = runtime().block_on(async {
        let mut client = tonic::client::Grpc::new(channel(&server).await);
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static("/loadbalancer.LoadBalancer/Version");
        let codec = tonic_prost::ProstCodec::<v1::GetRequest, v1::GetReply>::default();
        client.unary(tonic::Request::new(v1::GetRequest::default()), path, codec).await.expect_err("unknown")
    });
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("naa.lb.v1.Tables"), "{status}");
}

fn stage(id: u16, from: u64) -> LbStage {
    let (lb, horizon) = (grpc_common::lb(), Some(1 << 40));
    LbStage { lb, rules: rules_to(id), from, horizon, in_place: false, reset: false }
}

#[test]
fn tables_of_one_load_balancer_are_staged_and_withdrawn() {
    let (plane, server) = start(None);
    let mut client = client(&server);
    client.load(&rules_to(1), When::Now).unwrap();
    client.set_term(NonZeroU64::new(7).unwrap());
    let stage = |id, from| LbStage { rules: rules_to(id).of(grpc_common::lb()), ..stage(id, from) };
    assert_eq!(routed(&plane, 500), Ok(1));
    let tick = |tick| v1::LbTick { lb: 3, tick };
    assert_eq!(client.stage(&stage(2, 501)).unwrap(), [tick(500)]);
    assert_eq!(client.stage(&stage(3, 900)).unwrap(), [tick(500)]);
    assert_eq!((routed(&plane, 501), routed(&plane, 499)), (Ok(2), Ok(1)));
    assert_eq!(routed(&plane, (1 << 40) + 1), Ok(3), "routed, and not remembered");
    refused(client.withdraw(grpc_common::lb(), 900), Code::FailedPrecondition, "packets met the tables");
    assert_eq!(client.stage(&stage(4, 800)).unwrap(), [tick(501)]);
    assert_eq!(client.withdraw(grpc_common::lb(), 800).unwrap(), [tick(501)]);
    assert_eq!(routed(&plane, 801), Ok(2));
    refused(client.stage(&stage(5, 801)), Code::FailedPrecondition, "ticks up to 801 were routed");

    let ticks = client.ticks().unwrap();
    let lb = stage(0, 0).lb;
    assert_eq!((ticks.term, ticks.routed), (NonZeroU64::new(7), [(lb, 801)].into()));
    let beyond = BeyondHorizon { packets: 1, lowest: (1 << 40) + 1, highest: (1 << 40) + 1 };
    assert_eq!(ticks.beyond, [(lb, beyond)].into());
    let lb = grpc_common::lb();
    assert_eq!(ticks.sets.iter().filter(|(of, _)| *of == lb).count(), 3);
    assert!(ticks.sets.contains(&(lb, 900)));
    let sets = client.get(Some(lb), false).unwrap();
    assert_eq!(sets.iter().map(|set| set.from).collect::<Vec<_>>(), [0, 501, 900]);
    assert_eq!(*sets[1].rules, rules_to(2), "with the addresses of its packets");
    assert_eq!(client.get(None, true).unwrap(), [sets[2].clone()]);
    let reset = LbStage { reset: true, ..stage(6, 0) };
    assert_eq!(client.stage(&reset).unwrap(), []);
    assert_eq!(routed(&plane, 3), Ok(6));
    assert_eq!(client.stage(&stage(7, 4)).unwrap(), [tick(3)]);
}

#[test]
fn a_control_plane_that_was_replaced_is_refused() {
    let (plane, server) = start(None);
    let mut old = client(&server);
    old.load(&rules_to(1), When::Now).unwrap();
    let mut new = client(&server);
    new.set_term(NonZeroU64::new(2).unwrap());
    new.load(&rules_to(2), When::Now).unwrap();
    let before = plane.sets();
    let stage = LbStage { rules: rules_to(9).of(grpc_common::lb()), ..stage(9, 100) };
    for (term, says) in [(None, "with term 2; give that term or a higher one"), (Some(1), "term 1 is over")] {
        term.into_iter().for_each(|term| old.set_term(NonZeroU64::new(term).unwrap()));
        refused(old.load(&rules_to(1), When::Now), Code::FailedPrecondition, says);
        refused(old.edit(&[], &[member(1)], true, When::Next), Code::FailedPrecondition, says);
        refused(old.stage(&stage), Code::FailedPrecondition, says);
        refused(old.withdraw(grpc_common::lb(), 0), Code::FailedPrecondition, says);
    }
    assert_eq!(plane.sets(), before);
    old.set_term(NonZeroU64::new(3).unwrap());
    old.stage(&stage).unwrap();
    refused(new.load(&rules_to(1), When::Now), Code::FailedPrecondition, "term 2 is over");
}

#[test]
fn rules_of_other_load_balancers_are_not_staged() {
    let (_, server) = start(None);
    let mut client = client(&server);
    refused(client.stage(&stage(1, 5)), Code::InvalidArgument, "give those of this load balancer only");
}

#[test]
fn sets_that_begin_at_too_many_ticks_are_asked_for_one_by_one() {
    let (plane, server) = start(None);
    let mut client = client(&server);
    for (number, lb) in LbId::all().take(LbId::P4_COUNT).enumerate() {
        for set in 1..=3 {
            let from = set * 100 + number as u64;
            let rules = Rules::default();
            plane.write(None).unwrap().stage(&LbStage { lb, rules, ..stage(0, from) }).unwrap();
        }
    }
    refused(client.get(None, false), Code::ResourceExhausted, "for those of one load balancer");
    assert_eq!(client.get(LbId::new(5).ok(), false).unwrap().len(), 4);
    assert_eq!(client.get(None, true).unwrap()[0].from, 307);
}
