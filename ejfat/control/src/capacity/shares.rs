//! Computes shares from capacities.

/// The least part of an even share from which a worker of which only a lower bound is known grows.
const LEAST_GROWN: f64 = 0.1;
/// The most by which such a worker grows, as a multiple of its share.
const GROWTH: f64 = 3.0;
/// The part of the measured capacities that is used while another worker's is unknown.
const RESERVED: f64 = 0.9;

/// What a worker can take, where 1 is all events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Claim {
    Measured(f64),
    /// The worker can take at least this part.
    AtLeast(f64),
    /// The capacity is unknown: the worker gets, by this weight, a part of what the others leave.
    Unknown(f64),
}

/// The part of all events that each worker is to have. The sum is 1, if there is a worker.
pub(super) fn shares(claims: &[Claim]) -> Vec<f64> {
    let even = 1.0 / claims.len().max(1) as f64;
    let known: f64 = claims
        .iter()
        .map(|claim| match claim {
            Claim::Measured(part) | Claim::AtLeast(part) => *part,
            Claim::Unknown(_) => 0.0,
        })
        .sum();
    let unknown = claims.iter().filter(|claim| matches!(claim, Claim::Unknown(_))).count();
    let mut shares: Vec<f64> = if unknown > 0 {
        let left = ((1.0 - RESERVED * known) / unknown as f64).max(even);
        let share = |claim: &Claim| match claim {
            Claim::Measured(part) | Claim::AtLeast(part) => RESERVED * part,
            Claim::Unknown(weight) => weight * left,
        };
        filled(claims, claims.iter().map(share).collect())
    } else {
        let grown = |part: f64| part.max(LEAST_GROWN * even);
        let bounded = |claim: &Claim| if let Claim::AtLeast(part) = claim { grown(*part) } else { 0.0 };
        let all: f64 = claims.iter().map(bounded).sum();
        let left = (1.0 - known).max(0.0);
        claims
            .iter()
            .map(|claim| match claim {
                Claim::Measured(part) => *part,
                Claim::AtLeast(part) => part + (grown(*part) * left / all).min(GROWTH * grown(*part)),
                Claim::Unknown(_) => 0.0,
            })
            .collect()
    };
    normalize(&mut shares);
    shares
}

/// Fills shares up to a sum of 1: workers get no more than is known that they can take while others may be able to take
/// it.
fn filled(claims: &[Claim], mut shares: Vec<f64>) -> Vec<f64> {
    let is_unknown = |claim: &Claim| matches!(claim, Claim::Unknown(_));
    for (is_wanted, most) in [(false, 1.0 / RESERVED), (true, f64::INFINITY)] {
        let all: f64 = shares.iter().sum();
        let wanted = || claims.iter().map(is_unknown).map(|is| is == is_wanted);
        let part: f64 =
            shares.iter().zip(wanted()).filter(|(_, wanted)| *wanted).map(|(share, _)| share).sum();
        if all >= 1.0 || part <= 0.0 {
            continue;
        }
        let factor = ((part + 1.0 - all) / part).min(most);
        shares.iter_mut().zip(wanted()).filter(|(_, wanted)| *wanted).for_each(|(share, _)| *share *= factor);
    }
    shares
}

/// Scales the shares so that their sum is 1; if all are 0 they become equal.
pub(super) fn normalize(shares: &mut [f64]) {
    let sum: f64 = shares.iter().sum();
    let even = 1.0 / shares.len().max(1) as f64;
    for share in shares {
        *share = if sum > 0.0 { *share / sum } else { even };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_workers_share_by_their_capacity() {
        assert_eq!(shares(&[Claim::Measured(0.25), Claim::Measured(0.75)]), [0.25, 0.75]);
        assert_eq!(shares(&[Claim::Measured(3.0), Claim::Measured(1.0)]), [0.75, 0.25]);
        assert!(shares(&[]).is_empty());
    }

    #[test]
    fn what_is_left_goes_to_those_of_which_only_a_bound_is_known() {
        assert_eq!(shares(&[Claim::Measured(0.5), Claim::AtLeast(0.25)]), [0.5, 0.5]);
        // It grows to four times its share at most; then all is scaled.
        let grown = shares(&[Claim::Measured(0.2), Claim::AtLeast(0.1)]);
        assert!((grown[1] - 0.4 / 0.6).abs() < 1e-9, "{grown:?}");
    }

    #[test]
    fn unknown_workers_have_what_is_left_and_no_less_than_an_even_share() {
        assert_eq!(shares(&[Claim::Unknown(1.0), Claim::Unknown(1.0)]), [0.5, 0.5]);
        assert_eq!(shares(&[Claim::Unknown(0.0), Claim::Unknown(0.0)]), [0.5, 0.5]);
        let shares = shares(&[Claim::Measured(0.5), Claim::Unknown(1.0)]);
        assert!((shares[0] - 0.45).abs() < 1e-9 && (shares[1] - 0.55).abs() < 1e-9, "{shares:?}");
    }

    #[test]
    fn a_measured_worker_gets_no_more_than_it_takes_while_others_are_new() {
        let shares = shares(&[Claim::Measured(0.25), Claim::Unknown(0.1), Claim::Unknown(0.1)]);
        assert!((shares[0] - 0.25).abs() < 1e-9 && (shares[1] - 0.375).abs() < 1e-9, "{shares:?}");
    }
}
