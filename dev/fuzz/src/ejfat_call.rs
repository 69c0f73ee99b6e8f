//! Calls of a control plane with the root token. The control plane carries out or refuses each of them, and must not panic.
//!
//! The input is a sequence of calls. Each call is one byte that selects the call, two bytes with the length of its message
//! (little-endian), and the message.

use std::{collections::BTreeMap, num::NonZeroU64, time::Duration};

use ejfat::Time;
use ejfat_control::{
    access::NEEDS,
    config::{AddressPolicy, Config, LoadBalancerConfig},
    control::{Control, ControlConfig},
    registry::Registry,
    request::{Caller, Moment},
    wall::WallTime,
};

const ROOT: &str = "root";
/// The most calls that are made from one input.
const CALLS: usize = 64;

fn config() -> Config {
    let lb = |n: u8| LoadBalancerConfig {
        data_v4: Some([192, 0, 2, n].into()),
        data_v6: (n == 1).then(|| "2001:db8::1".parse().expect("an address")),
        data_ports: 16_384..=32_767,
        sync_v4: Some([192, 0, 2, n].into()),
        sync_v6: None,
        sync_port: 19_531,
    };
    let addresses = AddressPolicy { loopback: true, ..AddressPolicy::default() };
    Config { load_balancers: [1, 2].map(lb).into(), addresses, ..Config::default() }
}

pub fn run(data: &[u8]) {
    let begin = |entries| {
        let options = ControlConfig { planes: BTreeMap::new(), ..ControlConfig::default() };
        Control::begin(config(), options, ROOT, entries, NonZeroU64::MIN, Time(0))
    };
    let mut control = begin(BTreeMap::<Vec<u8>, Vec<u8>>::new()).expect("a configuration that can be served");
    let mut at = Moment { now: Time(0), wall: WallTime(1_795_248_403_753) };
    let (mut left, mut random) = (data, 1_u64);
    for _ in 0..CALLS {
        let Some(([call, low, high], rest)) = left.split_first_chunk() else { break };
        let (message, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([*low, *high]).into()));
        left = rest;
        let (call, ..) = NEEDS[usize::from(*call) % NEEDS.len()];
        if let Some(Ok(request)) = ejfat_cp::decode(call, message) {
            let caller = Caller { token: Some(ROOT), peer: None };
            let mut bytes = |bytes: &mut [u8]| {
                for byte in bytes {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (random >> 56) as u8;
                }
            };
            // The changes of each accepted request fit into one batch of the store.
            if let Ok(accepted) = control.request(at, caller, &request, &mut bytes) {
                assert!(accepted.changes.len() <= ejfat_control::config::MOST_CHANGES);
            }
        }
        let step = Duration::from_millis(250);
        at = Moment { now: at.now + step, wall: at.wall + step };
        control.poll(at);
    }
    let durable = control.registry().durable();
    let entries = durable.records().map(|record| record.encode());
    let again = Registry::restore(config(), ROOT, entries, at.now).expect("records that can be restored");
    assert_eq!(again.durable(), durable);
}
