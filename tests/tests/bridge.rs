//! Events through a bridge to workers' memory, on real sockets. `NAA_LONG=1` has the full numbers.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Mutex, PoisonError},
};

use ejfat::ring::DeliveryMode;
use naa_provider::ProviderChoice;
use naa_tests::bridge::{Case, WorkerLocation, kills, stream};

/// One of those that stream as fast as it goes at a time: each wants the machine.
static TURN: Mutex<()> = Mutex::new(());

/// 4.3 s: no stall of the machine is to look like a death where nobody dies.
const STREAMED: u8 = 17;
/// 1.1 s.
const KILLED: u8 = 15;

fn is_long() -> bool {
    std::env::var("NAA_LONG").is_ok_and(|value| value == "1")
}

fn seed() -> u64 {
    let seed = std::env::var("NAA_SEED").map_or(1, |seed| seed.parse().expect("NAA_SEED is a number"));
    println!("NAA_SEED={seed}");
    seed
}

fn at(net: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, net, host).into()
}

/// Three by RDMA, one of the bridge's machine.
fn workers(net: u8) -> Vec<WorkerLocation> {
    let remote = |n| {
        let provider = ProviderChoice::Embedded;
        WorkerLocation::Remote { ip: at(net, n), provider, namespace: None }
    };
    vec![remote(2), remote(3), remote(4), WorkerLocation::Local]
}

fn case(placing: DeliveryMode, net: u8, ack_timeout: u8) -> Case {
    Case {
        bind: at(net, 1),
        provider: ProviderChoice::Embedded,
        placing,
        workers: workers(net),
        seed: seed() + u64::from(net),
        ack_timeout,
        program: env!("CARGO_BIN_EXE_bridge").into(),
    }
}

fn streamed(placing: DeliveryMode, net: u8) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let events = if is_long() { 100_000 } else { 5_000 };
    println!("{}", stream(&case(placing, net, STREAMED), events).unwrap());
}

fn killed(placing: DeliveryMode, net: u8, redelivery: bool) {
    let rounds = if is_long() { 100 } else { 5 };
    println!("{}", kills(&case(placing, net, KILLED), rounds, redelivery).unwrap());
}

#[test]
fn every_event_arrives_once_and_whole_from_the_bridges_memory() {
    streamed(DeliveryMode::Store, 10);
}

#[test]
fn every_event_arrives_once_and_whole_segment_by_segment() {
    streamed(DeliveryMode::Cut, 11);
}

#[test]
fn who_is_killed_costs_what_it_had_and_comes_back() {
    killed(DeliveryMode::Store, 12, false);
}

#[test]
fn who_is_killed_in_the_middle_of_segments_costs_what_it_had_and_comes_back() {
    killed(DeliveryMode::Cut, 13, false);
}

#[test]
fn what_the_bridge_has_of_who_is_killed_comes_again_to_those_who_ask() {
    killed(DeliveryMode::Store, 14, true);
}
