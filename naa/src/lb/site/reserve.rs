//! `naa lb reserve` and `naa lb extend`.

use std::net::{IpAddr, SocketAddr};

use clap::ValueEnum;
use ejfat::{
    uri::{DataAddress, EjfatUri},
    wire::DATA_PORT,
};
use ejfat_client::messages as pb;
use serde_json::json;

use super::{
    At, Of,
    when::{End, end, text},
};
use crate::show;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb reserve run12 --for 8h                             prints a line for the shell
  eval \"$(naa lb reserve run12)\"                            sets EJFAT_URI
  naa lb reserve run12 --sender 10.9.0.5 --strategy static

The token in the URI that is printed is the reservation's: whoever has it may register workers and \
senders, and end the reservation.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Family {
    Both,
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Strategy {
    /// The states that workers report
    Dynamic,
    /// Slot demands; the other slots are shared by weight
    Static,
    /// Slot demands only
    Explicit,
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Args {
    /// A name for people: letters, digits and any of - _ : / in parts with dots between them
    #[arg(value_name = "NAME", default_value = "")]
    name: String,
    /// How long the reservation lasts: a number followed by ms, s, m, h or d, or never [default: the site's]
    #[arg(long = "for", value_name = "TIME", value_parser = end)]
    stay: Option<End>,
    /// An address from which segments come; repeat the option for more
    #[arg(long, value_name = "ADDRESS")]
    sender: Vec<IpAddr>,
    /// The IP versions that the load balancer gets addresses of
    #[arg(long, value_enum, default_value = "both")]
    family: Family,
    /// What decides the slots of each worker
    #[arg(long, value_enum, default_value = "dynamic")]
    strategy: Strategy,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (uri, connection) = args.at.connect()?;
    let family = match args.family {
        Family::Both => pb::IpFamily::DualStack,
        Family::V4 => pb::IpFamily::Ipv4,
        Family::V6 => pb::IpFamily::Ipv6,
    };
    let strategy = match args.strategy {
        Strategy::Dynamic => "dynamic",
        Strategy::Static => "static",
        Strategy::Explicit => "explicit",
    };
    let reserved = connection.reserve(pb::ReserveLoadBalancerRequest {
        name: args.name.clone(),
        until: args.stay.map(End::timestamp),
        sender_addresses: args.sender.iter().map(ToString::to_string).collect(),
        ip_family: family.into(),
        strategy: strategy.to_owned(),
    })?;
    let of = uri_of(&uri, &reserved).to_string();
    if args.at.json {
        let object = json!({
            "lb": reserved.lb_id, "uri": of, "token": reserved.token, "fpga_lb": reserved.fpga_lb_id,
            "data_ipv4": reserved.data_ipv4_address, "data_ipv6": reserved.data_ipv6_address,
            "data_ports": [reserved.data_min_port, reserved.data_max_port],
            "sync_ipv4": reserved.sync_ipv4_address, "sync_ipv6": reserved.sync_ipv6_address,
            "sync_port": reserved.sync_udp_port, "strategy": reserved.strategy,
        });
        return Ok(show::line(&object.to_string())?);
    }
    Ok(show::line(&format!("export EJFAT_URI='{of}'"))?)
}

/// Returns the URI of a reservation, with the host at which the control plane was reached.
fn uri_of(uri: &EjfatUri, reserved: &pb::ReserveLoadBalancerReply) -> EjfatUri {
    let port = |port: u32| u16::try_from(port).ok().filter(|port| *port > 0);
    let ports =
        port(reserved.data_min_port).zip(port(reserved.data_max_port)).filter(|(first, last)| first <= last);
    let ports = ports.map_or(DATA_PORT..=DATA_PORT, |(first, last)| first..=last);
    let sync = [&reserved.sync_ipv4_address, &reserved.sync_ipv6_address];
    let sync = sync
        .into_iter()
        .filter_map(|ip| Some(SocketAddr::new(ip.parse().ok()?, port(reserved.sync_udp_port)?)));
    EjfatUri {
        tls: uri.tls,
        token: Some(reserved.token.clone()),
        lb_id: Some(reserved.lb_id.clone()),
        data_v4: reserved.data_ipv4_address.parse().ok().map(|ip| DataAddress { ip, ports: ports.clone() }),
        data_v6: reserved.data_ipv6_address.parse().ok().map(|ip| DataAddress { ip, ports }),
        sync: sync.collect(),
        ..EjfatUri::new(&uri.host, uri.port)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Extend {
    /// How long the reservation lasts from now on: a number followed by ms, s, m, h or d, or never
    #[arg(value_name = "TIME", value_parser = end)]
    stay: End,
    #[command(flatten)]
    of: Of,
}

pub(super) fn extend(args: &Extend) -> anyhow::Result<()> {
    let (lb, connection) = args.of.connect()?;
    let reply = connection.extend(&lb, Some(args.stay.timestamp()))?;
    let until = text(reply.until.as_ref());
    args.of.at.done(&json!({ "lb": lb, "until": until }), || format!("reservation {lb} ends: {until}"))
}
