//! A calendar in one line.
//!
//! ```text
//! slots := item (' ' item)*      item := one | one 'x' COUNT | '(' one (' ' one)* ')x' COUNT      one := MEMBER | '-'
//! ```

use ejfat::lb::Rule;

const MOST: usize = Rule::MOST_SLOT as usize + 1;

/// Members of slots from 0 on; `None`: no rule for the slot.
pub(super) fn parse(text: &str) -> Result<Vec<Option<u16>>, String> {
    let mut slots = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (pattern, after) = match rest.strip_prefix('(') {
            Some(inside) => {
                let (inside, after) =
                    inside.split_once(')').ok_or("a parenthesis is not closed; write (1 2)x256")?;
                (inside.split_whitespace().map(one).collect::<Result<Vec<_>, _>>()?, after)
            }
            None => {
                let end = rest.find(|c: char| c == 'x' || c.is_whitespace()).unwrap_or(rest.len());
                (vec![one(&rest[..end])?], &rest[end..])
            }
        };
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        let times = match &after[..end] {
            "" => 1,
            times => count(times)?,
        };
        if pattern.len().saturating_mul(times) > MOST - slots.len() {
            return Err(format!("a calendar has at most {MOST} slots"));
        }
        (0..times).for_each(|_| slots.extend(&pattern));
        rest = after[end..].trim_start();
    }
    Ok(slots)
}

fn one(text: &str) -> Result<Option<u16>, String> {
    match text {
        "-" => Ok(None),
        id => id
            .parse()
            .map(Some)
            .map_err(|_| format!("{id:?} is no member; write its number, or - for a slot without")),
    }
}

fn count(text: &str) -> Result<usize, String> {
    let digits = text.strip_prefix('x').and_then(|digits| digits.parse().ok());
    digits
        .filter(|&n| n > 0)
        .ok_or_else(|| format!("{text:?} is no repetition; write x and a number, as 1x256"))
}

/// A longer pattern is found only if the whole calendar repeats it.
const MOST_OF_PATTERN: usize = 16;

/// Writes one repeated pattern if the calendar is one, and otherwise runs and short patterns one after another.
pub(super) fn print(slots: &[Option<u16>]) -> String {
    let whole = (1..=slots.len() / 2)
        .find(|&period| slots.len().is_multiple_of(period) && repeated(slots, period) == slots.len());
    if let Some(period) = whole {
        return pattern(&slots[..period], slots.len() / period);
    }
    let (mut items, mut rest) = (Vec::new(), slots);
    while !rest.is_empty() {
        let lengths = (1..=MOST_OF_PATTERN.min(rest.len())).map(|period| (period, repeated(rest, period)));
        // Takes the pattern that covers most slots, and of several the shortest. A slot that is not repeated is written
        // alone.
        let repeats = lengths.filter(|(period, length)| length > period);
        let best = repeats.rev().max_by_key(|(_, length)| *length).unwrap_or((1, 1));
        items.push(pattern(&rest[..best.0], best.1 / best.0));
        rest = &rest[best.1..];
    }
    items.join(" ")
}

/// How many slots from the beginning are whole repetitions of the first `period` slots.
fn repeated(slots: &[Option<u16>], period: usize) -> usize {
    let same = slots.iter().zip(&slots[period..]).take_while(|(a, b)| a == b).count();
    (same / period + 1) * period
}

fn pattern(slots: &[Option<u16>], times: usize) -> String {
    let ids: Vec<_> = slots.iter().map(|id| id.map_or_else(|| "-".into(), |id| id.to_string())).collect();
    match (&ids[..], times) {
        (ids, 1) => ids.join(" "),
        ([id], times) => format!("{id}x{times}"),
        (ids, times) => format!("({})x{times}", ids.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_are_short_and_come_back() {
        let squares = (0..40).map(|n: u16| (n * n).to_string()).collect::<Vec<_>>().join(" ");
        for (slots, text) in [
            (vec![], ""),
            (vec![Some(7); 512], "7x512"),
            ((0..512).map(|n| Some(n % 2 + 1)).collect(), "(1 2)x256"),
            (vec![Some(1), None, None, Some(3)], "1 -x2 3"),
            ((0..510).map(|n| Some(n % 2 + 1)).chain([None; 2]).collect(), "(1 2)x255 -x2"),
            ((0..401).map(|n| Some(n % 2 + 1)).chain([Some(1); 7]).collect(), "(1 2)x200 1x8"),
            ((0..40).map(|n| Some(n * n)).collect(), &squares),
        ] {
            assert_eq!(print(&slots), text);
            assert_eq!(parse(text).unwrap(), slots);
        }
        assert_eq!(parse(" 1x2  (3 -)x2 ").unwrap(), [Some(1), Some(1), Some(3), None, Some(3), None]);
    }

    #[test]
    fn what_is_no_calendar_is_refused() {
        for text in ["x", "1x0", "1x", "(1", "1x99999999999999", "65536", "(1 2)x9000", "1,2", "1x16384 1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
