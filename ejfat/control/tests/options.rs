//! Which sizes of a configuration a control plane accepts for which kinds of data planes.

mod registry_common;

use std::{collections::BTreeMap, num::NonZeroU64};

use ejfat::Time;
use ejfat_control::{
    config::{Config, ConfigError, LoadBalancerConfig},
    control::{BeginError, Control, Options},
    plane::{PlaneId, PlaneKind},
    registry::RestoreError,
};
use registry_common::{ROOT, config};

fn begin(load_balancers: u8, most_members: u16, planes: &[PlaneKind]) -> Result<(), BeginError> {
    let lb = |n: u8| LoadBalancerConfig {
        data_v4: Some([192, 0, 2, n].into()),
        sync_port: 19_531 + u16::from(n),
        data_v6: None,
        ..config().load_balancers[0].clone()
    };
    let load_balancers = (0..load_balancers).map(lb).collect();
    let config = Config { load_balancers, most_members, ..config() };
    let planes: BTreeMap<_, _> = (0..).map(PlaneId).zip(planes.iter().copied()).collect();
    let nothing: [(Vec<u8>, Vec<u8>); 0] = [];
    let options = Options { planes, ..Options::default() };
    Control::begin(config, options, ROOT, nothing, NonZeroU64::MIN, Time(0)).map(drop)
}

#[test]
fn more_than_a_smartnic_has_room_for_is_served_on_our_own_data_planes_only() {
    use PlaneKind::{RuleByRule, Staged};
    let refused = |what, given, most| Err(BeginError::Config(ConfigError::SmartNic { what, given, most }));
    let unserved = |why| Err(BeginError::Restore(RestoreError::Config(why)));
    assert_eq!(begin(8, 1024, &[RuleByRule]), Ok(()));
    assert_eq!(begin(16, 2048, &[Staged, Staged]), Ok(()));
    assert_eq!(begin(64, 1024, &[Staged]), Ok(()));
    assert_eq!(begin(9, 1024, &[RuleByRule]), refused("load balancers", 9, 8));
    assert_eq!(begin(8, 1025, &[Staged, RuleByRule]), refused("members", 1025, 1024));
    let said = begin(9, 1024, &[RuleByRule]).expect_err("too many").to_string();
    assert!(
        said.contains("9 load balancers") && said.contains("at most 8") && said.contains("naa.lb.v1"),
        "{said}"
    );
    assert_eq!(begin(65, 1024, &[Staged]), unserved(ConfigError::LoadBalancers(65)));
    assert_eq!(begin(64, 2049, &[Staged]), unserved(ConfigError::Members(2049)));
}
