//! Tests that compare rewritten packets with a model that computes every checksum from all covered bytes.

mod lb_common;

use std::collections::BTreeSet;

use ejfat::{
    lb::{DropCause, Epoch, Forwarded, LbId, Rule, Tables, calendar, rewrite},
    segment::IpVersion::{self, V4, V6},
    wire::{LbHeader, Select},
};
use lb_common::{
    Udp, address, all_ticks, checksums_hold, lb, member, model_forward, random_packet, random_rules, rules,
    seeds, udp_at,
};
use simnet::Random;

/// Returns tables with the members 0 and 1. Packets to member 1 keep the LB header, and packets to member 0 do not.
fn tables(of: LbId) -> Tables {
    let mut all = rules(calendar(of, 0, &[0, 1]));
    let mut put = |rule| all.insert(rule, false).unwrap();
    put(all_ticks(of, Epoch::new(0)));
    for ip in [V4, V6] {
        put(Rule::Destination { address: address(ip, 50), lb: of });
        put(Rule::Source { lb: of, address: address(ip, 1) });
        put(member(of, 0, (address(ip, 100), 10_000).into(), 0, false));
        put(member(of, 1, (address(ip, 101), 20_000).into(), 0, true));
    }
    Tables::new(&all)
}

fn packet(ip: IpVersion, member: u16, data: &[u8]) -> Udp {
    let header = LbHeader { select: Select::V3 { slot: member, port: 0 }, protocol: 1, tick: 5 };
    Udp {
        from: (address(ip, 1), 4000).into(),
        to: (address(ip, 50), 19_522).into(),
        hops: 64,
        options: Vec::new(),
        payload: [&header.encode()[..], data].concat(),
        checksum: true,
    }
}

#[test]
fn a_packet_becomes_the_members() {
    for ip in [V4, V6] {
        for (id, host, port, start) in [(0, 100, 10_000, 16), (1, 101, 20_000, 0)] {
            let sent = packet(ip, id, b"event");
            let mut bytes = sent.bytes();
            let payload = bytes[bytes.len() - 5..].to_vec();
            let forwarded = rewrite(&tables(lb(6)), &mut bytes).unwrap();
            assert_eq!((forwarded.start, forwarded.route.lb, forwarded.route.member), (start, lb(6), id));
            assert_eq!(bytes[bytes.len() - 5..], payload);
            let expected = Udp {
                from: (address(ip, 50), 4000).into(),
                to: (address(ip, host), port).into(),
                hops: 63,
                payload: sent.payload[start..].to_vec(),
                ..sent
            };
            assert_eq!(bytes[start..], expected.bytes());
        }
    }
}

#[test]
fn rewriting_is_the_model() {
    let mut reached = BTreeSet::new();
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 0);
        let rules = random_rules(random);
        let tables = Tables::new(&rules);
        let listed: Vec<_> = rules.iter().collect();
        for _ in 0..100 {
            let mut sent = random_packet(random, &listed);
            if random.chance(200_000) {
                damage(random, &mut sent);
            }
            let expected = model_forward(&listed, &sent);
            let mut bytes = sent.clone();
            match rewrite(&tables, &mut bytes) {
                Ok(Forwarded { start, route }) => {
                    let (model, model_route) = expected.expect("dropped by the model");
                    assert_eq!(route, model_route, "seed {seed}");
                    assert!(start == sent.len() - model.len() && start <= 16, "seed {seed}");
                    if checksums_hold(&sent) {
                        assert_eq!(bytes[start..], model, "seed {seed}: {sent:02x?}");
                    } else {
                        assert!(!checksums_hold(&bytes[start..]), "seed {seed}: repaired {sent:02x?}");
                    }
                    reached.insert("forwarded");
                }
                Err(cause) => {
                    assert_eq!(expected.map(|(_, route)| route), Err(cause), "seed {seed}: {sent:02x?}");
                    assert_eq!(bytes, sent, "seed {seed}");
                    reached.insert(cause.name());
                }
            }
        }
    }
    assert!(seeds() < 100 || reached.len() == DropCause::ALL.len() + 1, "{reached:?}");
}

/// Flips one or two bits in the first 70 bytes of a packet, or truncates the packet.
fn damage(random: &mut Random, packet: &mut Vec<u8>) {
    if random.chance(100_000) {
        packet.truncate(random.below(packet.len() as u64) as usize);
        return;
    }
    for _ in 0..random.range(1..=2) {
        let at = random.below(packet.len().min(70) as u64) as usize;
        packet[at] ^= 1 << random.below(8);
    }
}

#[test]
fn checksums_of_zero() {
    for ip in [V4, V6] {
        for id in [0, 1] {
            let none = Udp { checksum: false, ..packet(ip, id, b"event!") };
            let mut bytes = none.bytes();
            let start = rewrite(&tables(lb(0)), &mut bytes).unwrap().start;
            let udp = start + udp_at(&bytes[start..]);
            assert_eq!(bytes[udp + 6..udp + 8], [0, 0], "none stays none");

            let checksum = |data: &[u8]| {
                let mut bytes = packet(ip, id, data).bytes();
                let start = rewrite(&tables(lb(0)), &mut bytes).unwrap().start;
                assert!(checksums_hold(&bytes[start..]));
                let udp = start + udp_at(&bytes[start..]);
                u16::from_be_bytes([bytes[udp + 6], bytes[udp + 7]])
            };
            let with_zeros = checksum(&[0, 0]);
            assert_eq!(
                checksum(&with_zeros.to_be_bytes()),
                0xffff,
                "a computed 0 would say that there is none"
            );
        }
    }
}

#[test]
fn every_checksum_is_followed() {
    let tables = tables(lb(0));
    for (ip, id) in [(V4, 0), (V4, 1), (V6, 0), (V6, 1)] {
        let mut sent = packet(ip, id, &[0; 2]);
        for word in 0..=u16::MAX {
            // The UDP checksum covers the payload, and the IPv4 checksum covers the IPv4 options. The test writes
            // `word` to both, so that the loop tries all values of both checksums.
            sent.payload[16..].copy_from_slice(&word.to_be_bytes());
            sent.options = word.to_be_bytes().repeat(2);
            let mut bytes = sent.bytes();
            let start = rewrite(&tables, &mut bytes).unwrap().start;
            assert!(checksums_hold(&bytes[start..]), "{word:#x}");
        }
    }
}

#[test]
fn fragments_and_other_protocols_are_dropped() {
    let drop = |bytes: &mut [u8]| rewrite(&tables(lb(0)), bytes).unwrap_err();
    for (at, bits) in [(6, 0x20), (6, 1), (7, 1), (9, 1)] {
        let mut bytes = packet(V4, 0, b"event").bytes();
        bytes[at] ^= bits;
        assert_eq!(drop(&mut bytes), DropCause::NoUdplbHdr, "byte {at}");
    }
    let mut fragment = packet(V6, 0, b"event").bytes();
    fragment[6] = 44;
    assert_eq!(drop(&mut fragment), DropCause::NoUdplbHdr);
    for port in [0, 4791, 16_383, 32_768, 65_535] {
        let other = Udp { to: (address(V6, 50), port).into(), ..packet(V6, 0, b"event") };
        assert_eq!(drop(&mut other.bytes()), DropCause::NoUdplbHdr);
    }
    for port in [16_384, 32_767] {
        let taken = Udp { to: (address(V4, 50), port).into(), ..packet(V4, 0, b"event") };
        assert!(rewrite(&tables(lb(0)), &mut taken.bytes()).is_ok());
    }
}

#[test]
fn lengths_that_lie_are_dropped() {
    for ip in [V4, V6] {
        let whole = packet(ip, 0, b"event").bytes();
        let tables = tables(lb(0));
        for len in 0..whole.len() {
            assert_eq!(rewrite(&tables, &mut whole[..len].to_vec()), Err(DropCause::NotIp));
        }
        let padded = [&whole[..], &[0; 3]].concat();
        assert_eq!(rewrite(&tables, &mut padded.clone()), Err(DropCause::NotIp));
        let mut udp = whole.clone();
        let at = udp_at(&whole) + 5;
        for length in [0, 7, 8, 23, 28, 30, 255] {
            udp[at] = length;
            assert_eq!(rewrite(&tables, &mut udp.clone()), Err(DropCause::NoUdplbHdr), "{length}");
        }
        for payload in 0..16 {
            let mut short = packet(ip, 0, b"");
            short.payload.truncate(payload);
            assert_eq!(rewrite(&tables, &mut short.bytes()), Err(DropCause::NoUdplbHdr));
        }
        assert!(rewrite(&tables, &mut packet(ip, 0, b"").bytes()).is_ok());
    }
}

#[test]
fn the_longest_packets() {
    for (ip, headers) in [(V4, 28), (V6, 8)] {
        for id in [0, 1] {
            let data = vec![0xff; 65_535 - headers - 16];
            let mut bytes = packet(ip, id, &data).bytes();
            let start = rewrite(&tables(lb(0)), &mut bytes).unwrap().start;
            assert!(checksums_hold(&bytes[start..]));
        }
    }
}

#[test]
fn random_bytes() {
    let tables = tables(lb(0));
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 1);
        for _ in 0..100 {
            let mut bytes = vec![0; random.below(120) as usize];
            random.fill(&mut bytes);
            // Some packets begin with a part of a valid header, and their length field is correct. The purpose is that
            // `rewrite` does not refuse them at its first checks.
            let length = (bytes.len() as u16).to_be_bytes();
            if bytes.len() >= 40 && random.chance(700_000) {
                let like = packet(random.pick(&[V4, V6]), 0, b"").bytes();
                let taken = random.below(like.len().min(bytes.len()) as u64) as usize;
                bytes[..taken].copy_from_slice(&like[..taken]);
                let at = if like[0] >> 4 == 4 { 2 } else { 4 };
                let less = if at == 2 { 0 } else { 40 };
                let length = (u16::from_be_bytes(length) - less).to_be_bytes();
                bytes[at..at + 2].copy_from_slice(&length);
            }
            let before = bytes.clone();
            if rewrite(&tables, &mut bytes).is_err() {
                assert_eq!(bytes, before, "seed {seed}");
            }
        }
    }
}
