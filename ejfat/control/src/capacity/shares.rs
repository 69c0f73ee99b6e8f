//! From capacities to shares.

/// The least part of an even share from which a worker of which only a lower bound is known grows.
const LEAST_GROWN: f64 = 0.1;
/// By how many times its share such a worker grows at most.
const GROWTH: f64 = 3.0;
/// The part of the measured capacities that is used while another worker's is unknown.
const RESERVED: f64 = 0.9;

/// What a worker can take, where 1 is all events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Claim {
    Measured(f64),
    /// At least so much.
    AtLeast(f64),
    /// It has its part of what the others leave, by this weight.
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
        claims
            .iter()
            .map(|claim| match claim {
                Claim::Measured(part) | Claim::AtLeast(part) => RESERVED * part,
                Claim::Unknown(weight) => weight * left,
            })
            .collect()
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
}
