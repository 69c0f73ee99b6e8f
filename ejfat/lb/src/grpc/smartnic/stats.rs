//! Counters with the names that ESnet's P4 data plane gives them.
//!
//! Every answer has the same counters, 0 where nothing was counted. When the set of counters changes, udplbd2 clears all of
//! them and stores none. Counters never fall, so those of a member that is gone stay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use ejfat::lb::{DropCause, LbCounters, LbId};
use proto::sn_p4::v2::{
    Stats, StatsFilters, StatsMetric, StatsMetricScope, StatsMetricType, StatsMetricValue,
};
use tonic::Status;

use super::{
    filter::{self, Metric, wanted},
    names,
};
use crate::{Counters, SharedDataPlane};

/// Ids of members have 16 bits.
const MEMBERS: u32 = 1 << 16;
/// The P4 data plane has counters for all member ids below this one, so every answer has them. A member with a higher id is
/// in the answers from when it is in the tables.
const MEMBERS_OF_P4: u32 = 1024;

/// Counters of a data plane, from when they were last cleared. The data plane itself goes on counting.
pub(super) struct Counting {
    plane: Arc<SharedDataPlane>,
    /// What to take off, by name and index: no more than there are counters.
    cleared: Mutex<BTreeMap<(String, u32), u64>>,
}

/// Values by their indices.
struct Array {
    name: String,
    elements: u32,
    values: Vec<(u32, u64)>,
}

impl Counting {
    pub(super) fn new(plane: Arc<SharedDataPlane>) -> Self {
        Self { plane, cleared: Mutex::default() }
    }

    pub(super) fn read(&self, filters: Option<&StatsFilters>) -> Result<Stats, Status> {
        filter::check(filters)?;
        let cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        let arrays = arrays(&self.plane.counters());
        let non_zero = filters.is_some_and(|filters| filters.non_zero);
        let now = SystemTime::now().into();
        let mut metrics = Vec::new();
        for mut array in arrays {
            for (index, value) in &mut array.values {
                let off = cleared.get(&(array.name.clone(), *index)).copied().unwrap_or(0);
                *value = value.saturating_sub(off);
            }
            let values = array.wanted(filters)?;
            let values = values.into_iter().filter(|(_, value)| !non_zero || *value != 0);
            let values: Vec<_> =
                values.map(|(index, u64)| StatsMetricValue { u64, f64: 0.0, index }).collect();
            if !values.is_empty() {
                metrics.push(StatsMetric {
                    r#type: StatsMetricType::Counter.into(),
                    scope: Some(array.scope()),
                    name: array.name,
                    num_elements: array.elements,
                    values,
                    last_update: Some(now),
                });
            }
        }
        Ok(Stats { metrics })
    }

    pub(super) fn clear(&self, filters: Option<&StatsFilters>) -> Result<(), Status> {
        filter::check(filters)?;
        let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        let arrays = arrays(&self.plane.counters());
        let wanted = arrays.iter().map(|array| Ok((array, array.wanted(filters)?)));
        let wanted = wanted.collect::<Result<Vec<_>, Status>>()?;
        for (array, values) in wanted {
            for (index, value) in values {
                let key = (array.name.clone(), index);
                match value {
                    0 => cleared.remove(&key),
                    value => cleared.insert(key, value),
                };
            }
        }
        Ok(())
    }
}

impl Array {
    fn scope(&self) -> StatsMetricScope {
        StatsMetricScope { domain: "counters".into(), zone: "pipeline0".into(), block: self.name.clone() }
    }

    fn wanted(&self, filters: Option<&StatsFilters>) -> Result<Vec<(u32, u64)>, Status> {
        let (name, scope) = (self.name.as_str(), self.scope());
        let mut values = Vec::new();
        for &(index, value) in &self.values {
            let metric = Metric { scope: &scope, name, index, elements: self.elements };
            if filters.map_or(Ok(true), |filters| wanted(filters, &metric))? {
                values.push((index, value));
            }
        }
        Ok(values)
    }
}

fn arrays(counters: &Counters) -> Vec<Array> {
    let of_lbs = |name: String, value: &dyn Fn(&LbCounters) -> u64| {
        let values =
            LbId::all().take(LbId::P4_COUNT).zip(&counters.lbs).map(|(id, lb)| (id.get().into(), value(lb)));
        Array { name, elements: LbId::P4_COUNT as u32, values: values.collect() }
    };
    let mut arrays = vec![
        of_lbs(names::RECEIVED_PACKETS.into(), &|lb| lb.received.packets),
        of_lbs(names::RECEIVED_BYTES.into(), &|lb| lb.received.bytes),
        of_lbs(names::RECEIVED_V2.into(), &|lb| lb.v2),
        of_lbs(names::RECEIVED_V3.into(), &|lb| lb.v3),
    ];
    arrays.extend(DropCause::ALL.map(|cause| of_lbs(names::dropped(cause), &|lb| lb.dropped.of(cause))));
    // Load balancers share the counters of members, as they do in the P4 data plane.
    let mut members: BTreeMap<u32, (u64, u64)> = (0..MEMBERS_OF_P4).map(|id| (id, (0, 0))).collect();
    let there = counters.members.iter().map(|(&(_, id), sent)| (id, sent));
    let gone = counters.gone.iter().map(|(&id, sent)| (id, sent));
    for (id, sent) in there.chain(gone) {
        let (packets, bytes) = members.entry(id.into()).or_default();
        *packets += sent.packets;
        *bytes += sent.bytes;
    }
    let packets = members.iter().map(|(&id, &(packets, _))| (id, packets)).collect();
    let bytes = members.iter().map(|(&id, &(_, bytes))| (id, bytes)).collect();
    let of_members = |name: &str, values| Array { name: name.to_owned(), elements: MEMBERS, values };
    arrays.extend([of_members(names::SENT_PACKETS, packets), of_members(names::SENT_BYTES, bytes)]);
    arrays
}
