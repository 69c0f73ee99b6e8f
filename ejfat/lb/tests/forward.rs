//! Forwarding over loopback.

mod engine_common;

use engine_common::new_plane;
use std::{
    collections::BTreeMap,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ejfat::{
    lb::{LbId, Rules},
    listen::Listen,
    wire::{LbHeader, Select},
};
use ejfat_lb::{Forwarder, ForwarderConfig, SharedDataPlane, When, document::Document};

fn rules(lb: SocketAddr, sender: SocketAddr, members: &[SocketAddr], keep: bool) -> Rules {
    let ids: Vec<_> = (0..members.len()).map(|id| id.to_string()).collect();
    let each = 512 / members.len();
    let members: Vec<_> = members
        .iter()
        .enumerate()
        .map(|(id, at)| {
            format!("  - {{id: {id}, address: \"{}\", port: {}, keep_lb_header: {keep}}}", at.ip(), at.port())
        })
        .collect();
    let (lb, sender) = (lb.ip(), sender.ip());
    let text = format!(
        "load_balancers:\n- lb: 1\n  addresses: [\"{lb}\"]\n  senders: [\"{sender}\"]\n  epochs:\n  - id: 0\n    \
         ticks: [all]\n    calendar: ({})x{each}\n  members:\n{}\n",
        ids.join(" "),
        members.join("\n")
    );
    Document::parse(&text).unwrap().rules().unwrap()
}

fn socket(ip: &str) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn datagram(tick: u64, payload: &[u8]) -> Vec<u8> {
    let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick };
    [&header.encode()[..], payload].concat()
}

struct Environment {
    forwarder: Forwarder,
    plane: Arc<SharedDataPlane>,
    sender: UdpSocket,
    members: Vec<UdpSocket>,
}

impl Environment {
    fn new(ip: &str, sender: &str, members: usize, keep: bool) -> Self {
        let plane = Arc::new(new_plane(Rules::default(), 1));
        let listen = vec![vec![Listen::Port(SocketAddr::new(ip.parse().unwrap(), 0))]];
        let forwarder = Forwarder::start(&ForwarderConfig { listen, buffer: 1 << 20 }, &plane).unwrap();
        let members: Vec<_> = (0..members).map(|_| socket(ip)).collect();
        let sender = socket(sender);
        let env = Self { forwarder, plane, sender, members };
        env.plane.load(&env.rules(keep), When::Next).unwrap();
        env
    }

    fn rules(&self, keep: bool) -> Rules {
        let members: Vec<_> = self.members.iter().map(|member| member.local_addr().unwrap()).collect();
        rules(self.forwarder.addresses()[0], self.sender.local_addr().unwrap(), &members, keep)
    }

    fn send(&self, bytes: &[u8]) {
        self.sender.send_to(bytes, self.forwarder.addresses()[0]).unwrap();
    }

    fn receive(&self, member: usize) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let (len, from) = self.members[member].recv_from(&mut buffer).unwrap();
        assert_eq!(from, self.forwarder.addresses()[0], "the source is the load balancer's");
        buffer.truncate(len);
        buffer
    }
}

#[test]
fn segments_go_where_their_tick_leads() {
    for (ip, sender) in [("127.0.0.1", "127.0.0.2"), ("::1", "::1")] {
        for keep in [false, true] {
            let env = Environment::new(ip, sender, 3, keep);
            for tick in 0..90 {
                let payload = vec![tick as u8; 1 + tick as usize * 99];
                env.send(&datagram(tick, &payload));
                let expected = if keep { datagram(tick, &payload) } else { payload };
                assert_eq!(env.receive(tick as usize % 3), expected);
            }
            let counters = env.plane.counters();
            let lb = counters.lbs[1];
            assert_eq!((lb.received.packets, lb.v2, lb.dropped.of_any_cause()), (90, 90, 0));
            let of = |id| counters.members[&(LbId::new(1).unwrap(), id)].packets;
            assert_eq!([of(0), of(1), of(2)], [30; 3]);
        }
    }
}

struct StopsWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A port that always has something must not keep the others of its thread waiting.
#[test]
fn a_flooded_port_leaves_the_others_their_turns() {
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let at = Listen::Port("127.0.0.1:0".parse().unwrap());
    let config = ForwarderConfig { listen: vec![vec![at, at]], buffer: 1 << 20 };
    let forwarder = Forwarder::start(&config, &plane).unwrap();
    let (flooded, quiet) = (forwarder.addresses()[0], forwarder.addresses()[1]);
    let (member, sender) = (socket("127.0.0.1"), socket("127.0.0.2"));
    let to_member = rules(quiet, sender.local_addr().unwrap(), &[member.local_addr().unwrap()], false);
    plane.load(&to_member, When::Next).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = StopsWhenDropped(&stop);
        scope.spawn(|| {
            let stranger = socket("127.0.0.3");
            while !stop.load(Relaxed) {
                let _ = stranger.send_to(&datagram(0, b"of nobody"), flooded);
            }
        });
        let counted = || forwarder.ports().counters();
        let begun = Instant::now();
        while !counted().iter().any(|port| port.at == flooded && port.packets > 1000) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", counted());
            std::thread::sleep(Duration::from_millis(1));
        }
        for tick in 0..20 {
            sender.send_to(&datagram(tick, b"own"), quiet).unwrap();
            let mut buffer = [0; 99];
            let len = member.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..len], *b"own");
        }
    });
}

#[test]
fn tables_change_between_ticks_while_packets_flow() {
    let env = Environment::new("127.0.0.1", "127.0.0.2", 1, false);
    let other = socket("127.0.0.1");
    let (lb, from) = (env.forwarder.addresses()[0], env.sender.local_addr().unwrap());
    (0..100u64).for_each(|tick| env.send(&datagram(tick, b"old")));
    (0..100).for_each(|_| assert_eq!(env.receive(0), b"old"));
    let to_other = rules(lb, from, &[other.local_addr().unwrap()], false);
    assert_eq!(env.plane.load(&to_other, When::Next), Ok(100));
    for tick in [99, 100, 50, 101] {
        env.send(&datagram(tick, &tick.to_be_bytes()));
    }
    for tick in [99u64, 50] {
        assert_eq!(env.receive(0), tick.to_be_bytes());
    }
    let mut buffer = [0; 99];
    for tick in [100u64, 101] {
        let len = other.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], tick.to_be_bytes());
    }
}

#[test]
fn what_the_tables_refuse_is_counted_and_not_sent() {
    let env = Environment::new("127.0.0.1", "127.0.0.2", 1, false);
    let stranger = socket("127.0.0.3");
    stranger.send_to(&datagram(0, b"no"), env.forwarder.addresses()[0]).unwrap();
    env.send(b"no LB header");
    env.send(b"");
    env.send(&datagram(0, b"yes"));
    assert_eq!(env.receive(0), b"yes");
    let dropped: BTreeMap<_, _> = ejfat::lb::DropCause::ALL
        .map(|cause| (cause.name(), env.plane.counters().lbs[1].dropped.of(cause)))
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .collect();
    assert_eq!(dropped, BTreeMap::from([("blocked_src", 1), ("no_udplb_hdr", 2)]));
}

#[test]
fn a_member_that_is_the_load_balancer_makes_no_circle() {
    let env = Environment::new("127.0.0.1", "127.0.0.1", 1, true);
    let own = env.forwarder.addresses()[0];
    env.plane.load(&rules(own, own, &[own], true), When::Now).unwrap();
    env.send(&datagram(0, b"round"));
    let begin = Instant::now();
    while env.plane.counters().refused == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it was not refused");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(env.plane.counters().lbs[1].received.packets, 1);
}

#[test]
fn trains_of_segments_arrive_whole() {
    let env = Environment::new("127.0.0.1", "127.0.0.2", 4, false);
    let to = env.forwarder.addresses()[0];
    let config = ejfat_udp::SenderConfig { rate: Some(400e6), ..ejfat_udp::SenderConfig::new(to) };
    let mut sender = ejfat_udp::Sender::new(ejfat_udp::SenderConfig { sockets: 1, ..config }).unwrap();
    // The rules permit all source addresses, because the sender's sockets are bound to none.
    env.plane.load(&rules(to, to, &addresses(&env.members), false), When::Now).unwrap();
    let event: Vec<_> = (0..60_000u32).map(|at| (at >> 4) as u8).collect();
    let tick = sender.send(3, 0, &event).unwrap();
    let mut got = vec![None; event.len()];
    let mut left = event.len();
    while left > 0 {
        let segment = env.receive((tick % 512) as usize % 4);
        let (header, payload) =
            ejfat::wire::ReHeader::decode(&segment, ejfat::wire::Versions::default()).unwrap();
        for (place, byte) in got[header.offset as usize..].iter_mut().zip(payload) {
            left -= usize::from(place.replace(*byte).is_none());
        }
    }
    assert!(got.into_iter().map(Option::unwrap).eq(event));
}

fn addresses(sockets: &[UdpSocket]) -> Vec<SocketAddr> {
    sockets.iter().map(|socket| socket.local_addr().unwrap()).collect()
}
