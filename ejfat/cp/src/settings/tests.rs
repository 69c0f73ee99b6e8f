//! Tests of settings.

use super::*;

#[test]
fn nothing_is_a_site_on_loopback() {
    for text in ["", "# nothing\n"] {
        let settings = Settings::parse(text).unwrap();
        let config = settings.config();
        assert_eq!(config.load_balancers.len(), 4);
        assert!(config.addresses.loopback && settings.has_local_plane());
        assert_eq!(settings.public().unwrap(), ("127.0.0.1".to_owned(), GRPC_PORT));
        assert!(ejfat_control::registry::Registry::new(config, "root").is_ok());
    }
}

#[test]
fn a_whole_site_is_understood() {
    let settings = Settings::parse(
        "listen: ['10.0.0.1:19523', '[fd00::1]:19523']
public: lb.example.org
tls: {cert: lb.pem, key: lb.key}
load_balancers:
  - {ipv4: 10.1.0.1, ipv6: 'fd00:1::1', ports: 16384-32767}
  - {ipv4: 10.1.0.2, ports: 19522, sync_port: 20000}
planes:
  - {kind: naa, address: 'plane:18010'}
  - {kind: smartnic, address: 'nic:8440', mac: '02:00:00:00:00:01', next_hop: '02:00:00:00:00:02'}
default_stay: never
workers: {own_only: true}
liveness: {silent: 1500ms, ended: 2m}
limits: {workers: 512}
rate_factor: 3",
    )
    .unwrap();
    let config = settings.config();
    assert_eq!(settings.public().unwrap(), ("lb.example.org".to_owned(), GRPC_PORT));
    assert_eq!(Settings::parse("metrics: 9100").unwrap().metrics, "127.0.0.1:9100".parse().ok());
    assert_eq!(config.load_balancers[0].data_ports, 16_384..=32_767);
    assert_eq!(config.load_balancers[1].sync_port, 20_000);
    assert_eq!(config.load_balancers[0].sync_v6, "fd00::1".parse().ok());
    assert_eq!((config.default_stay, config.most_members), (None, 512));
    assert_eq!(config.liveness.silent, Duration::from_millis(1500));
    assert!(!config.addresses.loopback && config.addresses.own_only && !settings.has_local_plane());
    assert_eq!(settings.planes(|| unreachable!()).unwrap().len(), 2);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let error = |text: &str| Settings::parse(text).unwrap_err();
    for (text, said) in [
        ("listen: [x]", "line 1"),
        ("slots: 512\nslotz: 3", "slotz"),
        ("slots: 512\nslotz: 3", "line 2"),
        ("load_balancers:\n  - {ports: 9-1}", "9-1"),
        ("liveness:\n  silent: soon", "line 2"),
        ("planes: [{kind: magic}]", "magic"),
        ("default_stay: 8 hours", "default_stay: "),
        ("slots: 512\ndefault_stay: 8 hours", "line 2"),
        ("backup_every: 5", "backup_every: "),
        ("metrics: x", "metrics: "),
        ("planes:\n- kind: local\n- kind: naa", "planes[1]: missing field `address`"),
        ("planes:\n- kind: naa\n    address: x:1", "indentation"),
    ] {
        assert!(error(text).contains(said), "{text:?}: {}", error(text));
    }
}

#[test]
fn values_that_do_not_fit_each_other_are_named_with_their_line() {
    let file = std::env::temp_dir().join(format!("naa-settings-{}.yaml", std::process::id()));
    let error = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Settings::read(&file).unwrap().check().unwrap_err().to_string()
    };
    for (text, line, said) in [
        ("slots: 512\nrate_factor: 0.5", 2, "rate_factor"),
        ("# a site\nslots: 500", 2, "slots"),
        ("load_balancers:\n- ipv4: 10.0.0.1\n- ports: 7", 3, "load_balancers[1]"),
        ("load_balancers:\n- ipv4: 10.0.0.1\n- ipv4: 10.0.0.1", 1, "10.0.0.1"),
        ("limits:\n  senders: 1\n  workers: 60000", 3, "limits.workers"),
        ("listen: ['0.0.0.0:1']", 1, "public"),
        ("planes:\n- kind: local\n- {kind: naa, address: 'x:1', token_file: /nowhere}", 3, "planes[1]"),
        ("slots: 512\ntls: {cert: /nowhere.pem, key: /nowhere.key}", 2, "cannot read /nowhere.pem"),
    ] {
        let (said_of, place) = (error(text), format!("{}:{line}: ", file.display()));
        let is_named = said_of.starts_with(&place) || (said == "public" && said_of.contains(said));
        assert!(is_named && said_of.contains(said), "{text:?}: {said_of}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_certificate_without_its_key_is_refused_and_so_is_a_key_without_its_certificate() {
    let nic = "kind: smartnic, mac: '02:00:00:00:00:01', next_hop: '02:00:00:00:00:02'";
    for kind in ["kind: naa", nic] {
        for (one, other) in [("cert", "key"), ("key", "cert")] {
            let plane = format!("{{{kind}, address: 'x:1', tls: {{{one}: file.pem}}}}");
            let settings = Settings::parse(&format!("planes: [{plane}]")).unwrap();
            let error = settings.check().unwrap_err().to_string();
            let expected = format!("planes[0]: `tls` has `{one}` but no `{other}`; set both or neither");
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn the_schema_names_every_field() {
    let schema = Settings::schema().to_string();
    for field in ["listen", "rate_factor", "sync_ipv6", "next_hop", "first_state", "client_ca"] {
        assert!(schema.contains(field), "{field}");
    }
}
