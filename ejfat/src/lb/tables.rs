//! Rules compiled for lookups.

use std::net::{IpAddr, SocketAddr};

use super::{
    DropCause, LbId, Member, Rules,
    compile::{Calendar, Compiler, MemberEntry, low_bits},
    version,
};
use crate::{segment::IpVersion, wire::LbHeader};

/// The tables of the data plane. Lookups allocate nothing.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Sorted, as the sources are.
    destinations: Vec<(IpAddr, LbId)>,
    sources: [Vec<IpAddr>; LbId::COUNT],
    /// Where ticks begin to lead to another calendar; the first is tick 0.
    calendars: [Vec<(u64, Option<Calendar>)>; LbId::COUNT],
    /// Of all calendars, one behind the other: which of the members.
    slots: Vec<u16>,
    members: Vec<MemberEntry>,
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

impl Tables {
    pub fn new(rules: &Rules) -> Self {
        let mut sources: [Vec<IpAddr>; LbId::COUNT] = Default::default();
        for &(lb, address) in rules.sources_v4.keys().chain(rules.sources_v6.keys()) {
            sources[lb.index()].push(address);
        }
        let mut compiler = Compiler::new(rules);
        let mut calendars: [Vec<_>; LbId::COUNT] = Default::default();
        for lb in LbId::all() {
            calendars[lb.index()] = compiler.calendars(lb);
        }
        let (slots, members) = compiler.finish();
        let destinations = rules.destinations.iter().map(|(&address, &lb)| (address, lb)).collect();
        Self { destinations, sources, calendars, slots, members }
    }

    /// Those that some slot leads to and some rule describes.
    pub(super) fn members(&self) -> impl Iterator<Item = (LbId, u16)> + '_ {
        let described = self.members.iter().filter(|entry| entry.v4.is_some() || entry.v6.is_some());
        described.map(|entry| (entry.lb, entry.id))
    }

    /// Whose address this is.
    pub fn lb(&self, address: IpAddr) -> Option<LbId> {
        let at = self.destinations.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        Some(self.destinations[at].1)
    }

    /// Whether a load balancer takes packets from an address.
    pub fn allows(&self, lb: LbId, from: IpAddr) -> bool {
        self.sources[lb.index()].binary_search(&from).is_ok()
    }

    /// Where a load balancer sends what came from an address; members are looked up for its IP version.
    pub fn route(&self, lb: LbId, from: IpAddr, header: &LbHeader) -> Result<Route, DropCause> {
        if !self.allows(lb, from) {
            return Err(DropCause::BlockedSrc);
        }
        self.assign(lb, version(from), header)
    }

    /// The same for a source that is allowed.
    pub(super) fn assign(&self, lb: LbId, ip: IpVersion, header: &LbHeader) -> Result<Route, DropCause> {
        let calendars = &self.calendars[lb.index()];
        let behind = calendars.partition_point(|&(first, _)| first <= header.tick);
        let calendar = behind.checked_sub(1).and_then(|at| calendars[at].1);
        let Calendar { epoch, first, len } = calendar.ok_or(DropCause::EpochAssignMiss)?;

        let slot = (header.slot_select() ^ epoch.xor) & low_bits(epoch.slot_bits);
        let slots = &self.slots[first as usize..][..usize::from(len)];
        let entry = slots.get(usize::from(slot)).and_then(|&at| self.members.get(usize::from(at)));
        let entry = entry.ok_or(DropCause::LbCalendarMiss)?;

        let member = match ip {
            IpVersion::V4 => entry.v4,
            IpVersion::V6 => entry.v6,
        };
        let forward = match member {
            None => return Err(DropCause::MbrInfoMiss),
            Some(Member::SoftEvicted) => return Err(DropCause::MbrDropSoftEvicted),
            Some(Member::Deregistered) => return Err(DropCause::MbrDropDeregistered),
            Some(Member::Forward(forward)) => forward,
        };
        let port = forward.port.wrapping_add(header.port_select() & low_bits(forward.port_bits));
        Ok(Route {
            lb,
            epoch: epoch.id,
            slot,
            member: entry.id,
            mac: forward.mac,
            to: SocketAddr::new(forward.address, port),
            keep_lb_header: forward.keep_lb_header,
        })
    }
}
