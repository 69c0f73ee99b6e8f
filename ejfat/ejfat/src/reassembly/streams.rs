//! Counters of missing events, which are events without any arrived segment. Missing events are counted by gaps in the
//! event numbers of a sender's stream.

/// The maximum number of event numbers in the window of a stream. The window ends at the highest received event number.
/// An event number that is below the window and also less than `BEFORE_FIRST` shows that a restarted sender counts from
/// 0 again.
const WINDOW: u64 = 1024;
/// The window of a new stream begins this many event numbers below the first received event number, because events with
/// these numbers may still arrive late.
const BEFORE_FIRST: u64 = 64;
/// If a received event number exceeds the highest earlier event number of its stream by more than this number, the
/// sender counts as restarted. The counting of missing events then begins anew.
const AHEAD: u64 = 1 << 20;
/// If a received event number is below the lowest event number in its stream's window by more than this number, the
/// sender counts as restarted. The counting of missing events then begins anew.
const BACK: u64 = 4 * WINDOW;
/// The number of event numbers for which [`Stream::seen`] has bits.
const SEEN: u64 = WINDOW + BACK;
/// The maximum number of streams of one sender for which missing events are counted.
const MOST: usize = 64;

/// The kind of event numbers, which decides whether missing events can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The event numbers do not show missing events, because the numbers are ticks, or because other workers get some
    /// of the events.
    #[default]
    Sparse,
    /// A gap in the event numbers shows that events are missing. All events of a stream come to one reassembler, and
    /// each event number is one above the previous event number.
    Consecutive,
}

/// The counters of a stream whose event numbers are consecutive ([`Numbering::Consecutive`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// The data id of the stream.
    pub data_id: u16,
    /// The number of events of which at least one segment arrived.
    pub seen: u64,
    /// The highest event number that was received since the counting of missing events last began.
    pub highest: u64,
    /// The number of missing events. An event is missing if none of its segments arrived and a higher event number was
    /// received.
    pub missing: u64,
    /// The number of times that the counting of missing events began anew, because the sender seemed to have been
    /// restarted.
    pub restarts: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    stats: StreamStats,
    /// The lowest event number that has a bit in `seen`.
    base: u64,
    /// One bit for each event number from `base` to `base + SEEN - 1`. The index of the bit is the event number modulo
    /// `SEEN`. A set bit means that a segment of the event arrived, or that the event number is below the one with
    /// which the counting began.
    seen: [u64; (SEEN / 64) as usize],
}

/// Returns the index of the word in [`Stream::seen`] that has the bit of an event number.
fn word_of(event: u64) -> usize {
    (event % SEEN / 64) as usize
}

impl Stream {
    fn new(data_id: u16, event: u64) -> Self {
        let stats = StreamStats { data_id, seen: 0, highest: event, missing: 0, restarts: 0 };
        let mut stream = Self { stats, base: 0, seen: [0; (SEEN / 64) as usize] };
        stream.begin(event);
        stream
    }

    fn begin(&mut self, event: u64) {
        self.base = event.saturating_sub(BEFORE_FIRST);
        self.stats.highest = event;
        self.seen = [0; (SEEN / 64) as usize];
        (self.base..event).for_each(|before| self.mark(before));
    }

    fn mark(&mut self, event: u64) {
        self.seen[word_of(event)] |= 1 << (event % 64);
    }

    fn marked(&self) -> u64 {
        self.seen.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the number of missing events with event numbers from `base` to the highest received event number.
    fn gaps(&self) -> u64 {
        self.stats.highest - self.base + 1 - self.marked()
    }

    fn event(&mut self, event: u64) {
        self.stats.seen += 1;
        let window = self.base.max(self.stats.highest.saturating_sub(WINDOW - 1));
        let back = window.saturating_sub(event);
        // An event number that is below the stream's window of event numbers and also less than `BEFORE_FIRST` shows
        // that a restarted sender counts from 0 again.
        if event.saturating_sub(self.stats.highest) > AHEAD || back > BACK || back > 0 && event < BEFORE_FIRST
        {
            self.stats.missing += self.gaps();
            self.stats.restarts += 1;
            self.begin(event);
        } else if event < self.base {
            // Only event numbers from `base` on are counted as missing, and this event number is lower. `slide` has not
            // raised `base` since the counting began. After a call of `slide`, each event number below `base` would be
            // more than `BACK` below the window, so the condition above would be true.
            return;
        }
        if event - self.base >= SEEN {
            self.slide(event - self.base - (SEEN - 1));
        }
        self.stats.highest = self.stats.highest.max(event);
        self.mark(event);
    }

    /// Raises `base` by `by`, so that `seen` has bits for higher event numbers. Each event number from the old `base`
    /// to the new `base` - 1 is counted as missing, unless its bit in `seen` was set.
    fn slide(&mut self, by: u64) {
        let (mut event, mut left) = (self.base, by.min(SEEN));
        self.stats.missing += by - left;
        while left > 0 {
            let count = left.min(64 - event % 64);
            let mask = u64::MAX >> (64 - count) << (event % 64);
            let word = &mut self.seen[word_of(event)];
            self.stats.missing += u64::from((!*word & mask).count_ones());
            *word &= !mask;
            (event, left) = (event + count, left - count);
        }
        self.base += by;
    }

    fn stats(&self) -> StreamStats {
        StreamStats { missing: self.stats.missing + self.gaps(), ..self.stats }
    }
}

/// The streams of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    /// Counts an event whose first segment arrived. An event of a new stream is not counted if [`MOST`] streams of the
    /// sender are counted already.
    pub(super) fn event(&mut self, data_id: u16, event: u64) {
        if let Some(known) = self.0.iter_mut().find(|stream| stream.stats.data_id == data_id) {
            known.event(event);
        } else if self.0.len() < MOST {
            let mut new = Stream::new(data_id, event);
            new.event(event);
            self.0.push(new);
        }
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.0.iter().map(Stream::stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: impl IntoIterator<Item = u64>) -> StreamStats {
        let mut streams = Streams::default();
        events.into_iter().for_each(|event| streams.event(1, event));
        streams.stats().next().unwrap()
    }

    #[test]
    fn gaps_are_missing_until_they_arrive() {
        assert_eq!(after(0..10).missing, 0);
        assert_eq!(after([0, 1, 5]).missing, 3);
        assert_eq!(after([0, 1, 5, 3]).missing, 2);
        assert_eq!(after([7, 6, 8]).missing, 0, "what came before the first is not known");
        assert_eq!(after([0, 5000]).missing, 4999);
        assert_eq!(after([0, 5000, 2000]).missing, 4998, "very late");
        assert_eq!(after((0..3000).chain(0..10)).restarts, 1);
        assert_eq!(after([u64::MAX - 3, u64::MAX]).missing, 2);
    }

    #[test]
    fn late_events_that_were_never_missing_do_not_lower_the_count() {
        // Only event 10001 is missing. After event 12000 has arrived, the number 10001 is below the window.
        let events = || (10_000..=12_000).filter(|&event| event != 10_001);
        assert_eq!(after(events()).missing, 1);
        assert_eq!(after(events().chain([9_000])).missing, 1, "it came before the first");
        assert_eq!(after(events().chain([10_500])).missing, 1, "it has arrived before");
        assert_eq!(after(events().chain([10_001])).missing, 0);
        let missing = (12_001..=13_000).chain([13_002]);
        assert_eq!(after(events().chain(missing).chain([10_001, 10_001])).missing, 1, "it arrived twice");
        assert_eq!(after(events().chain([10_001, 9_000])).restarts, 0);
    }

    #[test]
    fn a_sender_started_again_is_missing_nothing_more() {
        let stats = after((1 << 30..(1 << 30) + 5000).chain(0..10));
        assert_eq!((stats.missing, stats.restarts, stats.highest, stats.seen), (0, 1, 9, 5010));
        let stats = after([0, 1, 3, u64::MAX]);
        assert_eq!((stats.missing, stats.restarts), (1, 1));
    }

    #[test]
    fn any_gaps_are_counted() {
        for seed in 0..200 {
            let random = &mut simnet::Random::new(seed, 0);
            let first = random.below(1 << 40);
            let most = random.pick(&[2, 10, 100, 3000]);
            let mut sent: Vec<u64> = Vec::new();
            let mut next = first;
            for _ in 0..random.below(2000) {
                sent.push(next);
                next += random.range(1..=most);
            }
            sent.push(next);
            // Some events change places with an event at most 7 positions later in `sent`. Each of these events arrives
            // while its number is still in the window.
            for at in 0..sent.len() {
                let other = (at + random.below(8) as usize).min(sent.len() - 1);
                if sent[other].abs_diff(sent[at]) < 60 {
                    sent.swap(at, other);
                }
            }
            let stats = after(sent.iter().copied());
            assert_eq!(stats.seen, sent.len() as u64);
            let lowest = sent[0].max(first);
            let before = sent.iter().filter(|&&event| event < lowest).count() as u64;
            assert_eq!(stats.missing, stats.highest - lowest + 1 - (stats.seen - before), "seed {seed}");
        }
    }
}
