//! Logarithmic axes.

/// A logarithmic scale from values to places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    pub(super) values: [f64; 2],
    pub(super) places: [f64; 2],
}

/// The least ratio of the two ends of an axis.
const LEAST_RANGE: f64 = 2.0;

/// Within a decade, where equal steps are too many.
const STEPS: [&[f64]; 4] = [
    &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0],
];
/// Up to this ratio of its ends an axis has equal steps.
const NARROW: f64 = 4.0;

/// As it is written: 0.3, not 0.30000000000000004.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

impl Log {
    /// Makes a scale with all `values` inside and a little room at both ends; `None` if no value is above zero.
    pub(super) fn around(values: impl IntoIterator<Item = f64>, room: f64, places: [f64; 2]) -> Option<Self> {
        let usable = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let bounds = usable.fold(None, |bounds: Option<[f64; 2]>, value| {
            let [least, most] = bounds.unwrap_or([value; 2]);
            Some([least.min(value), most.max(value)])
        });
        let [least, most] = bounds?;
        // Values that hardly differ must not look very different.
        let room = room.max((LEAST_RANGE * least / most).sqrt());
        Some(Self { values: [least / room, most * room], places })
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let [least, most] = self.values.map(f64::ln);
        let [from, to] = self.places;
        from + (value.max(f64::MIN_POSITIVE).ln() - least) / (most - least) * (to - from)
    }

    /// Round values, as many as there can be up to `most`.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        let mut all = self.equal_steps().into_iter().chain(STEPS.iter().map(|steps| self.decades(steps)));
        all.find(|ticks| ticks.len() <= most).unwrap_or_else(|| {
            let decades = self.decades(&[1.0]);
            let step = decades.len().div_ceil(most).max(1);
            decades.into_iter().step_by(step).collect()
        })
    }

    /// Equally spaced values for each step size, from small to large steps.
    fn equal_steps(&self) -> Vec<Vec<f64>> {
        let [least, greatest] = self.values;
        if greatest > NARROW * least {
            return Vec::new();
        }
        let unit = 10_f64.powf(least.log10().floor());
        let of = |step: f64| {
            let steps = (least / step).ceil() as u64..=(greatest / step).floor() as u64;
            steps.map(|times| rounded(times as f64 * step)).collect()
        };
        [0.05, 0.1, 0.2, 0.5, 1.0].map(|step| of(step * unit)).into()
    }

    /// What is inside of each decade's `steps`.
    fn decades(&self, steps: &[f64]) -> Vec<f64> {
        let [least, greatest] = self.values;
        let decades = least.log10().floor() as i32..=greatest.log10().ceil() as i32;
        let all =
            decades.flat_map(|decade| steps.iter().map(move |step| rounded(step * 10_f64.powi(decade))));
        all.filter(|tick| (least..=greatest).contains(tick)).collect()
    }

    /// The `values` whose labels have room beside each other: the first one, the last one, and those that fit between.
    pub(super) fn apart(&self, values: &[f64], room: f64) -> Vec<f64> {
        let Some((&last, rest)) = values.split_last() else { return Vec::new() };
        let mut kept: Vec<f64> = Vec::new();
        for &value in rest {
            let from_kept = kept.last().is_none_or(|kept| (self.at(value) - self.at(*kept)).abs() >= room);
            if from_kept && (self.at(value) - self.at(last)).abs() >= room {
                kept.push(value);
            }
        }
        kept.push(last);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_distances() {
        let log = Log { values: [1.0, 100.0], places: [0.0, 200.0] };
        assert_eq!([1.0, 10.0, 100.0].map(|value| log.at(value).round()), [0.0, 100.0, 200.0]);
        let downwards = Log { values: [1.0, 100.0], places: [200.0, 0.0] };
        assert_eq!(downwards.at(1.0), 200.0);
    }

    #[test]
    fn everything_is_inside() {
        let log = Log::around([3.0, 0.0, f64::NAN, 50.0], 1.1, [0.0, 1.0]).unwrap();
        assert!(log.at(3.0) > 0.0 && log.at(50.0) < 1.0, "{log:?}");
        assert!(Log::around([7.0], 1.0, [0.0, 1.0]).unwrap().at(7.0) - 0.5 < 1e-9);
        assert!(Log::around([0.0], 1.1, [0.0, 1.0]).is_none());
    }

    #[test]
    fn ticks_are_round_and_few() {
        let log = |least, most| Log { values: [least, most], places: [0.0, 100.0] };
        assert_eq!(log(9.0, 60.0).ticks(6), [10.0, 15.0, 20.0, 30.0, 50.0]);
        assert_eq!(log(9.0, 600.0).ticks(6), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(log(0.7, 1.45).ticks(8), [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]);
        assert_eq!(log(0.25, 0.31).ticks(6), [0.25, 0.26, 0.27, 0.28, 0.29, 0.3]);
        assert_eq!(log(9.0, 2e5).ticks(6), [10.0, 100.0, 1e3, 1e4, 1e5]);
        assert!(log(1e-3, 1e9).ticks(6).len() <= 6);
    }

    #[test]
    fn labels_do_not_touch() {
        let log = Log { values: [1.0, 256.0], places: [0.0, 80.0] };
        assert_eq!(log.apart(&[1.0, 2.0, 4.0, 128.0, 256.0], 15.0), [1.0, 4.0, 256.0]);
        assert!(log.apart(&[], 15.0).is_empty());
    }
}
