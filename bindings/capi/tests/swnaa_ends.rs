//! How connections of C servers end: politely, by force, at the wrong time, a thousand times.

mod swnaa_support;

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use naa_host::{CallResponse, FunctionCode, Param, Session, SessionConfig, SessionSetup, SetupStage, U24};
use swnaa_support::{Library, ServerProcess, compile, connect, device};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const SLOW: FunctionCode = FunctionCode::constant(4);

fn server(address: &str, flags: &[&str]) -> ServerProcess {
    let flags = [&["-std=gnu17", "-DMAX_CONNECTIONS=4"], flags].concat();
    ServerProcess::start(compile("swnaa_server.c", "cc", &flags, Library::Shared), address, &[])
}

fn milliseconds(time: u32) -> U24 {
    U24::new(time).unwrap()
}

#[test]
fn a_host_leaves_in_each_phase() {
    let mut server = server("127.0.21.1", &[]);
    let host = device("127.1.21.1");
    let config = SessionConfig::default();
    let params = [Param::in_out(1 << 20)];
    let soon = || Instant::now() + Duration::from_secs(5);
    // Before it confirms, before its regions, between them and the announcement, before a call.
    for phase in 0..4 {
        let mut setup = SessionSetup::new(&host, server.address, &params, &config).unwrap();
        setup.prepare(&params, None).unwrap();
        setup.connect().unwrap();
        if phase >= 1 {
            setup.reach(SetupStage::Connected, soon()).unwrap();
        }
        if phase >= 2 {
            setup.agree().unwrap();
        }
        if phase >= 3 {
            setup.reach(SetupStage::Agreed, soon()).unwrap();
        }
        drop(setup);
        server.until_free(4);
    }
    // While its data are on their way, while the kernel runs, while the results are on their way.
    for pause in [0, 1, 50, 100, 101] {
        let mut session = connect(&host, &server, &params);
        session.invoke(SLOW, milliseconds(100)).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        drop(session);
        server.until_free(4);
    }
    let [_, _, calls] = server.status();
    assert!((3..=5).contains(&calls), "{calls} kernels for 5 calls of which two may never have arrived");
    let mut session = connect(&host, &server, &params);
    session.invoke(INCREMENT, U24::ZERO).unwrap();
    assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
}

#[test]
fn a_host_that_never_sends_its_regions_is_reported_once() {
    let said = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("swnaa-silent-host");
    let flags = ["-std=gnu17", "-DMAX_CONNECTIONS=4"];
    let program = compile("swnaa_server.c", "cc", &flags, Library::Shared);
    let log = std::fs::File::create(&said).unwrap();
    let server = ServerProcess::start_saying(program, "127.0.21.20", &[], log.into());
    let config = SessionConfig::default();
    let mut setup =
        SessionSetup::new(&device("127.1.21.20"), server.address, &[Param::in_out(8)], &config).unwrap();
    setup.connect().unwrap();
    setup.reach(SetupStage::Connected, Instant::now() + Duration::from_secs(5)).unwrap();
    std::thread::sleep(Duration::from_secs(12));
    drop((setup, server));
    let text = std::fs::read_to_string(&said).unwrap();
    std::fs::remove_file(&said).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("WARN")).collect();
    let [line] = lines[..] else { panic!("{text}") };
    for part in ["127.1.21.20", "has not sent its regions for 10 s", "still answers probes"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// A kernel is never called again for a host that left.
#[test]
fn a_call_is_made_once() {
    let mut server = server("127.0.21.2", &[]);
    let host = device("127.1.21.2");
    for round in 1..=50 {
        let mut session = connect(&host, &server, &[Param::in_out(64)]);
        session.invoke(INCREMENT, U24::ZERO).unwrap();
        assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
        drop(session);
        server.until_free(4);
        assert_eq!(server.status()[2], round);
    }
}

/// This is not a test but a host in a process of its own, which a test kills.
#[test]
fn victim() {
    let Some(plan) = std::env::var_os("NAA_SWNAA_VICTIM") else { return };
    let plan = plan.into_string().unwrap();
    let [local, peer, phase] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("{plan}") };
    let host = device(local);
    let peer: SocketAddr = peer.parse().unwrap();
    let mut session =
        Session::connect(&host, peer, &[Param::in_out(8 << 20)], &SessionConfig::default()).unwrap();
    match phase {
        "idle" => println!("victim is ready"),
        "kernel" => {
            session.invoke(SLOW, milliseconds(300)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            println!("victim is ready");
        }
        _ => {
            println!("victim is ready");
            loop {
                session.invoke(INCREMENT, U24::ZERO).unwrap();
                assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
            }
        }
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn kill_a_host(server: &ServerProcess, local: &str, phase: &str) {
    let plan = format!("{local} {} {phase}", server.address);
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture"])
        .env("NAA_SWNAA_VICTIM", plan)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(victim.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("victim is ready") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut output, &mut line).unwrap() > 0, "the victim ended early");
    }
    std::thread::sleep(Duration::from_millis(20));
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn killed_hosts_give_their_slots_back() {
    let mut server = server("127.0.21.3", &[]);
    let host = device("127.1.21.3");
    let mut bystander = connect(&host, &server, &[Param::in_out(64)]);
    for (index, phase) in ["idle", "kernel", "calls"].into_iter().enumerate() {
        kill_a_host(&server, &format!("127.1.21.{}", 10 + index), phase);
        bystander.invoke(INCREMENT, U24::ZERO).unwrap();
        assert_eq!(bystander.wait().unwrap().answer, CallResponse::Success);
    }
    server.until_free(3);
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let mut server = server("127.0.21.4", &[]);
    let host = device("127.1.21.4");
    let round = |server: &mut ServerProcess| {
        let mut session = connect(&host, server, &[Param::in_out(4096), Param::internal(4096)]);
        session.invoke(INCREMENT, U24::ZERO).unwrap();
        assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
        drop(session);
    };
    for _ in 0..200 {
        round(&mut server);
        server.until_free(4);
    }
    let before = (server.descriptors(), server.threads(), server.resident());
    for _ in 0..1000 {
        round(&mut server);
        server.until_free(4);
    }
    let after = (server.descriptors(), server.threads(), server.resident());
    assert_eq!((before.0, before.1), (after.0, after.1), "descriptors, threads");
    assert!(after.2 <= before.2 + 512, "{} KiB grew to {} KiB", before.2, after.2);
    assert_eq!(server.status()[1], 255);
}

#[test]
fn hosts_are_told_when_the_program_ends() {
    for (last, command) in [(5, "x"), (6, "quit")] {
        let mut server = server(&format!("127.0.21.{last}"), &[]);
        let host = device(&format!("127.1.21.{last}"));
        let mut session = connect(&host, &server, &[Param::in_out(64)]);
        session.invoke(INCREMENT, U24::ZERO).unwrap();
        assert_eq!(session.wait().unwrap().answer, CallResponse::Success);
        server.command(command);
        let began = Instant::now();
        assert_eq!(server.ends(), Some(if command == "x" { 3 } else { 0 }));
        session.invoke(INCREMENT, U24::ZERO).and_then(|()| session.wait().map(drop)).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(3), "the host found out after {:?}", began.elapsed());
    }
}
