//! Load balancers with one member, and packets for them.
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;

use ejfat::{
    lb::{DataPlane, Epoch, LbId, Rule, Rules, Tables, calendar},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use naa_fpga::{Driver, LbTop, Macs, Module, Rates};

use crate::{
    common,
    lb_common::{self, address},
};

pub(crate) const MACS: Macs = Macs { own: [2, 0x4e, 0x41, 0x41, 0, 1], hop: [2, 0x4e, 0x41, 0x41, 0, 2] };

/// The module `lb_top`, which takes so many bits per cycle, and its driver.
pub(crate) fn top(width: u64, rates: [Rates; 2]) -> Option<Driver<LbTop>> {
    let model = common::model(Module::new("lb_top").with("Width", width))?;
    Some(Driver::new(LbTop::new(model, rates), MACS).unwrap())
}

/// Puts tables of these rules in the place of those in use.
pub(crate) fn load(driver: &mut Driver<LbTop>, rules: &Rules) {
    driver.load(DataPlane::new(&Tables::new(rules), 1).image().unwrap(), &BTreeMap::new()).unwrap();
}

/// A load balancer whose packets of all ticks go to one member, which is the host of this number. The number of the load balancer's host is 50 more
/// than its own.
pub(crate) fn rules_to(of: LbId, host: u8) -> Rules {
    let of_version = |ip| {
        [
            Rule::Destination { address: address(ip, 50 + of.get()), lb: of },
            Rule::Source { lb: of, address: address(ip, 1) },
            lb_common::member(of, 1, (address(ip, host), 10_000).into(), 0, false),
        ]
    };
    let hosts = [IpVersion::V4, IpVersion::V6].into_iter().flat_map(of_version);
    lb_common::rules(hosts.chain(calendar(of, 0, &[1])).chain([lb_common::all_ticks(of, Epoch::new(0))]))
}

pub(crate) fn header(tick: u64) -> [u8; LbHeader::LEN] {
    LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick }.encode()
}

/// A packet to load balancer 0, with `data` bytes behind the LB header.
pub(crate) fn packet_of(ip: IpVersion, tick: u64, data: usize) -> Vec<u8> {
    let packet = lb_common::Udp {
        from: (address(ip, 1), 1).into(),
        to: (address(ip, 50), 19_522).into(),
        hops: 64,
        options: Vec::new(),
        payload: [&header(tick)[..], &vec![0; data]].concat(),
        checksum: true,
    };
    packet.bytes()
}
