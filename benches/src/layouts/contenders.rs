//! Which layouts are measured at a workload.

use mrsp::layout::{Layout, LayoutChoice};

use super::{point::Workload, sizes::sizes};

const THRESHOLDS: [u32; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Every layout, packed at each threshold that copies other parameters than the one before, and `auto`.
pub(crate) fn contenders(workload: &Workload) -> Vec<LayoutChoice> {
    let fixed = [Layout::Symmetric, Layout::Asymmetric, Layout::Gathered].into_iter();
    let packed = thresholds(workload).into_iter().map(|threshold| Layout::Packed { threshold });
    fixed.chain(packed).map(LayoutChoice::Fixed).chain([LayoutChoice::Auto]).collect()
}

fn thresholds(workload: &Workload) -> Vec<u32> {
    let each = sizes(workload);
    let mut before = 0;
    let differs = |threshold: &&u32| {
        let copied = workload.copied(Layout::Packed { threshold: **threshold }, &each);
        std::mem::replace(&mut before, copied) != copied
    };
    THRESHOLDS.iter().filter(differs).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fit::synthetic,
            point::{Direction, Sizes},
        },
        *,
    };

    fn names(params: u16, bytes: u64, sizes: Sizes) -> Vec<String> {
        let workload = Workload { sizes, direction: Direction::Both, ..synthetic::workload(params, bytes) };
        let all: Vec<_> = contenders(&workload).iter().map(LayoutChoice::to_string).collect();
        let (first, rest) = all.split_at(3);
        assert_eq!(first, ["symmetric", "asymmetric", "gathered"]);
        let (auto, packed) = rest.split_last().unwrap();
        assert_eq!(auto, "auto");
        packed.to_vec()
    }

    #[test]
    fn equal_parameters_are_copied_all_or_not_at_all() {
        assert_eq!(names(31, 64, Sizes::Equal), ["packed:1024"]);
        assert_eq!(names(1, 16 << 10, Sizes::Equal), ["packed:16384"]);
        assert_eq!(names(1, 256 << 10, Sizes::Equal), ["packed:262144"]);
        assert!(names(1, 1 << 20, Sizes::Equal).is_empty());
    }

    #[test]
    fn thresholds_copy_different_parameters() {
        // All but the largest, which has three fifths of the bytes, have less than 1 KiB.
        assert_eq!(names(31, 64, Sizes::Mixed), ["packed:1024", "packed:4096"]);
        // All thresholds from 1 KiB on copy different parameters.
        let four = ["packed:1024", "packed:4096", "packed:16384", "packed:65536"];
        assert_eq!(names(31, 16 << 10, Sizes::Mixed)[..4], four);
        assert_eq!(names(8, 1 << 20, Sizes::Mixed), ["packed:65536", "packed:262144"]);
        assert!(names(8, 16 << 20, Sizes::Mixed).is_empty());
    }
}
