//! What requests do, and which are refused.

mod registry_common;

use std::{collections::BTreeSet, time::Duration};

use ejfat_control::{
    config::Config,
    request::{
        Caller, Deregister, Extend, LbName,
        RefusalKind::{
            AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted,
        },
        Register, Reply, Request, Reserve, Reset, SendState, Senders, SetSlotDemands, SlotDemand,
    },
    reservation::{IpFamily, ReservationId, Strategy},
    session::{SessionId, liveness::Readiness, slots::SlotRange},
    token::TokenLimits,
    wall::WallTime,
};
use registry_common::{DAY, ROOT, Site, V4, config, kind, lb, ready, status, worker};

const V6: &str = "2001:db8::51";

fn site() -> Site {
    Site::new(config(), 1)
}

/// A site, and a reservation of its first load balancer.
fn reserved() -> (Site, ReservationId) {
    let mut site = site();
    let id = site.reserve(ROOT, Reserve::default()).id;
    (site, id)
}

fn reserve_with(name: &str, strategy: &str, senders: &[&str]) -> Reserve {
    let senders = senders.iter().map(ToString::to_string).collect();
    Reserve { name: name.to_owned(), strategy: strategy.to_owned(), senders, ..Reserve::default() }
}

#[test]
fn a_reservation_without_an_end_gets_the_sites_and_one_from_1970_has_none() {
    let (mut site, id) = reserved();
    let year = site.at.wall.0 + 365 * DAY;
    assert_eq!(status(&mut site, id).expires, Some(WallTime(year)));
    let never = Reserve { until: Some(WallTime(0)), ..Reserve::default() };
    let other = site.reserve(ROOT, never.clone()).id;
    assert_eq!(status(&mut site, other).expires, None);
    let past = Reserve { until: Some(site.at.wall), ..never };
    assert_eq!(kind(site.ask(ROOT, &Request::Reserve(past))), Some(InvalidArgument));
    let extend = |until| Request::Extend(Extend { lb_id: id.to_string(), until });
    let now = site.at.wall.0;
    assert_eq!(kind(site.ask(ROOT, &extend(Some(WallTime(now - 1))))), Some(InvalidArgument));
    for (asked, until) in [(Some(now + 1), Some(now + 1)), (Some(0), None), (None, Some(year))] {
        let reply = site.ask(ROOT, &extend(asked.map(WallTime)));
        assert_eq!(reply, Ok(Reply::Extended { until: until.map(WallTime) }));
    }
}

#[test]
fn a_reservation_ends_at_its_time_with_all_that_came_with_it() {
    let mut site = site();
    let until = Some(WallTime(site.at.wall.0 + 500));
    let reserved = site.reserve(ROOT, Reserve { until, senders: vec![V4.to_owned()], ..Reserve::default() });
    let token = reserved.token.expect("a token").as_str().to_owned();
    let worker = site.register(&token, worker(reserved.id, V4, 5000));
    let below = site.create(
        worker.token.as_str(),
        &format!("SESSION/{}:READ_ONLY", worker.session),
        TokenLimits::default(),
    );
    assert_eq!(site.registry.next_wakeup(site.at), Some(site.at.now + Duration::from_millis(500)));
    site.run_ms(490);
    assert!(site.registry.durable().reservation(reserved.id).is_some());
    site.run_ms(10);
    let durable = site.registry.durable();
    assert_eq!(
        (durable.reservations().count(), durable.sessions().count(), durable.tokens().iter().count()),
        (0, 0, 0)
    );
    assert_eq!(durable.senders_of(lb(0)).count(), 0);
    for gone in [&token, worker.token.as_str(), below.token.as_str()] {
        assert_eq!(kind(site.ask(gone, &Request::Version)), Some(PermissionDenied));
    }
    let last = site.registry.durable().audit().next_back().map(|(_, entry)| entry.clone()).expect("an entry");
    assert_eq!((last.by, last.call.as_str()), (None, "ReservationExpired"));
    let again = site.reserve(ROOT, Reserve::default());
    assert_eq!((again.lb, again.id.0), (reserved.lb, reserved.id.0 + 1), "the id is not given twice");
}

#[test]
fn only_the_ip_versions_that_were_asked_for_are_given_and_taken() {
    let mut site = site();
    let of = |family| Reserve { ip_family: family, ..Reserve::default() };
    let v4 = site.reserve(ROOT, of(IpFamily::V4));
    assert!(v4.data_v4.is_some() && v4.sync_v4.is_some() && v4.data_v6.is_none() && v4.sync_v6.is_none());
    let v6 = site.reserve(ROOT, of(IpFamily::V6));
    assert_eq!(v6.lb, lb(2), "load balancer 1 has only IPv4");
    assert!(v6.data_v6.is_some() && v6.data_v4.is_none() && v6.sync_v4.is_none());
    for (reserved, taken, other) in [(&v4, V4, V6), (&v6, V6, V4)] {
        let lb_id = reserved.id.to_string();
        let senders = |address: &str| {
            Request::AddSenders(Senders { lb_id: lb_id.clone(), addresses: vec![address.to_owned()] })
        };
        assert_eq!(kind(site.ask(ROOT, &senders(taken))), None);
        assert_eq!(kind(site.ask(ROOT, &senders(other))), Some(InvalidArgument));
        let register = |address| Request::Register(worker(&lb_id, address, 5000));
        assert_eq!(kind(site.ask(ROOT, &register(taken))), None);
        assert_eq!(kind(site.ask(ROOT, &register(other))), Some(InvalidArgument));
    }
    assert_eq!(kind(site.ask(ROOT, &Request::Reserve(of(IpFamily::V6)))), Some(ResourceExhausted));
    let token = site.create(ROOT, "LOAD_BALANCER/1:RESERVE", TokenLimits::default());
    let refused = site.ask(token.token.as_str(), &Request::Reserve(of(IpFamily::V6)));
    assert_eq!(kind(refused), Some(FailedPrecondition));
}

#[test]
fn a_reservation_for_both_ip_versions_gets_a_free_load_balancer_that_takes_its_senders() {
    let mut site = site();
    let of = |senders: &[&str]| Request::Reserve(reserve_with("", "", senders));
    assert_eq!(site.reserve(ROOT, Reserve::default()).lb, lb(0));
    assert_eq!(kind(site.ask(ROOT, &of(&[V4, V6]))), Some(ResourceExhausted), "0 takes both");
    let v6 = site.reserve(ROOT, reserve_with("", "", &[V6]));
    assert_eq!(v6.lb, lb(2), "load balancer 1 has only IPv4");
    assert_eq!(kind(site.ask(ROOT, &of(&[V6]))), Some(ResourceExhausted), "1 is free, but takes none");
    let v4 = site.create(ROOT, "LOAD_BALANCER/1:RESERVE", TokenLimits::default());
    let refused = site.ask(v4.token.as_str(), &of(&[V6]));
    assert_eq!(kind(refused), Some(InvalidArgument), "no load balancer of the token takes it");
    assert_eq!(site.reserve(v4.token.as_str(), reserve_with("", "", &[V4])).lb, lb(1));
}

#[test]
fn a_refused_reservation_leaves_nothing_reserved() {
    let mut site = site();
    let long = "a".repeat(64);
    let many = vec!["192.0.2.7"; 513];
    for (name, strategy, senders) in [
        ("x", "", &["192.0.2.7", "no address"][..]),
        ("x", "", &["0.0.0.0"]),
        ("x", "", &["224.0.0.1"]),
        ("x", "", &["255.255.255.255"]),
        ("x", "", &["::ffff:192.0.2.7"]),
        ("x", "", &many),
        ("-x", "", &[]),
        ("x.", "", &[]),
        ("a b", "", &[]),
        (&long, "", &[]),
        (&["a"; 128].join("."), "", &[]),
        ("x", "Dynamic", &[]),
        ("x", &"y".repeat(10_000), &[]),
    ] {
        let refused = site.ask(ROOT, &Request::Reserve(reserve_with(name, strategy, senders)));
        let refusal = refused.expect_err(name);
        assert_eq!(refusal.kind, InvalidArgument, "{name}");
        assert!(refusal.why.len() < 400, "{}", refusal.why);
    }
    assert!(site.stored.is_empty());
    for (name, strategy, expected) in [
        ("", "static", Strategy::Static),
        ("a-b.c_d:e/f", "explicit", Strategy::Explicit),
        ("x", "", Strategy::Dynamic),
    ] {
        assert_eq!(site.reserve(ROOT, reserve_with(name, strategy, &[])).strategy, expected);
    }
}

#[test]
fn the_reply_to_a_reservation_makes_a_uri() {
    let mut site = site();
    let reserved = site.reserve(ROOT, Reserve::default());
    let uri = reserved.uri(true, "cp.example", 19_523);
    let token = reserved.token.as_ref().expect("a token").as_str();
    assert_eq!(
        uri.to_string(),
        format!(
            "ejfats://{token}@cp.example:19523/lb/1?sync=192.0.2.100:19531&sync=[2001:db8::64]:19531\
             &data=192.0.2.0:16384-32767&data=[2001:db8::]:16384-32767"
        )
    );
    assert!(!format!("{reserved:?}").contains(token));
}

#[test]
fn a_worker_registers_with_sane_values_only() {
    let (mut site, id) = reserved();
    let good =
        Register { min_factor: 0.5, max_factor: 2.0, port: 65_534, port_range: 1, ..worker(id, V4, 1) };
    let bad: [fn(&mut Register); 24] = [
        |of| of.weight = 0.0,
        |of| of.weight = -1.0,
        |of| of.weight = f32::NAN,
        |of| of.weight = f32::INFINITY,
        |of| of.min_factor = -0.1,
        |of| of.min_factor = f32::NAN,
        |of| of.min_factor = 3.0,
        |of| of.max_factor = -1.0,
        |of| of.max_factor = f32::INFINITY,
        |of| of.port = 0,
        |of| of.port = 65_535,
        |of| of.port = 65_536 + 5000,
        |of| of.port = u32::MAX,
        |of| of.port_range = 15,
        |of| of.port_range = u32::MAX,
        |of| of.address = "somewhere".to_owned(),
        |of| of.address = "0.0.0.0".to_owned(),
        |of| of.address = "ff02::1".to_owned(),
        |of| of.address = "127.0.0.1".to_owned(),
        |of| of.name = "a\nb".to_owned(),
        |of| of.slot_demands = vec![SlotDemand { index: 500, length: 13 }],
        |of| of.slot_demands = vec![SlotDemand { index: -2, length: 1 }],
        |of| of.slot_demands = vec![SlotDemand { index: 0, length: 0 }],
        |of| of.slot_demands = vec![SlotDemand { index: 0, length: 2 }, SlotDemand { index: 1, length: 1 }],
    ];
    let before = site.stored.clone();
    for (at, spoil) in bad.iter().enumerate() {
        let mut request = good.clone();
        spoil(&mut request);
        assert_eq!(kind(site.ask(ROOT, &Request::Register(request))), Some(InvalidArgument), "case {at}");
    }
    assert_eq!(site.stored, before);
    site.register(ROOT, good);
    let same = Register { port: 65_535, ..worker(id, V4, 1) };
    assert_eq!(kind(site.ask(ROOT, &Request::Register(same))), Some(AlreadyExists));
    site.register(ROOT, worker(id, V4, 65_533));
}

#[test]
fn which_addresses_workers_have_is_the_sites_choice() {
    let mut open = config();
    (open.addresses.loopback, open.addresses.own_only) = (true, true);
    let mut site = Site::new(open, 1);
    let id = site.reserve(ROOT, Reserve::default()).id;
    let mut register = |peer: Option<&str>| {
        let caller = Caller { token: Some(ROOT), peer: peer.map(|peer| peer.parse().expect("an address")) };
        kind(site.ask_as(caller, &Request::Register(worker(id, "127.0.0.1", 5000))))
    };
    assert_eq!(register(None), Some(InvalidArgument));
    assert_eq!(register(Some("192.0.2.1")), Some(InvalidArgument));
    assert_eq!(register(Some("::ffff:127.0.0.1")), None);
    let mut closed = config();
    closed.addresses.private = false;
    let mut site = Site::new(closed, 1);
    let id = site.reserve(ROOT, Reserve::default()).id;
    for private in ["10.1.2.3", "192.168.0.1", "169.254.0.1", "fd00::1", "fe80::1"] {
        let refused = site.ask(ROOT, &Request::Register(worker(id, private, 5000)));
        assert_eq!(kind(refused), Some(InvalidArgument), "{private}");
    }
}

#[test]
fn a_session_lives_by_its_states_and_the_clock_of_the_control_plane() {
    let (mut site, id) = reserved();
    let quiet = site.register(ROOT, worker(id, V4, 5000)).session;
    let session = site.register(ROOT, worker(id, V4, 5001)).session;
    let of = |site: &Site, session| site.registry.readiness(session, site.at.now);
    site.run_ms(9_990);
    assert_eq!([quiet, session].map(|session| of(&site, session)), [Some(Readiness::Registered); 2]);
    let stored = site.stored.clone();
    site.ask(ROOT, &Request::SendState(ready(session))).expect("a state");
    assert_eq!(site.stored, stored, "states touch no record");
    site.run_ms(10);
    assert_eq!([quiet, session].map(|session| of(&site, session)), [None, Some(Readiness::Ready)]);
    site.run_ms(1_980);
    assert_eq!(of(&site, session), Some(Readiness::Ready));
    site.run_ms(10);
    assert_eq!(of(&site, session), Some(Readiness::Silent));
    site.ask(ROOT, &Request::SendState(SendState { is_ready: false, ..ready(session) })).expect("a state");
    assert_eq!(of(&site, session), Some(Readiness::NotReady));
    site.run_ms(59_990);
    assert_eq!(of(&site, session), Some(Readiness::Silent));
    site.run_ms(10);
    assert_eq!(of(&site, session), None);
    assert_eq!(site.registry.durable().sessions().count(), 0);
}

#[test]
fn after_a_restart_nobody_is_evicted_for_ten_seconds() {
    let (mut site, id) = reserved();
    let session = site.register(ROOT, worker(id, V4, 5000)).session;
    site.ask(ROOT, &Request::SendState(ready(session))).expect("a state");
    let soft = site.registry.soft().clone();
    site.after_ms(1_000);
    site.registry = site.restored();
    let of = |site: &Site| site.registry.readiness(session, site.at.now);
    assert_eq!(of(&site), Some(Readiness::Restored));
    site.run_ms(9_990);
    assert_eq!(of(&site), Some(Readiness::Restored));
    site.run_ms(10);
    assert_eq!(of(&site), Some(Readiness::Silent));
    site.run_ms(50_000);
    assert_eq!(of(&site), None);
    let mut other = self::site();
    let id = other.reserve(ROOT, Reserve::default()).id;
    assert_eq!(other.register(ROOT, worker(id, V4, 5000)).session, session);
    other.registry = other.restored();
    other.registry.carry_over(soft);
    assert_eq!(of(&other), Some(Readiness::Ready), "what is known in the process is carried over");
}

#[test]
fn one_load_balancer_takes_no_more_workers_than_it_has_slots() {
    let mut site = Site::new(Config { slots: 64, ..config() }, 1);
    let one = site.reserve(ROOT, Reserve::default()).id;
    let other = site.reserve(ROOT, Reserve::default()).id;
    let sessions: Vec<_> = (0..64).map(|n| site.register(ROOT, worker(one, V4, 5000 + n)).session).collect();
    let more = Request::Register(worker(one, V4, 6000));
    assert_eq!(kind(site.ask(ROOT, &more)), Some(ResourceExhausted));
    site.register(ROOT, worker(other, V4, 5000));
    leave(&mut site, sessions[0]);
    site.ask(ROOT, &more).expect("there is a slot again");
}

#[test]
fn a_state_with_a_field_that_cannot_be_is_refused() {
    let (mut site, id) = reserved();
    let session = site.register(ROOT, worker(id, V4, 5000)).session;
    let bad: [fn(&mut SendState); 7] = [
        |of| of.fill_level = f32::INFINITY,
        |of| of.fill_level = -0.1,
        |of| of.fill_level = f32::NAN,
        |of| of.control_signal = f32::INFINITY,
        |of| of.events_received = -1,
        |of| of.packets_received = i64::MIN,
        |of| of.session_id = "x".to_owned(),
    ];
    for (at, spoil) in bad.iter().enumerate() {
        let mut state = ready(session);
        spoil(&mut state);
        assert_eq!(kind(site.ask(ROOT, &Request::SendState(state))), Some(InvalidArgument), "case {at}");
    }
    let state = SendState { fill_level: 0.25, events_dequeued: 7, ..ready(session) };
    site.ask(ROOT, &Request::SendState(state)).expect("a state");
    let (state, at) = status(&mut site, id).workers[0].state.expect("a state");
    assert_eq!((state.fill_level, state.counters.events_dequeued, at), (0.25, 7, site.at.wall));
}

#[test]
fn a_worker_that_reports_more_than_a_full_queue_is_full_and_not_silent() {
    let (mut site, id) = reserved();
    let session = site.register(ROOT, worker(id, V4, 5000)).session;
    for fill_level in [1.000_1, 7.5, f32::MAX] {
        site.after_ms(9_000);
        let state = SendState { fill_level, ..ready(session) };
        assert_eq!(site.ask(ROOT, &Request::SendState(state)), Ok(Reply::Done), "{fill_level}");
        let of = &status(&mut site, id).workers[0];
        assert_eq!(
            (of.readiness, of.state.map(|(state, _)| state.fill_level)),
            (Readiness::Ready, Some(1.0))
        );
    }
}

#[test]
fn a_worker_that_began_anew_takes_the_place_of_its_silent_session() {
    let (mut site, id) = reserved();
    let old = site.register(ROOT, worker(id, V4, 5000));
    site.ask(ROOT, &Request::SendState(ready(old.session))).expect("a state");
    let register = Request::Register(worker(id, V4, 5000));
    assert_eq!(kind(site.ask(ROOT, &register)), Some(AlreadyExists));
    site.run_ms(2_000);
    assert_eq!(kind(site.ask(ROOT, &register)), None);
    let workers = status(&mut site, id).workers;
    assert!(workers.len() == 1 && workers[0].session != old.session);
    assert_eq!(kind(site.ask(old.token.as_str(), &Request::Version)), Some(PermissionDenied));
}

fn leave(site: &mut Site, session: SessionId) {
    let request = Deregister { lb_id: String::new(), session_id: session.to_string() };
    site.ask(ROOT, &Request::Deregister(request)).expect("a session that ends");
}

fn member(site: &Site, session: SessionId) -> Option<u16> {
    site.registry.durable().session(session).map(|of| of.member)
}

/// Has the ids of the members of load balancer 0 go on from `next`.
fn go_on_from(site: &mut Site, next: u64) {
    site.stored.insert(b"next/member/0".to_vec(), format!("{{\"v\":1,\"next\":{next}}}").into_bytes());
    let soft = site.registry.soft().clone();
    site.registry = site.restored();
    site.registry.carry_over(soft);
}

#[test]
fn a_members_id_is_not_given_again_for_a_while_nor_soon_after_a_restart() {
    let (mut site, id) = reserved();
    for expected in 0..3 {
        let session = site.register(ROOT, worker(id, V4, 5000)).session;
        assert_eq!(member(&site, session), Some(expected));
        leave(&mut site, session);
    }
    go_on_from(&mut site, 65_534);
    for expected in [65_534, 3] {
        let session = site.register(ROOT, worker(id, V4, 5000)).session;
        assert_eq!(
            member(&site, session),
            Some(expected),
            "ids go round, and those that rest are passed over"
        );
        leave(&mut site, session);
    }
    site.run_ms(59_000);
    site.registry.rest_member(lb(0), 0, site.at.now);
    site.run_ms(1_000);
    go_on_from(&mut site, 0);
    let session = site.register(ROOT, worker(id, V4, 5000)).session;
    assert_eq!(member(&site, session), Some(1), "0 was used by an epoch");
    leave(&mut site, session);
    site.registry = site.restored();
    let session = site.register(ROOT, worker(id, V4, 5000)).session;
    assert_eq!(member(&site, session), Some(2));
}

#[test]
fn as_many_workers_as_there_is_room_for_may_leave_and_register_again_at_once() {
    let mut site = Site::new(Config { slots: 1024, ..config() }, 1);
    let id = site.reserve(ROOT, Reserve::default()).id;
    let mut last = BTreeSet::new();
    for _ in 0..3 {
        let sessions: Vec<_> =
            (0..1024).map(|n| site.register(ROOT, worker(id, V4, 5000 + n)).session).collect();
        let members: BTreeSet<_> = sessions.iter().filter_map(|session| member(&site, *session)).collect();
        assert!(members.len() == 1024 && members.is_disjoint(&last));
        let counters: BTreeSet<_> = members.iter().map(|member| member % 1024).collect();
        assert_eq!(counters.len(), 1024, "each has a counter of its own on ESnet's P4");
        sessions.into_iter().for_each(|session| leave(&mut site, session));
        last = members;
        site.after_ms(5_000);
        site.poll();
    }
}

#[test]
fn if_all_members_ids_rest_the_one_that_has_rested_longest_is_given() {
    let (mut site, id) = reserved();
    for member in 0..=65_534 {
        site.registry.rest_member(lb(0), member, site.at.now + Duration::from_millis(u64::from(member == 7)));
    }
    site.registry.rest_member(lb(0), 0, site.at.now + Duration::from_millis(5));
    for expected in [1, 2, 3] {
        let session = site.register(ROOT, worker(id, V4, 5000 + expected)).session;
        assert_eq!(member(&site, session), u16::try_from(expected).ok());
    }
}

#[test]
fn a_worker_takes_the_place_of_its_silent_session_where_there_is_room_for_no_more_members() {
    let mut site = Site::new(Config { most_members: 4, ..config() }, 1);
    let id = site.reserve(ROOT, Reserve::default()).id;
    let sessions: Vec<_> = (0..4).map(|n| site.register(ROOT, worker(id, V4, 5000 + n)).session).collect();
    site.ask(ROOT, &Request::SendState(ready(sessions[3]))).expect("a state");
    site.after_ms(3_000);
    let full = site.ask(ROOT, &Request::Register(worker(id, V4, 5004)));
    assert_eq!(kind(full), Some(ResourceExhausted));
    let session = site.register(ROOT, worker(id, V4, 5003)).session;
    assert_eq!(site.registry.durable().sessions().count(), 4);
    assert_eq!(member(&site, session), Some(4), "the id of the silent one rests");
}

#[test]
fn members_and_senders_of_all_load_balancers_share_the_room_of_the_tables() {
    let mut site = site();
    let ids = [(); 2].map(|()| site.reserve(ROOT, Reserve::default()).id);
    for n in 0..1024_u32 {
        site.register(ROOT, worker(ids[n as usize % 2], V4, 5000 + n));
    }
    let full = |result| assert_eq!(kind(result), Some(ResourceExhausted));
    full(site.ask(ROOT, &Request::Register(worker(ids[0], V4, 9000))));
    let senders = |id: usize, addresses: Vec<String>| {
        Request::AddSenders(Senders { lb_id: ids[id].to_string(), addresses })
    };
    let many = |from: u32, to: u32| {
        (from..to).map(|n| format!("198.18.{}.{}", n / 256, n % 256)).collect::<Vec<_>>()
    };
    assert_eq!(kind(site.ask(ROOT, &senders(0, many(0, 200)))), None);
    full(site.ask(ROOT, &senders(1, many(0, 57))));
    assert_eq!(kind(site.ask(ROOT, &senders(1, many(0, 56)))), None);
    assert_eq!(kind(site.ask(ROOT, &senders(0, many(0, 200)))), None, "those that are there need no room");
    assert_eq!(kind(site.ask(ROOT, &senders(0, vec![V6.to_owned()]))), None, "IPv6 has a table of its own");
    let remove = Senders { lb_id: ids[0].to_string(), addresses: many(0, 200) };
    for _ in 0..2 {
        assert_eq!(kind(site.ask(ROOT, &Request::RemoveSenders(remove.clone()))), None);
    }
    assert_eq!(site.registry.durable().senders_of(lb(0)).count(), 1);
}

#[test]
fn slot_demands_are_replaced_as_a_whole_and_make_a_dynamic_reservation_static() {
    let mut site = site();
    let demand = |index, length| SlotDemand { index, length };
    for (strategy, after) in [("", Strategy::Static), ("explicit", Strategy::Explicit)] {
        let id = site.reserve(ROOT, reserve_with("", strategy, &[])).id;
        let first = Register { slot_demands: vec![demand(-1, 4)], ..worker(id, V4, 5000) };
        let sessions =
            [first.clone(), Register { port: 5001, ..first }].map(|of| site.register(ROOT, of).session);
        let slots = |site: &mut Site| {
            status(site, id).workers.iter().map(|of| of.slot_demands.clone()).collect::<Vec<_>>()
        };
        let range = |first, count| SlotRange { first, count };
        assert_eq!(slots(&mut site), [vec![range(0, 4)], vec![range(4, 4)]]);
        let set = |sessions: &[(SessionId, Vec<SlotDemand>)]| {
            let sessions = sessions.iter().map(|(id, demands)| (id.to_string(), demands.clone())).collect();
            Request::SetSlotDemands(SetSlotDemands { lb_id: id.to_string(), sessions })
        };
        let [a, b] = sessions;
        let overlap = set(&[(a, vec![demand(0, 4)]), (b, vec![demand(3, 4)])]);
        assert_eq!(kind(site.ask(ROOT, &overlap)), Some(InvalidArgument));
        let twice = set(&[(a, vec![]), (a, vec![])]);
        assert_eq!(kind(site.ask(ROOT, &twice)), Some(InvalidArgument));
        let missing = set(&[(a, vec![]), (SessionId(99), vec![])]);
        assert_eq!(kind(site.ask(ROOT, &missing)), Some(NotFound));
        site.ask(ROOT, &set(&[(b, vec![demand(-1, 2), demand(0, 1)])])).expect("demands that fit");
        assert_eq!(slots(&mut site), [vec![], vec![range(0, 1), range(1, 2)]]);
        assert_eq!(site.registry.durable().reservation(id).map(|of| of.strategy), Some(after));
    }
}

#[test]
fn a_reset_removes_what_it_names() {
    let mut site = site();
    let id = site.reserve(ROOT, reserve_with("", "", &[V4])).id;
    site.register(ROOT, worker(id, V4, 5000));
    let reset = Reset { lb_id: id.to_string(), workers: true, ..Reset::default() };
    let reply = site.ask(ROOT, &Request::Reset(reset.clone()));
    assert_eq!(reply, Ok(Reply::Reset { sync: false, epochs: false, senders: false, workers: true }));
    assert_eq!((status(&mut site, id).workers.len(), status(&mut site, id).senders.len()), (0, 1));
    site.ask(ROOT, &Request::Reset(Reset { senders: true, ..reset })).expect("a reset");
    assert_eq!(status(&mut site, id).senders.len(), 0);
}

#[test]
fn the_audit_log_says_who_changed_what_and_is_bounded() {
    let mut small = config();
    small.most_audit = 3;
    let mut site = Site::new(small, 1);
    let user = site.create(ROOT, "LOAD_BALANCER:UPDATE", TokenLimits::default());
    let id = site.reserve(user.token.as_str(), reserve_with("run-7", "", &[])).id;
    for _ in 0..3 {
        site.ask(user.token.as_str(), &Request::Overview).expect("reading is not in the log");
    }
    let log = |site: &Site| {
        let entries = site.registry.durable().audit();
        entries
            .map(|(number, entry)| (number, entry.by, entry.call.clone(), entry.what.clone()))
            .collect::<Vec<_>>()
    };
    let by = Some(user.id);
    let what = "reservation 1 of load balancer 0, \"run-7\"".to_owned();
    assert_eq!(log(&site)[1], (1, by, "ReserveLoadBalancer".to_owned(), what));
    site.ask(user.token.as_str(), &Request::Free(LbName { lb_id: id.to_string() })).expect("its reservation");
    site.create(ROOT, "ALL:UPDATE", TokenLimits::default());
    let numbers: Vec<_> = log(&site).iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let stored = site.stored.keys().filter(|key| key.starts_with(b"audit/")).count();
    assert_eq!(stored, 3);
    assert!(site.stored.values().all(|value| !String::from_utf8_lossy(value).contains(user.token.as_str())));
}
