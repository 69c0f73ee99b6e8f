//! Changes of tables as control planes of SmartNICs make them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ejfat::lb::{Rule, RuleKey, Rules, Table};
use proto::sn_p4::v2::{ErrorCode, TableRule};

use super::{
    inert::{Inert, absent},
    rule::{self, Entry, Key},
    values::{Result, RuleRefusal},
};
use crate::{SharedDataPlane, When, WriteError};

/// More than all tables take.
const MOST_RULES: usize = 1 << 15;

impl From<WriteError> for RuleRefusal {
    fn from(error: WriteError) -> Self {
        Self::new(ErrorCode::EcFailedInsertTableRule, error.to_string())
    }
}

pub(super) struct SmartNicTables {
    plane: Arc<SharedDataPlane>,
    inert: Mutex<Inert>,
}

impl SmartNicTables {
    pub(super) fn new(plane: Arc<SharedDataPlane>) -> Self {
        Self { plane, inert: Mutex::default() }
    }

    fn inert(&self) -> MutexGuard<'_, Inert> {
        // It is replaced as a whole.
        self.inert.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All or nothing, in order.
    pub(super) fn insert(&self, rules: &[TableRule]) -> Result<()> {
        few(rules)?;
        let mut kept = self.inert();
        let mut inert = kept.clone();
        let mut inserted: Vec<(usize, Rule, bool)> = Vec::new();
        for (at, message) in rules.iter().enumerate() {
            match rule::entry(message).map_err(|refusal| refusal.of(at))? {
                Entry::Plane(rule) => inserted.push((at, rule, message.replace)),
                Entry::Inert(key, parameters) => {
                    inert.insert(key, parameters, message.replace).map_err(|refusal| refusal.of(at))?;
                }
            }
        }
        if !inserted.is_empty() {
            self.plane.edit(When::Now, |rules| {
                inserted.iter().try_for_each(|&(at, rule, replace)| {
                    rules.insert_p4(rule, replace).map_err(|error| rule::refused(&error).of(at))
                })
            })?;
        }
        *kept = inert;
        Ok(())
    }

    /// All or nothing, in order.
    pub(super) fn delete(&self, rules: &[TableRule]) -> Result<()> {
        few(rules)?;
        let mut kept = self.inert();
        let mut inert = kept.clone();
        let mut deleted: Vec<(usize, RuleKey)> = Vec::new();
        for (at, message) in rules.iter().enumerate() {
            match rule::key(message).map_err(|refusal| refusal.of(at))? {
                Key::Plane(key) => deleted.push((at, key)),
                Key::Inert(key) => inert.remove(&key).map_err(|refusal| refusal.of(at))?,
            }
        }
        if !deleted.is_empty() {
            self.plane.edit(When::Now, |rules| {
                deleted.iter().try_for_each(|(at, key)| match rules.remove(key) {
                    Some(_) => Ok(()),
                    None => Err(absent(key.table().name()).of(*at)),
                })
            })?;
        }
        *kept = inert;
        Ok(())
    }

    /// An empty name stands for all tables.
    pub(super) fn clear(&self, name: &str) -> Result<()> {
        let mut kept = self.inert();
        if name.is_empty() {
            // Tables of earlier ticks, too.
            self.plane.load(&Rules::default(), When::Force(0))?;
            *kept = Inert::default();
            return Ok(());
        }
        let table = rule::table(name)?;
        if let Some(table) = table {
            self.plane.edit(When::Now, |rules| {
                remove_all(rules, table);
                Ok::<_, RuleRefusal>(())
            })?;
        }
        kept.clear(table);
        Ok(())
    }
}

fn few(rules: &[TableRule]) -> Result<()> {
    if rules.len() <= MOST_RULES {
        return Ok(());
    }
    let why = format!("{} rules at once; all tables take fewer", rules.len());
    Err(RuleRefusal::new(ErrorCode::EcFailedInsertTableRule, why))
}

fn remove_all(rules: &mut Rules, table: Table) {
    let keys: Vec<_> = rules.iter().map(|rule| rule.key()).filter(|key| key.table() == table).collect();
    for key in &keys {
        rules.remove(key);
    }
}

impl RuleRefusal {
    /// The same, of a rule of a list.
    fn of(self, at: usize) -> Self {
        Self { why: format!("rule {at}: {}", self.why), ..self }
    }
}
