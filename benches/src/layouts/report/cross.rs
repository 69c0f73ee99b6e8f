//! Where `packed` stops being best.

use super::view::View;
use crate::layouts::fit::contest::{Contest, Kind};

/// The size up to which `packed` is best, for one number of parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Crossover {
    /// It is best at no size.
    Never,
    /// From so many bytes on it is not best any more: between two measured sizes, by ratio.
    At(f64),
    /// It is best up to this size, the largest at which it was measured.
    Beyond(u64),
}

/// `None` where it was not measured.
pub(super) fn crossover(view: &View<'_>, count: u16) -> Option<Crossover> {
    let contests = view.sizes().into_iter().filter_map(|size| Some((size, view.at(count, size)?)));
    let measured = contests.filter_map(|(size, contest)| Some((size, beside_others(contest)?, contest)));
    let measured: Vec<_> = measured.collect();
    let (largest, ..) = *measured.last()?;
    let won: Vec<_> = measured.iter().map(|(.., contest)| contest.is_won_by(Kind::Packed)).collect();
    let Some(last) = last_of_most(&won) else { return Some(Crossover::Never) };
    let pairs = measured[last..].windows(2).find(|pair| pair[1].1 >= 1.0);
    Some(pairs.map_or(Crossover::Beyond(largest), |pair| {
        let [(from, below, _), (to, above, _)] = [pair[0], pair[1]];
        // Where noise put it above already, at the measured size.
        let share = if below < 1.0 { -below.ln() / (above.ln() - below.ln()) } else { 0.0 };
        Crossover::At(from as f64 * (to as f64 / from as f64).powf(share))
    }))
}

/// The time of packed divided by the time of the fastest other layout: above 1 if packed is slower.
fn beside_others(contest: &Contest<'_>) -> Option<f64> {
    let packed = contest.kind(Kind::Packed)?;
    let other = contest.contenders.iter().find(|other| other.kind() != Kind::Packed)?;
    Some(packed.us() / other.us())
}

/// The end of the beginning in which most are true; an odd one later is not its end.
fn last_of_most(values: &[bool]) -> Option<usize> {
    let (mut sum, mut best, mut last) = (0.0, 0.0, None);
    for (at, &value) in values.iter().enumerate() {
        sum += if value { 1.0 } else { -1.1 };
        if sum > best {
            (best, last) = (sum, Some(at));
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use mrsp::layout::Layout;

    use super::*;
    use crate::layouts::fit::synthetic;

    fn found(packed: impl Fn(u16, u64) -> f64) -> Vec<Crossover> {
        let points = synthetic::points(|workload, layout| match layout {
            Layout::Packed { threshold } if workload.bytes <= threshold.into() => {
                packed(workload.params, workload.bytes)
            }
            _ => 20.0,
        });
        let contests = Contest::all(&points);
        let views = View::all(&contests);
        synthetic::COUNTS.iter().filter_map(|&count| crossover(&views[0], count)).collect()
    }

    #[test]
    fn it_lies_between_the_sizes_by_ratio() {
        let lines = found(|count, bytes| match (count, bytes) {
            (1, _) => 25.0,
            (_, ..=1024) => 10.0,
            _ => 40.0,
        });
        assert_eq!(lines[0], Crossover::Never);
        // Twice as fast at 1 KiB and half as fast at 4 KiB: equal at 2 KiB.
        let Crossover::At(bytes) = lines[1] else { panic!("{lines:?}") };
        assert!((bytes - 2048.0).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn it_may_be_beyond_what_was_measured() {
        assert!(found(|_, _| 10.0).iter().all(|line| *line == Crossover::Beyond(1 << 20)));
    }

    #[test]
    fn an_odd_size_does_not_move_it() {
        let lines = found(|_, bytes| if bytes <= 256 || bytes == 1 << 20 { 10.0 } else { 40.0 });
        assert!(
            lines.iter().all(|line| matches!(line, Crossover::At(bytes) if *bytes < 1024.0)),
            "{lines:?}"
        );
    }
}
