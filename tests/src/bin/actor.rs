//! A host or a server as a process of its own, for tests that kill it.
//!
//! `actor host SERVER LOCAL` calls without end and prints `calling` once the first call succeeded.
//! `actor waiting-host SERVER LOCAL` prints `calling` and waits for a call that takes ten minutes.
//! `actor server ADDR` prints `ready ADDR` and serves until it is killed.
//! `actor draw-keys LOCAL COUNT` and `actor draw-connections LOCAL PEER COUNT` open a device and draw its secrets.

use std::{io::Write, net::SocketAddr};

use naa_host::{FunctionCode, U24};
use naa_server::{Config, Server, functions};
use naa_tests::{hostile, local, slow};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const LEN: usize = 300_000;

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().expect("the test reads what is said");
}

fn host(server: SocketAddr, local: &str) {
    let mut session = local::open(local, server, LEN);
    for round in 1u64.. {
        session.call(INCREMENT).expect("a call");
        assert!(session.slice(0).expect("between calls").iter().all(|&b| b == round as u8), "round {round}");
        if round == 1 {
            say("calling");
        }
    }
}

fn waiting_host(server: SocketAddr, local: &str) {
    let mut session = local::open(local, server, LEN);
    session.invoke(slow::SLOW, U24::new(600_000).expect("small")).expect("a call");
    say("calling");
    let _ = session.wait();
}

fn server(address: SocketAddr) {
    let registry = functions::registry([slow::function()]).expect("a registry");
    let server = Server::start(Config::new(address), registry).expect("a server");
    say(&format!("ready {}", server.address()));
    loop {
        std::thread::park();
    }
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["host", address, local] => host(address.parse().expect("an address"), local),
        ["waiting-host", address, local] => waiting_host(address.parse().expect("an address"), local),
        ["server", address] => server(address.parse().expect("an address")),
        ["draw-keys", local, count] => {
            hostile::draw_keys(local.parse().expect("an address"), count.parse().expect("a number"))
                .expect("keys");
        }
        ["draw-connections", local, peer, count] => {
            let (local, peer) = (local.parse().expect("an address"), peer.parse().expect("an address"));
            hostile::draw_connections(local, peer, count.parse().expect("a number")).expect("connections");
        }
        _ => panic!("actor host SERVER LOCAL | actor waiting-host SERVER LOCAL | actor server ADDR"),
    }
}
