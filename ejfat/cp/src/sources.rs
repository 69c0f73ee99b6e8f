//! What each source of calls has cost lately, so that it pays for that itself.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use verbs::peer::Peer;

/// Calls without a known token that a source may make at once, and how soon it may make another one. Beyond, the connection
/// that makes one ends.
const REFUSALS: u32 = 100;
const PER_REFUSAL: Duration = Duration::from_millis(20);
/// Long calls of a source that are under way at a time.
const MOST_HELD: usize = 16;
/// Sources that are remembered; those beyond share what one may.
const MOST_SOURCES: usize = 4096;

#[derive(Debug, Default)]
struct Source {
    /// When all that it was refused is forgotten.
    paid: Option<Instant>,
    held: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Sources(Mutex<BTreeMap<Option<Peer>, Source>>);

/// A long call is under way.
#[derive(Debug)]
pub(crate) struct Held {
    source: Option<Peer>,
    sources: Arc<Sources>,
}

impl Sources {
    fn with<T>(&self, source: Option<Peer>, change: impl FnOnce(&mut Source) -> T) -> (Option<Peer>, T) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            let now = Instant::now();
            sources.retain(|_, of| of.held > 0 || of.paid.is_some_and(|paid| paid > now));
        }
        let known = sources.len() < MOST_SOURCES || sources.contains_key(&source);
        let source = source.filter(|_| known);
        let of = sources.entry(source).or_default();
        let result = change(of);
        if of.held == 0 && of.paid.is_none() {
            sources.remove(&source);
        }
        (source, result)
    }

    /// A call is refused because its token is unknown. Returns whether that is within what the source may.
    pub(crate) fn may_be_refused(&self, from: IpAddr) -> bool {
        let now = Instant::now();
        let refused = |of: &mut Source| {
            let paid = of.paid.map_or(now, |paid| paid.max(now)) + PER_REFUSAL;
            let is_within = paid <= now + PER_REFUSAL * REFUSALS;
            if is_within {
                of.paid = Some(paid);
            }
            is_within
        };
        self.with(Some(from.into()), refused).1
    }

    /// A long call begins; `None`: the source has too many.
    pub(crate) fn hold(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Held> {
        let take = |of: &mut Source| {
            let has_room = of.held < MOST_HELD;
            of.held += usize::from(has_room);
            has_room
        };
        let (source, has_room) = self.with(from.map(Peer::from), take);
        has_room.then(|| Held { source, sources: self.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sources.with(self.source, |of| of.held = of.held.saturating_sub(1));
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
    fn so_many_long_calls_of_a_source_are_under_way() {
        let sources = Arc::<Sources>::default();
        let held: Vec<_> = (0..MOST_HELD).map(|_| sources.hold(Some(ONE)).unwrap()).collect();
        assert!(sources.hold(Some(ONE)).is_none());
        assert!(sources.hold(Some(OTHER)).is_some());
        drop(held);
        assert!(sources.hold(Some(ONE)).is_some());
        assert!(sources.0.lock().unwrap().is_empty(), "nothing is remembered of who costs nothing");
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
