//! The layouts that were measured at one workload, beside each other.

use std::collections::BTreeMap;

use mrsp::layout::{Layout, LayoutChoice};

use crate::layouts::{
    point::{Point, Workload},
    sizes::sizes,
};

/// Differences below this are none, however small the spread.
pub(crate) const TIE: f64 = 0.03;

/// A point whose repeats differ by more carries no verdict.
pub(crate) const MOST_SPREAD: f64 = 0.2;

/// Layouts without their threshold, the simplest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Symmetric,
    Asymmetric,
    Gathered,
    Packed,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Symmetric, Self::Asymmetric, Self::Gathered, Self::Packed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Symmetric => "symmetric",
            Self::Asymmetric => "asymmetric",
            Self::Gathered => "gathered",
            Self::Packed => "packed",
        }
    }
}

/// What a layout comes to for given parameters. Different thresholds may copy the same ones, or none, which is
/// gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Effect {
    pub(crate) kind: Kind,
    /// The smallest so many parameters are copied.
    pub(crate) copied: usize,
}

impl Effect {
    fn of(layout: Layout, workload: &Workload, sizes: &[u64]) -> Self {
        let kind = match layout {
            Layout::Symmetric => Kind::Symmetric,
            Layout::Asymmetric => Kind::Asymmetric,
            Layout::Gathered => Kind::Gathered,
            Layout::Packed { .. } => {
                let copied = workload.copied(layout, sizes);
                return Self { kind: if copied == 0 { Kind::Gathered } else { Kind::Packed }, copied };
            }
        };
        Self { kind, copied: 0 }
    }
}

/// A layout in a contest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender<'a> {
    pub(crate) effect: Effect,
    pub(crate) point: &'a Point,
}

impl Contender<'_> {
    pub(crate) fn kind(&self) -> Kind {
        self.effect.kind
    }

    pub(crate) fn us(&self) -> f64 {
        self.point.p50_us
    }

    /// The time of `other` divided by the time of this contender: above 1 if this contender is faster.
    pub(crate) fn times_as_fast_as(&self, other: &Self) -> f64 {
        other.us() / self.us()
    }

    /// Whether this contender is faster than `other` by more than the limit of ties and the spread of either.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        self.times_as_fast_as(other) > 1.0 + noise(self.point, other.point)
    }
}

/// The share by which two points may differ without one being better.
pub(crate) fn noise(a: &Point, b: &Point) -> f64 {
    TIE.max(a.spread).max(b.spread)
}

/// A workload with everything that was measured at it.
#[derive(Clone, Debug)]
pub(crate) struct Contest<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) sizes: Vec<u64>,
    /// The fastest first; of those with the same effect the middle one, for the fastest of several would be so by luck.
    pub(crate) contenders: Vec<Contender<'a>>,
    pub(crate) auto: Option<&'a Point>,
}

impl<'a> Contest<'a> {
    /// All contests, in the order of workloads. Points without a time are left out, and workloads without a layout.
    pub(crate) fn all(points: &'a [Point]) -> Vec<Self> {
        let mut grouped = BTreeMap::<&Workload, Vec<&Point>>::new();
        for point in points.iter().filter(|point| point.p50_us.is_finite() && point.p50_us > 0.0) {
            grouped.entry(&point.workload).or_default().push(point);
        }
        let contests = grouped.into_iter().map(|(workload, points)| Self::new(workload, points));
        contests.filter(|contest| !contest.contenders.is_empty()).collect()
    }

    fn new(workload: &'a Workload, mut points: Vec<&'a Point>) -> Self {
        let sizes = sizes(workload);
        points.sort_by(|a, b| a.p50_us.total_cmp(&b.p50_us));
        let (mut auto, mut effects) = (None, BTreeMap::<Effect, Vec<&Point>>::new());
        for point in points {
            match point.layout.parse() {
                Ok(LayoutChoice::Auto) => auto = Some(point),
                Ok(LayoutChoice::Fixed(layout)) => {
                    effects.entry(Effect::of(layout, workload, &sizes)).or_default().push(point);
                }
                Err(_) => {}
            }
        }
        let middle = |(effect, points): (_, Vec<&'a Point>)| Contender {
            effect,
            point: points[(points.len() - 1) / 2],
        };
        let mut contenders: Vec<_> = effects.into_iter().map(middle).collect();
        contenders.sort_by(|a, b| a.us().total_cmp(&b.us()).then_with(|| a.effect.cmp(&b.effect)));
        Self { workload, sizes, contenders, auto }
    }

    pub(crate) fn best(&self) -> &Contender<'a> {
        &self.contenders[0]
    }

    pub(crate) fn slowest(&self) -> &Contender<'a> {
        &self.contenders[self.contenders.len() - 1]
    }

    /// The fastest of its kind.
    pub(crate) fn kind(&self, kind: Kind) -> Option<&Contender<'a>> {
        self.contenders.iter().find(|contender| contender.kind() == kind)
    }

    pub(crate) fn symmetric(&self) -> Option<&Contender<'a>> {
        self.kind(Kind::Symmetric)
    }

    /// What was measured of `layout`, or of one with the same effect.
    pub(crate) fn measured(&self, layout: Layout) -> Option<&Contender<'a>> {
        let effect = Effect::of(layout, self.workload, &self.sizes);
        self.contenders.iter().find(|contender| contender.effect == effect)
    }

    /// What is faster than symmetric, and as fast as the fastest but for noise: the fastest first.
    pub(crate) fn winners(&self) -> Vec<&Contender<'a>> {
        let Some(symmetric) = self.symmetric() else { return Vec::new() };
        let best = self.best();
        if !best.beats(symmetric) {
            return Vec::new();
        }
        let level = |contender: &&Contender<'_>| contender.beats(symmetric) && !best.beats(contender);
        self.contenders.iter().filter(level).collect()
    }

    pub(crate) fn is_won_by(&self, kind: Kind) -> bool {
        self.winners().iter().any(|winner| winner.kind() == kind)
    }

    /// Slower than symmetric by more than noise.
    pub(crate) fn is_lost_by(&self, kind: Kind) -> bool {
        let (symmetric, contender) = (self.symmetric(), self.kind(kind));
        symmetric.zip(contender).is_some_and(|(symmetric, contender)| symmetric.beats(contender))
    }

    /// No point of it differs too much between repeats.
    pub(crate) fn is_calm(&self) -> bool {
        self.contenders.iter().all(|contender| contender.point.spread <= MOST_SPREAD)
    }
}

/// The contests of each provider.
pub(crate) fn by_provider<'a>(points: &'a [Point]) -> BTreeMap<String, Vec<Contest<'a>>> {
    let mut providers = BTreeMap::<String, Vec<_>>::new();
    for contest in Contest::all(points) {
        providers.entry(contest.workload.provider.clone()).or_default().push(contest);
    }
    providers
}
