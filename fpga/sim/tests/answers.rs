//! `lb_top` and a neighbour with another network stack, which resolves the load balancer's addresses and pings them.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use ejfat::{
    lb::{Balancer, Rule, Tables},
    segment::IpVersion,
};
use lb_common::{address, lb};
use naa_fpga::{Driver, LbTop, Lengths, Macs, Module, Packet, Rates, Tools};
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::icmp,
    time::{Duration, Instant},
    wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr},
};

const MACS: Macs = Macs { own: [2, 0x4e, 0x41, 0x41, 0, 1], hop: [2, 0x4e, 0x41, 0x41, 0, 2] };
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

/// A load balancer with the addresses of host 50.
fn top(width: u64) -> Option<Driver<LbTop>> {
    let tools = Tools::for_test()?;
    let model = Module::new("lb_top").with("Width", width).model(&tools);
    let top =
        LbTop::new(model.unwrap_or_else(|error| panic!("{error}")), [Rates::idle(20, 1), Rates::idle(40, 2)]);
    let mut driver = Driver::new(top, MACS).unwrap();
    let rules =
        [IpVersion::V4, IpVersion::V6].map(|ip| Rule::Destination { address: address(ip, 50), lb: lb(0) });
    let balancer = Balancer::new(&Tables::new(&lb_common::rules(rules)), 1);
    driver.load(balancer.image().unwrap(), &BTreeMap::new()).unwrap();
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
    let Some(mut driver) = top(width) else { return };
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
        with(&v6, 5, 2),
        with(&v6, 0, 3),
        with(&v6, 14, 0x40),
        with(&v6, 18, 1),
        with(&v6, 19, 7),
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
    let mut bad = Packet { bytes: arp.clone(), ..Packet::default() };
    bad.last = 1;
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
