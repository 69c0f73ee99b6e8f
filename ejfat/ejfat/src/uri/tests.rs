use super::*;

fn parse(text: &str) -> EjfatUri {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn everything_at_once() {
    let text = "ejfats://tok@cp.example.org:18347/lb/36?sync=192.0.2.1:19531&sync=[2001:db8::1]:19531&\
                data=192.0.2.2:16384-32767&data=[2001:db8::2]:19522&sessionid=7";
    let uri = parse(text);
    assert!(uri.tls);
    assert_eq!((uri.token.as_deref(), uri.host.as_str(), uri.port), (Some("tok"), "cp.example.org", 18347));
    assert_eq!((uri.lb_id.as_deref(), uri.session.as_deref()), (Some("36"), Some("7")));
    assert_eq!(uri.sync, ["192.0.2.1:19531", "[2001:db8::1]:19531"].map(|at| at.parse().unwrap()));
    assert_eq!(uri.data_v4.as_ref().unwrap().ports, 16384..=32767);
    assert_eq!(uri.data(false), Some("192.0.2.2:16384".parse().unwrap()));
    assert_eq!(uri.data(true), Some("[2001:db8::2]:19522".parse().unwrap()));
    assert_eq!(uri.to_string(), text);
}

#[test]
fn what_others_write_is_read_and_written_in_one_way() {
    for (text, canonical) in [
        (
            "ejfat://useless@10.0.0.1:12345/lb/1?data=10.0.0.2",
            "ejfat://useless@10.0.0.1:12345/lb/1?data=10.0.0.2:19522",
        ),
        ("ejfat://[::1]:18008/", "ejfat://[::1]:18008/"),
        (
            "ejfat://t@%5B::1%5D:18008/lb/36?data=%5B2001:db8::2%5D:19522",
            "ejfat://t@[::1]:18008/lb/36?data=[2001:db8::2]:19522",
        ),
        ("ejfat://%5b2001%3Adb8%3A%3A1%5d:18008", "ejfat://[2001:db8::1]:18008/"),
        ("ejfat://h:1/?sync=%5B::1%5D%3A5", "ejfat://h:1/?sync=[::1]:5"),
        ("ejfat://localhost:18008", "ejfat://localhost:18008/"),
        ("EJFAT://h:1/lb/", "ejfat://h:1/"),
        ("ejfat://h:1/lb/1&sessionid=9", "ejfat://h:1/lb/1?sessionid=9"),
        ("ejfat://h:1?data=10.0.0.2:7000", "ejfat://h:1/?data=10.0.0.2:7000"),
        ("ejfat://h:1/lb/1?data=2001:db8::2", "ejfat://h:1/lb/1?data=[2001:db8::2]:19522"),
        ("ejfat://h:1/lb/1?data=[2001:db8::2]", "ejfat://h:1/lb/1?data=[2001:db8::2]:19522"),
        ("ejfat://h:1/lb/1?data=%5B2001:db8::2%5D:19523", "ejfat://h:1/lb/1?data=[2001:db8::2]:19523"),
        ("ejfat://a%40b@h:1/lb/a%2Fb", "ejfat://a%40b@h:1/lb/a%2Fb"),
        ("ejfat://@h:1/", "ejfat://h:1/"),
        ("ejfat://h:1/?strategy=static&x", "ejfat://h:1/?strategy=static&x="),
        ("ejfat://h:1/?sync=10.0.0.1:5&sync=10.0.0.1:5", "ejfat://h:1/?sync=10.0.0.1:5"),
        (" ejfat://h:1/\n", "ejfat://h:1/"),
    ] {
        assert_eq!(parse(text).to_string(), canonical, "{text}");
        assert_eq!(parse(canonical), parse(text), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |text: &str| text.parse::<EjfatUri>().unwrap_err();
    for text in ["", "http://h:1/", "ejfat:/h:1", "h:1/lb/1"] {
        assert_eq!(refused(text), UriError::Scheme, "{text}");
    }
    assert_eq!(refused("ejfat://:1/"), UriError::Host);
    for port in ["", "0", "65536", "+1", "1x", "-1"] {
        assert_eq!(refused(&format!("ejfat://h:{port}/")), UriError::Port(port.into()));
    }
    assert_eq!(refused("ejfat://h/"), UriError::Port(String::new()));
    assert!(refused("ejfat://h/").to_string().starts_with("the port of the control plane is missing"));
    assert_eq!(refused("ejfat://%5B::1%5D/"), UriError::Port(String::new()));
    for host in ["[::1:1", "::1:1", "[name]:1", "a[b]:1", "a%3Ab:1", "%5B::1:1", "%5Bname%5D:1"] {
        assert!(matches!(refused(&format!("ejfat://{host}/")), UriError::HostName(_)), "{host}");
    }
    assert!(matches!(refused("ejfat://h:1/nb/1"), UriError::Path(_)));
    assert!(matches!(refused("ejfat://h:1/lb/1/2"), UriError::Path(_)));
    assert!(matches!(refused("ejfat://h:1/lb/%4"), UriError::Percent(_)));
    assert!(matches!(refused("ejfat://%ff@h:1/"), UriError::Percent(_)));
    for query in [
        "data=host",
        "data=10.0.0.1:0",
        "data=10.0.0.1:9-8",
        "data=[::1]x",
        "data=",
        "sync=10.0.0.1",
        "sync=::1",
    ] {
        assert!(matches!(refused(&format!("ejfat://h:1/?{query}")), UriError::Value { .. }), "{query}");
    }
    assert!(matches!(refused("ejfat://h:1/?data=10.0.0.1&data=10.0.0.2"), UriError::TwoData(_)));
}

#[test]
fn logs_do_not_hold_the_token() {
    assert_eq!(format!("{:?}", parse("ejfat://secret@h:1/lb/1")), "EjfatUri(ejfat://hidden@h:1/lb/1)");
}
