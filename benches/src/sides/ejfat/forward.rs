//! The load balancer's forwarder, with one member.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, Rules, calendar, prefixes},
    listen::Listen,
    segment::IpVersion,
};
use ejfat_lb::{Forwarder, ForwarderConfig, SharedDataPlane, When};

use super::{
    BUFFER,
    control::{State, answer_at},
};
use crate::sides::Running;

/// Forwards segments without their LB header, as to any worker, to the address that the near end tells. With `period`, the
/// forwarder gets tables with another epoch in each period.
pub(in crate::sides) fn serve(period: Option<Duration>) -> anyhow::Result<(SocketAddr, Running)> {
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    let (own, programmed) = (Arc::<OnceLock<IpAddr>>::default(), plane.clone());
    let at = own.clone();
    let target = Arc::<Mutex<Option<(IpAddr, SocketAddr)>>>::default();
    let its_target = target.clone();
    let address = answer_at(Arc::new(State::default()), move |to| {
        let own = *at.get().context("it does not forward yet")?;
        programmed.load(&rules(own, to, 0)?, When::Now)?;
        *lock(&its_target) = Some((own, to));
        Ok(())
    })?;
    let listen = vec![vec![Listen::Port(address)]];
    let forwarder = Forwarder::start(&ForwarderConfig { listen, buffer: BUFFER }, &plane)?;
    own.get_or_init(|| address.ip());
    if let Some(period) = period {
        let plane = plane.clone();
        thread::Builder::new().name("epochs".into()).spawn(move || change(&plane, &target, period))?;
    }
    Ok((address, Box::new(forwarder)))
}

/// Stages tables with another epoch in each period, as long as the process lives. `target` is the forwarder's own address and the
/// one that it forwards to, as soon as these are known.
fn change(plane: &SharedDataPlane, target: &Mutex<Option<(IpAddr, SocketAddr)>>, period: Duration) {
    for epoch in (0..2).cycle() {
        thread::sleep(period);
        let Some((own, to)) = *lock(target) else { continue };
        let staged = rules(own, to, epoch).and_then(|rules| Ok(plane.load(&rules, When::Next)?));
        if let Err(why) = staged {
            eprintln!("naa: tables were not staged: {why}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rules(own: IpAddr, to: SocketAddr, epoch: u32) -> anyhow::Result<Rules> {
    let lb = LbId::new(0)?;
    let mut rules = Rules::default();
    let member =
        Forward { mac: None, address: to.ip(), port: to.port(), port_bits: 0, keep_lb_header: false };
    let member = Member::Forward(member);
    let mut all = vec![
        Rule::Destination { address: own, lb },
        // This is the source address of programs that bind no address.
        Rule::Source { lb, address: Ipv4Addr::LOCALHOST.into() },
        Rule::Member { lb, ip: IpVersion::V4, id: 1, member },
    ];
    all.extend(prefixes(..).into_iter().map(|ticks| Rule::Epoch { lb, ticks, epoch: Epoch::new(epoch) }));
    all.extend(calendar(lb, epoch, &[1]));
    all.into_iter().try_for_each(|rule| rules.insert(rule, false))?;
    Ok(rules)
}
