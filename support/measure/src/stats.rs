//! What repeats come to.

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Distance between the quartiles as a share of the median; `None` of fewer than two values, or around zero.
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle != 0.0 && values.len() > 1)?;
    Some((quantile(values, 0.75)? - quantile(values, 0.25)?) / middle.abs())
}

/// Between the two nearest values in proportion (type 7 of Hyndman and Fan, as R and NumPy).
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.75), Some(1.75));
    }

    #[test]
    fn the_spread_is_relative_and_needs_two_values() {
        assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some(2.0 / 3.0));
        assert_eq!(spread(&[7.0, 7.0, 7.0]), Some(0.0));
        assert_eq!(spread(&[7.0]), None);
        assert_eq!(spread(&[0.0, 0.0]), None);
    }
}
