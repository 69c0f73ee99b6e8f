//! 31 parameters of 64 B beside one with as many bytes: what small parameters cost for being several.

use super::{look::Look, plots::point, view::View};
use crate::layouts::point::Sizes;

pub(super) const PARAMS: u16 = 31;
pub(super) const BYTES: u64 = 64;
pub(super) const ONE: u64 = PARAMS as u64 * BYTES;
/// The 31 parameters should take at most this many times as long as the one.
pub(super) const AIM: f64 = 2.0;

/// The comparison in one view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Together {
    pub(super) view: String,
    pub(super) provider: String,
    /// The time of the one parameter with the symmetric layout.
    pub(super) one_us: f64,
    /// The sizes in bytes between which the time of the one parameter is interpolated, if it was not measured at 1984
    /// B.
    pub(super) between: Option<[u64; 2]>,
    /// For each layout, the time of the 31 parameters divided by the time of the one.
    pub(super) times: Vec<(Look, f64)>,
}

impl Together {
    /// The layout with the least time; `auto` is not a layout.
    pub(super) fn best(&self) -> Option<(Look, f64)> {
        let layouts = self.times.iter().copied().filter(|(look, _)| *look != Look::Auto);
        layouts.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub(super) fn of(&self, look: Look) -> Option<f64> {
        self.times.iter().find(|(other, _)| *other == look).map(|(_, times)| *times)
    }
}

pub(super) fn together(views: &[View<'_>]) -> Vec<Together> {
    views.iter().filter(|view| view.sizes == Sizes::Equal).filter_map(in_view).collect()
}

fn in_view(view: &View<'_>) -> Option<Together> {
    let many = view.at(PARAMS, BYTES)?;
    let (one_us, between) = one(view)?;
    let times = |look| Some((look, point(many, look)?.p50_us / one_us));
    let times = Look::ALL.into_iter().filter_map(times).collect();
    Some(Together { view: view.title(), provider: view.provider.into(), one_us, between, times })
}

/// The time of the one parameter. If it was not measured, the time is interpolated by ratio between the nearest sizes,
/// which are returned, too.
fn one(view: &View<'_>) -> Option<(f64, Option<[u64; 2]>)> {
    let singles = view.contests.iter().filter(|((count, _), _)| *count == 1);
    let times = singles.filter_map(|((_, size), contest)| Some((*size, contest.symmetric()?.us())));
    let times: Vec<_> = times.collect();
    if let Some((_, us)) = times.iter().find(|(size, _)| *size == ONE) {
        return Some((*us, None));
    }
    let (from, below) = *times.iter().rfind(|(size, _)| *size < ONE)?;
    let (to, above) = *times.iter().find(|(size, _)| *size > ONE)?;
    let share = (ONE as f64 / from as f64).ln() / (to as f64 / from as f64).ln();
    Some((below * (above / below).powf(share), Some([from, to])))
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::fit::{contest::Contest, contest::Kind, synthetic};

    fn found(points: &[crate::layouts::point::Point]) -> Vec<Together> {
        let contests = Contest::all(points);
        together(&View::all(&contests))
    }

    #[test]
    fn without_that_size_it_lies_between_the_nearest() {
        let mut points = synthetic::points(|workload, layout| match (layout, workload.params) {
            (Layout::Packed { .. }, 31) => 24.0,
            (_, 31) => 60.0,
            _ => 10.0 * (workload.bytes as f64).log2(),
        });
        // The result lies between 100 at 1 KiB and 120 at 4 KiB.
        let one = &found(&points)[0];
        assert_eq!(one.between, Some([1024, 4096]));
        assert!((one.one_us - 109.0).abs() < 1.0, "{one:?}");
        points.push(synthetic::point(&synthetic::workload(1, ONE), "symmetric", 12.0));
        let one = &found(&points)[0];
        assert_eq!((one.one_us, one.between), (12.0, None));
        assert_eq!(one.best(), Some((Look::Layout(Kind::Packed), 2.0)));
        assert_eq!(one.of(Look::Layout(Kind::Symmetric)), Some(5.0));
        assert_eq!(one.of(Look::Auto), None);
    }

    #[test]
    fn what_was_not_measured_is_not_compared() {
        let mut points = synthetic::points(|_, _| 10.0);
        points.retain(|point| point.workload.params != 31);
        assert!(found(&points).is_empty());
    }
}
