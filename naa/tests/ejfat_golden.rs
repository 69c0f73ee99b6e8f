//! The wire of E2SAR 0.3.2: what its sender sends is received, and what `naa ejfat send` sends is the same.

mod common;
mod ejfat_common;

use std::{fs, net::UdpSocket, time::Duration};

use common::{TempFolder, json_of};
use ejfat_common::{hex, start_worker};

/// Headers of captured packets: the LB header, and the RE headers of an event of 3000 bytes at MTU 1500 with data id
/// 4321.
const LB_V2: &str = "4c420201 0000ccb3 000660c450dccce5";
const LB_V3: &str = "4c420301 c0e5c7cd 000660c45105c0e5";
const RE: [&str; 3] = [
    "100010e1 00000000 00000bb8 0000000000000000",
    "100010e1 0000059c 00000bb8 0000000000000000",
    "100010e1 00000b38 00000bb8 0000000000000000",
];
/// Payload of each segment, and the whole datagrams.
const CUTS: [std::ops::Range<usize>; 3] = [0..1436, 1436..2872, 2872..3000];
const DATAGRAMS: [usize; 3] = [1472, 1472, 164];

fn event() -> Vec<u8> {
    (0..3000_u32).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// The datagrams of E2SAR's sender, or, without the LB header, as they leave a load balancer.
fn datagrams(lb: Option<&str>) -> [Vec<u8>; 3] {
    let event = event();
    std::array::from_fn(|n| {
        let lb = lb.map(hex).unwrap_or_default();
        [lb, hex(RE[n]), event[CUTS[n].clone()].to_vec()].concat()
    })
}

#[test]
fn e2sars_sender_is_received() {
    for (name, lb) in [("v2", Some(LB_V2)), ("v3", Some(LB_V3)), ("behind", None)] {
        let folder = TempFolder::new(&format!("ejfat-golden-{name}"));
        let worker = start_worker(&["--events", "1", "--out", folder.0.to_str().unwrap()]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = datagrams(lb);
        if lb.is_some() {
            assert_eq!(sent.each_ref().map(Vec::len), DATAGRAMS);
        }
        // The last one first.
        for datagram in [&sent[2], &sent[0], &sent[1]] {
            socket.send_to(datagram, worker.address()).unwrap();
        }
        let report = worker.end();
        assert_eq!((&report["events"], &report["segments"]), (&1.into(), &3.into()), "{name}");
        assert!(fs::read(folder.0.join("4321-0")).unwrap() == event(), "{name}");
    }
}

#[test]
fn what_is_sent_is_e2sars() {
    let folder = TempFolder::new("ejfat-golden-send");
    let file = folder.with("event", &event());
    for (version, lb) in [("2", LB_V2), ("3", LB_V3)] {
        for more in [&[][..], &["--ticks-as-events"]] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let to = socket.local_addr().unwrap().to_string();
            let send = ["ejfat", "send", "--to", &to, "--lb-version", version, "--json", &file];
            assert_eq!(json_of(&[&send[..], more].concat())["segments"], 3);
            let mut ticks = Vec::new();
            for golden in datagrams(Some(lb)) {
                let mut bytes = [0; 2048];
                let len = socket.recv(&mut bytes).unwrap();
                let (lb, re) = (&bytes[..16], &bytes[16..36]);
                assert_eq!(len, golden.len());
                // Magic, version, protocol; reserved in version 2.
                assert_eq!(lb[..4], golden[..4]);
                match version {
                    "2" => assert_eq!(lb[4..6], golden[4..6]),
                    _ => assert_eq!(lb[4..6], lb[14..16], "the slot is of the tick, as there"),
                }
                let numbered = if more.is_empty() { 20 } else { 12 };
                assert_eq!(re[..numbered], golden[16..16 + numbered], "the RE header");
                if !more.is_empty() {
                    assert_eq!(re[12..], lb[8..], "the event's number is its tick");
                }
                assert!(bytes[36..len] == golden[36..], "the payload");
                ticks.push(lb.to_vec());
            }
            assert!(ticks.iter().all(|lb| *lb == ticks[0]), "one LB header for an event");
        }
    }
}
