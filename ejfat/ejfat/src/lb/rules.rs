//! The rules of a data plane, in a form that can be edited and compared.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Epoch, LbId, Member, Rule, RuleError, RuleKey, Table, TickPrefix};
use crate::segment::IpVersion;

/// The rules of all tables. [`Rules::insert`] refuses invalid rules, and rules that would exceed the
/// [limit](Table::limit) of their table. A rule may name an epoch or a member for which there is no rule. A packet for
/// which an epoch or a member is missing is dropped and counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub(super) destinations: BTreeMap<IpAddr, LbId>,
    pub(super) sources_v4: BTreeMap<(LbId, IpAddr), ()>,
    pub(super) sources_v6: BTreeMap<(LbId, IpAddr), ()>,
    pub(super) epochs: BTreeMap<(LbId, TickPrefix), Epoch>,
    /// The member of each calendar slot. The key consists of the load balancer, the epoch and the number of the slot.
    pub(super) calendar: BTreeMap<(LbId, u32, u16), u16>,
    /// The members. The key consists of the load balancer, the IP version and the member id.
    pub(super) members: BTreeMap<(LbId, IpVersion, u16), Member>,
}

fn copied<'a, K: Copy + Ord + 'a, V: Copy + 'a>(
    rules: impl Iterator<Item = (&'a K, &'a V)>,
) -> BTreeMap<K, V> {
    rules.map(|(&key, &value)| (key, value)).collect()
}

fn put<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: V,
    (table, limit, replace): (Table, usize, bool),
) -> Result<(), RuleError> {
    let full = map.len() >= limit;
    match map.entry(key) {
        Entry::Occupied(_) if !replace => return Err(RuleError::Exists(table)),
        Entry::Vacant(_) if full => return Err(RuleError::Full { table, limit }),
        Entry::Occupied(mut entry) => drop(entry.insert(value)),
        Entry::Vacant(entry) => drop(entry.insert(value)),
    }
    Ok(())
}

impl Rules {
    /// Adds a rule. If `replace` is true, the rule replaces the rule with the same key, if any.
    ///
    /// # Errors
    /// Fails with [`RuleError::Exists`] if `replace` is false and the table has a rule with the same key. Fails with
    /// [`RuleError::Full`] if the key is new and the table has its maximum number of rules. Fails with another error if
    /// the rule itself is not valid.
    pub fn insert(&mut self, rule: Rule, replace: bool) -> Result<(), RuleError> {
        self.insert_within(rule, replace, Table::limit)
    }

    /// Adds a rule like [`Self::insert`], but with the limits of ESnet's P4 data plane.
    ///
    /// # Errors
    /// Fails with the same errors as [`Self::insert`], but with the limits of [`Table::p4_limit`].
    pub fn insert_p4(&mut self, rule: Rule, replace: bool) -> Result<(), RuleError> {
        self.insert_within(rule, replace, Table::p4_limit)
    }

    fn insert_within(
        &mut self,
        rule: Rule,
        replace: bool,
        limit: fn(Table) -> usize,
    ) -> Result<(), RuleError> {
        rule.check()?;
        let table = rule.key().table();
        let how = (table, limit(table), replace);
        match rule {
            Rule::Destination { address, lb } => put(&mut self.destinations, address, lb, how),
            Rule::Source { lb, address } => put(self.sources_mut(address), (lb, address), (), how),
            Rule::Epoch { lb, ticks, epoch } => put(&mut self.epochs, (lb, ticks), epoch, how),
            Rule::Slot { lb, epoch, slot, member } => put(&mut self.calendar, (lb, epoch, slot), member, how),
            Rule::Member { lb, ip, id, member } => put(&mut self.members, (lb, ip, id), member, how),
        }
    }

    /// Removes the rule with this key, and returns the removed rule, if any.
    pub fn remove(&mut self, key: &RuleKey) -> Option<Rule> {
        let rule = self.get(key)?;
        match *key {
            RuleKey::Destination { address } => drop(self.destinations.remove(&address)),
            RuleKey::Source { lb, address } => drop(self.sources_mut(address).remove(&(lb, address))),
            RuleKey::Epoch { lb, ticks } => drop(self.epochs.remove(&(lb, ticks))),
            RuleKey::Slot { lb, epoch, slot } => drop(self.calendar.remove(&(lb, epoch, slot))),
            RuleKey::Member { lb, ip, id } => drop(self.members.remove(&(lb, ip, id))),
        }
        Some(rule)
    }

    /// Returns the rule with this key, or `None` if there is no rule with this key.
    pub fn get(&self, key: &RuleKey) -> Option<Rule> {
        Some(match *key {
            RuleKey::Destination { address } => {
                Rule::Destination { address, lb: *self.destinations.get(&address)? }
            }
            RuleKey::Source { lb, address } => {
                self.sources(address).get(&(lb, address))?;
                Rule::Source { lb, address }
            }
            RuleKey::Epoch { lb, ticks } => Rule::Epoch { lb, ticks, epoch: *self.epochs.get(&(lb, ticks))? },
            RuleKey::Slot { lb, epoch, slot } => {
                Rule::Slot { lb, epoch, slot, member: *self.calendar.get(&(lb, epoch, slot))? }
            }
            RuleKey::Member { lb, ip, id } => {
                Rule::Member { lb, ip, id, member: *self.members.get(&(lb, ip, id))? }
            }
        })
    }

    /// Returns all rules, table by table in the order of [`Table::ALL`]. The rules of a table are in the order of their
    /// keys.
    pub fn iter(&self) -> impl Iterator<Item = Rule> + '_ {
        let destinations = self.destinations.iter().map(|(&address, &lb)| Rule::Destination { address, lb });
        let sources = self.sources_v4.keys().chain(self.sources_v6.keys());
        let sources = sources.map(|&(lb, address)| Rule::Source { lb, address });
        let epochs = self.epochs.iter().map(|(&(lb, ticks), &epoch)| Rule::Epoch { lb, ticks, epoch });
        let slots = self.calendar.iter();
        let slots = slots.map(|(&(lb, epoch, slot), &member)| Rule::Slot { lb, epoch, slot, member });
        let members = self.members.iter().map(|(&(lb, ip, id), &member)| Rule::Member { lb, ip, id, member });
        destinations.chain(sources).chain(epochs).chain(slots).chain(members)
    }

    /// Returns the rules of the load balancer `lb`, except the rules that give addresses to `lb`
    /// ([`Rule::Destination`]).
    pub fn of(&self, lb: LbId) -> Self {
        let (none, most) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::from(u128::MAX)));
        Self {
            destinations: BTreeMap::new(),
            sources_v4: copied(self.sources_v4.range((lb, none)..=(lb, most))),
            sources_v6: copied(self.sources_v6.range((lb, none)..=(lb, most))),
            epochs: copied(self.epochs.iter().filter(|((of, _), _)| *of == lb)),
            calendar: copied(self.calendar.range((lb, 0, 0)..=(lb, u32::MAX, u16::MAX))),
            members: copied(self.members.range((lb, IpVersion::V4, 0)..=(lb, IpVersion::V6, u16::MAX))),
        }
    }

    /// Returns the load balancer with the highest id that a rule names, or `None` if there are no rules.
    pub fn highest_lb(&self) -> Option<LbId> {
        let last = [
            self.destinations.values().copied().max(),
            self.sources_v4.keys().next_back().map(|(lb, _)| *lb),
            self.sources_v6.keys().next_back().map(|(lb, _)| *lb),
            self.epochs.keys().next_back().map(|(lb, _)| *lb),
            self.calendar.keys().next_back().map(|(lb, ..)| *lb),
            self.members.keys().next_back().map(|(lb, ..)| *lb),
        ];
        last.into_iter().max().flatten()
    }

    /// Returns only the rules that give addresses to load balancers ([`Rule::Destination`]).
    pub fn destinations(&self) -> Self {
        Self { destinations: self.destinations.clone(), ..Self::default() }
    }

    /// Returns only the rules that give addresses to the load balancer `lb` ([`Rule::Destination`]).
    pub fn destinations_of(&self, lb: LbId) -> Self {
        let destinations = copied(self.destinations.iter().filter(|(_, of)| **of == lb));
        Self { destinations, ..Self::default() }
    }

    /// Adds the rules of `other`. A rule that exists already is replaced by the added rule with the same key. After
    /// this call, a table can have more rules than its limit.
    pub fn add(&mut self, other: &Self) {
        self.destinations.extend(&other.destinations);
        self.sources_v4.extend(&other.sources_v4);
        self.sources_v6.extend(&other.sources_v6);
        self.epochs.extend(&other.epochs);
        self.calendar.extend(&other.calendar);
        self.members.extend(&other.members);
    }

    /// Returns the number of rules in one table.
    pub fn count(&self, table: Table) -> usize {
        match table {
            Table::Destination => self.destinations.len(),
            Table::SourceV4 => self.sources_v4.len(),
            Table::SourceV6 => self.sources_v6.len(),
            Table::Epoch => self.epochs.len(),
            Table::Calendar => self.calendar.len(),
            Table::Member => self.members.len(),
        }
    }

    fn sources(&self, of: IpAddr) -> &BTreeMap<(LbId, IpAddr), ()> {
        if of.is_ipv4() { &self.sources_v4 } else { &self.sources_v6 }
    }

    fn sources_mut(&mut self, of: IpAddr) -> &mut BTreeMap<(LbId, IpAddr), ()> {
        if of.is_ipv4() { &mut self.sources_v4 } else { &mut self.sources_v6 }
    }
}

/// The changes that turn one set of rules into another set, in the order of [`Rules::iter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The rules with keys that only the new set has, in the order of [`Rules::iter`].
    pub inserted: Vec<Rule>,
    /// Pairs of an old rule and a new rule with the same key.
    pub changed: Vec<(Rule, Rule)>,
    /// The rules with keys that only the old set has, in the order of [`Rules::iter`].
    pub removed: Vec<Rule>,
}

impl Changes {
    /// Returns true if there are no changes, which means that the old rules and the new rules are equal.
    pub fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Returns the changes from `before` to `after`.
pub fn diff(before: &Rules, after: &Rules) -> Changes {
    let mut changes = Changes::default();
    for rule in after.iter() {
        match before.get(&rule.key()) {
            None => changes.inserted.push(rule),
            Some(old) if old != rule => changes.changed.push((old, rule)),
            Some(_) => {}
        }
    }
    changes.removed.extend(before.iter().filter(|rule| after.get(&rule.key()).is_none()));
    changes
}
