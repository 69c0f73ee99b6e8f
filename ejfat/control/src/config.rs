//! What a site decides: its load balancers, limits and times.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use ejfat::lb::{LbId, Table};

use crate::calendar::MOST_SLOTS;

/// The most records that one request or one [`Registry::poll`](crate::registry::Registry::poll) may change. A store has
/// to accept this many changes in one batch. A configuration with a greater [`Config::most_changes`] is refused.
pub const MOST_CHANGES: usize = 8192;

/// The most entries of the audit log that one batch of changes deletes. The number is above the number of entries that
/// a batch adds, so an audit log that is too long becomes shorter.
pub(crate) const MOST_AUDIT_DELETED: usize = 16;

/// The most entries that one batch of changes adds to the audit log.
const MOST_AUDIT_ADDED: usize = 1;

/// A load balancer that can be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerConfig {
    /// The IPv4 address to which senders send segments, or `None` if the load balancer takes none over IPv4. A load
    /// balancer has an IPv4 or an IPv6 address for segments, or both; no other load balancer may have this address.
    pub data_v4: Option<Ipv4Addr>,
    /// The IPv6 address to which senders send segments, or `None` if the load balancer takes none over IPv6. A load
    /// balancer has an IPv4 or an IPv6 address for segments, or both; no other load balancer may have this address.
    pub data_v6: Option<Ipv6Addr>,
    /// The UDP ports to which senders may send segments. The range must not be empty, and begins at 1 or higher.
    pub data_ports: RangeInclusive<u16>,
    /// The IPv4 address to which senders send sync datagrams, or `None` if there is none.
    pub sync_v4: Option<Ipv4Addr>,
    /// The IPv6 address to which senders send sync datagrams, or `None` if there is none.
    pub sync_v6: Option<Ipv6Addr>,
    /// The UDP port to which senders send sync datagrams; not 0. Load balancers that have a sync address in common must
    /// have different sync ports.
    pub sync_port: u16,
}

impl LoadBalancerConfig {
    /// Returns the addresses to which senders send segments.
    pub fn data_addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.data_v4.map(IpAddr::V4).into_iter().chain(self.data_v6.map(IpAddr::V6))
    }

    /// Returns the addresses, with the UDP port, to which senders send sync datagrams.
    pub fn sync_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let (port, v4) = (self.sync_port, self.sync_v4.map(IpAddr::V4));
        v4.into_iter().chain(self.sync_v6.map(IpAddr::V6)).map(move |ip| SocketAddr::new(ip, port))
    }
}

/// Which addresses workers may register. Unspecified, multicast and broadcast addresses are always refused, because a data
/// plane takes none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPolicy {
    /// True if workers may register loopback addresses (127.0.0.0/8 and ::1). The default is false.
    pub loopback: bool,
    /// True if workers may register addresses that are routed only within a site or a link. The default is true.
    pub private: bool,
    /// True if a worker may register only the address from which its call comes. The default is false.
    pub own_only: bool,
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self { loopback: false, private: true, own_only: false }
    }
}

/// The times after which a silent worker gets no new events, its worker session ends, and its member id may be given to
/// another worker. The times are measured by the control plane's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivenessTimes {
    /// A worker session ends if its worker sends no state within this time after the registration. After a restart of
    /// the control plane, a worker that got events before gets events for this time even if it sends no state. The
    /// default is 10 s.
    pub first_state: Duration,
    /// A worker that has sent no state for this time gets no new events. The default is 2 s.
    pub silent: Duration,
    /// A worker session ends if its worker has sent no state for this time. The default is 60 s.
    pub ended: Duration,
    /// For this time after its last use, a member id is not given to another worker as long as other ids are free. The
    /// default is 60 s.
    pub member_rest: Duration,
}

impl Default for LivenessTimes {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self { first_state: s(10), silent: s(2), ended: s(60), member_rest: s(60) }
    }
}

/// The whole configuration of a site. By default, ESnet's P4 data plane has room for all slots, senders and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The load balancers in the order of their ids, which begin at 0. At most 64, and at most 8 if a data plane is a SmartNIC.
    pub load_balancers: Vec<LoadBalancerConfig>,
    /// The duration of a reservation whose request names no end, or `None` if such a reservation has no end.
    /// The default is 365 days.
    pub default_stay: Option<Duration>,
    /// The number of slots of a calendar, a power of two. The default is 512.
    pub slots: u32,
    /// The most senders of one IP version, of all load balancers together. At most 256, for which data planes have room.
    pub most_senders: usize,
    /// The most worker sessions of all load balancers together. At most 2048, for which our data planes have room, and at most
    /// 1024 if a data plane is a SmartNIC.
    pub most_members: u16,
    /// The most tokens made by `CreateToken` that may exist at a time. Tokens that came with a reservation or a worker
    /// session do not count. The default is 1024.
    pub most_tokens: usize,
    /// The most tokens made by `CreateToken` that may descend from one token. The root token does not have this limit.
    /// The default is 128.
    pub most_tokens_below: usize,
    /// The most tokens in a chain of parent and child tokens, from a child of the root token to a token that
    /// `CreateToken` makes. The default is 8.
    pub most_depth: usize,
    /// The most entries of the audit log. If there are more, the oldest entries are deleted. The default is 10 000.
    pub most_audit: usize,
    /// Which addresses workers may register.
    pub addresses: AddressPolicy,
    /// The times after which a silent worker gets no new events, its worker session ends, and its member id may be
    /// given to another worker.
    pub liveness: LivenessTimes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            load_balancers: Vec::new(),
            default_stay: Some(Duration::from_secs(365 * 86_400)),
            slots: 512,
            most_senders: Table::SourceV4.limit(),
            most_members: 1024,
            most_tokens: 1024,
            most_tokens_below: 128,
            most_depth: 8,
            most_audit: 10_000,
            addresses: AddressPolicy::default(),
            liveness: LivenessTimes::default(),
        }
    }
}

/// The reason why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no load balancer, or there are more than [`LbId::COUNT`]. The value is the number of load balancers.
    #[error("{0} load balancers; configure 1 to {most}", most = LbId::COUNT)]
    LoadBalancers(usize),
    /// A load balancer has neither an IPv4 nor an IPv6 address for segments. The value is the id of the load balancer.
    #[error("load balancer {0} has no data address; give it an IPv4 or an IPv6 address")]
    NoAddress(usize),
    /// A load balancer has an empty range of data ports, data port 0, or sync port 0. The value is the id of the load
    /// balancer.
    #[error("load balancer {0} has no port; give a range from 1 on that is not empty, and a sync port")]
    Ports(usize),
    /// Two load balancers have one address for segments in common. The value is the address.
    #[error("two load balancers have the data address {0}; give each its own")]
    SameAddress(IpAddr),
    /// Two load balancers have one address for sync datagrams in common. The value is the address with its UDP port.
    #[error("two load balancers have the sync address {0}; give each its own port")]
    SameSync(SocketAddr),
    /// The number of slots is not a power of two, or is above [`MOST_SLOTS`]. The value is the number of slots.
    #[error("slots is out of range; it has to be a power of two up to {MOST_SLOTS}")]
    Slots(u32),
    /// [`Config::most_senders`], which is the value here, is more than data planes have room for.
    #[error("most_senders is {0}; data planes have room for {most}", most = Table::SourceV4.limit())]
    Senders(usize),
    /// [`Config::most_members`], which is the value here, is more than data planes have room for.
    #[error("most_members is {0}; data planes have room for {most}", most = Table::Member.limit())]
    Members(u16),
    /// One request could change more than [`MOST_CHANGES`] records. The value is the number from
    /// [`Config::most_changes`].
    #[error(
        "one request could change {0} records, and {MOST_CHANGES} is the most; lower most_tokens, most_members or most_senders"
    )]
    Changes(usize),
    /// A data plane is a SmartNIC, and the configuration has more load balancers, or allows more members or senders,
    /// than the SmartNIC has room for.
    #[error(
        "{given} {what}, and a SmartNIC (sn_p4) has room for {most}; configure at most {most}, or data planes of naa.lb.v1 only"
    )]
    SmartNic {
        /// The name of the number that is too great for a SmartNIC: `load balancers`, `members` or `senders`.
        what: &'static str,
        /// The configured number of load balancers, or the configured limit of members or senders.
        given: usize,
        /// The most load balancers, members or senders that a SmartNIC has room for.
        most: usize,
    },
    /// The text of the root token is empty.
    #[error("the root token is empty; configure one that nobody can guess")]
    NoRootToken,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=LbId::COUNT).contains(&self.load_balancers.len()) {
            return Err(ConfigError::LoadBalancers(self.load_balancers.len()));
        }
        self.check_slots()?;
        if self.most_senders > Table::SourceV4.limit() {
            return Err(ConfigError::Senders(self.most_senders));
        }
        if usize::from(self.most_members) > Table::Member.limit() {
            return Err(ConfigError::Members(self.most_members));
        }
        if self.most_changes() > MOST_CHANGES {
            return Err(ConfigError::Changes(self.most_changes()));
        }
        let (mut seen, mut syncs) = (Vec::new(), Vec::new());
        for (at, lb) in self.load_balancers.iter().enumerate() {
            if lb.data_addresses().next().is_none() {
                return Err(ConfigError::NoAddress(at));
            }
            if lb.data_ports.is_empty() || *lb.data_ports.start() == 0 || lb.sync_port == 0 {
                return Err(ConfigError::Ports(at));
            }
            for address in lb.data_addresses() {
                if seen.contains(&address) {
                    return Err(ConfigError::SameAddress(address));
                }
                seen.push(address);
            }
            for sync in lb.sync_addresses() {
                if syncs.contains(&sync) {
                    return Err(ConfigError::SameSync(sync));
                }
                syncs.push(sync);
            }
        }
        Ok(())
    }

    /// Checks that calendars may have this number of slots.
    pub(crate) fn check_slots(&self) -> Result<(), ConfigError> {
        let is_sound = self.slots.is_power_of_two() && self.slots <= MOST_SLOTS;
        if is_sound { Ok(()) } else { Err(ConfigError::Slots(self.slots)) }
    }

    /// Checks that a SmartNIC has room for the load balancers, members and senders of this configuration.
    pub(crate) fn check_smartnics(&self) -> Result<(), ConfigError> {
        let rooms = [
            ("load balancers", self.load_balancers.len(), LbId::P4_COUNT),
            ("members", self.most_members.into(), Table::Member.p4_limit()),
            ("senders", self.most_senders, Table::SourceV4.p4_limit()),
        ];
        let lacks = rooms.into_iter().find(|(_, given, most)| given > most);
        lacks.map_or(Ok(()), |(what, given, most)| Err(ConfigError::SmartNic { what, given, most }))
    }

    /// Returns the most records that one request can change. A request changes each record at most once. The result is
    /// therefore the number of all records outside the audit log, with the worker session and the token that a request
    /// adds, and of the entries of the audit log that one batch adds and deletes.
    pub fn most_changes(&self) -> usize {
        let lbs = self.load_balancers.len();
        let sessions = usize::from(self.most_members) + 1;
        let tokens = self.most_tokens.saturating_add(sessions + lbs);
        let senders = 2 * self.most_senders;
        let [reservations, epochs] = [lbs; 2];
        let counters = 3 + lbs;
        let audit = MOST_AUDIT_ADDED + MOST_AUDIT_DELETED;
        tokens.saturating_add(sessions + senders + reservations + epochs + counters + audit)
    }

    /// Returns the configuration of every load balancer, with the load balancer's id.
    pub fn load_balancers(&self) -> impl Iterator<Item = (LbId, &LoadBalancerConfig)> {
        LbId::all().zip(&self.load_balancers)
    }

    /// Returns the configuration of the load balancer with this id, or `None` if no load balancer with this id is
    /// configured.
    pub fn load_balancer(&self, id: LbId) -> Option<&LoadBalancerConfig> {
        self.load_balancers.get(usize::from(id.get()))
    }
}
