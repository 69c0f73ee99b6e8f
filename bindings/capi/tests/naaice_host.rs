//! Programs of NAAICE's interfaces, in C and C++, on this library and an accelerator in this process.

mod naaice_support;

use std::net::SocketAddr;

use naaice_support::{build, server};

/// A local address, the accelerator's and its port, as programs take them.
fn arguments(local: &str, peer: SocketAddr) -> [String; 3] {
    [local.to_owned(), peer.ip().to_string(), peer.port().to_string()]
}

#[test]
fn low_level_with_a_polling_loop() {
    let server = server("127.0.8.1");
    for (standard, local) in [("c11", "127.0.8.101"), ("c++17", "")] {
        let program = build("naaice_polling.c", standard, "naaice_polling", &["-x", language(standard)]);
        program.run(&arguments(local, server.address()), &[]);
    }
}

fn language(standard: &str) -> &'static str {
    if standard.contains("++") { "c++" } else { "c" }
}

#[test]
fn the_struct_of_the_next_version() {
    let server = server("127.0.8.2");
    for standard in ["c17", "c++17"] {
        let flags = ["-x", language(standard), "-DNAAICE_NEXT"];
        let program = build("naaice_next.c", standard, "naaice_next", &flags);
        program.run(&arguments("127.0.8.102", server.address()), &[]);
    }
}

#[test]
fn connections_step_by_step() {
    let server = server("127.0.8.3");
    let program = build("naaice_connection.c", "c11", "naaice_connection", &[]);
    program.run(&arguments("127.0.8.103", server.address()), &[]);
}

#[test]
fn wrong_arguments_and_wrong_states() {
    let server = server("127.0.8.4");
    let program = build("naaice_errors.c", "c11", "naaice_errors", &[]);
    let output = program.run(&arguments("127.0.8.104", server.address()), &[]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("naa: naaice_register_mrs: "), "{errors}");
}

#[test]
fn waiting_takes_as_long_as_it_may_and_no_cpu() {
    let server = server("127.0.8.5");
    let program = build("naaice_waiting.c", "c11", "naaice_waiting", &[]);
    program.run(&arguments("127.0.8.105", server.address()), &[]);
}

#[test]
fn middleware() {
    let server = server("127.0.8.6");
    let peer = server.address();
    let spec = format!("127.0.8.6:1:9:1,{peer}:1:4, {peer}:102:1,{peer}:102:1");
    let environment = [("NAA_SPEC", &*spec), ("NAA_LOCAL_IP", "127.0.8.106")];
    for standard in ["c11", "c++17"] {
        let program =
            build("naaice_middleware.c", standard, "naaice_middleware", &["-x", language(standard)]);
        program.run(&[] as &[&str], &environment);
    }
}

#[test]
fn middleware_over_ipv6() {
    let server = server("::1");
    let spec = format!("{}:102:1", server.address());
    let program = build("naaice_ipv6.c", "c11", "naaice_ipv6", &[]);
    program.run(&[] as &[&str], &[("NAA_SPEC", &*spec)]);
}

#[test]
fn middleware_for_cpp() {
    let server = server("127.0.8.7");
    let peer = server.address();
    let spec = format!("{peer}:102:2,{peer}:101:1");
    let program = build("naaice_handler.cpp", "c++17", "naaice_handler", &[]);
    program.run(&[] as &[&str], &[("NAA_SPEC", &spec), ("NAA_LOCAL_IP", "127.0.8.107")]);
}
