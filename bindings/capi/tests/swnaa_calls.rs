//! C servers with kernels of their own, called by hosts of this project.

mod swnaa_support;

use std::time::{Duration, Instant};

use naa_host::{CallResponse, Error, FunctionCode, Param, Session, SessionConfig, U24};
use swnaa_support::{Library, ServerProcess, compile, connect, device};

fn code(code: u8) -> FunctionCode {
    FunctionCode::constant(code)
}

fn server(address: &str, flags: &[&str], library: Library) -> ServerProcess {
    ServerProcess::start(compile("swnaa_server.c", "cc", flags, library), address, &[])
}

fn words(session: &mut Session) -> Vec<u32> {
    session
        .slice(0)
        .unwrap()
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn answer(session: &mut Session, function: u8) -> CallResponse {
    session.invoke(code(function), U24::ZERO).unwrap();
    session.wait().unwrap().answer
}

/// Every kind of region and call, whichever way the program is linked.
fn all_kinds_of_calls(address: &str, library: Library) {
    let mut server = server(address, &["-std=c11", "-D_GNU_SOURCE", "-DMAX_CONNECTIONS=3"], library);
    let host = device(&address.replace("127.0.", "127.1."));
    let content: Vec<u8> = (0..100_000).map(|n| (n % 200) as u8).collect();
    let params = [Param::in_out(content.len()).holding(&content), Param::data(&[7, 8, 9]), Param::output(0)];
    let mut session = connect(&host, &server, &params);
    for round in 1..=100_u8 {
        assert_eq!(answer(&mut session, 1), CallResponse::Success);
        assert!(
            session
                .slice(0)
                .unwrap()
                .iter()
                .zip(&content)
                .all(|(now, then)| *now == then.wrapping_add(round))
        );
    }
    // What nobody knows is answered, and the connection lives on.
    for unknown in [5, 127] {
        let CallResponse::Failure(code) = answer(&mut session, unknown) else {
            panic!("unknown code {unknown}")
        };
        assert_eq!(code.get(), 0x10);
    }
    session.invoke(code(2), U24::new(0xabcdef).unwrap()).unwrap();
    assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
    // Function, immediate, regions, internal ones, inputs, outputs, CALCULATING, bytes of the last message.
    assert_eq!(words(&mut session)[..8], [2, 0xabcd_ef00, 3, 0, 2, 2, 21, 3]);
    assert_eq!(server.status(), [2, 1, 100]);

    let mut other =
        connect(&host, &server, &[Param::input(8).single_send(), Param::output(8), Param::internal(4096)]);
    other.write(0, 0, &5_u64.to_ne_bytes()).unwrap();
    for round in 1..=3_u64 {
        assert_eq!(answer(&mut other, 3), CallResponse::Success);
        // The new content is not sent, because the parameter was sent with the first call.
        other.write(0, 0, &99_u64.to_ne_bytes()).unwrap();
        assert_eq!(other.slice(1).unwrap(), (5 * round).to_ne_bytes());
    }
    assert_eq!(server.status()[..2], [1, 2]);
    other.finalize().unwrap();
    session.finalize().unwrap();
    server.until_free(3);
    server.command("quit");
    assert_eq!(server.ends(), Some(0));
}

#[test]
fn all_kinds_of_calls_to_a_program_linked_dynamically() {
    all_kinds_of_calls("127.0.20.1", Library::Shared);
}

#[test]
fn all_kinds_of_calls_to_a_program_linked_statically() {
    all_kinds_of_calls("127.0.20.2", Library::Static);
}

#[test]
fn programs_of_the_next_branch_return_error_codes() {
    for (compiler, flags, address) in
        [("cc", &["-std=c17"][..], "127.0.20.3"), ("c++", &["-x", "c++", "-std=c++17"], "127.0.20.4")]
    {
        let program = compile("swnaa_next.c", compiler, flags, Library::Shared);
        let server = ServerProcess::start(program, address, &[]);
        let mut session = connect(&device("127.1.20.3"), &server, &[Param::in_out(12)]);
        assert_eq!(answer(&mut session, 1), CallResponse::Success);
        assert_eq!(words(&mut session), [1, 0, 0]);
        session.invoke(code(2), U24::new(0xabcdef).unwrap()).unwrap();
        assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
        assert_eq!(words(&mut session), [0xab_cdef, 12, 21]);
        let CallResponse::Failure(failure) = answer(&mut session, 42) else { panic!("no error") };
        assert_eq!(failure.get(), 42);
        assert_eq!(answer(&mut session, 1), CallResponse::Success);
    }
}

/// The program of `swnaa_worker.c` serves two hosts, one after the other, with its own worker.
fn own_workers(address: &str, arguments: &[&str]) {
    let program = compile("swnaa_worker.c", "cc", &["-std=gnu11", "-Wno-pedantic"], Library::Shared);
    let mut server = ServerProcess::start(program, address, arguments);
    let host = device(&address.replace("127.0.", "127.1."));
    for round in 0..2 {
        if round > 0 {
            server.expect_ready();
        }
        let mut session = connect(&host, &server, &[Param::in_out(1).holding(&[3])]);
        for expected in [6, 12, 24] {
            assert_eq!(answer(&mut session, 1), CallResponse::Success);
            assert_eq!(session.slice(0).unwrap(), [expected]);
        }
        let CallResponse::Failure(code) = answer(&mut session, 9) else { panic!("no error") };
        assert_eq!(code.get(), 0x42);
        if !arguments.is_empty() {
            // The program gives the host up in the middle of a call.
            session.invoke(FunctionCode::constant(8), U24::ZERO).unwrap();
            assert!(session.wait().is_err());
        }
    }
    assert_eq!(server.ends(), Some(0));
}

#[test]
fn a_program_has_its_own_worker_made_of_steps() {
    own_workers("127.0.20.5", &[]);
}

#[test]
fn a_program_has_its_own_worker_that_polls() {
    own_workers("127.0.20.6", &["polling"]);
}

#[test]
fn hosts_beyond_max_connections_are_told() {
    let mut server = server("127.0.20.7", &["-std=gnu17", "-DMAX_CONNECTIONS=2"], Library::Shared);
    let host = device("127.1.20.7");
    let params = [Param::in_out(4)];
    let _one = connect(&host, &server, &params);
    let two = connect(&host, &server, &params);
    for _ in 0..3 {
        let refused =
            Session::connect(&host, server.address, &params, &SessionConfig::default()).unwrap_err();
        assert!(matches!(refused, Error::ConnectionRefused { .. }), "{refused}");
        assert!(refused.to_string().contains("as many connections as it may"), "{refused}");
    }
    assert_eq!(server.status()[..2], [0, 2]);
    two.finalize().unwrap();
    server.until_free(1);
    let mut three = connect(&host, &server, &params);
    assert_eq!(answer(&mut three, 1), CallResponse::Success);
}

#[test]
fn regions_that_cannot_be_had_are_refused_and_the_slot_comes_back() {
    let mut server = server("127.0.20.8", &["-std=gnu17", "-DMAX_CONNECTIONS=2"], Library::Shared);
    let host = device("127.1.20.8");
    let config = SessionConfig { max_regions: 40, ..SessionConfig::default() };
    let many = [Param::in_out(4); 33];
    let error = Session::connect(&host, server.address, &many, &config).unwrap_err();
    assert!(error.to_string().contains("too many regions"), "{error}");
    let large =
        [Param::in_out(4), Param::internal(1 << 31), Param::internal(1 << 31), Param::internal(1 << 31)];
    let large = [&large[..], &[Param::internal(1 << 31); 2]].concat();
    let error = Session::connect(&host, server.address, &large, &config).unwrap_err();
    assert!(error.to_string().contains("not enough memory"), "{error}");
    server.until_free(2);
}

#[test]
fn idle_connections_cost_no_time() {
    let server = server("127.0.20.9", &["-std=gnu17"], Library::Shared);
    let host = device("127.1.20.9");
    let mut sessions: Vec<_> = (0..8).map(|_| connect(&host, &server, &[Param::in_out(4)])).collect();
    std::thread::sleep(Duration::from_millis(100));
    let (before, began) = (server.cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let share = (server.cpu() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(share < 0.03, "8 idle connections take {:.1} % of a core", 100.0 * share);
    // Probes went by meanwhile.
    sessions.iter_mut().for_each(|session| assert_eq!(answer(session, 1), CallResponse::Success));
}
