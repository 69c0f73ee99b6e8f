//! The load balancer: any packet is forwarded whole or left as it was.

use std::net::{Ipv4Addr, Ipv6Addr};

use ejfat::{
    lb::{DataPlane, Epoch, Forward, LbId, Member, Rule, Rules, Tables, calendar, prefixes},
    segment::IpVersion,
};

/// Packets of documentation addresses find every table; members 1 and 2 are gone, 3 keeps the header, 4 is missing.
fn rules() -> Rules {
    let mut rules = Rules::default();
    let lb = LbId::new(3).expect("one of eight");
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::from(0x2001_0db8_u128 << 96 | 1));
    let forward = |keep_lb_header| {
        let address = Ipv4Addr::new(192, 0, 2, 9).into();
        Member::Forward(Forward { mac: None, address, port: 10_000, port_bits: 3, keep_lb_header })
    };
    let mut all = vec![
        Rule::Destination { address: v4.into(), lb },
        Rule::Destination { address: v6.into(), lb },
        Rule::Source { lb, address: Ipv4Addr::new(192, 0, 2, 2).into() },
        Rule::Source { lb, address: Ipv6Addr::from(0x2001_0db8_u128 << 96 | 2).into() },
    ];
    all.extend(prefixes(..1 << 60).into_iter().map(|ticks| Rule::Epoch { lb, ticks, epoch: Epoch::new(0) }));
    all.extend(calendar(lb, 0, &[0, 1, 2, 3, 4]));
    let members = [forward(false), Member::SoftEvicted, Member::Deregistered, forward(true)];
    let of = |(id, member)| Rule::Member { lb, ip: IpVersion::V4, id: id as u16, member };
    all.extend(members.into_iter().enumerate().map(of));
    all.into_iter().for_each(|rule| rules.insert(rule, false).expect("the tables hold it"));
    rules
}

pub fn run(data: &[u8]) {
    let mut balancer = DataPlane::new(&Tables::new(&rules()), 1);
    let mut packet = data.to_vec();
    match balancer.forward(&mut packet) {
        Ok(forwarded) => {
            let kept = if forwarded.route.keep_lb_header { 0 } else { 16 };
            assert_eq!(forwarded.start, kept);
            // Payloads are not touched: nothing behind the longest headers is.
            let payload = data.len().min(60 + 8 + 16);
            assert_eq!(packet[payload..], data[payload..]);
            assert_eq!(balancer.newest_tick(forwarded.route.lb).map(|tick| tick < 1 << 60), Some(true));
        }
        Err(_) => assert_eq!(packet, data),
    }
}
