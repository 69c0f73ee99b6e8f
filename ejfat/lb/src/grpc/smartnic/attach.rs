//! Rules by which a SmartNIC takes frames at all, and answers who asks for the MAC address of a load balancer: what a host does
//! for sockets ([`super::inert`]).
//!
//! # Source
//! What udplbd2 inserts before any reservation; RFC 2464 and RFC 4861 for IPv6.

use std::net::{IpAddr, Ipv6Addr};

use ejfat::lb::LbId;
use proto::sn_p4::v2::TableRule;

use super::{encode, inert::MAC_TABLE, names};

const BROADCAST: u128 = 0xffff_ffff_ffff;
/// What all IPv6 nodes of a link receive.
const ALL_NODES: u128 = 0x3333_0000_0001;

/// Rules for a MAC address and the addresses of load balancers. Each is there once.
pub(super) fn rules(mac: [u8; 6], addresses: &[(LbId, IpAddr)]) -> Vec<TableRule> {
    let mac = encode::mac(mac);
    let solicited = |(_, address): &(LbId, IpAddr)| match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(0x3333_ff00_0000 | low(*address)),
    };
    let macs = [mac, BROADCAST, ALL_NODES].into_iter().chain(addresses.iter().filter_map(solicited));
    let frames = macs.map(|to| {
        let matches = vec![encode::any_port(), encode::exact(to)];
        let action = Some(encode::called(names::SET_MAC, &[mac]));
        TableRule { table_name: MAC_TABLE.into(), matches, action, ..TableRule::default() }
    });
    let mut rules: Vec<TableRule> = Vec::new();
    for rule in frames.chain(addresses.iter().map(|&(lb, address)| asked(lb, address))) {
        // Addresses that end alike share some.
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// The rule for who asks for the MAC address of an address: by ARP, or as a neighbour that solicits it.
fn asked(lb: LbId, address: IpAddr) -> TableRule {
    let (ether_type, to) = match address {
        IpAddr::V4(_) => (names::ARP, address),
        IpAddr::V6(address) => {
            let solicited = Ipv6Addr::from_bits(0xff02 << 112 | 0x1_ff00_0000 | low(address));
            (names::IPV6, solicited.into())
        }
    };
    encode::destination(ether_type, to, address, lb)
}

/// What a solicited-node address has of an address.
fn low(address: Ipv6Addr) -> u128 {
    address.to_bits() & 0xff_ffff
}
