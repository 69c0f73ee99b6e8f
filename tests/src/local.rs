//! Servers and hosts on loopback, for tests: whatever fails panics.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use naa_host::{Device, Param, Session, SessionConfig};
use naa_server::{Config, Server, functions};

use crate::slow;

/// A server that differs from the usual one by what `change` does.
pub fn serve(ip: &str, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::new((ip.parse::<IpAddr>().expect("an address"), 0).into());
    change(&mut config);
    let registry = functions::registry([slow::function()]).expect("a registry");
    Server::start(config, registry).expect("a server")
}

pub fn device(ip: &str) -> Device {
    Device::open(ip.parse().expect("an address")).expect("a device")
}

/// A session of one parameter, which goes both ways.
pub fn open(ip: &str, server: SocketAddr, bytes: usize) -> Session {
    let params = [Param::in_out(bytes)];
    Session::connect(&device(ip), server, &params, &SessionConfig::default()).expect("a session")
}

#[track_caller]
pub fn eventually(limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "it did not come about in {limit:?}");
        thread::sleep(Duration::from_millis(1));
    }
}
