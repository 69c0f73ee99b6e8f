//! Our control plane's end of `sn_p4.v2.SmartnicP4`: against our own data plane, and against a SmartNIC's agent that writes down
//! what it is told.

#[path = "grpc_common/card.rs"]
mod card;
mod grpc_common;

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use card::Card;
use ejfat::{
    lb::{
        DropCause, Epoch, Forward, LbId, Member, Rule, RuleKey, Rules, Table, TickPrefix, Traffic, calendar,
        prefixes,
    },
    segment::IpVersion,
};
use ejfat_lb::{
    SharedDataPlane,
    grpc::{GrpcServer, RuleChange, SmartNicClient, SmartNicError},
};
use grpc_common::{LB, LB_V6, SENDER, lb, member, new_plane, routed, start};
use proto::sn_p4::v2::{ErrorCode, Stats, StatsMetric, StatsMetricValue};

fn connect(server: &GrpcServer) -> SmartNicClient {
    SmartNicClient::connect(&server.address().to_string(), None).unwrap()
}

fn card() -> Card {
    Card::start(Stats::default(), Arc::new(|_| Some(ErrorCode::EcOk)))
}

fn client(card: &Card) -> SmartNicClient {
    SmartNicClient::connect(&card.address.to_string(), None).unwrap()
}

fn rules(plane: &SharedDataPlane) -> Rules {
    plane.sets().unwrap().last().unwrap().rules.as_ref().clone()
}

fn ticks(first: u64, length: u8) -> TickPrefix {
    TickPrefix::new(first, length).unwrap()
}

fn epoch(ticks: TickPrefix, id: u32) -> Rule {
    Rule::Epoch { lb: lb(), ticks, epoch: Epoch::new(id) }
}

/// The changes that begin an epoch with one member: the first one, or the one after another, whose ticks are told. In the order of
/// `ejfat_control::p4`, whose own are programmed in `tests/tests/smartnic.rs`.
fn begin(id: u32, to: u16, before: Option<(u32, Range<u64>)>) -> Vec<RuleChange> {
    let mut changes = vec![RuleChange::Insert(member(to))];
    changes.extend(calendar(lb(), id, &[to]).into_iter().map(RuleChange::Insert));
    let catch_all = epoch(TickPrefix::ALL, id);
    match before {
        None => changes.push(RuleChange::Insert(catch_all)),
        Some((last, range)) => {
            changes.extend(prefixes(range).into_iter().map(|ticks| RuleChange::Insert(epoch(ticks, last))));
            changes.push(RuleChange::Replace(catch_all));
        }
    }
    changes
}

#[test]
fn two_epochs_are_programmed_into_our_own_data_plane() {
    let (plane, server) = start(None);
    let mut smartnic = connect(&server);
    smartnic.clear(None).unwrap();
    smartnic.attach([2, 0, 0, 0, 0, 1], &[(lb(), LB), (lb(), LB_V6)]).unwrap();
    assert_eq!(rules(&plane), Rules::default(), "the host does what these are for");
    let v6 = Rule::Source { lb: lb(), address: LB_V6 };
    let around = [
        Rule::Destination { address: LB, lb: lb() },
        Rule::Destination { address: LB_V6, lb: lb() },
        Rule::Source { lb: lb(), address: SENDER },
        v6,
    ];
    smartnic.insert(&around).unwrap();
    smartnic.change(&begin(0, 1, None)).unwrap();
    assert_eq!(routed(&plane, 4999), Ok(1));

    smartnic.change(&begin(1, 2, Some((0, 0..5000)))).unwrap();
    assert_eq!((routed(&plane, 0), routed(&plane, 4999), routed(&plane, 5000)), (Ok(1), Ok(1), Ok(2)));
    assert_eq!(rules(&plane).count(Table::Calendar), 1024);

    // The first epoch is over.
    let mut over: Vec<_> = prefixes(0..5000).into_iter().map(|ticks| epoch(ticks, 0).key()).collect();
    over.extend(calendar(lb(), 0, &[1]).iter().map(Rule::key));
    over.extend([member(1).key(), v6.key()]);
    smartnic.delete(&over).unwrap();
    assert_eq!(routed(&plane, 4999), Ok(2));
    let left = rules(&plane);
    let count = |table| left.count(table);
    assert_eq!((count(Table::Epoch), count(Table::Calendar), count(Table::Member)), (1, 512, 1));

    let gone = Rule::Member { lb: lb(), ip: IpVersion::V4, id: 2, member: Member::SoftEvicted };
    smartnic.change(&[RuleChange::Replace(gone)]).unwrap();
    assert_eq!(routed(&plane, 4999), Err(DropCause::MbrDropSoftEvicted));
    smartnic.clear(Some(Table::Member)).unwrap();
    assert_eq!(routed(&plane, 4999), Err(DropCause::MbrInfoMiss));
    smartnic.clear(None).unwrap();
    assert_eq!(rules(&plane), Rules::default());
}

#[test]
fn a_refused_rule_is_named_with_the_smartnic_and_a_remedy() {
    let (plane, server) = start(None);
    let mut smartnic = connect(&server);
    smartnic.insert(&[member(1)]).unwrap();
    let changes = [
        RuleChange::Insert(member(2)),
        RuleChange::Insert(epoch(ticks(0x1000, 56), 0)),
        RuleChange::Insert(member(1)),
        RuleChange::Insert(epoch(TickPrefix::ALL, 0)),
    ];
    let error = smartnic.change(&changes).unwrap_err();
    let address = server.address();
    assert_eq!(error.done(), 2);
    assert_eq!(
        error.to_string(),
        format!(
            "the SmartNIC at {address} refused member 1 of load balancer 3 for IPv4 (member_info_lookup_table): \
             EC_FAILED_INSERT_TABLE_RULE (415); its table is full, has a rule for this key already (or none that is to be \
             replaced), or is programmed by another control plane; clear the tables and insert all rules anew"
        )
    );
    assert_eq!(rules(&plane).count(Table::Epoch), 1, "what comes after it is not sent");

    let absent = RuleKey::Slot { lb: lb(), epoch: 2, slot: 511 };
    let error = smartnic.delete(&[absent]).unwrap_err().to_string();
    assert!(error.contains("refused slot 511 of epoch 2 of load balancer 3"), "{error}");
    assert!(error.contains("EC_FAILED_DELETE_TABLE_RULE"), "{error}");

    let twice = [member(7), member(8), member(8), member(9)];
    let error = smartnic.insert(&twice).unwrap_err();
    assert_eq!(error.done(), 0);
    let what =
        "one of 4 rules of member_info_lookup_table, from member 7 of load balancer 3 for IPv4 to member 9";
    assert!(error.to_string().contains(what), "{error}");
    assert_eq!(rules(&plane).count(Table::Member), 2);
}

#[test]
fn after_a_refused_rule_a_smartnic_makes_nothing_more() {
    let verdict = |rule: &proto::sn_p4::v2::TableRule| {
        let refused = rule.matches.iter().any(|it| format!("{it:?}").contains("\"0x63\""));
        Some(if refused { ErrorCode::EcTableRuleMatchKeyTooBig } else { ErrorCode::EcOk })
    };
    let card = Card::start(Stats::default(), Arc::new(verdict));
    let mut smartnic = client(&card);
    let mut changes: Vec<_> = calendar(lb(), 0, &[1]).into_iter().map(RuleChange::Insert).collect();
    changes.push(RuleChange::Insert(epoch(TickPrefix::ALL, 0)));
    let error = smartnic.change(&changes).unwrap_err();
    assert_eq!(error.done(), 0, "of the request that was refused nothing is known");
    let what = "one of 512 rules of load_balance_calendar_table, from slot 0 of epoch 0";
    assert!(error.to_string().contains(what), "{error}");
    assert!(error.to_string().contains("EC_TABLE_RULE_MATCH_KEY_TOO_BIG (464)"), "{error}");
    assert_eq!(card.log.lock().unwrap().made, 0x63);
    assert_eq!(card.log.lock().unwrap().requests.len(), 1);
    // It goes on with the next call.
    smartnic.change(&changes[512..]).unwrap();
}

#[test]
fn calendars_go_in_few_requests_and_each_is_bounded() {
    let card = card();
    let mut smartnic = client(&card);
    let slots: Vec<_> = (0..3).flat_map(|epoch| calendar(lb(), epoch, &[1])).collect();
    smartnic.insert(&slots[..1300]).unwrap();
    let log = card.log.lock().unwrap();
    assert_eq!((log.made, log.requests.len(), log.timeouts.len()), (1300, 3, 1));
    assert!(log.requests.iter().all(|request| request.len() < 100_000));
}

#[test]
fn a_smartnic_that_does_not_answer_is_given_up_and_nothing_more_is_sent() {
    let stuck = |rule: &proto::sn_p4::v2::TableRule| {
        (rule.table_name != Table::Epoch.name()).then_some(ErrorCode::EcOk)
    };
    let card = Card::start(Stats::default(), Arc::new(stuck));
    let mut smartnic = client(&card);
    smartnic.set_deadline(Duration::from_millis(300));
    let begun = Instant::now();
    let error = smartnic.change(&begin(1, 2, Some((0, 0..5000)))).unwrap_err();
    assert!((300..5000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert_eq!(error.done(), 513, "a member and its slots");
    assert!(matches!(&error, SmartNicError::TooLate { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&card.address.to_string()) && text.contains("after 300ms"), "{text}");
    assert!(text.contains("513 changes are made for certain"), "{text}");
    let log = card.log.lock().unwrap();
    assert_eq!(log.requests.len(), 3, "the one that replaces the catch-all is not sent");
    // It is told in at most 8 digits and a unit.
    let [timeout] = log.timeouts.as_slice() else { panic!("{:?}", log.timeouts) };
    let (digits, unit) = timeout.split_at(timeout.len() - 1);
    let unit = match unit {
        "n" => Duration::from_nanos(1),
        "u" => Duration::from_micros(1),
        "m" => Duration::from_millis(1),
        _ => panic!("{timeout}"),
    };
    let deadline_sent = unit * digits.parse().unwrap();
    assert!((100..=300).contains(&deadline_sent.as_millis()), "{timeout}");
    drop(log);
    // The next call connects anew.
    smartnic.clear(None).unwrap();
}

#[test]
fn the_connection_of_a_call_that_took_too_long_is_reset() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = std::thread::spawn(move || {
        let mut smartnic = SmartNicClient::connect(&address.to_string(), None).unwrap();
        smartnic.set_deadline(Duration::from_millis(200));
        let begun = Instant::now();
        let rules: Vec<_> = (0..8).flat_map(|epoch| calendar(lb(), epoch, &[1])).collect();
        (smartnic.insert(&rules).unwrap_err(), begun.elapsed())
    });
    // It says nothing, and reads nothing until the client has given up.
    let (mut stream, _) = listener.accept().unwrap();
    let (error, took) = connecting.join().unwrap();
    assert!(matches!(error, SmartNicError::TooLate { done: Some(0), .. }), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut received = Vec::new();
    let ended = stream.read_to_end(&mut received).map_err(|error| error.kind());
    assert_eq!(ended, Err(ErrorKind::ConnectionReset), "after {} bytes", received.len());
}

#[test]
fn connecting_counts_towards_the_deadline() {
    let listener = grpc_common::runtime().block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        socket.listen(1).unwrap().into_std().unwrap()
    });
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    let mut smartnic = SmartNicClient::connect(&address.to_string(), None).unwrap();
    drop(listener.accept().unwrap());
    // The listener's backlog is filled, so that no other connection is accepted.
    let wait = Duration::from_millis(50);
    let others: Vec<_> =
        (0..100).map_while(|_| std::net::TcpStream::connect_timeout(&address, wait).ok()).collect();
    assert!(others.len() < 100);
    smartnic.set_deadline(Duration::from_millis(200));
    for _ in 0..2 {
        let begun = Instant::now();
        let error = smartnic.insert(&[member(1)]).unwrap_err().to_string();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(error.contains(&address.to_string()), "{error}");
    }
}

#[test]
fn without_time_nothing_is_changed() {
    let (plane, server) = start(None);
    let mut smartnic = connect(&server);
    smartnic.set_deadline(Duration::ZERO);
    for _ in 0..2 {
        let error = smartnic.insert(&[member(1)]).unwrap_err();
        assert!(matches!(error, SmartNicError::TooLate { done: Some(0), .. }), "{error}");
    }
    let error = smartnic.counters().unwrap_err().to_string();
    assert!(error.ends_with("the connection was reset; try again"), "{error}");
    assert_eq!(rules(&plane).count(Table::Member), 0);
}

#[test]
fn whoever_has_not_the_token_is_told_so() {
    let (plane, server) = start(Some("secret"));
    let address = server.address().to_string();
    for token in [None, Some("wrong")] {
        let mut smartnic = SmartNicClient::connect(&address, token).unwrap();
        for error in [smartnic.insert(&[member(1)]), smartnic.clear(None), smartnic.counters().map(drop)] {
            let error = error.unwrap_err();
            assert_eq!(error.wants_token(), Some(address.as_str()), "{error:?}");
            assert!(error.to_string().contains("give the token that its agent was started with"), "{error}");
        }
    }
    let mut smartnic = SmartNicClient::connect(&address, Some("secret")).unwrap();
    smartnic.insert(&[member(1)]).unwrap();
    assert_eq!(rules(&plane).count(Table::Member), 1);
    let error = SmartNicClient::connect(&address, Some("")).unwrap_err();
    assert!(matches!(error, SmartNicError::Token(_)), "{error}");
}

#[test]
fn addresses_that_are_none_and_where_nothing_listens_are_refused() {
    for address in ["", "card", "card:port", "1.2.3.4", "a b:1"] {
        let error = SmartNicClient::connect(address, None).unwrap_err();
        assert!(matches!(error, SmartNicError::Address(_)), "{address}: {error}");
    }
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = SmartNicClient::connect(&closed.to_string(), None).unwrap_err().to_string();
    assert!(error.contains(&closed.to_string()) && error.contains("refused"), "{error}");
}

#[test]
fn a_data_plane_that_was_started_again_is_reached_again() {
    let (_, server) = start(None);
    let address = server.address();
    let mut smartnic = connect(&server);
    smartnic.insert(&[member(1)]).unwrap();
    drop(server);
    let error = smartnic.insert(&[member(2)]).unwrap_err();
    assert_eq!(error.done(), 0);
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let _server = ejfat_lb::grpc::serve(address, plane.clone(), None).unwrap();
    smartnic.insert(&[member(2)]).unwrap();
    assert_eq!(rules(&plane).count(Table::Member), 1);
}

#[test]
fn members_without_a_mac_address_are_not_programmed() {
    let card = card();
    let Rule::Member { lb, ip, id, member: Member::Forward(to) } = member(5) else { panic!("it forwards") };
    let nowhere = Rule::Member { lb, ip, id, member: Member::Forward(Forward { mac: None, ..to }) };
    let error = client(&card).insert(&[member(1), nowhere]).unwrap_err().to_string();
    assert!(
        error.contains("member 5 of load balancer 3") && error.contains("give that of the next hop"),
        "{error}"
    );
    assert!(card.log.lock().unwrap().requests.is_empty());
}

#[test]
fn counters_of_our_data_plane_are_told_by_load_balancer_and_member() {
    let (plane, server) = start(None);
    let mut smartnic = connect(&server);
    smartnic
        .insert(&[Rule::Destination { address: LB, lb: lb() }, Rule::Source { lb: lb(), address: SENDER }])
        .unwrap();
    routed(&plane, 1).unwrap_err();
    smartnic.change(&begin(0, 40_000, None)).unwrap();
    routed(&plane, 1).unwrap();
    let counters = smartnic.counters().unwrap();
    let of = counters.lbs[usize::from(lb().get())];
    assert_eq!((of.received.packets, of.v2, of.v3), (2, 2, 0));
    assert_eq!((of.dropped.of(DropCause::EpochAssignMiss), of.dropped.of_any_cause()), (1, 1));
    assert_eq!(counters.lbs[0].received, Traffic::default());
    assert_eq!(counters.members.keys().collect::<Vec<_>>(), [&40_000]);
    assert_eq!(counters.members[&40_000].sent.packets, 1);
    assert!(counters.members[&40_000].sent.bytes > 0);
}

#[test]
fn counters_of_a_card_are_told_whatever_else_it_counts() {
    let metric = |name: &str, values: &[(u32, u64)]| StatsMetric {
        name: name.into(),
        values: values.iter().map(|&(index, u64)| StatsMetricValue { u64, f64: 0.0, index }).collect(),
        ..Default::default()
    };
    let metrics = vec![
        metric("packet_rx_l3_icmpv4_echo_ok", &[(0, 9)]),
        // A card has room for 16.
        metric("lb_ctx_rx_pkt_counter", &[(0, 1), (7, 8), (8, 9), (15, 16), (u32::MAX, 1)]),
        metric("lb_ctx_drop_blocked_src_pkt_counter", &[(7, 3)]),
        metric("lb_mbr_drop_soft_evicted_counter", &[(1, 4), (2, 0)]),
        metric("lb_mbr_drop_deregistered_counter", &[(1, 5), (70_000, 1)]),
    ];
    let card = Card::start(Stats { metrics }, Arc::new(|_| None));
    let counters = client(&card).counters().unwrap();
    assert_eq!((counters.lbs[0].received.packets, counters.lbs[7].received.packets), (1, 8));
    assert_eq!(counters.lbs[7].dropped.of(DropCause::BlockedSrc), 3);
    assert_eq!(counters.members.len(), 1);
    assert_eq!((counters.members[&1].soft_evicted, counters.members[&1].deregistered), (4, 5));

    let other = Card::start(Stats { metrics: vec![metric("rx", &[(0, 1)])] }, Arc::new(|_| None));
    let error = client(&other).counters().unwrap_err().to_string();
    assert!(error.contains("load ESnet's program onto the card"), "{error}");
}

/// The rules of `smartnic_requests/make.py`, request by request.
fn golden(client: &mut SmartNicClient) -> Vec<&'static str> {
    let id = |id| LbId::new(id).unwrap();
    let (v4, v6) = (IpVersion::V4, IpVersion::V6);
    let source = |lb, address: &str| Rule::Source { lb: id(lb), address: address.parse().unwrap() };
    let to = |address: &str, port, port_bits, keep_lb_header| {
        let (mac, address) = (Some([2, 0, 0, 0, 0, 0xfe]), address.parse().unwrap());
        Member::Forward(Forward { mac, address, port, port_bits, keep_lb_header })
    };
    let member = |lb, ip, member_id, member| Rule::Member { lb: id(lb), ip, id: member_id, member };
    let slot = |lb, epoch, slot, member| Rule::Slot { lb: id(lb), epoch, slot, member };
    let epoch = |lb, first, length, epoch| Rule::Epoch { lb: id(lb), ticks: ticks(first, length), epoch };
    let with = |id, slot_bits, xor| Epoch { id, slot_bits, xor };
    let destinations =
        [Rule::Destination { address: LB, lb: id(3) }, Rule::Destination { address: LB_V6, lb: id(0) }];
    let v4_sources = [source(3, "198.51.100.7"), source(0, "0.0.0.1")];
    let v6_sources = [source(7, "2001:db8::7"), source(1, "::1")];
    let members = [
        member(3, v4, 0, to("10.0.0.1", 10_000, 0, false)),
        member(3, v4, 65_535, to("10.0.0.2", 19_522, 14, true)),
        member(0, v6, 2, to("fd00::abcd", 65_535, 4, true)),
        member(0, v6, 3, Member::SoftEvicted),
        member(7, v4, 4, Member::Deregistered),
    ];
    let slots = [slot(3, 0, 0, 0), slot(3, 3, 511, 65_535), slot(0, u32::MAX, 16_383, 1023)];
    let epochs = [
        epoch(3, 0, 0, Epoch::new(0)),
        epoch(3, 0, 52, Epoch::new(1)),
        epoch(3, 1 << 63, 1, Epoch::new(u32::MAX)),
        epoch(3, u64::MAX, 64, Epoch::new(2)),
        epoch(0, 0x1000, 56, with(3, 7, 0x55)),
        epoch(1, 0, 0, with(3, 0, 0)),
    ];
    let mut names = Vec::new();
    let mut insert = |name, rules: &[Rule]| {
        client.insert(rules).unwrap();
        names.push(name);
    };
    insert("insert destinations", &destinations);
    insert("insert IPv4 sources", &v4_sources);
    insert("insert IPv6 sources", &v6_sources);
    insert("insert members", &members);
    insert("insert slots", &slots);
    insert("insert epochs", &epochs);
    client
        .change(&[
            RuleChange::Replace(epoch(3, 0, 0, Epoch::new(1))),
            RuleChange::Replace(member(3, v4, 0, Member::Deregistered)),
        ])
        .unwrap();
    names.extend(["replace epochs", "replace members"]);
    // One call; each table is a request of its own.
    let deleted = [
        [epochs[1].key(), epochs[0].key()],
        [slots[1].key(), slots[0].key()],
        [members[1].key(), members[3].key()],
        [v4_sources[0].key(), v6_sources[0].key()],
        [destinations[0].key(), destinations[1].key()],
    ];
    client.delete(&deleted.concat()).unwrap();
    names.extend(["delete epochs", "delete slots", "delete members"]);
    names.extend(["delete IPv4 sources", "delete IPv6 sources", "delete destinations"]);
    client.clear(None).unwrap();
    client.clear(Some(Table::Member)).unwrap();
    client.counters().unwrap_err();
    names.extend(["clear all", "clear members", "counters"]);
    let alike = "2001:db8:1::12:3456".parse().unwrap();
    client.attach([2, 0, 0, 0, 0, 0xfe], &[(id(3), LB), (id(0), LB_V6), (id(0), alike)]).unwrap();
    names.push("attach");
    names
}

#[test]
fn requests_are_those_that_pythons_protobuf_makes() {
    let card = card();
    let names = golden(&mut client(&card));
    let sent = &card.log.lock().unwrap().requests;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let sent: BTreeMap<_, _> = names.into_iter().zip(sent.iter().map(|sent| hex(sent))).collect();
    let golden = include_str!("smartnic_requests/requests.txt");
    let golden: BTreeMap<_, _> = golden
        .lines()
        .map(|line| {
            let (name, bytes) = line.split_once(':').unwrap();
            (name, bytes.trim().to_owned())
        })
        .collect();
    for (name, bytes) in &golden {
        assert_eq!(sent.get(name), Some(bytes), "{name}");
    }
    assert_eq!(sent.len(), golden.len());
}

#[test]
fn rules_of_every_kind_arrive_in_our_data_plane_as_they_are() {
    let (plane, server) = start(None);
    let mut smartnic = connect(&server);
    let mut wanted = Vec::new();
    for id in LbId::all().take(LbId::P4_COUNT) {
        let last = id.get();
        let address = |v6: bool, kind: u16| -> IpAddr {
            match v6 {
                true => Ipv6Addr::new(0xfd00, 0, 0, kind, 0, 0, 0x1234, last.into()).into(),
                false => Ipv4Addr::new(10, kind as u8, 0, last).into(),
            }
        };
        for (v6, ip) in [(false, IpVersion::V4), (true, IpVersion::V6)] {
            wanted.push(Rule::Destination { address: address(v6, 1), lb: id });
            wanted.push(Rule::Source { lb: id, address: address(v6, 2) });
            for (at, keep_lb_header) in [(0, false), (1, true)] {
                let to = Forward {
                    mac: Some([2, 0, 0, 0, at as u8, last]),
                    address: address(v6, 3),
                    port: 10_000 + at,
                    port_bits: last,
                    keep_lb_header,
                };
                wanted.push(Rule::Member { lb: id, ip, id: 65_535 - at, member: Member::Forward(to) });
            }
            wanted.push(Rule::Member { lb: id, ip, id: 2, member: Member::SoftEvicted });
            wanted.push(Rule::Member { lb: id, ip, id: 3, member: Member::Deregistered });
        }
        for length in 0..=64 {
            let first = u64::MAX.checked_shl(64 - u32::from(length)).unwrap_or(0);
            let epoch =
                Epoch { id: u32::MAX - u32::from(length), slot_bits: length % 15, xor: length.into() };
            wanted.push(Rule::Epoch { lb: id, ticks: ticks(first, length), epoch });
        }
        wanted.push(Rule::Slot { lb: id, epoch: u32::MAX, slot: Rule::MOST_SLOT, member: 65_535 });
    }
    smartnic.insert(&wanted).unwrap();
    let there = rules(&plane);
    assert_eq!(there.iter().count(), wanted.len());
    for rule in &wanted {
        assert!(there.iter().any(|there| there == *rule), "{rule:?}");
    }
    let keys: Vec<_> = wanted.iter().map(Rule::key).collect();
    smartnic.delete(&keys).unwrap();
    assert_eq!(rules(&plane), Rules::default());
}
