//! Limits for each source network that makes calls, so that one source network cannot take resources from the others.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use verbs::source_network::SourceNetwork;

/// How many calls without a known token a source network may make at once. A connection that makes a further one is ended.
const REFUSALS: u32 = 100;
/// How long it takes until a source network may make another call without a known token.
const PER_REFUSAL: Duration = Duration::from_millis(20);
/// The most long calls of one source network that are in progress at a time.
const MOST_LONG_CALLS: usize = 16;
/// The most source networks that are remembered. All further ones together have the limits of one.
const MOST_SOURCES: usize = 4096;

/// What one source network has used of its limits.
#[derive(Debug, Default)]
struct CallUse {
    /// The time at which it may again make [`REFUSALS`] calls without a known token at once.
    full_at: Option<Instant>,
    /// Its long calls that are in progress.
    long_calls: usize,
}

/// What each source network has used of its limits. The key `None` stands for all that are not remembered one by one.
#[derive(Debug, Default)]
pub(crate) struct Sources(Mutex<BTreeMap<Option<SourceNetwork>, CallUse>>);

/// A long call of a source network. It counts as in progress until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    source: Option<SourceNetwork>,
    sources: Arc<Sources>,
}

impl Sources {
    /// Changes the entry of a source network. Returns the key of the entry, and what `change` returned.
    fn with<T>(
        &self,
        source: Option<SourceNetwork>,
        change: impl FnOnce(&mut CallUse) -> T,
    ) -> (Option<SourceNetwork>, T) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            let now = Instant::now();
            sources.retain(|_, of| of.long_calls > 0 || of.full_at.is_some_and(|at| at > now));
        }
        let known = sources.len() < MOST_SOURCES || sources.contains_key(&source);
        let source = source.filter(|_| known);
        let of = sources.entry(source).or_default();
        let result = change(of);
        if of.long_calls == 0 && of.full_at.is_none() {
            sources.remove(&source);
        }
        (source, result)
    }

    /// Counts a call that is refused because it shows no known token. Returns whether the source network is within its limit.
    pub(crate) fn may_be_refused(&self, from: IpAddr) -> bool {
        let now = Instant::now();
        let refused = |of: &mut CallUse| {
            let full_at = of.full_at.map_or(now, |at| at.max(now)) + PER_REFUSAL;
            let is_within = full_at <= now + PER_REFUSAL * REFUSALS;
            if is_within {
                of.full_at = Some(full_at);
            }
            is_within
        };
        self.with(Some(from.into()), refused).1
    }

    /// Counts a long call. Returns `None` if its source network has too many in progress.
    pub(crate) fn hold(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Held> {
        let take = |of: &mut CallUse| {
            let has_room = of.long_calls < MOST_LONG_CALLS;
            of.long_calls += usize::from(has_room);
            has_room
        };
        let (source, has_room) = self.with(from.map(SourceNetwork::from), take);
        has_room.then(|| Held { source, sources: self.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sources.with(self.source, |of| of.long_calls = of.long_calls.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_source_that_was_refused_often_costs_others_nothing() {
        let sources = Sources::default();
        let refused = (0..1000).filter(|_| !sources.may_be_refused(ONE)).count();
        assert!((800..=900).contains(&refused), "{refused}");
        assert!(sources.may_be_refused(OTHER));
    }

    #[test]
    fn long_calls_of_a_source_are_limited() {
        let sources = Arc::<Sources>::default();
        let held: Vec<_> = (0..MOST_LONG_CALLS).map(|_| sources.hold(Some(ONE)).unwrap()).collect();
        assert!(sources.hold(Some(ONE)).is_none());
        assert!(sources.hold(Some(OTHER)).is_some());
        drop(held);
        assert!(sources.hold(Some(ONE)).is_some());
        assert!(sources.0.lock().unwrap().is_empty(), "sources without calls are forgotten");
    }

    #[test]
    fn many_sources_are_not_remembered_without_bound() {
        let sources = Sources::default();
        for number in 0..3 * MOST_SOURCES as u32 {
            sources.may_be_refused(std::net::Ipv4Addr::from_bits(number).into());
        }
        assert!(sources.0.lock().unwrap().len() <= MOST_SOURCES + 1);
    }
}
