//! Tests of machine names that stand for several addresses. A resolver in the test supplies the addresses.

mod model;

use std::{io, net::SocketAddr, time::Duration};

use naa_host::{Device, Error, ProviderChoice, SessionConfig, find};

use model::{AcceleratorModel, Action};

fn look_up(addresses: &[SocketAddr]) -> Result<(Device, SocketAddr), Error> {
    let config = SessionConfig { setup_timeout: Duration::from_secs(4), ..SessionConfig::default() };
    let resolve = |host: &str, _: u16| match host {
        "node7" => Ok(addresses.to_vec()),
        _ => Err(io::Error::other("unknown")),
    };
    find(resolve, ("node7", 12345), &config, |peer| {
        let local = if peer.is_ipv4() { "127.0.3.211" } else { "::1" };
        Device::open_with(local.parse().unwrap(), ProviderChoice::Embedded)
    })
}

#[test]
fn every_address_of_a_name_is_tried_in_the_resolvers_order() {
    let server = AcceleratorModel::start("127.0.3.210", |_, _| Action::Disconnect);
    let closed = SocketAddr::new(server.address.ip(), server.address.port() ^ 1);
    // On most machines, no server listens at [::1]:12345, so the search must go on to the next address.
    let other: SocketAddr = "[::1]:12345".parse().unwrap();
    for addresses in [
        &[server.address][..],
        &[server.address, closed],
        &[closed, server.address],
        &[other, server.address],
    ] {
        let (device, found) = look_up(addresses).unwrap();
        assert_eq!((found, device.address().is_ipv4()), (server.address, true), "{addresses:?}");
    }
    let error = look_up(&[other, closed]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NoneReached { .. }), "{text}");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at("node7") < at("[::1]:12345") && at("[::1]:12345") < at(&closed.to_string()), "{text}");
    assert!(text.contains("2 addresses") && text.contains("nobody listens on that port"), "{text}");
}

#[test]
fn a_name_without_addresses_is_named() {
    let error = look_up(&[]).unwrap_err();
    assert!(matches!(error, Error::Name { .. }) && error.to_string().contains("node7"), "{error}");
}
