//! Time series: one sample per second for an hour, and one per minute for a day.
//!
//! | selector | series |
//! |---|---|
//! | `/lb/<id>/epoch`, `/lb/<id>/event_number` | the number of the newest epoch, the newest tick |
//! | `/lb/<id>/session/<session>/<metric>` | a value of the worker's newest state, or its slots: the metrics of [`WORKER`] |
//!
//! A selector that ends in `*` selects all series whose paths begin with the text before it. The series of a reservation or
//! worker session that has ended are kept for ten minutes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ejfat::Time;
use ejfat_control::{
    control::Control,
    reservation::ReservationId,
    session::{
        SessionId,
        liveness::{Readiness, WorkerState},
    },
    wall::WallTime,
};

/// The most samples by the second.
const SECONDS: usize = 3600;
/// The most samples by the minute.
const MINUTES: usize = 24 * 60;
/// A minute in milliseconds.
const MINUTE: u64 = 60_000;
/// How long the series of a reservation or worker session are kept after it has ended, in milliseconds.
const KEPT: u64 = 10 * MINUTE;
/// The most reservations with series, and the most worker sessions with series. Further ones have none.
const MOST: usize = 2048;

/// The most selectors of a request.
const MOST_SELECTORS: usize = 64;
/// The most bytes of a selector. The longest path is shorter.
const LONGEST_SELECTOR: usize = 128;
/// The most samples of a reply. It then has less than 4 MiB, the most that gRPC clients accept by default.
const MOST_SAMPLES: usize = 200_000;

/// Why a request for series is refused: it asks for too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error(
        "a request has at most {MOST_SELECTORS} selectors of {LONGEST_SELECTOR} bytes; end one in * to select more"
    )]
    Selectors,
    #[error(
        "the reply would have more than {MOST_SAMPLES} samples; ask for fewer series, or give a later `since`"
    )]
    Samples,
}

/// The metrics of a worker, with their units.
pub(crate) const WORKER: [(&str, &str); 11] = [
    ("fill_percent", "1"),
    ("control_signal", "1"),
    ("is_ready", "1"),
    ("slots", "slots"),
    ("total_events_recv", "events"),
    ("total_events_reassembled", "events"),
    ("total_events_reassembly_err", "events"),
    ("total_events_dequeued", "events"),
    ("total_event_enqueue_err", "events"),
    ("total_bytes_recv", "bytes"),
    ("total_packets_recv", "packets"),
];

/// The metrics of a reservation, with their units.
pub(crate) const RESERVATION: [(&str, &str); 2] = [("epoch", "1"), ("event_number", "ticks")];

/// All metrics of a worker at one time.
type OfWorker = [f32; WORKER.len()];
/// All metrics of a reservation at one time.
type OfReservation = [u64; RESERVATION.len()];

#[derive(Clone, Copy, Debug)]
struct Sample<T> {
    at: WallTime,
    values: T,
}

#[derive(Debug)]
struct Samples<T> {
    seconds: VecDeque<Sample<T>>,
    minutes: VecDeque<Sample<T>>,
    newest: WallTime,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self { seconds: VecDeque::new(), minutes: VecDeque::new(), newest: WallTime(0) }
    }
}

impl<T: Copy> Samples<T> {
    fn add(&mut self, at: WallTime, values: T) {
        let sample = Sample { at, values };
        self.newest = sample.at;
        let is_due = self.minutes.back().is_none_or(|last| sample.at.0 / MINUTE > last.at.0 / MINUTE);
        push(&mut self.seconds, SECONDS, sample);
        if is_due {
            push(&mut self.minutes, MINUTES, sample);
        }
    }

    /// Returns the samples from `since` on: those by the minute for the time before the oldest one by the second.
    fn since(&self, since: WallTime) -> impl Iterator<Item = &Sample<T>> {
        let first = self.seconds.front().map_or(WallTime(u64::MAX), |first| first.at);
        let minutes = self.minutes.iter().filter(move |sample| sample.at < first);
        minutes.chain(&self.seconds).filter(move |sample| sample.at >= since)
    }
}

impl<T: Copy, const N: usize> Samples<[T; N]> {
    /// Returns the samples of one metric from `since` on. `left` is how many samples the reply may still take.
    fn values(
        &self,
        since: WallTime,
        metric: usize,
        left: &mut usize,
    ) -> Result<Vec<(WallTime, T)>, TooMuch> {
        let mut values = Vec::new();
        for sample in self.since(since) {
            *left = left.checked_sub(1).ok_or(TooMuch::Samples)?;
            values.push((sample.at, sample.values[metric]));
        }
        Ok(values)
    }
}

/// Adds an item behind the others. If there are `most` already, the oldest one is removed.
pub(crate) fn push<T>(items: &mut VecDeque<T>, most: usize, item: T) {
    if items.len() == most {
        items.pop_front();
    }
    items.push_back(item);
}

/// One metric of a reservation or a worker session over time.
#[derive(Clone, Debug, PartialEq)]
pub struct OneSeries {
    /// The path of the series, by which selectors find the series.
    pub path: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The values in the order of their times.
    pub samples: Values,
}

/// The values of a metric, each with its time of day.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values that are counts, each with its time of day.
    Integers(Vec<(WallTime, u64)>),
    /// Values that are fractions or rates, each with its time of day.
    Floats(Vec<(WallTime, f32)>),
}

#[derive(Debug, Default)]
pub(crate) struct Series {
    reservations: BTreeMap<ReservationId, Samples<OfReservation>>,
    workers: BTreeMap<(ReservationId, SessionId), Samples<OfWorker>>,
}

/// One sample of all metrics of all reservations and worker sessions.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    reservations: Vec<(ReservationId, OfReservation)>,
    workers: Vec<((ReservationId, SessionId), OfWorker)>,
}

/// Takes one sample of all metrics of all reservations and worker sessions.
pub(crate) fn sample(control: &Control, now: Time) -> Sampled {
    let (registry, mut sampled) = (control.registry(), Sampled::default());
    for reservation in registry.durable().reservations() {
        let Some(published) = control.published(now, reservation.lb) else { continue };
        let (id, slots) = (reservation.id, BTreeMap::from_iter(published.slots));
        sampled.reservations.push((id, [published.epoch, published.tick]));
        for session in registry.durable().sessions_of(reservation.lb) {
            let state = registry.liveness(session.id).and_then(|liveness| liveness.state());
            let Some((state, _)) = state else { continue };
            let is_ready = registry.readiness(session.id, now) == Some(Readiness::Ready);
            let slots = slots.get(&session.member).copied().unwrap_or(0);
            sampled.workers.push(((id, session.id), of_worker(state, is_ready, slots)));
        }
    }
    sampled
}

impl Series {
    /// Adds a sample that was taken at `at`, and removes the series of what ended more than ten minutes before.
    pub(crate) fn add(&mut self, at: WallTime, of: Sampled) {
        for (id, values) in of.reservations {
            add(&mut self.reservations, id, at, values);
        }
        for (id, values) in of.workers {
            add(&mut self.workers, id, at, values);
        }
        let oldest = WallTime(at.0.saturating_sub(KEPT));
        self.reservations.retain(|_, samples| samples.newest >= oldest);
        self.workers.retain(|_, samples| samples.newest >= oldest);
    }

    /// Returns the series that the selectors name, with the samples from `since` on. `may_see` decides whether the caller may see
    /// the series of a reservation.
    ///
    /// # Errors
    /// If there are too many selectors, one is too long, or the reply would have too many samples.
    pub(crate) fn select(
        &self,
        selectors: &[String],
        since: WallTime,
        may_see: impl Fn(ReservationId) -> bool,
    ) -> Result<Vec<OneSeries>, TooMuch> {
        if selectors.len() > MOST_SELECTORS || selectors.iter().any(|of| of.len() > LONGEST_SELECTOR) {
            return Err(TooMuch::Selectors);
        }
        let is_asked = |path: &str| selectors.iter().any(|selector| selects(selector, path));
        let (mut found, mut left) = (Vec::new(), MOST_SAMPLES);
        for (id, samples) in self.reservations.iter().filter(|(id, _)| may_see(**id)) {
            for (at, (metric, unit)) in RESERVATION.iter().enumerate() {
                let path = format!("/lb/{id}/{metric}");
                if is_asked(&path) {
                    let values = samples.values(since, at, &mut left)?;
                    found.push(OneSeries { path, unit, samples: Values::Integers(values) });
                }
            }
        }
        for ((id, session), samples) in self.workers.iter().filter(|((id, _), _)| may_see(*id)) {
            for (at, (metric, unit)) in WORKER.iter().enumerate() {
                let path = format!("/lb/{id}/session/{session}/{metric}");
                if is_asked(&path) {
                    let values = samples.values(since, at, &mut left)?;
                    found.push(OneSeries { path, unit, samples: Values::Floats(values) });
                }
            }
        }
        Ok(found)
    }
}

/// Adds a sample to the series of `of`. It is dropped if `of` is new and there are [`MOST`] series already.
fn add<K: Ord, T: Copy>(to: &mut BTreeMap<K, Samples<T>>, of: K, at: WallTime, values: T) {
    if to.len() < MOST || to.contains_key(&of) {
        to.entry(of).or_default().add(at, values);
    }
}

fn selects(selector: &str, path: &str) -> bool {
    match selector.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path == selector || path.strip_prefix(selector).is_some_and(|rest| rest.starts_with('/')),
    }
}

fn of_worker(state: &WorkerState, is_ready: bool, slots: u32) -> [f32; WORKER.len()] {
    let of = &state.counters;
    let count = |count: u64| count as f32;
    [
        state.fill_level,
        state.control_signal,
        f32::from(u8::from(is_ready)),
        slots as f32,
        count(of.events_received),
        count(of.events_reassembled),
        count(of.reassembly_errors),
        count(of.events_dequeued),
        count(of.enqueue_errors),
        count(of.bytes_received),
        count(of.packets_received),
    ]
}

/// How far back the samples go that a request without `since` gets.
pub(crate) const SINCE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ReservationId = ReservationId(4);

    fn len(of: &OneSeries) -> usize {
        match &of.samples {
            Values::Integers(values) => values.len(),
            Values::Floats(values) => values.len(),
        }
    }

    #[test]
    fn an_hour_is_kept_by_the_second_and_a_day_by_the_minute() {
        let mut series = Series::default();
        for second in 0..26 * 3600 {
            add(&mut series.workers, (ID, SessionId(1)), WallTime(second * 1000), [second as f32; 11]);
        }
        let found = series.select(&["/lb/4/session/1/slots".to_owned()], WallTime(0), |_| true).unwrap();
        let [OneSeries { path, unit, samples: Values::Floats(samples) }] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((path.as_str(), *unit), ("/lb/4/session/1/slots", "slots"));
        assert_eq!(samples.len(), SECONDS + MINUTES - 60);
        assert!(samples.is_sorted_by_key(|(at, _)| *at));
        let found = series.select(&["*".to_owned()], WallTime(25 * 3_600_000 + 3_590_000), |_| true).unwrap();
        assert_eq!(found.len(), WORKER.len());
        assert_eq!(len(&found[0]), 10);
    }

    #[test]
    fn a_selector_names_one_series_or_those_that_begin_so() {
        let mut series = Series::default();
        add(&mut series.reservations, ID, WallTime(0), [7, 1 << 60]);
        for session in [1, 12] {
            add(&mut series.workers, (ID, SessionId(session)), WallTime(0), [0.0; 11]);
        }
        let count =
            |selector: &str| series.select(&[selector.to_owned()], WallTime(0), |_| true).unwrap().len();
        let all = RESERVATION.len() + 2 * WORKER.len();
        assert_eq!(count("/lb/4/epoch"), 1);
        assert_eq!(count("/lb/4/session/1"), WORKER.len());
        assert_eq!(count("/lb/4/session/1/*"), WORKER.len());
        assert_eq!((count("/lb/4/*"), count("/lb/5/*"), count("*")), (all, 0, all));
        assert_eq!(
            series.select(&["*".to_owned()], WallTime(0), |_| false),
            Ok(vec![]),
            "what may not be seen is not there"
        );
        let tick = series.select(&["/lb/4/event_number".to_owned()], WallTime(0), |_| true).unwrap();
        assert_eq!(tick[0].samples, Values::Integers(vec![(WallTime(0), 1 << 60)]));
    }

    #[test]
    fn the_reply_to_one_request_is_bounded() {
        let mut series = Series::default();
        for session in 0..20 {
            for second in 0..1000 {
                add(&mut series.workers, (ID, SessionId(session)), WallTime(second * 1000), [0.0; 11]);
            }
        }
        let select = |selectors: &[String], since| series.select(selectors, WallTime(since), |_| true);
        assert_eq!(select(&["*".to_owned()], 0), Err(TooMuch::Samples));
        assert_eq!(select(&["*".to_owned()], 900_000).unwrap().len(), 220);
        assert_eq!(select(&vec!["/".to_owned(); MOST_SELECTORS + 1], 0), Err(TooMuch::Selectors));
        assert_eq!(select(&["x".repeat(LONGEST_SELECTOR + 1)], 0), Err(TooMuch::Selectors));
    }
}
