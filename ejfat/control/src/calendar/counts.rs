//! How many slots each member gets.

use super::MemberId;

/// The demand of a member for slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The member that is to get slots.
    pub member: MemberId,
    /// The member's part of all slots, in any unit. It must be finite and not negative.
    pub weight: f64,
    /// The least number of slots for the member.
    pub least: u32,
    /// The most slots for the member.
    pub most: u32,
}

/// The reason why the slots cannot be divided as the members demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The least number of slots of a member is greater than its greatest number of slots.
    #[error("member {member} is to have at least {least} slots and at most {most}")]
    Bounds {
        /// The member whose demand cannot be met.
        member: MemberId,
        /// The least number of slots that the member is to have.
        least: u32,
        /// The most slots that the member is to have.
        most: u32,
    },
    /// The weight of a member is negative, infinite or not a number.
    #[error("the weight of member {member} is not a finite number from 0 on")]
    Weight {
        /// The member that has the weight.
        member: MemberId,
    },
    /// The sum of the least numbers of slots of all members is greater than the number of slots.
    #[error(
        "the members are to have at least {least} slots together, and there are {slots}; lower their least factors"
    )]
    TooMany {
        /// The sum of the least numbers of slots of all members.
        least: u64,
        /// The number of slots that are to be divided.
        slots: u32,
    },
    /// The sum of the greatest numbers of slots of all members is less than the number of slots. If there are no
    /// members, the sum is 0.
    #[error(
        "the members may have at most {most} slots together, and there are {slots}; raise their greatest factors"
    )]
    TooFew {
        /// The sum of the greatest numbers of slots of all members.
        most: u64,
        /// The number of slots that are to be divided.
        slots: u32,
    },
}

/// Divides all slots among the members by their weights, within the bounds of each member. Returns the number of slots
/// for each demand, in the order of the demands.
///
/// Slots that a member may not have go to the other members by their weights. Slots that are left by rounding go to the
/// members whose parts were rounded down most. If parts of several members were rounded down equally, the member
/// with the lowest id comes first.
///
/// # Errors
/// [`CountError`] if the demands cannot be met.
pub fn counts(slots: u32, demands: &[Demand]) -> Result<Vec<u32>, CountError> {
    Ok(rounded(slots, demands, parts(slots, demands)?))
}

/// Rounds [`parts`] to slots.
pub(crate) fn rounded(slots: u32, demands: &[Demand], mut parts: Vec<f64>) -> Vec<u32> {
    let mut counts: Vec<_> = parts.iter().map(|part| *part as u32).collect();
    let mut left = slots.saturating_sub(counts.iter().sum());
    parts.iter_mut().for_each(|part| *part -= part.floor());
    let mut order: Vec<_> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| parts[b].total_cmp(&parts[a]).then(demands[a].member.cmp(&demands[b].member)));
    while left > 0 {
        for &at in &order {
            if left > 0 && counts[at] < demands[at].most {
                counts[at] += 1;
                left -= 1;
            }
        }
    }
    counts
}

/// Returns the slots of each demand before rounding, in the order of the demands. The sum is the number of slots. It is
/// smaller only if no member with a weight above 0 may have more slots; [`rounded`] then gives the rest to members with
/// the weight 0.
///
/// # Errors
/// [`CountError`] if the demands cannot be met.
pub(crate) fn parts(slots: u32, demands: &[Demand]) -> Result<Vec<f64>, CountError> {
    check(slots, demands)?;
    // Members without a weight get what the others may not have.
    let has_weight = demands.iter().any(|demand| demand.weight > 0.0);
    let weight = |demand: &Demand| if has_weight { demand.weight } else { 1.0 };
    let part = |demand: &Demand, scale: f64| {
        (scale * weight(demand)).clamp(f64::from(demand.least), f64::from(demand.most))
    };
    let sum = |scale: f64| demands.iter().map(|demand| part(demand, scale)).sum::<f64>();
    let scale = scale_for(f64::from(slots), sum, demands.iter().map(weight));
    Ok(demands.iter().map(|demand| part(demand, scale)).collect())
}

fn check(slots: u32, demands: &[Demand]) -> Result<(), CountError> {
    for &Demand { member, weight, least, most } in demands {
        if least > most {
            return Err(CountError::Bounds { member, least, most });
        }
        if !weight.is_finite() || weight < 0.0 {
            return Err(CountError::Weight { member });
        }
    }
    let sum = |of: fn(&Demand) -> u32| demands.iter().map(|demand| u64::from(of(demand))).sum::<u64>();
    let (least, most) = (sum(|demand| demand.least), sum(|demand| demand.most));
    if least > u64::from(slots) {
        return Err(CountError::TooMany { least, slots });
    }
    if most < u64::from(slots) {
        return Err(CountError::TooFew { most, slots });
    }
    Ok(())
}

/// The greatest scale, as far as bisection finds it, at which `sum` is not above `slots`.
fn scale_for(slots: f64, sum: impl Fn(f64) -> f64, weights: impl Iterator<Item = f64>) -> f64 {
    let smallest = weights.filter(|weight| *weight > 0.0).fold(f64::INFINITY, f64::min);
    // At this scale each member with a weight has all slots, or as many as it may have.
    let mut above = (slots / smallest).min(f64::MAX);
    if sum(above) <= slots {
        return above;
    }
    // Weights may be any numbers, so the first digits are found by halving.
    let mut below = above / 2.0;
    while sum(below) > slots {
        (below, above) = (below / 2.0, below);
    }
    for _ in 0..64 {
        let middle = below + (above - below) / 2.0;
        if sum(middle) <= slots { below = middle } else { above = middle }
    }
    below
}
