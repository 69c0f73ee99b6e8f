//! What `auto` follows: the rule that is best for measured points, and how good a rule was where it was used.
//!
//! | for | see |
//! |---|---|
//! | the layouts of a workload beside each other | `contest` |
//! | the search for a rule | `search` |
//! | `auto`, and the best layout, compared | `auto_ratios`, `gains` |

pub(crate) mod comparison;
pub(crate) mod contest;
mod search;
#[cfg(test)]
pub(crate) mod synthetic;

use std::collections::BTreeMap;

use mrsp::layout::LayoutRule;

use super::point::{Point, Workload};
pub(crate) use comparison::{AutoRatios, Gain, auto_ratios, gains};

/// A rule, and what it reaches at the points it was fitted to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fitted {
    pub rule: LayoutRule,
    /// Time of the best layout divided by that of the rule's, where this is least.
    pub worst: f64,
    pub at: Workload,
    /// That on average.
    pub mean: f64,
    /// Workloads at which that is at least 0.95, divided by all.
    pub share: f64,
    /// Workloads it was fitted to.
    pub points: usize,
    /// Workloads left out, because repeats of a layout differ by more than 20 %.
    pub noisy: usize,
}

/// The best rule for each provider with a point of a layout other than `auto`.
///
/// Best is where the worst loss that noise does not explain is least, to a hundredth; of those, the mean of such losses;
/// of those, the mean of all, to 0.003; of those, the simplest, which copies least. A layout that was not measured at a
/// workload counts as the slowest that was.
pub(crate) fn fit(points: &[Point]) -> BTreeMap<String, Fitted> {
    let providers = contest::by_provider(points).into_iter();
    providers.filter_map(|(provider, contests)| Some((provider, search::best(&contests)?))).collect()
}
