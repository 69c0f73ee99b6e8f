//! `lb_top` and a neighbour with another network stack, which resolves the load balancer's addresses and pings them.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;
mod one_member;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use common::{all_came, bytes, random_run};
use ejfat::{
    lb::{DataPlane, Rule, Tables},
    segment::IpVersion,
};
use lb_common::{address, lb};
use naa_fpga::{Driver, LbTop, Lengths, Packet, Rates, Registers as _, frames};
use one_member::{MACS, header, load, rules_to};
use simnet::Random;
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::icmp,
    time::{Duration, Instant},
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr},
};

const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The identifiers of pings of both IP versions.
const IDENTS: [u16; 2] = [0x4e41, 0x4e42];

/// The cable to the load balancer.
#[derive(Default)]
struct Cable {
    to_host: VecDeque<Vec<u8>>,
    to_top: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Cable {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let frame = self.to_host.pop_front()?;
        Some((Received(frame), Sending(&mut self.to_top)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.to_top))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ethernet, 1514);
        capabilities
    }
}

/// A load balancer with these addresses, of which each two are of another one of those that the hardware has.
fn top(width: u64, ours: &[IpAddr]) -> Option<Driver<LbTop>> {
    let mut driver = one_member::top(width, [Rates::idle(20, 1), Rates::idle(40, 2)])?;
    let of = |(at, &address): (usize, &IpAddr)| Rule::Destination { address, lb: lb(at as u8 / 2) };
    load(&mut driver, &lb_common::rules(ours.iter().enumerate().map(of)));
    Some(driver)
}

/// Passes frames through the load balancer, one after the other. Returns those that leave.
fn pass(driver: &mut Driver<LbTop>, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let frames = frames.into_iter().map(|bytes| Packet { bytes, ..Packet::default() });
    frames.flat_map(|frame| driver.registers.pass([frame])).map(|frame| frame.bytes).collect()
}

struct Neighbour {
    iface: Interface,
    sockets: SocketSet<'static>,
    v4: smoltcp::iface::SocketHandle,
    v6: smoltcp::iface::SocketHandle,
    cable: Cable,
    now: Instant,
    /// The frames that it sent, to be sent again with a fault.
    sent: Vec<Vec<u8>>,
}

impl Neighbour {
    fn new() -> Self {
        let mut cable = Cable::default();
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(NEIGHBOUR)));
        let mut iface = Interface::new(config, &mut cable, Instant::ZERO);
        // All addresses are neighbours.
        iface.update_ip_addrs(|own| {
            own.push(IpCidr::new(address(IpVersion::V4, 1).into(), 0)).unwrap();
            own.push(IpCidr::new(address(IpVersion::V6, 1).into(), 0)).unwrap();
        });
        let mut sockets = SocketSet::new(Vec::new());
        let [v4, v6] = IDENTS.map(|ident| {
            let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 8 * 2048]);
            let mut socket = icmp::Socket::new(buffer(), buffer());
            socket.bind(icmp::Endpoint::Ident(ident)).unwrap();
            sockets.add(socket)
        });
        Self { iface, sockets, v4, v6, cable, now: Instant::ZERO, sent: Vec::new() }
    }

    /// Pings an address. Returns whether the answer came with the same data.
    fn pings(&mut self, driver: &mut Driver<LbTop>, to: IpAddr, seq_no: u16, data: &[u8]) -> bool {
        let own = address(IpVersion::V6, 1);
        let handle = if to.is_ipv4() { self.v4 } else { self.v6 };
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(handle);
        if to.is_ipv4() {
            let request = Icmpv4Repr::EchoRequest { ident: IDENTS[0], seq_no, data };
            let bytes = socket.send(request.buffer_len(), to.into()).unwrap();
            request.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
        } else {
            let request = Icmpv6Repr::EchoRequest { ident: IDENTS[1], seq_no, data };
            let bytes = socket.send(request.buffer_len(), to.into()).unwrap();
            let (IpAddr::V6(from), IpAddr::V6(to)) = (own, to) else { unreachable!("both are of version 6") };
            let mut packet = Icmpv6Packet::new_unchecked(bytes);
            request.emit(&from, &to, &mut packet, &ChecksumCapabilities::default());
        }
        for _ in 0..6 {
            self.iface.poll(self.now, &mut self.cable, &mut self.sockets);
            let frames: Vec<_> = self.cable.to_top.drain(..).collect();
            self.sent.extend(frames.clone());
            self.cable.to_host.extend(pass(driver, frames));
            self.now += Duration::from_millis(1100);
            let socket = self.sockets.get_mut::<icmp::Socket<'_>>(handle);
            if let Ok((bytes, from)) = socket.recv() {
                // The socket takes only packets whose checksums hold.
                assert_eq!(IpAddr::from(from), to);
                let (kind, rest) = (bytes[0], &bytes[8..]);
                assert_eq!(
                    (kind, &bytes[6..8]),
                    (if to.is_ipv4() { 0 } else { 129 }, &seq_no.to_be_bytes()[..])
                );
                return rest == data;
            }
        }
        false
    }
}

fn neighbour(width: u64) {
    let ours = [IpVersion::V4, IpVersion::V6].map(|ip| address(ip, 50));
    let Some(mut driver) = top(width, &ours) else { return };
    let mut host = Neighbour::new();
    for (seq_no, length) in [0, 1, 17, 56, 200, 1000, 1400].into_iter().enumerate() {
        let data: Vec<_> = (0..length).map(|at| (at * 7) as u8).collect();
        for ip in [IpVersion::V4, IpVersion::V6] {
            assert!(host.pings(&mut driver, address(ip, 50), seq_no as u16, &data), "{ip:?}, {length} bytes");
        }
    }
    // Nobody answers for other addresses.
    for ip in [IpVersion::V4, IpVersion::V6] {
        assert!(!host.pings(&mut driver, address(ip, 51), 9, &[1; 10]));
    }
    // What is answered is not counted.
    println!("{} cycles", driver.registers.bench.cycles());
    let counted = driver.take(Lengths::Packets);
    assert_eq!(counted.lbs[&lb(0)], ejfat::lb::LbCounters::default());
    faults(&mut driver, &host.sent);
}

/// Sums words of 16 bits, and adds the carries.
fn sum(words: impl IntoIterator<Item = u16>) -> u16 {
    let sum = words.into_iter().map(u32::from).sum::<u32>();
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The answer of a station to a frame, or `None` if it is no request to an address of ours.
fn answer(own: [u8; 6], frame: &[u8], is_ours: impl Fn(IpAddr) -> bool) -> Option<Vec<u8>> {
    let be16 = |at: usize| frame.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let (is_to_us, is_to_group) = (frame.starts_with(&own), frame[0] & 1 == 1);
    let holds = |packet: usize| frame.len() <= 2048 && packet <= frame.len();
    let mut answer = frame.to_vec();
    let put = |answer: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        answer[at..at + bytes.len()].copy_from_slice(bytes);
    };
    // A checksum without what goes, and with what comes (RFC 1624).
    let follow = |at: usize, change: u16| (!sum([!be16(at), change])).to_be_bytes();
    match be16(12) {
        0x806 => {
            let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
            let is_request = (is_to_us || is_to_group) && holds(42) && frame[14..22] == fixed;
            if !is_request || !is_ours(v4(38)) {
                return None;
            }
            answer[21] = 2;
            put(&mut answer, 22, &[&own[..], &frame[38..42], &frame[22..32]].concat());
        }
        0x800 => {
            let (length, is_fragment) = (usize::from(be16(16)), be16(20) & 0x3fff != 0);
            let is_echo = length >= 28 && holds(length + 14) && frame[14] == 0x45 && frame[23] == 1;
            if !is_to_us || is_fragment || !is_echo || be16(34) != 0x800 || !is_ours(v4(30)) {
                return None;
            }
            answer[22] = 64;
            put(&mut answer, 24, &follow(24, sum([u16::from_be_bytes([!frame[22], 0xff]), 64 << 8])));
            put(&mut answer, 26, &[&frame[30..34], &frame[26..30], &[0, 0]].concat());
            put(&mut answer, 36, &follow(36, 0xf7ff));
        }
        0x86dd => {
            let length = usize::from(be16(18));
            if length < 8 || !holds(length + 54) || frame[14] >> 4 != 6 || frame[20] != 58 {
                return None;
            }
            let is_lone = frame[22..38] == [0; 16];
            match be16(54) {
                0x8000 if is_to_us && is_ours(v6(38)) => {
                    answer[21] = 64;
                    put(&mut answer, 22, &[&frame[38..54], &frame[22..38], &[0x81, 0]].concat());
                    put(&mut answer, 56, &follow(56, 0x100));
                }
                0x8700
                    if (is_to_us || is_to_group)
                        && length >= 24
                        && frame[21] == 255
                        && !is_lone
                        && is_ours(v6(62)) =>
                {
                    answer.resize(86, 0);
                    put(&mut answer, 18, &[0, 32]);
                    put(&mut answer, 22, &[&frame[62..78], &frame[22..38]].concat());
                    put(&mut answer, 54, &[0x88, 0, 0, 0, 0x60, 0, 0, 0]);
                    put(&mut answer, 78, &[&[2, 1], &own[..]].concat());
                    let words = answer[22..86].chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                    let checksum = !sum(words.chain([32, 58]));
                    put(&mut answer, 56, &checksum.to_be_bytes());
                }
                _ => return None,
            }
        }
        _ => return None,
    }
    put(&mut answer, 0, &[&frame[6..12], &own[..]].concat());
    Some(answer)
}

/// A random frame that is mostly a request to one of our addresses.
fn random_request(random: &mut Random, own: [u8; 6], ours: &[IpAddr]) -> Packet {
    let (mac, mut to) = (bytes(random, 6), own);
    match random.below(20) {
        0..=9 => {}
        10..=17 => to = [0xff; 6],
        _ => to[random.below(6) as usize] ^= 1 << random.below(8),
    }
    let length = if random.chance(100_000) { random.below(2100) } else { random.below(200) };
    let data = bytes(random, length as usize);
    // A word of zeros or ones, so that checksums have both zeros.
    let any = random.next_u32() as u8;
    let checksum = random.pick(&[[0, 0], [0xff, 0xff], [8, 0], [0x7e, 0xff], [any, 3]]);
    let target = random.pick(ours);
    let is_solicitation = random.below(2) == 0;
    let (ether, packet) = match (target, random.below(3)) {
        (IpAddr::V4(target), 0) => {
            let sender = bytes(random, 16);
            let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
            ([8, 6], [&fixed[..], &sender, &target.octets(), &data].concat())
        }
        (IpAddr::V4(target), _) => {
            let total = (28 + data.len() as u16).to_be_bytes();
            let (hops, from) = (random.next_u32() as u8, random.next_u32().to_be_bytes());
            let head = [0x45, 0, total[0], total[1], 1, 2, 0x40, 0, hops, 1, checksum[0], checksum[1]];
            let icmp = [8, 0, checksum[0], checksum[1], 1, 2, 3, 4];
            ([8, 0], [&head[..], &from, &target.octets(), &icmp, &data].concat())
        }
        (IpAddr::V6(target), _) => {
            let mut from = [0; 16];
            if !random.chance(50_000) {
                random.fill(&mut from);
            }
            let hops = if is_solicitation { 255 } else { random.next_u32() as u8 };
            let (kind, to) = if is_solicitation { (135, [0xff; 16]) } else { (128, target.octets()) };
            let icmp = [kind, 0, checksum[0], checksum[1], 0, 0, 0, 0];
            let body = if is_solicitation { [&target.octets()[..], &data].concat() } else { data };
            let total = (8 + body.len() as u16).to_be_bytes();
            let head = [0x60, 0, 0, 0, total[0], total[1], 58, hops];
            ([0x86, 0xdd], [&head[..], &from, &to, &icmp, &body].concat())
        }
    };
    let mut bytes = [&to[..], &mac, &ether, &packet].concat();
    match random.below(8) {
        0 => {
            let most = bytes.len().min(80) as u64;
            bytes[random.below(most) as usize] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.range(1..=bytes.len() as u64) as usize),
        2 => bytes.extend(vec![0x55; random.below(60) as usize]),
        _ => {}
    }
    Packet { bytes, last: random.chance(30_000).into(), ..Packet::default() }
}

/// Gives the load balancer any MAC address of one station.
fn random_mac(random: &mut Random, top: &mut LbTop) -> [u8; 6] {
    let mut mac = [0; 6];
    random.fill(&mut mac);
    mac[0] &= !1;
    assert!(top.write(0x18, u32::from_be_bytes(mac[2..].try_into().unwrap())));
    assert!(top.write(0x1c, u16::from_be_bytes([mac[0], mac[1]]).into()));
    mac
}

fn random_requests(width: u64) {
    let ours: Vec<_> = [IpVersion::V4, IpVersion::V6]
        .into_iter()
        .flat_map(|ip| (50..58).map(move |host| address(ip, host)))
        .collect();
    let Some(mut driver) = top(width, &ours) else { return };
    let (packets, seed, mut random) = random_run(9);
    let count = packets / 20;
    let mut answered = BTreeMap::<[u8; 2], u64>::new();
    let mut own = MACS.own;
    for round in 0..count {
        let [idle, stall] = [[0, 0], [80, 0], [0, 80], [120, 120]][round as usize / 32 % 4];
        driver.registers.set_rates([Rates::idle(idle, seed + round), Rates::idle(stall, !(seed + round))]);
        if round % 64 == 0 {
            own = random_mac(&mut random, &mut driver.registers);
        }
        let frame = random_request(&mut random, own, &ours);
        let expected =
            answer(own, &frame.bytes, |address| ours.contains(&address)).filter(|_| frame.last == 0);
        driver.registers.source.push(frame.clone());
        // The longest answers are 2048 bytes, and half of the cycles carry a beat.
        let longest = 100 + 8 * 2048 * 8 / width;
        let cycles = if expected.is_some() { longest } else { 100 };
        let mut seen = None;
        for _ in 0..cycles {
            driver.registers.cycle();
            seen = driver.registers.sink.pop();
            if seen.is_some() && driver.registers.source.is_empty() {
                break;
            }
        }
        while !driver.registers.source.is_empty() {
            driver.registers.cycle();
        }
        // Until it is known that a request is for another station, further ones are ignored.
        (0..10).for_each(|_| driver.registers.cycle());
        assert_eq!(
            seen.map(|seen| (seen.bytes, seen.last)),
            expected.clone().map(|bytes| (bytes, 0)),
            "{frame:02x?}"
        );
        if expected.is_some() {
            *answered.entry([frame.bytes[12], frame.bytes[13]]).or_default() += 1;
        }
    }
    all_came(&answered, 3, count * 20, 200);
}

#[test]
fn random_requests_are_answered_at_512_bits_per_cycle() {
    random_requests(512);
}

#[test]
fn random_requests_are_answered_at_128_bits_per_cycle() {
    random_requests(128);
}

/// Sends packets to a member as fast as they pass, and requests between them. All packets leave, and each answer is that of a request.
fn answers_between_packets(width: u64) {
    let ours = [address(IpVersion::V4, 50)];
    let Some(mut driver) = top(width, &ours) else { return };
    let rules = rules_to(lb(0), 100);
    load(&mut driver, &rules);
    let mut balancer = DataPlane::new(&Tables::new(&rules), 1);
    let (_, seed, mut random) = random_run(10);
    for [idle, stall] in [[0, 0], [100, 0], [0, 100], [120, 120]] {
        driver.registers.set_rates([Rates::idle(idle, seed), Rates::idle(stall, !seed)]);
        let (mut packets, mut answers) = (VecDeque::new(), VecDeque::new());
        for _ in 0..300 {
            if random.below(6) == 0 {
                let mut request = random_request(&mut random, MACS.own, &ours).bytes;
                request.truncate(300);
                answers.extend(answer(MACS.own, &request, |address| ours.contains(&address)));
                driver.registers.source.push(Packet { bytes: request, ..Packet::default() });
            }
            let datagram =
                [&header(7)[..], &vec![random.next_u32() as u8; random.below(400) as usize]].concat();
            let hosts = [address(IpVersion::V4, 1), ours[0]];
            let bytes = frames::of_datagram([NEIGHBOUR, MACS.own], hosts, &datagram).unwrap();
            packets.push_back(frames::forward(&mut balancer, MACS, &bytes, false).unwrap());
            driver.registers.source.push(Packet { bytes, ..Packet::default() });
        }
        let mut answered = 0;
        for sent in driver.registers.pass([]) {
            assert_eq!(sent.last, 0);
            if packets.front() == Some(&sent.bytes) {
                packets.pop_front();
                continue;
            }
            // Requests that come while another one is answered are ignored.
            let skipped = answers.iter().position(|answer| *answer == sent.bytes);
            answers.drain(..=skipped.unwrap_or_else(|| panic!("nobody asked for {:02x?}", sent.bytes)));
            answered += 1;
        }
        assert_eq!(packets.len(), 0);
        assert!(answered > 5, "{answered} requests are answered");
    }
}

#[test]
fn answers_leave_between_packets_at_512_bits_per_cycle() {
    answers_between_packets(512);
}

#[test]
fn answers_leave_between_packets_at_128_bits_per_cycle() {
    answers_between_packets(128);
}

/// Sends what the neighbour sent again, with faults. Nothing is answered.
fn faults(driver: &mut Driver<LbTop>, sent: &[Vec<u8>]) {
    let is = |ether: [u8; 2], at: usize, value: &[u8]| {
        let found = sent.iter().find(|frame| frame[12..14] == ether && frame[at..].starts_with(value));
        found.unwrap_or_else(|| panic!("nothing like that was sent: {value:?}")).clone()
    };
    let with = |frame: &[u8], at: usize, value: u8| {
        let mut frame = frame.to_vec();
        assert_ne!(frame[at], value, "byte {at}");
        frame[at] = value;
        frame
    };
    let [arp, v4, v6, solicitation] = [
        is([8, 6], 20, &[0, 1]),
        is([8, 0], 34, &[8, 0]),
        is([0x86, 0xdd], 54, &[128, 0]),
        is([0x86, 0xdd], 54, &[135, 0]),
    ];
    // The same requests without faults are answered.
    assert_eq!(pass(driver, [&arp, &v4, &v6, &solicitation].map(Clone::clone)).len(), 4);
    let faults = [
        // Requests to another station, and ARP with another hardware type, protocol, length, operation or address, or cut off.
        with(&arp, 0, 0x02),
        with(&arp, 15, 6),
        with(&arp, 17, 1),
        with(&arp, 18, 8),
        with(&arp, 19, 16),
        with(&arp, 21, 2),
        with(&arp, 41, 99),
        arp[..41].to_vec(),
        // Pings to another station or a group, with another version, options, a fragment, another protocol, type, code, address or length.
        with(&v4, 5, 2),
        with(&v4, 0, 3),
        with(&v4, 14, 0x65),
        with(&v4, 14, 0x46),
        with(&v4, 20, 0x20),
        with(&v4, 21, 1),
        with(&v4, 23, 17),
        with(&v4, 34, 0),
        with(&v4, 35, 1),
        with(&v4, 33, 99),
        with(&v4, 16, 1),
        with(&v4, 17, 27),
        [&v4[..16], &[0xff, 0xff], &v4[18..]].concat(),
        with(&v6, 5, 2),
        with(&v6, 0, 3),
        with(&v6, 14, 0x40),
        with(&v6, 18, 1),
        with(&v6, 19, 7),
        [&v6[..18], &[0xff, 0xff], &v6[20..]].concat(),
        with(&v6, 20, 17),
        with(&v6, 54, 129),
        with(&v6, 55, 1),
        with(&v6, 53, 99),
        // Solicitations with the same faults, with another number of hops, and without a source address.
        with(&solicitation, 0, 2),
        with(&solicitation, 21, 254),
        with(&solicitation, 19, 23),
        with(&solicitation, 54, 136),
        with(&solicitation, 55, 1),
        with(&solicitation, 77, 99),
        [&solicitation[..22], &[0; 16], &solicitation[38..]].concat(),
        // A request that is longer than those that are answered.
        [&v4[..], &vec![0; 2048]].concat(),
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        assert_eq!(pass(driver, [fault]), Vec::<Vec<u8>>::new(), "fault {at} is answered");
    }
    let bad = Packet { bytes: arp.clone(), last: 1, ..Packet::default() };
    assert_eq!(driver.registers.pass([bad]), []);
    // The next request is answered.
    assert_eq!(pass(driver, [arp]).len(), 1);
}

#[test]
fn a_neighbour_resolves_and_pings_at_512_bits_per_cycle() {
    neighbour(512);
}

#[test]
fn a_neighbour_resolves_and_pings_at_128_bits_per_cycle() {
    neighbour(128);
}
