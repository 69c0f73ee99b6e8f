//! Regions and figures in words.

use super::region::Region;
use crate::layouts::{
    point::{Direction, Workload},
    report::text::parameters,
    workload::bytes,
};

/// What was measured, from least to most.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) counts: Vec<u16>,
    pub(super) sizes: Vec<u64>,
    /// Sizes are averages.
    pub(super) is_mixed: bool,
}

impl Measured {
    /// "4 to 255 parameters of up to 1 KiB that are inputs". Bounds are told even where nothing beyond was measured.
    pub(super) fn region(&self, region: &Region) -> String {
        let count = match region.params {
            [fewest, most] if fewest == most => parameters(most),
            [fewest, most] => format!("{fewest} to {most} parameters"),
        };
        format!("{count} {}{}{}", self.size(region), directions(&region.directions), waits(&region.waits))
    }

    fn size(&self, region: &Region) -> String {
        let [smallest, largest] = region.bytes;
        let is_least = self.sizes.first() == Some(&smallest);
        let is_most = self.sizes.last() == Some(&largest);
        let average = if self.is_mixed { " on average" } else { "" };
        if is_least && !is_most {
            format!("of up to {}{average}", bytes(largest))
        } else if smallest == largest {
            format!("of {}{average}", bytes(largest))
        } else {
            format!("of {} to {}{average}", bytes(smallest), bytes(largest))
        }
    }
}

fn directions(some: &[Direction]) -> String {
    let name = |direction: &Direction| match direction {
        Direction::In => "inputs",
        Direction::Out => "outputs",
        Direction::Both => "inputs and outputs at once",
    };
    let names: Vec<_> = some.iter().map(name).collect();
    if names.is_empty() { String::new() } else { format!(" that are {}", names.join(" or ")) }
}

fn waits(some: &[String]) -> String {
    if some.is_empty() { String::new() } else { format!(" with {}", some.join(" and ")) }
}

/// "31 x 64 B in and out, spin": the provider is known.
pub(super) fn workload(workload: &Workload) -> String {
    let full = workload.to_string();
    let rest = full.split_once(": ").map_or(full.as_str(), |(_, rest)| rest);
    format!("{rest}, {}", workload.wait)
}

/// "all 36 points", "35 of 36 points".
pub(super) fn of(some: usize, all: usize) -> String {
    match (some, all) {
        (1, 1) => "the one point".into(),
        (some, all) if some == all => format!("all {all} points"),
        (some, all) => format!("{some} of {all} points"),
    }
}

/// "a, b and c".
pub(super) fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The first letter as at the beginning of a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told() {
        let measured = Measured { counts: vec![1, 4, 31, 255], sizes: vec![64, 1024, 4096], is_mixed: false };
        let text = |params, bytes| {
            measured.region(&Region { params, bytes, directions: Vec::new(), waits: Vec::new() })
        };
        assert_eq!(text([1, 255], [64, 4096]), "1 to 255 parameters of 64 B to 4 KiB");
        assert_eq!(text([4, 255], [64, 1024]), "4 to 255 parameters of up to 1 KiB");
        assert_eq!(text([1, 1], [1024, 4096]), "1 parameter of 1 KiB to 4 KiB");
        assert_eq!(text([4, 31], [1024, 1024]), "4 to 31 parameters of 1 KiB");
        let some = Region {
            params: [1, 31],
            bytes: [64, 64],
            directions: vec![Direction::In, Direction::Both],
            waits: vec!["spin".into()],
        };
        let text = Measured { is_mixed: true, ..measured }.region(&some);
        assert_eq!(
            text,
            "1 to 31 parameters of up to 64 B on average that are inputs or inputs and outputs at once with spin"
        );
    }

    #[test]
    fn lists_and_shares_are_as_people_say_them() {
        assert_eq!([list(&["a"]), list(&["a", "b"]), list(&["a", "b", "c"])], ["a", "a and b", "a, b and c"]);
        assert_eq!([of(3, 3), of(2, 3), of(1, 1)], ["all 3 points", "2 of 3 points", "the one point"]);
        assert_eq!(sentence("packed is"), "Packed is");
    }
}
