//! The sizes of a workload's parameters.

use super::point::{Sizes, Workload};

/// In bytes, the largest first; together `params * bytes`. Mixed ones are multiples of 8 but the largest, which has
/// what remains.
pub(crate) fn sizes(workload: &Workload) -> Vec<u64> {
    let count = usize::from(workload.params);
    let least = (workload.bytes / 16).next_multiple_of(8).max(8);
    if workload.sizes == Sizes::Equal || least > workload.bytes {
        return vec![workload.bytes; count];
    }
    mixed(count, workload.bytes, least)
}

/// All have the least; what is left is shared out by the inverse square of the rank, so that the largest has about
/// three fifths of the bytes and the last nothing more.
fn mixed(count: usize, bytes: u64, least: u64) -> Vec<u64> {
    let total = bytes * count as u64;
    let extra = total - least * count as u64;
    let weight = |rank: usize| ((1_u64 << 32) / (rank * rank) as u64) as u128;
    let weights: Vec<_> = (1..=count).map(|rank| weight(rank) - weight(count)).collect();
    let all = weights.iter().sum::<u128>().max(1);
    let share = |weight| (u128::from(extra) * weight / all) as u64 / 8 * 8;
    let mut sizes: Vec<_> = weights.into_iter().map(|weight| least + share(weight)).collect();
    let rest = total - sizes.iter().sum::<u64>();
    if let Some(largest) = sizes.first_mut() {
        *largest += rest;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::fit::synthetic::workload;

    fn of(sizes: Sizes, params: u16, bytes: u64) -> Vec<u64> {
        super::sizes(&Workload { sizes, ..workload(params, bytes) })
    }

    #[test]
    fn equal_ones_are_equal() {
        assert_eq!(of(Sizes::Equal, 3, 100), [100, 100, 100]);
    }

    #[test]
    fn mixed_ones_have_the_same_bytes_in_all() {
        for params in [1, 2, 3, 31, 255] {
            for bytes in [8, 64, 100, 1984, 4096, 8 << 20] {
                let sizes = of(Sizes::Mixed, params, bytes);
                assert_eq!(sizes.len(), usize::from(params));
                assert_eq!(sizes.iter().sum::<u64>(), u64::from(params) * bytes, "{params} of {bytes}");
                assert!(sizes[1..].iter().all(|size| size % 8 == 0), "{sizes:?}");
                assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
                assert!(sizes.iter().all(|&size| size >= bytes / 16), "{sizes:?}");
            }
        }
    }

    #[test]
    fn of_mixed_ones_few_have_most_of_the_bytes() {
        let sizes = of(Sizes::Mixed, 31, 4096);
        assert_eq!(sizes.last(), Some(&256));
        assert!(sizes[..4].iter().sum::<u64>() > 31 * 4096 * 7 / 10, "{sizes:?}");
        assert!(sizes.iter().filter(|&&size| size < 4096).count() > 20, "{sizes:?}");
    }

    #[test]
    fn one_parameter_and_tiny_ones_cannot_be_mixed() {
        assert_eq!(of(Sizes::Mixed, 1, 4096), [4096]);
        assert_eq!(of(Sizes::Mixed, 3, 8), [8, 8, 8]);
        assert_eq!(of(Sizes::Mixed, 3, 4), [4, 4, 4]);
    }
}
