//! Rules that a card needs and sockets do not: of MAC addresses, of ARP, of neighbours' solicitations. The host does what
//! they are for. They are kept so that a control plane finds what it left.

use std::collections::{BTreeMap, btree_map::Entry};

use ejfat::lb::Table;
use proto::sn_p4::v2::ErrorCode;

use super::values::{Result, RuleRefusal};

pub(super) const MAC_TABLE: &str = "mac_dst_filter_table";

/// The most rules of each of these tables, which is the limit of a card, too.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InertKey {
    Mac { port: u128, mask: u128, mac: u128 },
    Destination { ether_type: u128, address: u128 },
}

impl InertKey {
    /// `None` is that of MAC addresses.
    fn table(&self) -> Option<Table> {
        match self {
            Self::Mac { .. } => None,
            Self::Destination { .. } => Some(Table::Destination),
        }
    }

    fn table_name(&self) -> &'static str {
        self.table().map_or(MAC_TABLE, Table::name)
    }
}

/// Their parameters by their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Inert(BTreeMap<InertKey, Vec<u128>>);

impl Inert {
    /// The same rule may come again: control planes make those of several load balancers, which can share them.
    pub(super) fn insert(&mut self, key: InertKey, parameters: Vec<u128>, replace: bool) -> Result<()> {
        let refuse = |why: &str| {
            let why = format!("{} {why}", key.table_name());
            Err(RuleRefusal::new(ErrorCode::EcFailedInsertTableRule, why))
        };
        let full = self.0.keys().filter(|other| other.table() == key.table()).count() >= MOST;
        match self.0.entry(key) {
            Entry::Occupied(entry) if !replace && *entry.get() != parameters => {
                return refuse("has another rule for this key already");
            }
            Entry::Vacant(_) if full => return refuse("is full"),
            Entry::Occupied(mut entry) => drop(entry.insert(parameters)),
            Entry::Vacant(entry) => drop(entry.insert(parameters)),
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &InertKey) -> Result<()> {
        match self.0.remove(key) {
            Some(_) => Ok(()),
            None => Err(absent(key.table_name())),
        }
    }

    /// Takes the rules out of one table; `None` is that of MAC addresses.
    pub(super) fn clear(&mut self, table: Option<Table>) {
        self.0.retain(|key, _| key.table() != table);
    }
}

pub(super) fn absent(table: &str) -> RuleRefusal {
    RuleRefusal::new(ErrorCode::EcFailedDeleteTableRule, format!("{table} has no rule for this key"))
}
