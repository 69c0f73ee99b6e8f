//! Decides how many connections of each source are admitted, and which connection must be closed to make room for a new
//! connection.
//!
//! A server admits a fixed number of connections. A [`Seats`] can also count connection requests that the server has
//! not accepted yet, as if they were connections. A source with many connections must not keep other sources out. If
//! the maximum number of connections is already admitted when a connection arrives, [`Seats::room`] decides which
//! connection must be closed: usually a connection of the source with the most connections. [`Seats`] only decides
//! which connections are admitted; it contains no connection and reads no clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use crate::peer::Peer;

/// Says whether an admitted connection has had requests, and whether one of its requests is in progress. Among several
/// connections of one source, a connection with a lower `Standing` is displaced before a connection with a higher
/// `Standing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The connection has had no request yet.
    New,
    /// The connection has had at least one request, and no request of the connection is in progress.
    Idle,
    /// A request of the connection is in progress.
    Busy,
}

/// The decision whether a new connection is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room<K> {
    /// The connection is admitted, because the limit is not reached.
    Free,
    /// The new connection is admitted if the connection with this key is closed first.
    InPlaceOf(K),
    /// The new connection is refused, because the limit is reached and no admitted connection may be closed for the new
    /// one.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Seat<S> {
    source: S,
    standing: Standing,
}

/// The admitted connections, identified by keys. Keys must increase in the order of arrival, so that the oldest
/// connection has the lowest key.
#[derive(Debug)]
pub struct Seats<K, S = Peer> {
    taken: BTreeMap<K, Seat<S>>,
    numbers: BTreeMap<S, usize>,
    by_number: BTreeSet<(usize, S)>,
}

impl<K, S> Default for Seats<K, S> {
    fn default() -> Self {
        Self { taken: BTreeMap::new(), numbers: BTreeMap::new(), by_number: BTreeSet::new() }
    }
}

impl<K: Copy + Ord, S: Copy + Ord> Seats<K, S> {
    /// The number of admitted connections.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Returns true if no connection is admitted.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The keys of all admitted connections, the oldest first.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.taken.keys().copied()
    }

    /// The number of admitted connections from `source`.
    pub fn of(&self, source: S) -> usize {
        self.numbers.get(&source).copied().unwrap_or(0)
    }

    /// Admits a new connection. If [`Self::room`] or [`Self::displaced_by`] named a connection that must be closed, the
    /// caller must close that connection before this call. If `key` is admitted already, nothing changes.
    pub fn take(&mut self, key: K, source: S) {
        if let Entry::Vacant(place) = self.taken.entry(key) {
            place.insert(Seat { source, standing: Standing::New });
            self.count(source, |n| n + 1);
        }
    }

    /// Removes a connection that has ended.
    pub fn leave(&mut self, key: K) {
        if let Some(seat) = self.taken.remove(&key) {
            self.count(seat.source, |n| n - 1);
        }
    }

    /// Notes whether the connection `key` has had requests, and whether a request is in progress. If `key` is not
    /// admitted, nothing changes.
    pub fn set(&mut self, key: K, standing: Standing) {
        if let Some(seat) = self.taken.get_mut(&key) {
            seat.standing = standing;
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
    pub fn room(&self, most: usize, source: S) -> Room<K> {
        if self.len() < most {
            return Room::Free;
        }
        let own = || {
            let own = self.taken.iter().filter(|(_, seat)| seat.source == source);
            let waiting = own.filter(|(_, seat)| seat.standing < Standing::Busy);
            waiting.min_by_key(|(key, seat)| (seat.standing, **key)).map(|(key, _)| *key)
        };
        self.displaced_by(source, |_| true).or_else(own).map_or(Room::None, Room::InPlaceOf)
    }

    /// Returns the connection of another source that must be closed to make room for a new connection from `source`.
    /// Never returns a connection for which `may` returns false. Returns `None` if no connection may be closed.
    ///
    /// Another source can lose a connection if it has at least two connections more than `source`. If `source` has no
    /// connection, another source can even lose its only connection, but not while a request of that connection is in
    /// progress. A connection of the source with the most connections is displaced first. Among the connections of one
    /// source, the oldest connection that had no request yet is displaced first, and the oldest idle connection is
    /// displaced next. A connection with a request in progress is displaced after all other connections, unless its
    /// source has more than half of all connections. A source with more than half of all connections must not keep
    /// other sources out by requests that never end.
    pub fn displaced_by(&self, source: S, may: impl Fn(K) -> bool) -> Option<K> {
        let own = self.of(source);
        let loses = |number: usize, busy: bool| number > own + 1 || (own == 0 && !busy);
        // A flood of new connections costs little, because the function does not search the connections if even the
        // source with the most connections has too few connections to lose one.
        let most = self.by_number.last().map_or(0, |(number, _)| *number);
        if !loses(most, false) {
            return None;
        }
        let candidates = self.taken.iter().filter(|(key, seat)| {
            let busy = seat.standing == Standing::Busy;
            seat.source != source && loses(self.of(seat.source), busy) && may(**key)
        });
        // The closure `order` returns a tuple, and the connection with the lowest tuple is displaced. The first element
        // of the tuple is true only for a busy connection of a source with at most half of all connections, so that
        // this connection is displaced after all other connections. The second element of the tuple is lowest for the
        // connections of the source with the most connections.
        let order = |(key, seat): &(&K, &Seat<S>)| {
            let number = self.of(seat.source);
            let last = seat.standing == Standing::Busy && 2 * number <= self.len();
            (last, Reverse(number), seat.standing, **key)
        };
        candidates.min_by_key(order).map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 32;

    fn source(text: &str) -> Peer {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    /// A server that admits at most `MOST` connections, which arrive one after another.
    #[derive(Default)]
    struct Server {
        seats: Seats<u64>,
        next: u64,
    }

    impl Server {
        fn arrive(&mut self, from: &str) -> Room<u64> {
            let room = self.seats.room(MOST, source(from));
            if let Room::InPlaceOf(key) = room {
                self.seats.leave(key);
            }
            if room != Room::None {
                self.seats.take(self.next, source(from));
                self.next += 1;
            }
            assert!(self.seats.len() <= MOST);
            room
        }

        fn of(&self, from: &str) -> usize {
            self.seats.of(source(from))
        }

        fn flood(from: &str) -> Self {
            let mut server = Self::default();
            (0..200).for_each(|_| _ = server.arrive(from));
            server
        }
    }

    #[test]
    fn a_source_may_have_all_seats_until_another_one_comes() {
        let mut server = Server::flood("10.0.0.1");
        assert_eq!(server.of("10.0.0.1"), MOST);
        let oldest = server.seats.keys().next().unwrap();
        assert_eq!(server.arrive("10.0.0.2"), Room::InPlaceOf(oldest));
        for _ in 0..100 {
            server.arrive("10.0.0.2");
            server.arrive("10.0.0.1");
        }
        assert_eq!((server.of("10.0.0.1"), server.of("10.0.0.2")), (16, 16), "they share");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_what_it_gets() {
        let mut server = Server::flood("fd00:9::1");
        server.arrive("fd00:8::1");
        for host in 2..200 {
            server.arrive(&format!("fd00:9::{host:x}"));
        }
        assert_eq!((server.of("fd00:8::1"), server.of("fd00:9::2")), (1, MOST - 1));
    }

    #[test]
    fn a_few_seats_are_safe_from_whoever_takes_many() {
        let mut server = Server::default();
        let few = [server.arrive("10.0.0.2"), server.arrive("10.0.0.2")];
        assert_eq!(few, [Room::Free; 2]);
        (0..500).for_each(|_| _ = server.arrive("10.0.0.1"));
        assert_eq!((server.of("10.0.0.1"), server.of("10.0.0.2")), (MOST - 2, 2));
        assert!(server.seats.keys().take(2).eq([0, 1]));
    }

    #[test]
    fn a_newcomer_displaces_the_oldest_of_its_own_source_when_that_has_most() {
        let mut server = Server::default();
        (0..MOST as u64)
            .for_each(|n| assert_eq!((server.arrive("10.0.0.1"), server.next), (Room::Free, n + 1)));
        server.seats.set(0, Standing::Busy);
        server.seats.set(1, Standing::Idle);
        assert_eq!(server.arrive("10.0.0.1"), Room::InPlaceOf(2), "those without any request go first");
        (0..40).for_each(|key| server.seats.set(key, Standing::Busy));
        assert_eq!(server.arrive("10.0.0.1"), Room::None, "no request of its own is cut off");
    }

    #[test]
    fn requests_in_progress_are_cut_off_last_and_only_of_who_has_more() {
        let mut server = Server::flood("10.0.0.1");
        let keys: Vec<_> = server.seats.keys().collect();
        keys.iter().for_each(|&key| server.seats.set(key, Standing::Busy));
        server.seats.set(keys[7], Standing::Idle);
        assert_eq!(server.arrive("10.0.0.2"), Room::InPlaceOf(keys[7]), "the one that is idle");
        assert_eq!(server.arrive("10.0.0.3"), Room::InPlaceOf(keys[0]), "the oldest of the source with most");
        (200..202).for_each(|key| server.seats.set(key, Standing::Busy));
        assert_eq!(server.arrive("10.0.0.2"), Room::InPlaceOf(keys[1]), "the next one");

        let mut server = Server::default();
        for n in 0..MOST {
            server.arrive(&format!("10.0.1.{n}"));
        }
        assert_eq!(server.arrive("10.0.0.1"), Room::InPlaceOf(0), "each has one: the oldest goes");
        (0..64).for_each(|key| server.seats.set(key, Standing::Busy));
        assert_eq!(server.arrive("10.0.0.2"), Room::None, "each has one request in progress");
    }

    #[test]
    fn requests_that_never_end_do_not_cost_others_their_idle_connections() {
        let mut server = Server::default();
        ["10.0.1.1", "10.0.1.2", "10.0.1.3"].iter().for_each(|of| _ = server.arrive(of));
        (0..3).for_each(|key| server.seats.set(key, Standing::Idle));
        (0..200).for_each(|_| _ = server.arrive("10.0.0.1"));
        let hogs: Vec<_> = server.seats.keys().skip(3).collect();
        hogs.iter().for_each(|&key| server.seats.set(key, Standing::Busy));
        for (n, hog) in hogs.into_iter().take(13).enumerate() {
            assert_eq!(server.arrive(&format!("10.0.2.{n}")), Room::InPlaceOf(hog));
            server.seats.set(server.next - 1, Standing::Idle);
        }
        // A source with at most half of all connections loses its busy connections last. The source 10.0.0.1 has 16 of
        // 32 connections now, so the new connection displaces the oldest idle connection of all sources.
        assert_eq!(server.arrive("10.0.3.1"), Room::InPlaceOf(0));
    }

    #[test]
    fn connections_without_a_request_cut_off_none_in_half_of_the_seats() {
        for requests in [3, 16, 20] {
            let mut server = Server::default();
            for key in 0..requests {
                server.arrive("10.0.0.1");
                server.seats.set(key, Standing::Busy);
            }
            for n in 0..200 {
                server.arrive(&format!("10.0.{}.{}", n / 100 + 1, n % 100));
            }
            assert_eq!(server.of("10.0.0.1"), requests.min(16) as usize);
        }
    }

    #[test]
    fn requests_that_never_end_keep_nobody_out_with_the_help_of_another_address() {
        let mut server = Server::flood("10.0.0.1");
        let keys: Vec<_> = server.seats.keys().collect();
        keys.into_iter().for_each(|key| server.seats.set(key, Standing::Busy));
        server.arrive("10.0.0.2");
        server.arrive("10.0.0.3");
        for _ in 0..100 {
            server.arrive("10.0.0.3");
        }
        assert_eq!(server.of("10.0.0.2"), 1);
    }

    #[test]
    fn a_seat_that_is_given_back_is_free() {
        let mut server = Server::flood("10.0.0.1");
        let keys: Vec<_> = server.seats.keys().collect();
        keys.into_iter().for_each(|key| server.seats.leave(key));
        assert!(
            server.seats.is_empty() && server.seats.numbers.is_empty() && server.seats.by_number.is_empty()
        );
        assert_eq!(server.arrive("10.0.0.1"), Room::Free);
    }
}
