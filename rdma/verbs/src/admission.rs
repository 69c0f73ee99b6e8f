//! Decides how many connections of each source are admitted, and which connection must be closed to make room
//! for a new connection. The source of a connection is usually its source network.
//!
//! A server admits at most a fixed number of connections. An [`Admission`] can also count connection requests that the
//! server has not accepted yet, as if they were connections. An [`Admission`] prevents a source with many connections
//! from keeping other sources out. If a new connection arrives while the maximum number of connections is admitted,
//! [`Admission::decide`] decides which connection must be closed: usually a connection of the source with the most
//! connections. [`Admission`] only decides which connections are admitted; it contains no connection and reads no
//! clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use crate::source_network::SourceNetwork;

/// Says whether an admitted connection has had requests, and whether one of its requests is in progress. Among several
/// connections of one source, a connection with a lower `Activity` is displaced before a connection with a higher
/// `Activity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// The connection has had no request yet.
    New,
    /// The connection has had at least one request, and no request of the connection is in progress.
    Idle,
    /// A request of the connection is in progress.
    Busy,
}

/// The decision whether a new connection is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionDecision<K> {
    /// The connection is admitted, because the limit is not reached.
    Admit,
    /// The new connection is admitted if the connection with this key is closed first.
    InPlaceOf(K),
    /// The new connection is refused, because the limit is reached and no admitted connection may be closed for the new
    /// one.
    Refuse,
}

#[derive(Clone, Copy, Debug)]
struct Admitted<S> {
    source: S,
    activity: Activity,
}

/// The admitted connections, identified by keys. Keys must increase in the order of arrival, so that the oldest
/// connection has the lowest key.
#[derive(Debug)]
pub struct Admission<K, S = SourceNetwork> {
    admitted: BTreeMap<K, Admitted<S>>,
    numbers: BTreeMap<S, usize>,
    by_number: BTreeSet<(usize, S)>,
}

impl<K, S> Default for Admission<K, S> {
    fn default() -> Self {
        Self { admitted: BTreeMap::new(), numbers: BTreeMap::new(), by_number: BTreeSet::new() }
    }
}

impl<K: Copy + Ord, S: Copy + Ord> Admission<K, S> {
    /// Returns the number of admitted connections.
    pub fn len(&self) -> usize {
        self.admitted.len()
    }

    /// Returns true if no connection is admitted.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty()
    }

    /// Returns the keys of all admitted connections, the oldest first.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.admitted.keys().copied()
    }

    /// Returns the number of admitted connections from `source`.
    pub fn of(&self, source: S) -> usize {
        self.numbers.get(&source).copied().unwrap_or(0)
    }

    /// Admits a new connection. If [`Self::decide`] or [`Self::displaced_by`] named a connection that must be closed,
    /// the caller must close that connection before this call. If `key` is admitted already, nothing changes.
    pub fn admit(&mut self, key: K, source: S) {
        if let Entry::Vacant(place) = self.admitted.entry(key) {
            place.insert(Admitted { source, activity: Activity::New });
            self.count(source, |n| n + 1);
        }
    }

    /// Removes a connection that has ended.
    pub fn leave(&mut self, key: K) {
        if let Some(admitted) = self.admitted.remove(&key) {
            self.count(admitted.source, |n| n - 1);
        }
    }

    /// Notes whether the connection `key` has had requests, and whether a request is in progress. If `key` is not
    /// admitted, nothing changes.
    pub fn set(&mut self, key: K, activity: Activity) {
        if let Some(admitted) = self.admitted.get_mut(&key) {
            admitted.activity = activity;
        }
    }

    fn count(&mut self, source: S, change: impl FnOnce(usize) -> usize) {
        let before = self.of(source);
        let after = change(before);
        self.by_number.remove(&(before, source));
        if after > 0 {
            self.numbers.insert(source, after);
            self.by_number.insert((after, source));
        } else {
            self.numbers.remove(&source);
        }
    }

    /// Decides whether a new connection from `source` is admitted. The server admits at most `most` connections at the
    /// same time.
    ///
    /// If `most` connections are admitted already, the connection that [`Self::displaced_by`] returns must be closed
    /// first. If [`Self::displaced_by`] returns no connection, a connection of `source` itself that has no request in
    /// progress must be closed first. A new connection can replace a connection of the same source, so that a restarted
    /// program can connect before the server notices the end of the program's earlier connections. If no connection can
    /// be closed, the new connection is refused.
    pub fn decide(&self, most: usize, source: S) -> AdmissionDecision<K> {
        if self.len() < most {
            return AdmissionDecision::Admit;
        }
        let own = || {
            let own = self.admitted.iter().filter(|(_, admitted)| admitted.source == source);
            let waiting = own.filter(|(_, admitted)| admitted.activity < Activity::Busy);
            waiting.min_by_key(|(key, admitted)| (admitted.activity, **key)).map(|(key, _)| *key)
        };
        self.displaced_by(source, |_| true)
            .or_else(own)
            .map_or(AdmissionDecision::Refuse, AdmissionDecision::InPlaceOf)
    }

    /// Returns the connection of another source that must be closed to make room for a new connection from `source`.
    /// Never returns a connection for which `may` returns false. Returns `None` if no connection may be closed.
    ///
    /// Another source can lose a connection if that other source has at least two connections more than `source` has.
    /// If `source` has no connection, another source can even lose its only connection, but not while a request of that
    /// connection is in progress. A connection of the source with the most connections is displaced first. Among the
    /// connections of one source, the oldest connection that had no request yet is displaced first, and the oldest idle
    /// connection is displaced next. A connection with a request in progress is displaced after all other connections,
    /// unless its source has more than half of all connections. A source with more than half of all connections must
    /// not keep other sources out by requests that never end.
    pub fn displaced_by(&self, source: S, may: impl Fn(K) -> bool) -> Option<K> {
        let own = self.of(source);
        let loses = |number: usize, busy: bool| number > own + 1 || (own == 0 && !busy);
        // `most` is the highest number of connections that one source has. If a source with `most` connections cannot
        // lose a connection, no source can lose one, and the connections need not be searched.
        let most = self.by_number.last().map_or(0, |(number, _)| *number);
        if !loses(most, false) {
            return None;
        }
        let candidates = self.admitted.iter().filter(|(key, admitted)| {
            let busy = admitted.activity == Activity::Busy;
            admitted.source != source && loses(self.of(admitted.source), busy) && may(**key)
        });
        // The closure `order` returns a tuple, and the connection with the lowest tuple is displaced. The first element
        // of the tuple is true only for a busy connection of a source with at most half of all connections. Such a
        // connection is displaced after all other connections, because `true` is higher than `false`. The second
        // element of the tuple is lowest for the connections of the source with the most connections.
        let order = |(key, admitted): &(&K, &Admitted<S>)| {
            let number = self.of(admitted.source);
            let last = admitted.activity == Activity::Busy && 2 * number <= self.len();
            (last, Reverse(number), admitted.activity, **key)
        };
        candidates.min_by_key(order).map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AdmissionDecision::{Admit, InPlaceOf, Refuse},
        *,
    };

    const MOST: usize = 32;

    fn source(text: &str) -> SourceNetwork {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    /// A server that admits at most `MOST` connections, which arrive one after another.
    #[derive(Default)]
    struct ServerModel {
        admission: Admission<u64>,
        next: u64,
    }

    impl ServerModel {
        fn arrive(&mut self, from: &str) -> AdmissionDecision<u64> {
            let decision = self.admission.decide(MOST, source(from));
            if let InPlaceOf(key) = decision {
                self.admission.leave(key);
            }
            if decision != Refuse {
                self.admission.admit(self.next, source(from));
                self.next += 1;
            }
            assert!(self.admission.len() <= MOST);
            decision
        }

        fn of(&self, from: &str) -> usize {
            self.admission.of(source(from))
        }

        fn flood(from: &str) -> Self {
            let mut server = Self::default();
            (0..200).for_each(|_| _ = server.arrive(from));
            server
        }
    }

    #[test]
    fn a_source_may_have_all_seats_until_another_one_comes() {
        let mut server = ServerModel::flood("10.0.0.1");
        assert_eq!(server.of("10.0.0.1"), MOST);
        let oldest = server.admission.keys().next().unwrap();
        assert_eq!(server.arrive("10.0.0.2"), InPlaceOf(oldest));
        for _ in 0..100 {
            server.arrive("10.0.0.2");
            server.arrive("10.0.0.1");
        }
        assert_eq!((server.of("10.0.0.1"), server.of("10.0.0.2")), (16, 16), "they share");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_what_it_gets() {
        let mut server = ServerModel::flood("fd00:9::1");
        server.arrive("fd00:8::1");
        for host in 2..200 {
            server.arrive(&format!("fd00:9::{host:x}"));
        }
        assert_eq!((server.of("fd00:8::1"), server.of("fd00:9::2")), (1, MOST - 1));
    }

    #[test]
    fn a_few_seats_are_safe_from_whoever_takes_many() {
        let mut server = ServerModel::default();
        let few = [server.arrive("10.0.0.2"), server.arrive("10.0.0.2")];
        assert_eq!(few, [Admit; 2]);
        (0..500).for_each(|_| _ = server.arrive("10.0.0.1"));
        assert_eq!((server.of("10.0.0.1"), server.of("10.0.0.2")), (MOST - 2, 2));
        assert!(server.admission.keys().take(2).eq([0, 1]));
    }

    #[test]
    fn a_newcomer_displaces_the_oldest_of_its_own_source_when_that_has_most() {
        let mut server = ServerModel::default();
        (0..MOST as u64).for_each(|n| assert_eq!((server.arrive("10.0.0.1"), server.next), (Admit, n + 1)));
        server.admission.set(0, Activity::Busy);
        server.admission.set(1, Activity::Idle);
        assert_eq!(server.arrive("10.0.0.1"), InPlaceOf(2), "those without any request go first");
        (0..40).for_each(|key| server.admission.set(key, Activity::Busy));
        assert_eq!(server.arrive("10.0.0.1"), Refuse, "no request of its own is cut off");
    }

    #[test]
    fn requests_in_progress_are_cut_off_last_and_only_of_who_has_more() {
        let mut server = ServerModel::flood("10.0.0.1");
        let keys: Vec<_> = server.admission.keys().collect();
        keys.iter().for_each(|&key| server.admission.set(key, Activity::Busy));
        server.admission.set(keys[7], Activity::Idle);
        assert_eq!(server.arrive("10.0.0.2"), InPlaceOf(keys[7]), "the one that is idle");
        assert_eq!(server.arrive("10.0.0.3"), InPlaceOf(keys[0]), "the oldest of the source with most");
        (200..202).for_each(|key| server.admission.set(key, Activity::Busy));
        assert_eq!(server.arrive("10.0.0.2"), InPlaceOf(keys[1]), "the next one");

        let mut server = ServerModel::default();
        for n in 0..MOST {
            server.arrive(&format!("10.0.1.{n}"));
        }
        assert_eq!(server.arrive("10.0.0.1"), InPlaceOf(0), "each has one: the oldest goes");
        (0..64).for_each(|key| server.admission.set(key, Activity::Busy));
        assert_eq!(server.arrive("10.0.0.2"), Refuse, "each has one request in progress");
    }

    #[test]
    fn requests_that_never_end_do_not_cost_others_their_idle_connections() {
        let mut server = ServerModel::default();
        ["10.0.1.1", "10.0.1.2", "10.0.1.3"].iter().for_each(|of| _ = server.arrive(of));
        (0..3).for_each(|key| server.admission.set(key, Activity::Idle));
        (0..200).for_each(|_| _ = server.arrive("10.0.0.1"));
        let hogs: Vec<_> = server.admission.keys().skip(3).collect();
        hogs.iter().for_each(|&key| server.admission.set(key, Activity::Busy));
        for (n, hog) in hogs.into_iter().take(13).enumerate() {
            assert_eq!(server.arrive(&format!("10.0.2.{n}")), InPlaceOf(hog));
            server.admission.set(server.next - 1, Activity::Idle);
        }
        // If a source network has at most half of all connections, its busy connections are displaced after the idle
        // connections of all source networks. The source network 10.0.0.1 has 16 of 32 connections now, so the new
        // connection displaces the oldest idle connection of all source networks.
        assert_eq!(server.arrive("10.0.3.1"), InPlaceOf(0));
    }

    #[test]
    fn connections_without_a_request_cut_off_none_in_half_of_the_seats() {
        for requests in [3, 16, 20] {
            let mut server = ServerModel::default();
            for key in 0..requests {
                server.arrive("10.0.0.1");
                server.admission.set(key, Activity::Busy);
            }
            for n in 0..200 {
                server.arrive(&format!("10.0.{}.{}", n / 100 + 1, n % 100));
            }
            assert_eq!(server.of("10.0.0.1"), requests.min(16) as usize);
        }
    }

    #[test]
    fn requests_that_never_end_keep_nobody_out_with_the_help_of_another_address() {
        let mut server = ServerModel::flood("10.0.0.1");
        let keys: Vec<_> = server.admission.keys().collect();
        keys.into_iter().for_each(|key| server.admission.set(key, Activity::Busy));
        server.arrive("10.0.0.2");
        server.arrive("10.0.0.3");
        for _ in 0..100 {
            server.arrive("10.0.0.3");
        }
        assert_eq!(server.of("10.0.0.2"), 1);
    }

    #[test]
    fn a_seat_that_is_given_back_is_free() {
        let mut server = ServerModel::flood("10.0.0.1");
        let keys: Vec<_> = server.admission.keys().collect();
        keys.into_iter().for_each(|key| server.admission.leave(key));
        let Admission { numbers, by_number, .. } = &server.admission;
        assert!(server.admission.is_empty() && numbers.is_empty() && by_number.is_empty());
        assert_eq!(server.arrive("10.0.0.1"), Admit);
    }
}
