//! Rules compiled for lookups.

use std::net::{IpAddr, SocketAddr};

use super::{
    DropCause, Forward, LbId, Member, Rules,
    addresses::Addresses,
    compile::{Calendar, Compiler, MemberEntry, low_bits},
    version,
};
use crate::{segment::IpVersion, wire::LbHeader};

/// The tables of the data plane. Lookups allocate nothing.
#[derive(Clone, Debug)]
pub struct Tables {
    destinations: Addresses<LbId>,
    sources: [Addresses<()>; LbId::COUNT],
    /// Where ticks begin to lead to another calendar; the first is tick 0.
    begins: [Vec<u64>; LbId::COUNT],
    calendars: [Vec<Option<Calendar>>; LbId::COUNT],
    /// Of all calendars, one behind the other, as [`Calendar::member`] reads them.
    slots: Vec<u16>,
    members: Vec<MemberEntry>,
    /// The members that rules describe, also those to which no slot leads.
    described: Vec<(LbId, u16)>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    pub lb: LbId,
    pub epoch: u32,
    pub slot: u16,
    pub member: u16,
    /// Of the next hop, if the member's rule says so.
    pub mac: Option<[u8; 6]>,
    /// Of the packet's IP version.
    pub to: SocketAddr,
    pub keep_lb_header: bool,
}

/// A [`Route`] before it is written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    lb: LbId,
    epoch: u32,
    slot: u16,
    member: u16,
    /// Which of [`Tables::members`] it is.
    pub(super) at: usize,
    pub(super) forward: &'a Forward,
    pub(super) port: u16,
}

impl Found<'_> {
    #[inline]
    pub(super) fn route(self) -> Route {
        let Self { lb, epoch, slot, member, forward, port, .. } = self;
        let Forward { mac, address, keep_lb_header, .. } = *forward;
        Route { lb, epoch, slot, member, mac, to: SocketAddr::new(address, port), keep_lb_header }
    }
}

impl Tables {
    pub fn new(rules: &Rules) -> Self {
        let mut sources: [Vec<_>; LbId::COUNT] = Default::default();
        for &(lb, address) in rules.sources_v4.keys().chain(rules.sources_v6.keys()) {
            sources[lb.index()].push((address, ()));
        }
        let sources = sources.map(|of_lb| Addresses::new(&of_lb));
        let mut compiler = Compiler::new(rules);
        let mut begins: [Vec<_>; LbId::COUNT] = Default::default();
        let mut calendars: [Vec<_>; LbId::COUNT] = Default::default();
        for lb in LbId::all() {
            (begins[lb.index()], calendars[lb.index()]) = compiler.calendars(lb).into_iter().unzip();
        }
        let (slots, members) = compiler.finish();
        let destinations: Vec<_> = rules.destinations.iter().map(|(&address, &lb)| (address, lb)).collect();
        let destinations = Addresses::new(&destinations);
        let mut described: Vec<_> = rules.members.keys().map(|&(lb, _, id)| (lb, id)).collect();
        described.sort_unstable();
        described.dedup();
        Self { destinations, sources, begins, calendars, slots, members, described }
    }

    /// In order.
    pub(super) fn described(&self) -> &[(LbId, u16)] {
        &self.described
    }

    /// Those that some slot leads to; `None` where no rule describes one.
    pub(super) fn members(&self) -> impl Iterator<Item = Option<(LbId, u16)>> + '_ {
        let described = |entry: &MemberEntry| entry.v4.is_some() || entry.v6.is_some();
        self.members.iter().map(move |entry| described(entry).then_some((entry.lb, entry.id)))
    }

    /// Whose address this is.
    #[inline]
    pub fn lb(&self, address: IpAddr) -> Option<LbId> {
        self.destinations.get(address)
    }

    /// Whether a load balancer takes packets from an address.
    #[inline]
    pub fn allows(&self, lb: LbId, from: IpAddr) -> bool {
        self.sources[lb.index()].get(from).is_some()
    }

    /// Where a load balancer sends what came from an address; members are looked up for its IP version.
    pub fn route(&self, lb: LbId, from: IpAddr, header: &LbHeader) -> Result<Route, DropCause> {
        if !self.allows(lb, from) {
            return Err(DropCause::BlockedSrc);
        }
        self.find(lb, version(from), header).map(Found::route)
    }

    /// The same for a source that is allowed.
    #[inline(always)]
    pub(super) fn find(&self, lb: LbId, ip: IpVersion, header: &LbHeader) -> Result<Found<'_>, DropCause> {
        let begun = begun(&self.begins[lb.index()], header.tick);
        let calendar = begun.checked_sub(1).and_then(|at| self.calendars[lb.index()][at].as_ref());
        let calendar = calendar.ok_or(DropCause::EpochAssignMiss)?;

        let epoch = calendar.epoch;
        let slot = (header.slot_select() ^ epoch.xor) & low_bits(epoch.slot_bits);
        let at = calendar.member(&self.slots, slot);
        let entry = self.members.get(usize::from(at)).ok_or(DropCause::LbCalendarMiss)?;

        let member = match ip {
            IpVersion::V4 => &entry.v4,
            IpVersion::V6 => &entry.v6,
        };
        let forward = match member {
            None => return Err(DropCause::MbrInfoMiss),
            Some(Member::SoftEvicted) => return Err(DropCause::MbrDropSoftEvicted),
            Some(Member::Deregistered) => return Err(DropCause::MbrDropDeregistered),
            Some(Member::Forward(forward)) => forward,
        };
        let port = forward.port.wrapping_add(header.port_select() & low_bits(forward.port_bits));
        Ok(Found { lb, epoch: epoch.id, slot, member: entry.id, at: at.into(), forward, port })
    }
}

/// How many of these ticks are not behind one. Few are compared all, which is faster than to choose.
#[inline]
fn begun(begins: &[u64], tick: u64) -> usize {
    if begins.len() > 16 {
        return begins.partition_point(|&begin| begin <= tick);
    }
    begins.iter().fold(0, |begun: usize, &begin| begun.wrapping_add(usize::from(begin <= tick)))
}
