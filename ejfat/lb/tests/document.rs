//! Rules as YAML.

#[path = "../../ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use ejfat::lb::{LbId, Rule, Table};
use ejfat_lb::document::{Document, DocumentError};
use lb_common::{random_rules, seeds};
use simnet::Random;

const EXAMPLE: &str = r#"
load_balancers:
- lb: 0
  addresses: [10.0.0.1, "fd00::1"]
  senders: [10.0.0.5]
  epochs:
  - id: 0
    ticks: [0-0x3fffffffffffffff]
    calendar: (1 2)x256
  - id: 1
    ticks: [0x4000000000000000/2, "0x8000000000000000-"]
    slot_bits: 4
    xor: 3
    calendar: 2x8 -x4 1x4
  members:
  - {id: 1, address: 10.0.0.9, port: 10000, port_bits: 2, mac: "02:00:00:00:00:0a"}
  - {id: 2, address: "fd00::9", port: 10000, keep_lb_header: true}
  - {id: 2, drop: soft_evicted, ip: v4}
"#;

#[test]
fn the_example_means_what_it_says() {
    let rules = Document::parse(EXAMPLE).unwrap().rules().unwrap();
    let counts = Table::ALL.map(|table| rules.count(table));
    assert_eq!(counts, [2, 1, 0, 3, 512 + 12, 3]);
    let lb = LbId::new(0).unwrap();
    let slot = |slot, member| Rule::Slot { lb, epoch: 1, slot, member };
    for rule in [slot(0, 2), slot(12, 1)] {
        assert_eq!(rules.get(&rule.key()), Some(rule));
    }
    assert_eq!(rules.get(&slot(8, 0).key()), None);
}

#[test]
fn any_rules_come_back_as_yaml_and_as_json() {
    for seed in 0..seeds().min(200) {
        let rules = random_rules(&mut Random::new(seed, 90));
        let document = Document::of(&rules);
        let yaml = document.to_yaml().unwrap();
        assert_eq!(Document::parse(&yaml).unwrap().rules().unwrap(), rules, "seed {seed}:\n{yaml}");
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(Document::parse(&json).unwrap(), document, "seed {seed}");
    }
}

#[test]
fn what_a_document_leaves_open_is_named() {
    let complete =
        |text: &str| Document::parse(text).unwrap().complete_rules().map_err(|error| error.to_string());
    assert_eq!(complete(EXAMPLE), Ok(Document::parse(EXAMPLE).unwrap().rules().unwrap()));
    let fewer = EXAMPLE.replace("(1 2)x256", "(1 2)x255");
    let said = complete(&fewer).unwrap_err();
    assert!(said.contains("epoch 0 has 510 of 512 slots, so slots 510 to 511 have no member"), "{said}");
    assert!(said.contains("-x2"), "{said}");
    assert!(complete(&EXAMPLE.replace("(1 2)x256", "(1 2)x255 -x2")).is_ok(), "they are meant to have none");
    let none = EXAMPLE.replace("    calendar: (1 2)x256\n", "");
    assert!(complete(&none).unwrap_err().contains("slots 0 to 511 have no member"), "{none}");
    let strangers = EXAMPLE.replace("(1 2)x256", "(1 7)x255 9 8");
    let said = complete(&strangers).unwrap_err();
    assert!(said.contains("members that are not defined: 7 to 9;"), "{said}");
    for text in [fewer, none, strangers] {
        assert!(Document::parse(&text).unwrap().rules().is_ok(), "the wire takes them");
    }
}

#[test]
fn rules_with_gaps_are_written_with_gaps_that_are_meant() {
    let text = EXAMPLE.replace("(1 2)x256", "-x2 1 2");
    let written = Document::of(&Document::parse(&text).unwrap().rules().unwrap()).to_yaml().unwrap();
    assert!(written.contains("-x2 1 2 -x508"), "{written}");
    assert!(Document::parse(&written).unwrap().complete_rules().is_ok(), "{written}");
}

#[test]
fn mistakes_are_named() {
    for (change, with, named) in [
        ("lb: 0", "lb: 64", "load balancer 64"),
        ("senders", "sender", "sender"),
        ("port: 10000, port_bits: 2, ", "", "member 1 has no port"),
        ("(1 2)x256", "(1 two)x256", "\"two\" is no member"),
        (", ip: v4", "", "which IP version"),
        ("02:00:00:00:00:0a", "02:00", "no MAC address"),
        ("0x4000000000000000/2", "0x4000000000000001/2", "beyond a prefix"),
        ("0-0x3fffffffffffffff", "10-3", "are no ticks"),
        ("0-0x3fffffffffffffff", "all, all", "a rule for this key already"),
    ] {
        let text = EXAMPLE.replacen(change, with, 1);
        let error = Document::parse(&text).and_then(|document| document.rules().map(drop)).unwrap_err();
        let mut told = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            told = format!("{told}: {error}");
            cause = error.source();
        }
        assert!(told.contains(named), "{told}");
    }
    let long = " ".repeat(9 << 20);
    assert!(matches!(Document::parse(&long), Err(DocumentError::TooLong(_))));
}
