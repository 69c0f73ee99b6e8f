//! Records as bytes, and which sets of them are refused.

mod registry_common;

use ejfat::Time;
use ejfat_control::{
    config::Config,
    record::{Key, Record},
    registry::Registry,
    session::{LEAST_WEIGHT, MOST_FACTOR},
};
use registry_common::{ROOT, config};
use simnet::Random;

const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A record of each kind, as version 1 writes it.
fn golden() -> Vec<(&'static str, String)> {
    let of = |key, value: &str| (key, value.replace("HASH", HASH));
    vec![
        of(
            "token/1",
            r#"{"v":1,"parent":0,"kind":"created","name":"hall b","sha256":"HASH","permissions":["LOAD_BALANCER/0:UPDATE","LOAD_BALANCER:RESERVE"],"most_reservations":2,"longest_ms":86400000,"created_ms":1800000000000}"#,
        ),
        of(
            "token/2",
            r#"{"v":1,"parent":1,"kind":"reservation","name":"reservation 4","sha256":"01HASH","permissions":["RESERVATION/4:UPDATE"],"most_reservations":null,"longest_ms":null,"created_ms":0}"#,
        ),
        of(
            "token/3",
            r#"{"v":1,"parent":2,"kind":"session","name":"session 9","sha256":"02HASH","permissions":["SESSION/9:UPDATE"],"most_reservations":null,"longest_ms":null,"created_ms":0}"#,
        ),
        of(
            "reservation/0",
            r#"{"v":1,"id":4,"name":"run-7","owner":1,"token":2,"ip_family":"dual","strategy":"static","until_ms":1900000000000,"created_ms":1800000000000}"#,
        ),
        of("sender/0/192.0.2.7", r#"{"v":1}"#),
        of("sender/0/2001:db8::7", r#"{"v":1}"#),
        of(
            "session/9",
            r#"{"v":1,"lb":0,"reservation":4,"token":3,"member":17,"name":"w\"1","weight":0.1,"address":"2001:db8::9","port":17750,"port_bits":3,"min_factor":0.5,"max_factor":2.0,"keep_lb_header":true,"slots":[[0,4],[8,1]],"registered_ms":1800000000001}"#,
        ),
        of("epoch/0", r#"{"v":1,"number":7,"from":18446744073709551615,"slots":[17,null,17,17]}"#),
        of("next/token", r#"{"v":1,"next":4}"#),
        of("next/reservation", r#"{"v":1,"next":5}"#),
        of("next/session", r#"{"v":1,"next":10}"#),
        of("next/member/0", r#"{"v":1,"next":18}"#),
        of(
            "audit/00000000000000000042",
            r#"{"v":1,"at_ms":1800000000000,"by":1,"call":"ReserveLoadBalancer","what":"reservation 4 of load balancer 0, \"run-7\""}"#,
        ),
        of("audit/18446744073709551615", r#"{"v":1,"at_ms":5,"by":null,"call":"SessionSilent","what":""}"#),
    ]
    .into_iter()
    .map(|(key, value)| (key, value.replace(&format!("01{HASH}"), &format!("01{}", &HASH[2..]))))
    .map(|(key, value)| (key, value.replace(&format!("02{HASH}"), &format!("02{}", &HASH[2..]))))
    .collect()
}

fn restore(entries: &[(&str, String)]) -> Result<Registry, String> {
    Registry::restore(config(), ROOT, entries.iter().cloned(), Time(0)).map_err(|why| why.to_string())
}

#[test]
fn records_of_version_1_are_read_and_written_byte_for_byte() {
    for (key, value) in golden() {
        let record = Record::decode(key.as_bytes(), value.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
        let (written_key, written) = record.encode();
        assert_eq!(String::from_utf8_lossy(&written_key), key);
        assert_eq!(String::from_utf8_lossy(&written), value);
    }
    let registry = restore(&golden()).expect("records that fit each other");
    let mut records: Vec<_> = registry.durable().records().map(|record| record.encode()).collect();
    let mut expected: Vec<_> =
        golden().into_iter().map(|(key, value)| (key.as_bytes().to_vec(), value.into_bytes())).collect();
    records.sort();
    expected.sort();
    assert_eq!(records, expected);
}

#[test]
fn keys_that_are_written_in_another_way_are_refused() {
    for key in [
        "",
        "token",
        "token/",
        "token/01",
        "token/+1",
        "token/-1",
        "token/4294967296",
        "reservation/64",
        "sender/0",
        "sender/0/192.0.2.07",
        "sender/0/2001:DB8::7",
        "sender/64/192.0.2.7",
        "session/x",
        "next/tokens",
        "next/member/64",
        "audit/42",
        "audit/000000000000000000042",
        "epoch/x",
        "Token/1",
        "token/1/",
        "token/1 ",
    ] {
        let why = Key::decode(key.as_bytes()).expect_err(key).to_string();
        assert!(why.ends_with("is of no kind that this program knows"), "{why}");
    }
    assert!(Key::decode(&[0xff; 300]).is_err());
}

#[test]
fn values_that_are_not_whole_are_refused_with_the_reason() {
    let golden = golden();
    let value = |key: &str| {
        golden.iter().find(|(of, _)| *of == key).map(|(_, value)| value.clone()).expect("a record")
    };
    let refused = |key: &str, value: &str, reason: &str| {
        let why = Record::decode(key.as_bytes(), value.as_bytes()).expect_err(value).to_string();
        assert!(why.contains(reason) && why.contains(key), "{why}");
    };
    for (key, value) in &golden {
        refused(key, &value.replace("\"v\":1", "\"v\":2"), "is of version 2");
        refused(key, &value.replace("\"v\":1", "\"v\":1,\"extra\":0"), "unknown field `extra`");
        refused(key, &value.replace("\"v\":1", "\"v\":1,\"v\":1"), "duplicate field");
        refused(key, &value.replace("\"v\":1", "\"w\":1"), "has no version");
        refused(key, &value[..value.len() - 1], "");
        refused(key, &format!("{value}x"), "");
    }
    // A field that may be null has to be there.
    for (key, field) in [
        ("token/2", "\"longest_ms\":null,"),
        ("token/2", "\"most_reservations\":null,"),
        ("reservation/0", "\"until_ms\":1900000000000,"),
        ("reservation/0", "\"token\":2,"),
        ("session/9", "\"token\":3,"),
        ("audit/18446744073709551615", "\"by\":null,"),
    ] {
        refused(key, &value(key).replace(field, ""), "missing field");
    }
    for (key, from, to, reason) in [
        ("token/1", "UPDATE", "ANYTHING", "no permission"),
        ("token/1", "0011", "0O11", "hash"),
        ("token/1", "0011", "00", "hash"),
        ("token/1", "created", "made", "unknown variant"),
        ("reservation/0", "static", "fixed", "strategy"),
        ("epoch/0", "17,null,17,17", "17,null,17", "number of slots"),
        ("session/9", "\"lb\":0", "\"lb\":64", "is wrong"),
        ("session/9", "\"port_bits\":3", "\"port_bits\":200", "port range"),
        ("session/9", "17750", "65535", "ports"),
        ("session/9", "0.1", "1e300", "weight"),
        ("session/9", "\"max_factor\":2.0", "\"max_factor\":0.25", "factor"),
        ("next/token", "4", "-4", "is wrong"),
    ] {
        refused(key, &value(key).replacen(from, to, 1), reason);
    }
}

#[test]
fn records_that_do_not_fit_each_other_are_refused_with_the_reason() {
    let without = |key: &str| golden().into_iter().filter(|(of, _)| *of != key).collect::<Vec<_>>();
    let with = |key: &'static str, from: &str, to: &str| {
        let changed = |(of, value): (&'static str, String)| {
            (of, if of == key { value.replace(from, to) } else { value })
        };
        golden().into_iter().map(changed).collect::<Vec<_>>()
    };
    let and = |key: &'static str, of: &str, from: &str, to: &str| {
        let mut all = golden();
        let value = all.iter().find(|(known, _)| *known == of).expect("a record").1.replace(from, to);
        all.push((key, value));
        all
    };
    let cases = [
        (without("token/1"), "token/2 has a parent that is missing"),
        (without("token/2"), "token/3 has a parent that is missing"),
        (without("token/3"), "session/9 has a token that is missing"),
        (without("reservation/0"), "came with a reservation or session that is missing"),
        (without("session/9"), "token/3 came with a reservation or session that is missing"),
        (without("next/token"), "is not below next/token"),
        (without("next/reservation"), "reservation/0 has an id that is not below next/reservation"),
        (without("next/session"), "session/9 is not below next/session"),
        (with("token/1", "\"parent\":0", "\"parent\":3"), "token/1 has a parent that is not older"),
        (with("token/2", "\"01", "\"00"), "has the hash of another token"),
        (with("reservation/0", "\"owner\":1", "\"owner\":7"), "has an owner that is missing"),
        (with("reservation/0", "\"token\":2", "\"token\":1"), "token"),
        (
            with("session/9", "\"reservation\":4", "\"reservation\":3"),
            "session/9 is of a reservation that is missing",
        ),
        (with("session/9", "\"lb\":0", "\"lb\":1"), "session/9 is of a reservation that is missing"),
        (with("session/9", "\"member\":17", "\"member\":65535"), "an id that none has"),
        (with("session/9", "[8,1]", "[3,1]"), "overlap"),
        (with("session/9", "[8,1]", "[4096,1]"), "beyond all slots"),
        (with("session/9", "[8,1]", "[8,4294967295]"), "beyond all slots"),
        (and("session/8", "session/9", "\"token\":3", "\"token\":null"), "is a member that another one is"),
        (and("reservation/1", "reservation/0", "", ""), "has the id of another reservation"),
        (
            and("sender/1/192.0.2.7", "sender/0/192.0.2.7", "", ""),
            "sender/1/192.0.2.7 is the sender of no reservation",
        ),
        (and("token/0", "token/1", "HASH", ""), "has the id of the root token"),
    ];
    for (entries, reason) in cases {
        let why = restore(&entries).expect_err(reason);
        assert!(why.contains(reason), "{why}; expected {reason}");
        assert!(why.contains("do not fit each other"), "{why}");
    }
}

#[test]
fn a_configuration_that_has_no_room_for_the_records_is_refused_with_the_setting_and_the_remedy() {
    type Lower = fn(&mut Config);
    let token = |id: u32| {
        let hash = format!("\"{id:02}{}", &HASH[2..]);
        golden()[0].1.replace(&format!("\"{HASH}"), &hash)
    };
    let mut site: Vec<_> = golden().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    site.push(("token/4".to_owned(), token(4)));
    site.iter_mut().for_each(|(key, value)| {
        if key == "next/token" {
            *value = value.replace('4', "5");
        }
    });
    site.push(("sender/0/192.0.2.8".to_owned(), r#"{"v":1}"#.to_owned()));
    let restore = |config: Config| {
        let entries = site.iter().map(|(key, value)| (key, value));
        Registry::restore(config, ROOT, entries, Time(0)).map(drop).map_err(|why| why.to_string())
    };
    let smaller = |change: Lower| {
        let mut config = Config { slots: 16, most_members: 1, most_senders: 2, most_tokens: 2, ..config() };
        change(&mut config);
        restore(config)
    };
    assert_eq!(smaller(|_| ()), Ok(()), "just enough");
    let cases: [(Lower, &str); 4] = [
        (|of| of.slots = 8, "slots up to number 8 for itself, and slots is 8: configure 16 again"),
        (
            |of| of.most_members = 0,
            "1 workers are registered, and most_members is 0: configure at least 1 again",
        ),
        (|of| of.most_senders = 1, "2 IPv4 senders, and most_senders is 1: configure at least 2 again"),
        (|of| of.most_tokens = 1, "2 tokens were made, and most_tokens is 1: configure at least 2 again"),
    ];
    for (change, reason) in cases {
        let why = smaller(change).expect_err(reason);
        assert!(why.contains(reason) && !why.contains("backup"), "{why}");
    }
    let mut all = golden();
    let of_2 = |value: &str| value.replace("\"id\":4", "\"id\":3").replace("\"token\":2", "\"token\":null");
    all.push(("reservation/2", of_2(&golden()[3].1)));
    let mut fewer = config();
    fewer.load_balancers.truncate(2);
    let why = Registry::restore(fewer, ROOT, all.iter().cloned(), Time(0))
        .expect_err("load balancer 2")
        .to_string();
    let reason =
        "load balancer 2 is reserved, by reservation 3, \"run-7\", and not in load_balancers any more";
    assert!(why.contains(reason) && why.contains("configure it again") && !why.contains("backup"), "{why}");
    assert!(Registry::restore(config(), ROOT, all, Time(0)).is_ok());
}

#[test]
fn every_weight_is_read_as_it_was_written() {
    let golden = golden();
    let (key, value) = golden.iter().find(|(key, _)| *key == "session/9").expect("a session");
    let Ok(Record::Session(session)) = Record::decode(key.as_bytes(), value.as_bytes()) else {
        panic!("a session")
    };
    let mut random = Random::new(1, 0);
    for _ in 0..100_000 {
        let mut session = session.clone();
        let weight = f32::from_bits(random.next_u32());
        if !(LEAST_WEIGHT..=MOST_FACTOR).contains(&weight) {
            continue;
        }
        session.worker.weight = weight;
        let record = Record::Session(session);
        let (key, value) = record.encode();
        assert_eq!(Record::decode(&key, &value), Ok(record), "{weight}, bits {:x}", weight.to_bits());
    }
}
