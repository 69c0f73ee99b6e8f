//! Packets, random rules, and a slow model of the load balancer. The model and the load balancer have only the types of
//! rules and headers in common.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ejfat::{
    lb::{
        DataPlane, DropCause, Epoch, Forward, LbId, LbTables, Member, Route, Rule, Rules, Tables, TickPrefix,
        calendar,
    },
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use simnet::Random;

pub(crate) fn seeds() -> u64 {
    std::env::var("NAA_SEEDS").map_or(300, |seeds| seeds.parse().expect("NAA_SEEDS is a number"))
}

pub(crate) fn lb(id: u8) -> LbId {
    LbId::new(id).unwrap()
}

/// Returns the test address of the IP version `ip` with the number `host`. The addresses of different numbers differ in
/// many bits.
pub(crate) fn address(ip: IpVersion, host: u8) -> IpAddr {
    // A multiplication by an odd number modulo a power of two gives a different product for each value of `host`. The
    // highest bits of each address are constant and make the address a unicast address.
    match ip {
        IpVersion::V4 => {
            let bits = u32::from(host).wrapping_mul(0x9e37_79b1);
            Ipv4Addr::from_bits(0x8000_0000 | bits & 0x1fff_ffff).into()
        }
        IpVersion::V6 => {
            let bits = u128::from(host).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            Ipv6Addr::from_bits(0x2 << 124 | bits & u128::MAX >> 4).into()
        }
    }
}

pub(crate) fn rules(of: impl IntoIterator<Item = Rule>) -> Rules {
    let mut rules = Rules::default();
    of.into_iter().for_each(|rule| rules.insert(rule, false).unwrap());
    rules
}

/// Returns a rule by which all ticks belong to the epoch `epoch`.
pub(crate) fn all_ticks(lb: LbId, epoch: Epoch) -> Rule {
    Rule::Epoch { lb, ticks: TickPrefix::new(0, 0).unwrap(), epoch }
}

pub(crate) fn member(lb: LbId, id: u16, to: SocketAddr, port_bits: u8, keep_lb_header: bool) -> Rule {
    let forward = Forward { mac: None, address: to.ip(), port: to.port(), port_bits, keep_lb_header };
    Rule::Member { lb, ip: IpVersion::of(to.ip()), id, member: Member::Forward(forward) }
}

/// The number of the load balancer for which [`tables`] makes tables.
pub(crate) const LB: u8 = 2;

/// Returns rules of the load balancer `lb` with a calendar whose slots are assigned to `members` in turn. The only
/// source address in the rules is `address(IpVersion::V4, 1)`. The rules have no destination address.
pub(crate) fn rules_to(lb: LbId, members: &[u16]) -> Rules {
    let mut all = rules(calendar(lb, 0, members));
    let mut put = |rule| all.insert(rule, true).unwrap();
    put(all_ticks(lb, Epoch::new(0)));
    put(Rule::Source { lb, address: address(IpVersion::V4, 1) });
    for &id in members {
        put(member(lb, id, (address(IpVersion::V4, 100), 10_000).into(), 4, false));
    }
    all
}

/// Returns the rules of [`rules_to`], and one more rule for the IPv4 destination address that [`address`]
/// returns for `host`.
pub(crate) fn rules_at(lb: LbId, host: u8, members: &[u16]) -> Rules {
    let mut all = rules_to(lb, members);
    all.insert(Rule::Destination { address: address(IpVersion::V4, host), lb }, false).unwrap();
    all
}

/// Returns tables of the load balancer [`LB`] with a calendar whose slots are assigned to `members` in turn. The tables
/// route packets from `address(IpVersion::V4, 1)` to `address(IpVersion::V4, 50)`.
pub(crate) fn tables(members: &[u16]) -> Tables {
    Tables::new(&rules_at(lb(LB), 50, members))
}

pub(crate) fn header(tick: u64) -> LbHeader {
    LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick }
}

pub(crate) fn datagram(tick: u64) -> Vec<u8> {
    [&header(tick).encode()[..], &[0; 84]].concat()
}

pub(crate) fn route(plane: &mut DataPlane, tick: u64) -> u16 {
    plane.route(address(IpVersion::V4, 50), address(IpVersion::V4, 1), &datagram(tick)).unwrap().member
}

/// An IP packet with a UDP datagram.
#[derive(Clone, Debug)]
pub(crate) struct Udp {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) hops: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) checksum: bool,
}

impl Udp {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = self.payload.len() as u16 + 8;
        let mut packet = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = 20 + self.options.len();
                let total = (header as u16 + length).to_be_bytes();
                let first = 0x40 | (header / 4) as u8;
                let fixed = [first, 0x2e, total[0], total[1], 0xbe, 0xef, 0x40, 0, self.hops, 17, 0, 0];
                [&fixed[..], &from.octets(), &to.octets(), &self.options].concat()
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let total = length.to_be_bytes();
                let fixed = [0x62, 0xe1, 0x23, 0x45, total[0], total[1], 17, self.hops];
                [&fixed[..], &from.octets(), &to.octets()].concat()
            }
            _ => panic!("one IP version"),
        };
        let ports = [self.from.port(), self.to.port(), length, u16::from(self.checksum)];
        packet.extend(ports.iter().flat_map(|word| word.to_be_bytes()));
        packet.extend(&self.payload);
        fill_checksums(&mut packet);
        packet
    }
}

/// Returns an IPv4 packet with the UDP payload `payload`. The packet goes from `address(IpVersion::V4, 1)` to
/// `address(IpVersion::V4, 50)`, as in the rules of [`tables`].
pub(crate) fn packet(payload: Vec<u8>) -> Udp {
    let (from, to) = ((address(IpVersion::V4, 1), 4000).into(), (address(IpVersion::V4, 50), 19_522).into());
    Udp { from, to, hops: 9, options: Vec::new(), payload, checksum: true }
}

fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) * 256 + u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Returns the one's complement checksum for a sum of 16-bit words. The checksum is 0xffff if the sum is 0, and is
/// between 0 and 0xfffe for any other sum.
fn complement(sum: u64) -> u16 {
    0xffff - if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 } as u16
}

pub(crate) fn udp_at(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 }
}

/// Computes the IPv4 checksum and the UDP checksum, and writes them into the packet. A UDP checksum of 0, which means
/// that the packet has no UDP checksum, stays 0.
pub(crate) fn fill_checksums(packet: &mut [u8]) {
    let udp = udp_at(packet);
    let addresses = if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let checksum = complement(sum(&packet[..udp]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        12..20
    } else {
        8..40
    };
    if packet[udp + 6..udp + 8] != [0, 0] {
        packet[udp + 6..udp + 8].fill(0);
        let length = (packet.len() - udp) as u64;
        let checksum = complement(sum(&packet[addresses]) + 17 + length + sum(&packet[udp..]));
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        packet[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns true if the IPv4 checksum and the UDP checksum are right.
pub(crate) fn checksums_hold(packet: &[u8]) -> bool {
    let mut anew = packet.to_vec();
    fill_checksums(&mut anew);
    anew == packet
}

/// Returns the route by which the model sends a packet to a member of a load balancer.
pub(crate) fn model_route(
    rules: &[Rule],
    lb: LbId,
    from: IpAddr,
    header: &LbHeader,
) -> Result<Route, DropCause> {
    if !rules.contains(&Rule::Source { lb, address: from }) {
        return Err(DropCause::BlockedSrc);
    }
    let epochs = rules.iter().filter_map(|rule| match *rule {
        Rule::Epoch { lb: of, ticks, epoch } => (of == lb
            && (ticks.first()..=ticks.last()).contains(&header.tick))
        .then_some((ticks.length(), epoch)),
        _ => None,
    });
    let (_, epoch) = epochs.max_by_key(|(length, _)| *length).ok_or(DropCause::EpochAssignMiss)?;
    let (slot_from, port_from) = match header.select {
        Select::V2 { entropy } => ((header.tick % 65536) as u16, entropy),
        Select::V3 { slot, port } => (slot, port),
    };
    let slot = (u32::from(slot_from ^ epoch.xor) % (1 << epoch.slot_bits)) as u16;
    let id = rules.iter().find_map(|rule| match *rule {
        Rule::Slot { lb: of, epoch: id, slot: at, member } => {
            (of == lb && id == epoch.id && at == slot).then_some(member)
        }
        _ => None,
    });
    let id = id.ok_or(DropCause::LbCalendarMiss)?;
    let member = rules.iter().find_map(|rule| match *rule {
        Rule::Member { lb: of, ip, id: of_id, member } => {
            (of == lb && ip == IpVersion::of(from) && of_id == id).then_some(member)
        }
        _ => None,
    });
    match member.ok_or(DropCause::MbrInfoMiss)? {
        Member::SoftEvicted => Err(DropCause::MbrDropSoftEvicted),
        Member::Deregistered => Err(DropCause::MbrDropDeregistered),
        Member::Forward(Forward { mac, address, port, port_bits, keep_lb_header }) => {
            let port = (u32::from(port) + u32::from(port_from) % (1 << port_bits)) % 65536;
            let to = SocketAddr::new(address, port as u16);
            Ok(Route { lb, epoch: epoch.id, slot, member: id, mac, to, keep_lb_header })
        }
    }
}

fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let word = |at: usize| usize::from(packet[at]) * 256 + usize::from(packet[at + 1]);
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 && packet[0] & 15 >= 5 && packet.len() >= udp_at(packet) => {
            (word(2) == packet.len()).then(|| (v4(12), v4(16)))
        }
        6 if packet.len() >= 40 && word(4) + 40 == packet.len() => Some((v6(8), v6(24))),
        _ => None,
    }
}

/// Returns the packet that the model sends when it receives `packet`, and the route of the sent packet.
pub(crate) fn model_forward(rules: &[Rule], packet: &[u8]) -> Result<(Vec<u8>, Route), DropCause> {
    let (from, to) = addresses(packet).ok_or(DropCause::NotIp)?;
    let lb = rules.iter().find_map(|rule| match *rule {
        Rule::Destination { address, lb } => (address == to).then_some(lb),
        _ => None,
    });
    let lb = lb.ok_or(DropCause::BadIp)?;
    if !rules.contains(&Rule::Source { lb, address: from }) {
        return Err(DropCause::BlockedSrc);
    }
    let (udp, v4) = (udp_at(packet), to.is_ipv4());
    let protocol = if v4 { packet[9] } else { packet[6] };
    let fragment = v4 && (packet[6] & 0x3f != 0 || packet[7] != 0);
    let datagram = &packet[udp..];
    if protocol != 17 || fragment || datagram.len() < 24 || !(64..128).contains(&datagram[2]) {
        return Err(DropCause::NoUdplbHdr);
    }
    let length = usize::from(datagram[4]) * 256 + usize::from(datagram[5]);
    if length != datagram.len() || &datagram[8..10] != b"LB" {
        return Err(DropCause::NoUdplbHdr);
    }
    let (header, _) = LbHeader::decode(&datagram[8..]).map_err(|_| DropCause::BadUdplbVersion)?;
    let hops = if v4 { 8 } else { 7 };
    if packet[hops] <= 1 {
        return Err(DropCause::TtlExpired);
    }
    let route = model_route(rules, lb, from, &header)?;

    let mut sent = packet.to_vec();
    sent[hops] -= 1;
    let source = if v4 { 12 } else { 8 };
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let both = [octets(to), octets(route.to.ip())].concat();
    sent[source..source + both.len()].copy_from_slice(&both);
    sent[udp + 2..udp + 4].copy_from_slice(&route.to.port().to_be_bytes());
    if !route.keep_lb_header {
        sent.drain(udp + 8..udp + 24);
    }
    let (total, length) = (sent.len() as u16, (sent.len() - udp) as u16);
    sent[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
    let (at, ip_length) = if v4 { (2, total) } else { (4, length) };
    sent[at..at + 2].copy_from_slice(&ip_length.to_be_bytes());
    fill_checksums(&mut sent);
    Ok((sent, route))
}

/// Most ticks in random rules and in random packets are close to this tick.
const TICK: u64 = 0x0006_60c4_50dc_cce5;

fn random_prefix(random: &mut Random) -> TickPrefix {
    let length = match random.below(8) {
        0 => 0,
        1 | 2 => 64,
        _ => random.range(44..=63) as u8,
    };
    let near = random.pick(&[TICK, TICK, TICK, TICK, 0, u64::MAX]) ^ random.below(1 << 18);
    // `near` is a tick that the new prefix contains. In two of three cases, `near` becomes the first or the last of the
    // 2^16 ticks with the same upper 48 bits. Different prefixes therefore often begin or end at the same tick.
    let near = random.pick(&[near, near | 0xffff, near & !0xffff]);
    let free = 64 - u32::from(length);
    let value = near.checked_shr(free).map_or(0, |bits| bits << free);
    TickPrefix::new(value, length).unwrap()
}

pub(crate) fn random_tick(random: &mut Random, rules: &[Rule]) -> u64 {
    let ticks_of = |rule: &Rule| match rule {
        Rule::Epoch { ticks, .. } => Some(*ticks),
        _ => None,
    };
    let prefixes: Vec<_> = rules.iter().filter_map(ticks_of).collect();
    if prefixes.is_empty() || random.chance(100_000) {
        return random.next_u64();
    }
    let prefix = random.pick(&prefixes);
    let inside = prefix.first() | random.next_u64() & (prefix.last() - prefix.first());
    let edges =
        [prefix.first(), prefix.last(), prefix.first().wrapping_sub(1), prefix.last().wrapping_add(1)];
    if random.chance(500_000) { inside } else { random.pick(&edges) }
}

fn random_ip(random: &mut Random) -> IpVersion {
    random.pick(&[IpVersion::V4, IpVersion::V6])
}

fn random_mac(random: &mut Random) -> [u8; 6] {
    let mut mac = [0; 6];
    random.fill(&mut mac);
    // The MAC address must not be a group address.
    mac[0] &= !1;
    mac
}

fn random_member(random: &mut Random, ip: IpVersion) -> Member {
    let forward = Forward {
        mac: random.chance(500_000).then(|| random_mac(random)),
        address: address(ip, random.range(100..=200) as u8),
        port: if random.chance(500_000) { random.next_u32() as u16 | 1 } else { 65_535 },
        port_bits: random.below(15) as u8,
        keep_lb_header: random.chance(400_000),
    };
    match random.below(8) {
        0 => Member::SoftEvicted,
        1 => Member::Deregistered,
        _ => Member::Forward(forward),
    }
}

/// Three load balancers, and the senders whose packets go to these load balancers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) lbs: [u8; 3],
    /// An offset: sender `at` has the address that [`address`] returns for the number `senders + at`.
    senders: u8,
}

impl Site {
    /// The site with the load balancers 0, 1 and 2. The senders 1 to 5 have the addresses that [`address`] returns for
    /// the numbers 1 to 5.
    pub(crate) const FIRST: Self = Self { lbs: [0, 1, 2], senders: 0 };

    /// Returns a site with three random load balancers and random senders. The ids of the load balancers are in
    /// ascending order, and below [`LbId::P4_COUNT`] as hardware requires.
    pub(crate) fn random(random: &mut Random) -> Self {
        let mut all: Vec<_> = (0..LbId::P4_COUNT as u8).collect();
        while all.len() > 3 {
            all.remove(random.below(all.len() as u64) as usize);
        }
        Self { lbs: [all[0], all[1], all[2]], senders: random.below(40) as u8 }
    }

    /// Returns a destination address of the load balancer with the index `at`, which is 0 to 2. If `at` is above
    /// 2, the function returns an address that belongs to no load balancer.
    pub(crate) fn lb(self, ip: IpVersion, at: u8) -> IpAddr {
        address(ip, 50 + self.lbs.get(usize::from(at)).copied().unwrap_or(LbId::P4_COUNT as u8 + at))
    }

    /// Returns the address of the sender with the number `at`, from 1 to 5. No load balancer accepts packets from
    /// sender 5.
    pub(crate) fn sender(self, ip: IpVersion, at: u8) -> IpAddr {
        address(ip, self.senders + at)
    }
}

/// Returns random rules of the load balancers 0, 1 and 2.
pub(crate) fn random_rules(random: &mut Random) -> Rules {
    random_rules_of(random, Site::FIRST)
}

/// Returns random rules of the three load balancers of `site`. The rules for destination addresses are complete, but
/// each rule for a source address, a calendar slot or a member is missing with some probability.
pub(crate) fn random_rules_of(random: &mut Random, site: Site) -> Rules {
    let mut rules = Rules::default();
    let mut put = |rule| rules.insert(rule, true).unwrap();
    for (at, id) in (0..).zip(site.lbs) {
        let lb = lb(id);
        for ip in [IpVersion::V4, IpVersion::V6] {
            put(Rule::Destination { address: site.lb(ip, at), lb });
            for sender in 1..=4 {
                if random.chance(930_000) {
                    put(Rule::Source { lb, address: site.sender(ip, sender) });
                }
            }
        }
        for _ in 0..random.below(12) {
            let epoch = Epoch {
                id: random.below(4) as u32,
                slot_bits: random.below(8) as u8,
                xor: random.pick(&[0, 1, 0x55, 0xffff]),
            };
            put(Rule::Epoch { lb, ticks: random_prefix(random), epoch });
        }
        let members = [0, 1, 2, 1023, 40_000, u16::MAX];
        for epoch in 0..4 {
            for slot in 0..random.below(140) as u16 {
                if random.chance(900_000) {
                    put(Rule::Slot { lb, epoch, slot, member: random.pick(&members) });
                }
            }
        }
        for id in members {
            for ip in [IpVersion::V4, IpVersion::V6] {
                if random.chance(850_000) {
                    put(Rule::Member { lb, ip, id, member: random_member(random, ip) });
                }
            }
        }
    }
    rules
}

/// Stages random rules for one of the site's load balancers. The first tick of the rules is a random tick. If the data
/// plane accepts the rules, this function adds them to `all`.
pub(crate) fn stage_random(random: &mut Random, plane: &mut DataPlane, site: Site, all: &mut Vec<Rule>) {
    let (of, new) = (lb(random.pick(&site.lbs)), random_rules_of(random, site));
    let from = random_tick(random, all);
    if plane.stage(LbTables::new(of, &new).into(), from).is_ok() {
        all.extend(new.of(of).iter());
    }
}

pub(crate) fn random_header(random: &mut Random, rules: &[Rule]) -> LbHeader {
    let (a, b) = (random.next_u32() as u16, random.next_u32() as u16);
    let select = random.pick(&[Select::V2 { entropy: a }, Select::V3 { slot: a, port: b }]);
    LbHeader { select, protocol: random.pick(&[1, 1, 0, 255]), tick: random_tick(random, rules) }
}

/// Returns the bytes of a random IP packet. Its destination address mostly belongs to load balancer 0, 1 or 2. Most of
/// the packets are valid.
pub(crate) fn random_packet(random: &mut Random, rules: &[Rule]) -> Vec<u8> {
    random_packet_of(random, Site::FIRST, rules)
}

/// Returns the bytes of a random IP packet. Its destination address mostly belongs to one of the three load balancers
/// of `site`. Most of the packets are valid.
pub(crate) fn random_packet_of(random: &mut Random, site: Site, rules: &[Rule]) -> Vec<u8> {
    let ip = random_ip(random);
    let mut payload = random_header(random, rules).encode().to_vec();
    let mut data = vec![0; random.below(200) as usize];
    random.fill(&mut data);
    payload.extend(data);
    let udp = Udp {
        from: (site.sender(ip, random.range(1..=4) as u8 + u8::from(random.chance(50_000))), 1234).into(),
        to: (site.lb(ip, random.below(3) as u8 + u8::from(random.chance(20_000)) * 3), 19_522).into(),
        hops: if random.chance(200_000) { random.below(3) as u8 } else { random.next_u32() as u8 },
        options: if random.chance(300_000) { vec![1; 4 * random.below(11) as usize] } else { Vec::new() },
        payload,
        checksum: random.chance(800_000),
    };
    udp.bytes()
}

/// Shortens a packet to `left` bytes of UDP payload, and updates the length fields and checksums of the packet.
fn shorten(packet: &mut Vec<u8>, left: usize) {
    packet.truncate(udp_at(packet) + 8 + left);
    fill_lengths(packet);
}

/// Adds random bytes to the UDP payload of a packet, and updates the length fields and checksums of the packet. The
/// lengthened packet is at most 65535 bytes long.
pub(crate) fn lengthen(random: &mut Random, packet: &mut Vec<u8>) {
    let most = u64::from(u16::MAX) - packet.len() as u64;
    let most = most >> random.below(6);
    let mut more = vec![0; random.below(most) as usize];
    random.fill(&mut more);
    packet.extend(more);
    fill_lengths(packet);
}

/// Computes all length fields and checksums of a packet.
fn fill_lengths(packet: &mut [u8]) {
    let udp = udp_at(packet);
    let length = ((packet.len() - udp) as u16).to_be_bytes();
    packet[udp + 4..udp + 6].copy_from_slice(&length);
    if packet[0] >> 4 == 4 {
        let total = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&total);
    } else {
        packet[4..6].copy_from_slice(&length);
    }
    fill_checksums(packet);
}

/// Damages the packet with some probability. There are four kinds of damage. Two kinds do not update the length fields:
/// they add padding behind the packet, or cut off its end. The third kind cuts the UDP payload to less than 24 bytes
/// and updates the length fields. The fourth kind changes one of the first 90 bytes. Returns true if one of the four
/// kinds was chosen. By chance, each kind except the padding can leave the packet unchanged.
pub(crate) fn damage(random: &mut Random, packet: &mut Vec<u8>) -> bool {
    match random.below(12) {
        // The padding of 5000 bytes is so long that a data plane forwards the packet before the end of the padding
        // arrives.
        0 if random.chance(50_000) => packet.extend(vec![0; 5000]),
        0 => packet.extend(vec![0; random.range(1..=80) as usize]),
        1 => packet.truncate(random.range(1..=packet.len() as u64) as usize),
        2 => {
            let most = packet.len().min(90) as u64;
            packet[random.below(most) as usize] ^= 1 << random.below(8);
        }
        3 => {
            let at = random.below(packet.len().min(12) as u64) as usize;
            packet[at] = random.next_u32() as u8;
        }
        4 => shorten(packet, random.below(24) as usize),
        _ => return false,
    }
    true
}
