//! Workers and senders at a control plane on a real socket.

mod site;

use std::{
    net::{IpAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use ejfat::wire::SyncHeader;
use ejfat_client::{
    AllowedSender, Cause, Connection, PortRange, Registration, Syncs, Targets, Totals, Trust, Worker,
    WorkerState,
};
use naa_grpc::GrpcServer;
use site::{Site, TOKEN, until};
use tonic::Code;

const MS: Duration = Duration::from_millis(1);

fn connect(server: &GrpcServer) -> Connection {
    Connection::open(&Site::uri(server, TOKEN).parse().unwrap(), &Trust::default()).unwrap()
}

fn registration() -> Registration {
    Registration {
        weight: 2.5,
        min_factor: 0.25,
        max_factor: 3.0,
        ports: PortRange::of(4).unwrap(),
        ..Registration::new("worker one", "192.0.2.7:10000".parse().unwrap())
    }
}

fn register(server: &GrpcServer) -> Worker {
    Worker::register(&connect(server), "1", registration(), Worker::PERIOD, WorkerState::default).unwrap()
}

#[test]
fn a_worker_registers_and_tells_its_state_ten_times_a_second() {
    let (site, server) = Site::served();
    let took = Arc::new(AtomicU64::new(0));
    let counted = took.clone();
    let state = move || WorkerState {
        fill: 7.5,
        totals: Totals { dequeued: counted.load(Relaxed), ..Totals::default() },
        ..WorkerState::default()
    };
    let worker = Worker::register(&connect(&server), "1", registration(), Worker::PERIOD, state).unwrap();
    took.store(42, Relaxed);
    sleep(1050 * MS);
    assert_eq!(worker.standing().session.as_deref(), Some("1"));
    assert!(worker.standing().is_accepted);
    {
        let state = site.state();
        let session = &state.sessions[&1];
        let of = &session.registered;
        assert_eq!((of.name.as_str(), of.weight, of.lb_id.as_str()), ("worker one", 2.5, "1"));
        assert_eq!((of.ip_address.as_str(), of.udp_port, of.port_range), ("192.0.2.7", 10_000, 2));
        assert_eq!((of.min_factor, of.max_factor, of.keep_lb_header), (0.25, 3.0, false));
        let states = session.states.len();
        assert!((8..=12).contains(&states), "{states} states in a second");
        let newest = session.newest();
        assert_eq!((newest.fill_percent, newest.total_events_dequeued, newest.is_ready), (1.0, 42, true));
        assert!(newest.timestamp.is_some());
    }
    let begin = Instant::now();
    drop(worker);
    assert!(begin.elapsed() < 500 * MS, "{:?}", begin.elapsed());
    assert!(site.state().live().is_empty());
}

#[test]
fn a_refused_registration_says_why_and_a_killed_predecessor_is_waited_for() {
    let (site, server) = Site::served();
    site.refuse("Register", Code::InvalidArgument, "the address is loopback");
    let refused =
        Worker::register(&connect(&server), "1", registration(), Worker::PERIOD, WorkerState::default);
    let refused = refused.unwrap_err();
    assert!(
        refused.cause() == Some(Cause::Invalid) && refused.to_string().contains("is loopback"),
        "{refused}"
    );
    assert_eq!(site.state().count("Register"), 1);

    site.refuse("Register", Code::AlreadyExists, "session 3 has ports of this worker");
    let falls_silent = site.clone();
    std::thread::spawn(move || {
        sleep(1000 * MS);
        falls_silent.accept("Register");
    });
    let begin = Instant::now();
    let _worker = register(&server);
    assert!((900..4000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
}

#[test]
fn a_worker_drains_before_it_leaves() {
    for without_ids in [false, true] {
        let site = Site::default();
        (site.state().look_ahead, site.state().without_ids) = (800 * MS, without_ids);
        let server = site.serve(0, None);
        let worker = register(&server);
        sleep(300 * MS);
        let begin = Instant::now();
        let departure = worker.drain(Duration::from_secs(10));
        assert!(departure.drained && departure.deregistered);
        let took = begin.elapsed();
        assert!(took >= 2000 * MS && took < 3500 * MS, "{took:?}");
        let state = site.state();
        let session = &state.sessions[&1];
        assert!(session.ended.is_some() && !session.newest().is_ready);
        let first = session.states.iter().find(|(_, state)| !state.is_ready).unwrap().0;
        assert!(session.states.iter().all(|(at, state)| *at < first || !state.is_ready));
    }
}

#[test]
fn who_may_not_read_the_status_drains_for_three_seconds() {
    let (site, server) = Site::served();
    site.refuse("Status", Code::PermissionDenied, "no right");
    let worker = register(&server);
    let begin = Instant::now();
    let departure = worker.drain(Duration::from_secs(10));
    assert!(departure.drained && departure.deregistered);
    assert!((3000..4000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
}

#[test]
fn a_control_plane_that_restarts_with_its_memory_keeps_the_session() {
    let (site, server) = Site::served();
    let port = server.address().port();
    let worker = register(&server);
    until("told", || worker.standing().accepted > 2);
    drop(server);
    until("away", || !worker.standing().is_accepted);
    assert!(worker.standing().problem.unwrap().contains("cannot be reached"));
    sleep(500 * MS);
    let before = worker.standing().accepted;
    let back = Instant::now();
    let _server = site.serve(port, None);
    until("told again", || worker.standing().accepted > before);
    assert!(back.elapsed() < 3500 * MS, "{:?}", back.elapsed());
    assert_eq!((worker.standing().registered_again, site.state().count("Register")), (0, 1));
}

#[test]
fn a_control_plane_that_restarts_without_memory_gets_a_new_registration() {
    let (_site, server) = Site::served();
    let port = server.address().port();
    let worker = register(&server);
    until("told", || worker.standing().accepted > 2);
    drop(server);
    let site = Site::default();
    // The new control plane knows no session.
    let _server = site.serve(port, None);
    until("registered again", || worker.standing().registered_again == 1);
    until("told again", || site.state().sessions.get(&1).is_some_and(|session| session.states.len() > 2));
    assert_eq!(worker.standing().session.as_deref(), Some("1"));
}

#[test]
fn a_reservation_that_ended_ends_the_worker() {
    let (site, server) = Site::served();
    let worker = register(&server);
    until("told", || worker.standing().accepted > 2);
    assert_eq!(worker.gone(), None);
    for call in ["SendState", "Register"] {
        site.refuse(call, Code::NotFound, "there is no reservation 1; it may have ended");
    }
    until("gone", || worker.gone().is_some());
    assert!(worker.gone().unwrap().contains("reservation 1 ended"), "{:?}", worker.gone());
    assert!(worker.drain(Duration::ZERO).deregistered);
    let tries = site.state().count("Register");
    sleep(500 * MS);
    assert_eq!(site.state().count("Register"), tries, "it does not try again");
}

#[test]
fn a_worker_that_drains_leaves_at_once_when_another_thread_wants_it() {
    let site = Site::default();
    site.state().look_ahead = Duration::from_secs(30);
    let server = site.serve(0, None);
    let worker = register(&server);
    until("told", || worker.standing().accepted > 0);
    let leaver = worker.leaver();
    worker.begin_drain(Duration::from_secs(30));
    until("it drains", || site.state().live().iter().any(|session| !session.newest().is_ready));
    assert!(leaver.leave(500 * MS));
    assert!(site.state().live().is_empty());
}

#[test]
fn a_slow_control_plane_gets_states_that_are_new() {
    let (site, server) = Site::served();
    let worker = register(&server);
    until("told", || worker.standing().accepted > 2);
    site.slow("SendState", 300 * MS);
    sleep(2000 * MS);
    let states = site.state().sessions[&1].states.len();
    assert!((5..12).contains(&states), "{states}: one at a time, none piled up");
    // The answers come later than the time limit of a state: the worker gives the calls up, and still leaves quickly.
    site.slow("SendState", Duration::from_secs(30));
    until("given up", || !worker.standing().is_accepted);
    let begin = Instant::now();
    drop(worker);
    assert!(begin.elapsed() < 1700 * MS, "{:?}", begin.elapsed());
}

#[test]
fn dropped_while_nobody_answers_it_does_not_wait() {
    let (_site, server) = Site::served();
    let worker = register(&server);
    drop(server);
    let begin = Instant::now();
    drop(worker);
    assert!(begin.elapsed() < 1700 * MS, "{:?}", begin.elapsed());
}

#[test]
fn a_sender_is_let_in_until_it_is_closed_and_others_stay() {
    let (site, server) = Site::served();
    let client = connect(&server);
    let own: IpAddr = "127.0.0.1".parse().unwrap();
    let data = ["127.0.0.1:19522".parse().unwrap(), "[::1]:19522".parse().unwrap()];
    site.state().senders.insert("::1".into());
    let sync = UdpSocket::bind("127.0.0.1:0").unwrap();
    sync.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut allowed = AllowedSender::open(&client, "1", &data).unwrap();
    allowed.keep_in_sync(&[sync.local_addr().unwrap()], 77, 100 * MS).unwrap();
    assert_eq!(allowed.addresses(), [own, "::1".parse().unwrap()]);
    assert_eq!(site.state().senders.iter().collect::<Vec<_>>(), ["127.0.0.1", "::1"]);
    let mut bytes = [0; 64];
    for _ in 0..3 {
        let len = sync.recv(&mut bytes).unwrap();
        assert_eq!(SyncHeader::decode(&bytes[..len]).unwrap().source, 77);
    }
    allowed.close().unwrap();
    assert_eq!(site.state().senders.iter().collect::<Vec<_>>(), ["::1"], "it was there before");
    assert_eq!(site.state().calls.last(), Some(&"RemoveSenders"));
}

#[test]
fn a_sender_without_the_right_is_told_so() {
    let (site, server) = Site::served();
    site.refuse("AddSenders", Code::PermissionDenied, "the token has no right to AddSenders here");
    let data = ["127.0.0.1:19522".parse().unwrap()];
    let error = AllowedSender::open(&connect(&server), "1", &data).unwrap_err().to_string();
    assert!(error.contains("UPDATE on the reservation"), "{error}");
    assert_eq!(site.state().count("RemoveSenders"), 0);
}

#[test]
fn addresses_that_a_uri_lacks_come_from_the_control_plane() {
    let (site, server) = Site::served();
    {
        let of = &mut site.state().reservation;
        (of.data_ipv4_address, of.data_min_port, of.data_max_port) = ("192.0.2.9".into(), 16_384, 32_767);
        (of.sync_ipv4_address, of.sync_udp_port) = ("0.0.0.0".into(), 19_531);
    }
    let uri = Site::uri(&server, TOKEN).parse().unwrap();
    let found = Targets::find(&connect(&server), &uri, "1").unwrap();
    assert_eq!(found.data, ["192.0.2.9:16384".parse().unwrap()]);
    assert_eq!(found.sync, ["127.0.0.1:19531".parse().unwrap()]);
    let whole = format!("{}?data=192.0.2.1&sync=192.0.2.1:7", Site::uri(&server, TOKEN)).parse().unwrap();
    let before = site.state().calls.len();
    assert_eq!(
        Targets::find(&connect(&server), &whole, "1").unwrap().data,
        ["192.0.2.1:19522".parse().unwrap()]
    );
    assert_eq!(site.state().calls.len(), before, "nothing is lacking");
}

#[test]
fn syncs_to_nowhere_are_an_error_and_to_some_a_warning() {
    let sync = UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = sync.local_addr().unwrap();
    drop(Syncs::start(&[there], 1, 10_000 * MS).unwrap());
    let mut bytes = [0; 64];
    assert_eq!(
        [sync.recv(&mut bytes).unwrap(), sync.recv(&mut bytes).unwrap()],
        [28, 28],
        "the first and the last"
    );
    assert!(Syncs::start(&["255.255.255.255:1".parse().unwrap()], 1, 10_000 * MS).is_err());
}
