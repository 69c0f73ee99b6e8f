//! What is known of a load balancer's senders by their syncs.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ejfat::Time;

use crate::{
    boundary::{Margins, Sender},
    sync::{Gate, Verdict},
};

/// Sources (the id in a sync) at one address. UDP's source address can be forged, so their number is bounded.
const MOST_SOURCES: usize = 16;
/// A source that is silent for so long gives its place to another one.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// A source is live whose last sync came so lately.
const LIVE: Duration = Duration::from_secs(2);
/// Sources that are followed after they were forgotten, for so long, and how many of them.
const FOLLOWED_ON: Duration = Duration::from_secs(3);
const MOST_PAST: usize = 256;
/// A source counts after so many syncs that fit each other.
const PROVEN: u32 = 3;

#[derive(Clone, Debug)]
struct Source {
    gate: Gate,
    last_sync: Time,
    fitting: u32,
    /// The tick of the newest sync, if that did not fit.
    doubt: Option<u64>,
}

/// The sources of the senders that are registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Senders {
    sources: BTreeMap<(IpAddr, u32), Source>,
    /// Sources that were forgotten a short time ago, and until when they are followed: their next syncs may show that they were too fast.
    past: BTreeMap<(IpAddr, u32), (Time, Source)>,
    /// Syncs that did not fit, and those for which there was no place.
    pub(crate) refused: u64,
}

impl Senders {
    /// Judges a sync of a registered sender. `known_rate` is that of [`Gate::check`].
    pub(crate) fn check(
        &mut self,
        now: Time,
        key: (IpAddr, u32),
        tick: u64,
        known_rate: f64,
        margins: &Margins,
    ) -> Option<Verdict> {
        if !self.sources.contains_key(&key) && !self.make_place(now, key.0) {
            self.refused += 1;
            return None;
        }
        let fits_others = self.fits_others(now, tick, margins);
        let source = self.sources.entry(key).or_insert_with(|| Source {
            gate: Gate::default(),
            last_sync: now,
            fitting: 0,
            doubt: None,
        });
        if source.fitting < PROVEN && !fits_others {
            source.last_sync = now;
            self.refused += 1;
            return None;
        }
        let verdict = source.gate.check(now, tick, known_rate, margins);
        source.last_sync = now;
        source.doubt = matches!(verdict, Verdict::Doubtful | Verdict::Refused).then_some(tick);
        match verdict {
            Verdict::Fits | Verdict::Confirmed => source.fitting = source.fitting.saturating_add(1),
            // As many fitted each other before they were followed.
            Verdict::Followed => source.fitting = PROVEN,
            Verdict::Doubtful | Verdict::Refused => self.refused += 1,
        }
        Some(verdict)
    }

    /// Whether a source that is new can be true beside those that are known.
    fn fits_others(&self, now: Time, tick: u64, margins: &Margins) -> bool {
        let live = || self.proven(now).filter(|sender| sender.age < LIVE);
        let highest = margins.beyond_syncs(live(), LIVE);
        let lowest = live().map(|sender| sender.tick.saturating_sub((sender.rate * 10.0) as u64)).min();
        highest.is_none_or(|highest| tick <= highest) && lowest.is_none_or(|lowest| tick >= lowest)
    }

    fn make_place(&mut self, now: Time, address: IpAddr) -> bool {
        let of_address = || self.sources.range((address, 0)..=(address, u32::MAX));
        if of_address().count() < MOST_SOURCES {
            return true;
        }
        let oldest = of_address().min_by_key(|(_, source)| source.last_sync);
        let silent = oldest.filter(|(_, source)| now >= source.last_sync + FORGOTTEN).map(|(key, _)| *key);
        silent.is_some_and(|key| self.sources.remove(&key).is_some())
    }

    /// Forgets the sources of senders that are registered no more.
    pub(crate) fn keep(&mut self, now: Time, is_registered: impl Fn(IpAddr) -> bool) {
        self.past.retain(|_, (until, _)| now < *until);
        let sources = std::mem::take(&mut self.sources).into_iter();
        let (kept, forgotten): (_, BTreeMap<_, _>) =
            sources.partition(|((address, _), _)| is_registered(*address));
        self.sources = kept;
        let room = MOST_PAST.saturating_sub(self.past.len());
        let counts = forgotten.into_iter().filter(|(_, source)| source.fitting >= PROVEN).take(room);
        self.past.extend(counts.map(|(key, source)| (key, (now + FOLLOWED_ON, source))));
    }

    /// Judges a sync by what was known of its source before that was forgotten.
    pub(crate) fn check_past(
        &mut self,
        now: Time,
        key: (IpAddr, u32),
        tick: u64,
        known_rate: f64,
        margins: &Margins,
    ) -> Option<Verdict> {
        let (_, source) = self.past.get_mut(&key).filter(|(until, _)| now < *until)?;
        Some(source.gate.check(now, tick, known_rate, margins))
    }

    /// The addresses of the sources that are known, and of those that were forgotten a short time ago.
    pub(crate) fn addresses(&self, now: Time) -> impl Iterator<Item = IpAddr> {
        let past = self.past.iter().filter(move |(_, (until, _))| now < *until).map(|(key, _)| key);
        self.sources.keys().chain(past).map(|(address, _)| *address)
    }

    /// The rates of the sources that count, and of those that were forgotten a short time ago.
    pub(crate) fn rates(&self, now: Time) -> impl Iterator<Item = f64> {
        let past = self.past.values().filter(move |(until, _)| now < *until);
        let past = past.filter_map(move |(_, source)| source.gate.sender(now));
        self.proven(now).chain(past).map(|sender| sender.rate)
    }

    /// Whether a sync came from this address, and is not forgotten.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.sources.range((address, 0)..=(address, u32::MAX)).next().is_some()
    }

    fn that_count(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().filter(|source| source.fitting >= PROVEN)
    }

    /// Those whose ticks and rates are known.
    pub(crate) fn proven(&self, now: Time) -> impl Iterator<Item = Sender> {
        self.that_count().filter_map(move |source| source.gate.sender(now))
    }

    /// The senders whose ticks and rates are known, for boundaries: each one by its newest sync, and by the syncs before that.
    pub(crate) fn expected(&self, now: Time) -> impl Iterator<Item = Sender> {
        let expected = self.that_count().flat_map(move |source| source.gate.expected(now));
        self.proven(now).chain(expected)
    }

    /// Ticks of sources that count, which did not fit and may be true all the same, with the source's address.
    pub(crate) fn doubts(&self) -> impl Iterator<Item = (IpAddr, u64)> {
        let that_count = self.sources.iter().filter(|(_, source)| source.fitting >= PROVEN);
        that_count.filter_map(|((address, _), source)| Some((*address, source.doubt?)))
    }

    /// Whether the rates of those whose last sync came lately are settled, so that they give boundaries.
    pub(crate) fn are_settled(&self, now: Time) -> bool {
        let mut live = self.sources.values().filter(|source| now < source.last_sync + FORGOTTEN);
        live.all(|source| source.fitting < PROVEN || source.gate.is_settled(now))
    }
}
