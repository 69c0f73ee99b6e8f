//! Which counters a request is for.

use proto::sn_p4::v2::{
    StatsFilters, StatsMetricFilter, StatsMetricMatchIndexSlice, StatsMetricMatchString, StatsMetricScope,
    StatsMetricType,
    stats_metric_filter::{Set, Term},
    stats_metric_match::Attribute,
    stats_metric_match_string::Method,
};
use tonic::Status;

const MOST_TERMS: usize = 256;

/// One element of an array of counters.
pub(super) struct Metric<'a> {
    pub(super) scope: &'a StatsMetricScope,
    pub(super) name: &'a str,
    pub(super) index: u32,
    pub(super) elements: u32,
}

pub(super) fn wanted(filters: &StatsFilters, metric: &Metric<'_>) -> Result<bool, Status> {
    let counter = i32::from(StatsMetricType::Counter);
    if !filters.metric_types.is_empty() && !filters.metric_types.contains(&counter) {
        return Ok(false);
    }
    filters.metric_filter.as_ref().map_or(Ok(true), |filter| matches(filter, metric))
}

/// Decoding has bounded the depth.
fn matches(filter: &StatsMetricFilter, metric: &Metric<'_>) -> Result<bool, Status> {
    let found = match &filter.term {
        None => true,
        Some(Term::Match(it)) => match &it.attribute {
            None => true,
            Some(Attribute::Type(it)) => *it == i32::from(StatsMetricType::Counter),
            Some(Attribute::Domain(it)) => matches_text(it, &metric.scope.domain)?,
            Some(Attribute::Zone(it)) => matches_text(it, &metric.scope.zone)?,
            Some(Attribute::Block(it)) => matches_text(it, &metric.scope.block)?,
            Some(Attribute::Name(it)) => matches_text(it, metric.name)?,
            Some(Attribute::Indices(it)) => it.slices.iter().any(|slice| is_in(slice, metric)),
            // There are none.
            Some(Attribute::Label(_)) => false,
        },
        Some(Term::AnySet(set)) => some(set, metric, true)?,
        Some(Term::AllSet(set)) => !some(set, metric, false)?,
    };
    Ok(found != filter.negated)
}

/// Whether a filter of the set says so of the metric.
fn some(set: &Set, metric: &Metric<'_>, says: bool) -> Result<bool, Status> {
    for filter in &set.members {
        if matches(filter, metric)? == says {
            return Ok(true);
        }
    }
    Ok(false)
}

fn terms(filter: &StatsMetricFilter) -> usize {
    let within = match &filter.term {
        Some(Term::AnySet(set) | Term::AllSet(set)) => set.members.iter().map(terms).sum(),
        Some(Term::Match(it)) => match &it.attribute {
            Some(Attribute::Indices(it)) => it.slices.len(),
            _ => 0,
        },
        None => 0,
    };
    within + 1
}

/// Each counter is held against every term.
pub(super) fn check(filters: Option<&StatsFilters>) -> Result<(), Status> {
    let terms = filters.and_then(|filters| filters.metric_filter.as_ref()).map_or(0, terms);
    if terms > MOST_TERMS {
        return Err(Status::invalid_argument(format!(
            "a filter of {terms} terms; give {MOST_TERMS} at most"
        )));
    }
    Ok(())
}

fn matches_text(wanted: &StatsMetricMatchString, text: &str) -> Result<bool, Status> {
    Ok(match &wanted.method {
        None => true,
        Some(Method::Exact(it)) => text == it,
        Some(Method::Prefix(it)) => text.starts_with(it),
        Some(Method::Suffix(it)) => text.ends_with(it),
        Some(Method::Substring(it)) => text.contains(it),
        Some(Method::Regexp(_) | Method::Split(_)) => {
            let why =
                "regular expressions and splits are not served; filter by exact, prefix, suffix, substring";
            return Err(Status::unimplemented(why));
        }
    })
}

fn is_in(slice: &StatsMetricMatchIndexSlice, metric: &Metric<'_>) -> bool {
    let place = |at: i32| i64::from(at) + if at < 0 { i64::from(metric.elements) } else { 0 };
    let (start, end, index) = (place(slice.start), place(slice.end), i64::from(metric.index));
    (start..=end).contains(&index) && (index - start) % i64::from(slice.step.max(1)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_slice(start: i32, end: i32, step: u32) -> Vec<u32> {
        let scope = StatsMetricScope::default();
        let metric = |index| Metric { scope: &scope, name: "n", index, elements: 8 };
        let slice = StatsMetricMatchIndexSlice { start, end, step };
        (0..8).filter(|&index| is_in(&slice, &metric(index))).collect()
    }

    #[test]
    fn slices_have_ends_steps_and_places_from_the_end() {
        assert_eq!(in_slice(2, 2, 1), [2]);
        assert_eq!(in_slice(1, 7, 3), [1, 4, 7]);
        assert_eq!(in_slice(-2, -1, 0), [6, 7]);
        assert_eq!(in_slice(0, -1, 1).len(), 8);
        assert_eq!(in_slice(5, 2, 1), [0; 0]);
        assert_eq!(in_slice(i32::MIN, i32::MAX, u32::MAX), [0; 0], "its first is before all");
    }
}
