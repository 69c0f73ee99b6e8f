//! Writes ascending numbers as ranges.

/// Writes numbers such as `3, 7 to 9`. If there are more than 16 ranges, the rest is written as a count of numbers.
pub(super) fn ranges(numbers: &[usize]) -> String {
    const MOST: usize = 16;
    let mut texts = Vec::new();
    let mut rest = numbers.len();
    for run in numbers.chunk_by(|a, b| a + 1 == *b).take(MOST) {
        texts.push(match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => continue,
        });
        rest -= run.len();
    }
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    texts.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_by_their_ends() {
        assert_eq!(ranges(&[3, 7, 8, 9, 11]), "3, 7 to 9, 11");
        let many: Vec<_> = (0..100).map(|n| 2 * n).collect();
        assert!(ranges(&many).ends_with("28, 30 and 84 more"), "{}", ranges(&many));
    }
}
