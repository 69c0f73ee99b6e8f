//! Which configurations a control plane accepts, and which of their sizes for which kinds of data planes.

mod registry_common;

use std::{collections::BTreeMap, num::NonZeroU64};

use ejfat::Time;
use ejfat_control::{
    config::{Config, ConfigError, LoadBalancerConfig, MOST_CHANGES},
    control::{BeginError, Control, ControlConfig},
    plane::{PlaneId, PlaneKind},
    registry::{Registry, RestoreError},
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
    let options = ControlConfig { planes, ..ControlConfig::default() };
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

#[test]
fn a_configuration_that_cannot_be_served_is_refused() {
    let refused = |spoil: fn(&mut Config)| {
        let mut config = config();
        spoil(&mut config);
        Registry::new(config, ROOT).expect_err("a configuration that cannot be served")
    };
    assert_eq!(refused(|of| of.load_balancers.clear()), ConfigError::LoadBalancers(0));
    assert_eq!(refused(|of| of.load_balancers[1].data_v4 = None), ConfigError::NoAddress(1));
    assert_eq!(refused(|of| of.load_balancers[2].sync_port = 0), ConfigError::Ports(2));
    assert_eq!(refused(|of| of.load_balancers[2].data_ports = 0..=9), ConfigError::Ports(2));
    let same = refused(|of| of.load_balancers[1].data_v4 = of.load_balancers[0].data_v4);
    assert_eq!(same, ConfigError::SameAddress([192, 0, 2, 0].into()));
    let same = refused(|of| of.load_balancers[2].sync_port = of.load_balancers[0].sync_port);
    assert_eq!(same, ConfigError::SameSync(([192, 0, 2, 100], 19_531).into()));
    assert_eq!(refused(|of| of.slots = 500), ConfigError::Slots(500));
    assert_eq!(refused(|of| of.most_senders = 257), ConfigError::Senders(257));
    assert_eq!(refused(|of| of.most_members = 2049), ConfigError::Members(2049));
    let most = config().most_tokens + MOST_CHANGES - config().most_changes();
    assert!(Registry::new(Config { most_tokens: most, ..config() }, ROOT).is_ok());
    assert_eq!(refused(|of| of.most_tokens = usize::MAX), ConfigError::Changes(usize::MAX));
    let more = Registry::new(Config { most_tokens: most + 1, ..config() }, ROOT);
    assert_eq!(more.expect_err("more than fits one batch"), ConfigError::Changes(MOST_CHANGES + 1));
    assert_eq!(
        Registry::new(config(), "").expect_err("a root token that all know"),
        ConfigError::NoRootToken
    );
}
