//! Records of the control plane: what is read is written so that it reads the same, and a registry takes or refuses it.
//!
//! The input has keys and values in turn, each on a line of its own.

use ejfat::Time;
use ejfat_control::{
    config::{Config, LoadBalancerConfig},
    record::Record,
    registry::Registry,
};

pub fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut entries = Vec::new();
    while let (Some(key), Some(value)) = (lines.next(), lines.next()) {
        if let Ok(record) = Record::decode(key, value) {
            let (written_key, written) = record.encode();
            assert_eq!(written_key, key);
            assert_eq!(Record::decode(&written_key, &written).as_ref(), Ok(&record));
            entries.push((written_key, written));
        }
    }
    let lb = LoadBalancerConfig {
        data_v4: Some([192, 0, 2, 1].into()),
        data_v6: None,
        data_ports: 1..=2,
        sync_v4: None,
        sync_v6: None,
        sync_port: 1,
    };
    let config = Config { load_balancers: vec![lb], ..Config::default() };
    if let Ok(registry) = Registry::restore(config.clone(), "root", entries, Time(0)) {
        let again = registry.durable().records().map(|record| record.encode());
        let again = Registry::restore(config, "root", again, Time(0)).expect("what was restored once");
        assert_eq!(again.durable(), registry.durable());
    }
}
