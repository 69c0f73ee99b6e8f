//! Services over an ordinary MRSP session.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, Rules, calendar, prefixes},
    listen::Listen,
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use ejfat_lb::{SharedDataPlane, When, message};
use ejfat_udp::{ReceivedEvent, ReceiverConfig, Sender, SenderConfig};
use mrsp::{ReturnCode, builtin};
use naa_host::{Device, Param, Session, SessionConfig};
use naa_server::{
    Config, Server,
    function::{Execution, Handler},
    functions,
};
use naa_services::{EventSink, LbTables, Reassembly, SinkError};
use proto::{events::v1::ReassemblyCounters, lb::v1};
use roce_udp::free_loopback;

fn serve(services: impl IntoIterator<Item = Handler>) -> (Server, Device) {
    let config = Config::new(SocketAddr::new(free_loopback().unwrap(), 0));
    let server = Server::start(config, functions::registry(services).unwrap()).unwrap();
    let device = Device::open(free_loopback().unwrap()).unwrap();
    (server, device)
}

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn rules(members: &[u16]) -> Rules {
    let lb = LbId::new(3).unwrap();
    let mut rules = Rules::default();
    let mut put = |rule| rules.insert(rule, false).unwrap();
    put(Rule::Destination { address: ip(1), lb });
    put(Rule::Source { lb, address: ip(2) });
    prefixes(..).into_iter().for_each(|ticks| put(Rule::Epoch { lb, ticks, epoch: Epoch::new(0) }));
    calendar(lb, 0, members).into_iter().for_each(&mut put);
    for &id in members {
        let forward =
            Forward { mac: None, address: ip(9), port: 1 + id, port_bits: 0, keep_lb_header: false };
        put(Rule::Member { lb, ip: IpVersion::V4, id, member: Member::Forward(forward) });
    }
    rules
}

fn member(plane: &SharedDataPlane, tick: u64) -> u16 {
    let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick };
    plane.path().route(ip(1), ip(2), &header.encode()).unwrap().member
}

#[test]
fn a_host_programs_the_tables_of_an_accelerator() {
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    let (server, device) = serve(naa_services::lb(&plane));
    let tables = LbTables::new(device, server.address());
    assert_eq!(tables.load(&rules(&[7]), When::Next).unwrap(), 0);
    assert_eq!(member(&plane, 41), 7);
    assert_eq!(tables.load(&rules(&[8]), When::Next).unwrap(), 42);
    assert_eq!([41, 42].map(|tick| member(&plane, tick)), [7, 8]);
    assert_eq!(tables.sets().unwrap(), plane.sets().unwrap());
    assert_eq!(plane.sets().unwrap().iter().map(|set| set.from).collect::<Vec<_>>(), [0, 42]);
    assert_eq!(tables.counters().unwrap(), message::of_counters(&plane.counters()));
    let lb = LbId::new(3).unwrap();
    let slot = |slot| Rule::Slot { lb, epoch: 0, slot, member: 8 };
    assert_eq!(tables.edit(&[slot(43).key()], &[slot(44)], true, When::Next).unwrap(), 43);
    let sets = plane.sets().unwrap();
    assert_eq!([43, 44].map(|at| sets[2].rules.get(&slot(at).key())), [None, Some(slot(44))]);
    assert_eq!(sets[1].rules.get(&slot(43).key()), Some(slot(43)));
    let refused = tables.load(&rules(&[9]), When::Tick(42)).unwrap_err();
    assert!(refused.to_string().contains("did not take the request"), "{refused}");
    assert_eq!(plane.sets().unwrap(), sets, "nothing changed");
}

#[test]
fn replies_that_do_not_fit_tell_how_long_they_are() {
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    let (server, device) = serve(naa_services::lb(&plane));
    let tables = LbTables::new(device.clone(), server.address());
    // Sixteen sets of 512 slots are beyond a usual reply.
    for set in 0..16u16 {
        tables.load(&rules(&[set, set + 1]), When::Next).unwrap();
        member(&plane, u64::from(set) * 10);
    }
    assert_eq!(tables.sets().unwrap(), plane.sets().unwrap());
    let params = [Param::output(16)];
    let mut session =
        Session::connect(&device, server.address(), &params, &SessionConfig::default()).unwrap();
    let error = session.call(builtin::LB_TABLES).unwrap_err();
    assert_eq!(error.return_code(), Some(ReturnCode::OUTPUT_TOO_SMALL));
}

#[test]
fn requests_that_are_none_are_refused() {
    let plane = Arc::new(SharedDataPlane::new(rules(&[1]), 1));
    let (server, device) = serve(naa_services::lb(&plane));
    let before = plane.sets().unwrap();
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let wrong = v1::LoadRequest {
        rules: vec![v1::Rule {
            rule: Some(v1::rule::Rule::Source(v1::Source { lb: 64, address: vec![1; 4] })),
        }],
        ..Default::default()
    };
    for request in [&[][..], &[0x80; 16], &huge, &[3, 1, 2, 3], &message::encode(&wrong)] {
        let request = if request.is_empty() { &[0xff][..] } else { request };
        let params = [Param::data(request), Param::output(64)];
        let mut session =
            Session::connect(&device, server.address(), &params, &SessionConfig::default()).unwrap();
        let error = session.call(builtin::LB_LOAD).unwrap_err();
        assert_eq!(error.return_code(), Some(ReturnCode::BAD_ARGUMENTS), "{request:02x?}");
    }
    assert_eq!(plane.sets().unwrap(), before);
}

/// Its number and bytes.
type Delivered = (u64, Vec<u8>);

/// What a subscriber would have.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Delivered>>>);

impl EventSink for Kept {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> Result<(), SinkError> {
        if event.name.event == 99 {
            return Err("the disk is full".into());
        }
        self.0.lock().unwrap().push((event.name.event, event.bytes.to_vec()));
        Ok(())
    }
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn reassembly_runs_beside_the_functions() {
    let kept = Kept::default();
    let reassembly = ejfat::reassembly::Config { memory: 16 << 20, max_event: 1 << 20, ..Default::default() };
    let listen = vec![Listen::Port("127.0.0.1:0".parse().unwrap())];
    let config = ReceiverConfig { listen, buffer: None, reassembly };
    let service = Arc::new(Reassembly::start(config, Box::new(kept.clone())).unwrap());
    let (server, device) = serve([naa_services::reassembly_counters(service.clone())]);
    let mut sender = Sender::new(SenderConfig::new(service.addresses()[0])).unwrap();
    let events: Vec<_> = (0..5u64).map(|n| (n, vec![n as u8; 1 + n as usize * 3000])).collect();
    for (n, bytes) in &events {
        sender.send(*n, 0, bytes).unwrap();
    }
    until(|| (kept.0.lock().unwrap().len() == events.len()).then_some(()));
    assert_eq!(*kept.0.lock().unwrap(), events);

    let count = || {
        let params = [Param::output(4096)];
        let mut session =
            Session::connect(&device, server.address(), &params, &SessionConfig::default()).unwrap();
        session.call(builtin::REASSEMBLY_COUNTERS).unwrap();
        message::decode::<ReassemblyCounters>(session.slice(0).unwrap()).unwrap()
    };
    let counters = until(|| Some(count()).filter(|counters| counters.complete == 5));
    assert_eq!((counters.segments, counters.open, counters.ended), (sender.sent().segments, 0, None));
    sender.send(99, 0, b"one too many").unwrap();
    let counters = until(|| Some(count()).filter(|counters| counters.ended.is_some()));
    assert_eq!(counters.ended.as_deref(), Some("the disk is full"));
}

/// Takes its first event and waits with it until the other end of the channel is dropped.
struct Stalled {
    begun: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl EventSink for Stalled {
    fn event(&mut self, _: &ReceivedEvent<'_>) -> Result<(), SinkError> {
        let _ = self.begun.send(());
        let _ = self.go_on.recv();
        Ok(())
    }
}

#[test]
fn reassembly_says_at_its_end_that_its_sink_still_has_an_event() {
    let (begun, has_begun) = mpsc::channel();
    let (held, go_on) = mpsc::channel();
    let reassembly = ejfat::reassembly::Config { memory: 16 << 20, max_event: 1 << 20, ..Default::default() };
    let listen = vec![Listen::Port("127.0.0.1:0".parse().unwrap())];
    let config = ReceiverConfig { listen, buffer: None, reassembly };
    let service = Reassembly::start(config, Box::new(Stalled { begun, go_on })).unwrap();
    Sender::new(SenderConfig::new(service.addresses()[0])).unwrap().send(1, 0, b"event").unwrap();
    has_begun.recv_timeout(Duration::from_secs(20)).unwrap();
    let why = service.end().expect("an event may be lost");
    assert!(why.contains("may be lost"), "{why}");
    drop(held);
}

/// As many rules as the tables of destinations, sources, epochs, calendars and members hold, or a request does.
fn most_rules() -> Rules {
    let mut rules = Rules::default();
    let all = (0..8).filter_map(|lb| LbId::new(lb).ok()).flat_map(|lb| {
        let members: Vec<_> = (0..512).collect();
        let forward =
            |id| Forward { mac: None, address: ip(9), port: 1 + id, port_bits: 0, keep_lb_header: false };
        let epoch = |ticks| Rule::Epoch { lb, ticks, epoch: Epoch::new(0) };
        let of_members =
            move |id| Rule::Member { lb, ip: IpVersion::V4, id, member: Member::Forward(forward(id)) };
        prefixes(1..u64::MAX - 1)
            .into_iter()
            .map(epoch)
            .chain(calendar(lb, 0, &members))
            .chain(members.into_iter().map(of_members))
            .collect::<Vec<_>>()
    });
    for rule in all {
        let _ = rules.insert(rule, false);
    }
    rules
}

#[test]
fn a_service_runs_on_the_pool_and_takes_little_time_there() {
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    for service in naa_services::lb(&plane) {
        let Handler::Function(function) = &service else { panic!("{service:?} is not a function") };
        for bytes in [0, 1 << 30] {
            assert_eq!(function.execution(bytes), Execution::Pooled, "{service:?}");
        }
    }
    // Nothing interrupts a service, so its longest request is short.
    let rules = message::of_rules(&most_rules());
    let count = rules.len();
    let request = v1::LoadRequest { rules, when: Some(message::of_when(When::Now)), ..Default::default() };
    let bytes = message::encode(&request);
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        let request: v1::LoadRequest = message::decode(&bytes).unwrap();
        ejfat_lb::requests::load(&plane, &request).unwrap();
        best = best.min(begin.elapsed());
    }
    println!("{count} rules, {} bytes: {best:?}", bytes.len());
    assert!(count > 5000 && best < Duration::from_millis(300), "{count} rules take {best:?}");
}
