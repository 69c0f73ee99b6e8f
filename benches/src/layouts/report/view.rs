//! Workloads that differ only in count and size of parameters: what a map or a plot shows.

use std::collections::BTreeMap;

use super::distinct;
use crate::layouts::{
    fit::contest::Contest,
    point::{Direction, Sizes},
};

#[derive(Clone, Debug)]
pub(super) struct View<'a> {
    pub(super) provider: &'a str,
    pub(super) wait: &'a str,
    pub(super) sizes: Sizes,
    pub(super) direction: Direction,
    pub(super) contests: BTreeMap<(u16, u64), &'a Contest<'a>>,
}

impl<'a> View<'a> {
    /// By provider; equal sizes before mixed ones, spinning before blocking, both ways before one.
    pub(super) fn all(contests: &'a [Contest<'a>]) -> Vec<Self> {
        let mut views = BTreeMap::<_, Self>::new();
        for contest in contests {
            let of = contest.workload;
            let is_one_way = of.direction != Direction::Both;
            let order = (&of.provider, of.sizes, of.wait != "spin", &of.wait, is_one_way, of.direction);
            let view = views.entry(order).or_insert_with(|| Self {
                provider: &of.provider,
                wait: &of.wait,
                sizes: of.sizes,
                direction: of.direction,
                contests: BTreeMap::new(),
            });
            view.contests.insert((of.params, of.bytes), contest);
        }
        views.into_values().collect()
    }

    pub(super) fn title(&self) -> String {
        let sizes = match self.sizes {
            Sizes::Equal => "equal sizes",
            Sizes::Mixed => "mixed sizes",
        };
        format!("{}, {}, {}, {sizes}", self.provider, self.wait, direction(self.direction))
    }

    pub(super) fn counts(&self) -> Vec<u16> {
        distinct(self.contests.keys().map(|(count, _)| *count))
    }

    /// Without what was measured at one count only, for another comparison.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let all = distinct(self.contests.keys().map(|(_, size)| *size));
        let counts = |size: &u64| self.contests.keys().filter(|(_, other)| other == size).count();
        if self.counts().len() < 2 {
            return all;
        }
        let several: Vec<_> = all.iter().copied().filter(|size| counts(size) > 1).collect();
        // Large sizes may fit at one count only.
        let largest = several.last().copied().unwrap_or(0);
        all.into_iter().filter(|size| several.is_empty() || counts(size) > 1 || *size > largest).collect()
    }

    pub(super) fn at(&self, count: u16, size: u64) -> Option<&'a Contest<'a>> {
        self.contests.get(&(count, size)).copied()
    }

    /// The counts nearest to `wanted` with at least two sizes.
    pub(super) fn chosen_counts(&self, wanted: &[u16]) -> Vec<u16> {
        let sizes = |count: u16| self.contests.keys().filter(|(other, _)| *other == count).count();
        let usable: Vec<_> = self.counts().into_iter().filter(|count| sizes(*count) > 1).collect();
        nearest(&usable, wanted, f64::from)
    }

    /// The sizes nearest to `wanted` with at least two counts.
    pub(super) fn chosen_sizes(&self, wanted: &[u64]) -> Vec<u64> {
        let counts = |size: u64| self.contests.keys().filter(|(_, other)| *other == size).count();
        let usable: Vec<_> = self.sizes().into_iter().filter(|size| counts(*size) > 1).collect();
        nearest(&usable, wanted, |size| size as f64)
    }
}

pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "inputs",
        Direction::Out => "outputs",
        Direction::Both => "in and out",
    }
}

/// By ratio; each once, in their order.
fn nearest<T: Copy + Ord>(values: &[T], wanted: &[T], number: impl Fn(T) -> f64) -> Vec<T> {
    let distance = |a: T, b: T| (number(a).max(1.0) / number(b).max(1.0)).ln().abs();
    let near = |wanted: &T| {
        values.iter().copied().min_by(|a, b| distance(*a, *wanted).total_cmp(&distance(*b, *wanted)))
    };
    distinct(wanted.iter().filter_map(near))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{
        fit::synthetic::{self, point, workload},
        point::Workload,
    };

    #[test]
    fn the_usual_view_is_first() {
        let run = synthetic::run(1);
        let contests = Contest::all(&run.points);
        let views = View::all(&contests);
        assert_eq!(views[0].title(), "embedded, spin, in and out, equal sizes");
        assert_eq!(views.len(), 24);
    }

    #[test]
    fn a_size_at_one_count_is_not_shown_unless_it_is_the_largest() {
        let grid = [(1, 64), (31, 64), (1, 1984), (1, 4096), (31, 4096), (1, 1 << 20)];
        let points = grid.map(|(params, bytes)| point(&workload(params, bytes), "symmetric", 9.0));
        let contests = Contest::all(&points);
        let views = View::all(&contests);
        assert_eq!(views[0].sizes(), [64, 4096, 1 << 20]);
        assert_eq!(views[0].chosen_sizes(&[64, 100, 1 << 30]), [64, 4096]);
        assert_eq!(views[0].chosen_counts(&[8]), [31]);
        assert!(views[0].at(31, 1984).is_none());
        let _: &Workload = views[0].at(1, 1984).unwrap().workload;
    }
}
