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

/// The shorter of runs and one repeated pattern.
pub(super) fn print(slots: &[Option<u16>]) -> String {
    let period = (1..=slots.len() / 2).find(|period| {
        slots.len().is_multiple_of(*period)
            && slots.iter().eq(slots[..*period].iter().cycle().take(slots.len()))
    });
    match period {
        Some(period) if period > 1 => format!("({})x{}", runs(&slots[..period], false), slots.len() / period),
        _ => runs(slots, true),
    }
}

fn runs(slots: &[Option<u16>], repeat: bool) -> String {
    let chunks = slots.chunk_by(|a, b| repeat && a == b);
    let one = |run: &[Option<u16>]| {
        let id = run[0].map_or_else(|| "-".into(), |id| id.to_string());
        if run.len() > 1 { format!("{id}x{}", run.len()) } else { id }
    };
    chunks.map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_are_short_and_come_back() {
        for (slots, text) in [
            (vec![], ""),
            (vec![Some(7); 512], "7x512"),
            ((0..512).map(|n| Some(n % 2 + 1)).collect(), "(1 2)x256"),
            (vec![Some(1), None, None, Some(3)], "1 -x2 3"),
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
