//! The highest rate at which nothing is lost.

/// The result of sending at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    /// The rate at which events were sent, in bytes per second.
    pub(super) rate: f64,
    /// The rate at which events arrived, in bytes per second.
    pub(super) arrived: f64,
    pub(super) lost: bool,
}

/// A run that loses something is repeated: the system may have had something else to do.
const TRIES: u32 = 3;
/// Rates nearer to each other are the same.
const STEP: f64 = 1.04;
/// The lowest rate that is tried, as a part of the unpaced rate.
const LEAST: f64 = 1.0 / 64.0;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) rate: f64,
    /// Nothing was lost although nothing was held back.
    pub(super) unpaced: bool,
}

/// Searches from a rate on that was found before. `try_at` sends at a rate, `None` as fast as it goes. `None`: it loses
/// something at any rate.
pub(super) fn highest(
    known: Option<f64>,
    mut try_at: impl FnMut(Option<f64>) -> anyhow::Result<Trial>,
) -> anyhow::Result<Option<Found>> {
    let mut lossless = |rate: Option<f64>| {
        let mut trial = try_at(rate)?;
        for _ in 1..TRIES {
            if !trial.lost {
                break;
            }
            trial = try_at(rate)?;
        }
        anyhow::Ok(trial)
    };
    let unpaced = lossless(None)?;
    if !unpaced.lost {
        return Ok(Some(Found { rate: unpaced.rate, unpaced: true }));
    }
    // Rates that were wanted: what was sent may be less.
    let (mut low, mut high) = (None, unpaced.rate);
    let mut next = known.unwrap_or(high * 0.8).min(high / STEP);
    let mut found = None;
    while low.is_none_or(|low| high / low > STEP) && next > unpaced.rate * LEAST {
        let trial = lossless(Some(next))?;
        if trial.lost {
            high = next;
            next = low.map_or(next * 0.85, |low: f64| (low * high).sqrt());
        } else {
            (low, found) = (Some(next), Some(trial.rate));
            let near = next * STEP * STEP;
            next = if near < high && known.is_some() { near } else { (next * high).sqrt() };
        }
    }
    Ok(found.map(|rate| Found { rate, unpaced: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver that takes so much of a sender that makes so much, paced only a part of it.
    fn found(receiver: f64, sender: f64, known: Option<f64>) -> (Option<Found>, u32) {
        paced(receiver, sender, sender, known)
    }

    fn paced(receiver: f64, sender: f64, paced: f64, known: Option<f64>) -> (Option<Found>, u32) {
        let mut tries = 0;
        let found = highest(known, |rate| {
            tries += 1;
            let rate = rate.map_or(sender, |rate| rate.min(paced));
            Ok(Trial { rate, arrived: rate.min(receiver), lost: rate > receiver })
        });
        (found.unwrap(), tries)
    }

    #[test]
    fn the_rate_is_found() {
        for known in [None, Some(1.0), Some(3.0), Some(5.0), Some(9.0)] {
            let (result, tries) = found(3.0, 8.0, known);
            let Found { rate, unpaced } = result.unwrap();
            assert!(!unpaced && rate <= 3.0 && rate > 2.85, "{rate} from {known:?}");
            assert!(tries < 60, "{tries} from {known:?}");
        }
        for known in [None, Some(1.0), Some(9.0)] {
            let (result, tries) = paced(3.0, 8.0, 2.0, known);
            assert!(result.unwrap().rate <= 2.0 && tries < 90, "{result:?} by {tries}");
        }
        assert_eq!(found(9.0, 8.0, None).0, Some(Found { rate: 8.0, unpaced: true }));
        assert_eq!(found(0.0, 8.0, None).0, None);
    }
}
