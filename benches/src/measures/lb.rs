//! `naa bench lb`: the control plane of EJFAT's load balancer. Calls are compared with bare gRPC, and times with the control plane's
//! own period.

use naa_measure::row::Target::{AtLeast, AtMost};

use super::{Builder, Cpu, Measure};
use crate::sides::{
    Far, Near,
    ejfat::{By, Figure, Load},
    lb::{Server, What},
};

/// All measures, in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![states(1), states(64), first_event(), last_event(), changing()]
}

const CPU: Cpu = Cpu { unit: "us/call", per_second: 1e6, ends: &["clients", "server"] };

fn states(clients: u32) -> Measure {
    let mut b = Builder::default();
    let [ours, echo] = [Server::ControlPlane, Server::Echo]
        .map(|server| b.contender(Far::Lb(server), Near::States { server, clients }));
    let people = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let name = format!("SendState per second, {people}, vs bare gRPC (tonic) echo");
    b.row(name, ours, echo, AtLeast(0.6), AtLeast(0.8));
    b.measure("per s", CPU)
}

fn first_event() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(Far::Lb(Server::ControlPlane), Near::Worker(What::FirstEvent));
    let name = "from Register to a worker's first event, longest of 4, in periods of 1 s";
    b.row(name, ours, None, AtMost(1.5), AtMost(1.1));
    b.measure("periods", None)
}

fn last_event() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(Far::Lb(Server::ControlPlane), Near::Worker(What::LastEvent));
    let name = "from the detection of a worker's death to the last event sent to it";
    b.row(name, ours, None, AtMost(60.0), AtMost(20.0));
    b.measure("ms", None)
}

fn changing() -> Measure {
    let mut b = Builder::default();
    let load = Load { event: 1 << 20, mtu: 9000 };
    let [ours, steady] = [By::Changing, By::Balancer]
        .map(|by| b.contender(Far::EventPasser(load, by), Near::EventsThrough(load, Figure::Bytes, by)));
    let name = "LB goodput with an epoch change each second, lossless, vs without";
    b.row(name, ours, steady, AtLeast(0.95), AtLeast(0.99));
    b.measure("GiB/s", Cpu { unit: "s/GiB", per_second: 1.0, ends: &["sender and receiver", "balancer"] })
}
