//! The tables in which the data plane looks up the destination of each packet. They are compiled from rules, so that
//! lookups are fast.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    DropCause, Forward, LbId, Member, Rules,
    addresses::Addresses,
    compile::{Calendar, Compiler, MemberEntry, low_bits},
};
use crate::{segment::IpVersion, wire::LbHeader};

/// The tables of the data plane, compiled from the rules of all load balancers. Lookups do not allocate memory. Clones
/// share the tables.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(super) destinations: Arc<Addresses<LbId>>,
    lbs: Box<[Arc<LbTables>]>,
}

/// The tables of one load balancer, except the table of the load balancers' own addresses, which is in [`Tables`].
/// Lookups do not allocate memory.
#[derive(Clone, Debug)]
pub struct LbTables {
    lb: LbId,
    sources: Addresses<()>,
    /// The ticks at which the calendar changes, in ascending order.
    begins: Vec<u64>,
    calendars: Vec<Option<Calendar>>,
    /// The slots of all calendars, in the form that [`Calendar::member`] reads.
    slots: Vec<u16>,
    members: Vec<MemberEntry>,
    /// The ids of the members for which the rules contain a member rule, including members without a calendar slot.
    described: Vec<u16>,
}

/// The destination of a packet, which is the result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The load balancer that routed the packet.
    pub lb: LbId,
    /// The number of the epoch that contains the packet's tick.
    pub epoch: u32,
    /// The number of the packet's slot in the epoch's calendar.
    pub slot: u16,
    /// The number of the member that gets the packet.
    pub member: u16,
    /// The MAC address of the next hop, if the member's rule has one.
    pub mac: Option<[u8; 6]>,
    /// The address of the member, in the packet's IP version, with the UDP port.
    pub to: SocketAddr,
    /// True if the packet that is sent to the member still contains the LB header.
    pub keep_lb_header: bool,
}

/// A [`Route`] with a reference to the member's [`Forward`] in the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteRef<'a> {
    lb: LbId,
    epoch: u32,
    slot: u16,
    member: u16,
    /// The index of the member in [`LbTables::members`].
    pub(super) at: usize,
    pub(super) forward: &'a Forward,
    pub(super) port: u16,
}

impl RouteRef<'_> {
    #[inline]
    pub(super) fn route(self) -> Route {
        let Self { lb, epoch, slot, member, forward, port, .. } = self;
        let Forward { mac, address, keep_lb_header, .. } = *forward;
        Route { lb, epoch, slot, member, mac, to: SocketAddr::new(address, port), keep_lb_header }
    }
}

impl Tables {
    /// Compiles the rules of all load balancers into tables.
    pub fn new(rules: &Rules) -> Self {
        let lbs = LbId::all().map(|lb| Arc::new(LbTables::new(lb, rules)));
        Self { destinations: Arc::new(Self::destinations(rules)), lbs: lbs.collect() }
    }

    pub(super) fn destinations(rules: &Rules) -> Addresses<LbId> {
        let all: Vec<_> = rules.destinations.iter().map(|(&address, &lb)| (address, lb)).collect();
        Addresses::new(&all)
    }

    /// Returns the tables of one load balancer.
    pub fn of(&self, lb: LbId) -> &Arc<LbTables> {
        &self.lbs[lb.index()]
    }

    /// Returns the load balancer to which a destination address belongs.
    #[inline]
    pub fn lb(&self, address: IpAddr) -> Option<LbId> {
        self.destinations.get(address)
    }

    /// Returns the destination to which a load balancer sends a packet from the address `from`. The destination's
    /// address has the same IP version as `from`.
    ///
    /// # Errors
    /// Fails with the cause for which the packet is dropped.
    pub fn route(&self, lb: LbId, from: IpAddr, header: &LbHeader) -> Result<Route, DropCause> {
        let tables = self.of(lb);
        if !tables.allows(from) {
            return Err(DropCause::BlockedSrc);
        }
        tables.find(IpVersion::of(from), header).map(RouteRef::route)
    }
}

impl LbTables {
    /// Compiles the rules of the load balancer `lb` into tables.
    pub fn new(lb: LbId, rules: &Rules) -> Self {
        let sources = rules.sources_v4.keys().chain(rules.sources_v6.keys());
        let sources: Vec<_> =
            sources.filter(|(of, _)| *of == lb).map(|&(_, address)| (address, ())).collect();
        let mut compiler = Compiler::new(lb, rules);
        let (begins, calendars) = compiler.calendars().into_iter().unzip();
        let (slots, members) = compiler.finish();
        let of_lb = rules.members.range((lb, IpVersion::V4, 0)..=(lb, IpVersion::V6, u16::MAX));
        let mut described: Vec<_> = of_lb.map(|(&(_, _, id), _)| id).collect();
        described.sort_unstable();
        described.dedup();
        Self { lb, sources: Addresses::new(&sources), begins, calendars, slots, members, described }
    }

    /// Returns the load balancer of these tables.
    pub fn lb(&self) -> LbId {
        self.lb
    }

    /// Returns the members for which the rules contain a member rule, in ascending order.
    pub(super) fn described(&self) -> impl Iterator<Item = (LbId, u16)> + '_ {
        self.described.iter().map(|&id| (self.lb, id))
    }

    /// Returns the members that have a calendar slot. The result has a `None` for each member that has a calendar slot
    /// but no member rule.
    pub(super) fn members(&self) -> impl Iterator<Item = Option<(LbId, u16)>> + '_ {
        let described = |entry: &MemberEntry| entry.v4.is_some() || entry.v6.is_some();
        self.members.iter().map(move |entry| described(entry).then_some((self.lb, entry.id)))
    }

    /// Returns true if the tables contain an epoch, a member or a source address.
    pub(super) fn has_rules(&self) -> bool {
        let has_epochs = self.calendars.iter().any(Option::is_some);
        has_epochs || !self.described.is_empty() || self.sources().next().is_some()
    }

    /// Returns the addresses from which the load balancer takes packets.
    pub(super) fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.sources.iter().map(|(address, ())| address)
    }

    /// Returns one pair for each range of ticks: the first tick of the range, and the calendar of the range. The
    /// calendar is `None` for a range that has no calendar.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, Option<&Calendar>)> {
        self.begins.iter().zip(&self.calendars).map(|(&begin, calendar)| (begin, calendar.as_ref()))
    }

    /// Returns the slots of `calendar` to which a member is assigned, each with its member. The slots are in ascending
    /// order.
    pub(super) fn slots_of(&self, calendar: &Calendar) -> impl Iterator<Item = (u16, &MemberEntry)> {
        calendar.each(&self.slots).map(|(slot, at)| (slot, &self.members[usize::from(at)]))
    }

    /// Returns true if the load balancer takes packets from the address `from`.
    #[inline]
    pub fn allows(&self, from: IpAddr) -> bool {
        self.sources.get(from).is_some()
    }

    /// Finds the destination of a packet by its IP version and its LB header. The caller has already checked the
    /// packet's source address.
    #[inline(always)]
    pub(super) fn find(&self, ip: IpVersion, header: &LbHeader) -> Result<RouteRef<'_>, DropCause> {
        let begun = begun(&self.begins, header.tick);
        let calendar = begun.checked_sub(1).and_then(|at| self.calendars[at].as_ref());
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
        Ok(RouteRef { lb: self.lb, epoch: epoch.id, slot, member: entry.id, at: at.into(), forward, port })
    }
}

/// Returns the number of ticks in `begins` that are not above `tick`. If `begins` is short, comparing `tick` with all
/// ticks in `begins` is faster than a binary search.
#[inline]
fn begun(begins: &[u64], tick: u64) -> usize {
    if begins.len() > 16 {
        return begins.partition_point(|&begin| begin <= tick);
    }
    begins.iter().fold(0, |begun: usize, &begin| begun.wrapping_add(usize::from(begin <= tick)))
}
