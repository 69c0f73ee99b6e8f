//! The load balancer's forwarder, with one member.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, Rules, calendar, prefixes},
    listen::Listen,
    segment::IpVersion,
};
use ejfat_lb::{Forwarder, ForwarderConfig, Plane, When};

use super::{
    BUFFER,
    control::{State, answer_at},
};
use crate::sides::Running;

/// Forwards to where it is told, without the LB header, as to any worker.
pub(in crate::sides) fn serve() -> anyhow::Result<(SocketAddr, Running)> {
    let plane = Arc::new(Plane::new(Rules::default(), 1));
    let (own, programmed) = (Arc::<OnceLock<IpAddr>>::default(), plane.clone());
    let at = own.clone();
    let address = answer_at(Arc::new(State::default()), move |to| {
        let own = *at.get().context("it does not forward yet")?;
        programmed.load(&rules(own, to)?, When::Now)?;
        Ok(())
    })?;
    let listen = vec![vec![Listen::Port(address)]];
    let forwarder = Forwarder::start(&ForwarderConfig { listen, buffer: BUFFER }, &plane)?;
    own.get_or_init(|| address.ip());
    Ok((address, Box::new(forwarder)))
}

fn rules(own: IpAddr, to: SocketAddr) -> anyhow::Result<Rules> {
    let lb = LbId::new(0)?;
    let mut rules = Rules::default();
    let member =
        Forward { mac: None, address: to.ip(), port: to.port(), port_bits: 0, keep_lb_header: false };
    let member = Member::Forward(member);
    let mut all = vec![
        Rule::Destination { address: own, lb },
        // From where programs send that bind no address.
        Rule::Source { lb, address: Ipv4Addr::LOCALHOST.into() },
        Rule::Member { lb, ip: IpVersion::V4, id: 1, member },
    ];
    all.extend(prefixes(..).into_iter().map(|ticks| Rule::Epoch { lb, ticks, epoch: Epoch::new(0) }));
    all.extend(calendar(lb, 0, &[1]));
    all.into_iter().try_for_each(|rule| rules.insert(rule, false))?;
    Ok(rules)
}
