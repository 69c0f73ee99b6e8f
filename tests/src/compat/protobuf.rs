//! Whether two messages of protobuf have the same bytes, apart from fields that differ by nature. Nothing here knows what a
//! message means: it is compared field by field, in the order on the wire.

/// What is not compared byte for byte. A path names the numbers of fields from the outermost message on, such as
/// `4.1.6`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules<'a> {
    /// Fields that may have any value, or be absent: times, and what later versions have besides.
    pub(super) free: &'a [String],
    /// Repeated fields whose entries may come in any order, and may be more: maps, and lists of named counters.
    pub(super) unordered: &'a [String],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field<'a> {
    number: u64,
    kind: u8,
    /// The bytes of the value; those of a length-delimited field are without its length.
    value: &'a [u8],
}

const DELIMITED: u8 = 2;

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("it ends inside a number")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number is too long".into())
}

fn fields(mut bytes: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let kind = (tag & 7) as u8;
        let before = bytes;
        let len = match kind {
            0 => {
                varint(&mut bytes)?;
                let len = before.len() - bytes.len();
                bytes = before;
                len
            }
            1 => 8,
            DELIMITED => varint(&mut bytes)? as usize,
            5 => 4,
            other => return Err(format!("wire type {other}")),
        };
        let (value, rest) = bytes.split_at_checked(len).ok_or("it ends inside a field")?;
        bytes = rest;
        fields.push(Field { number: tag >> 3, kind, value });
    }
    Ok(fields)
}

/// The first difference, in words.
pub(super) fn compare(rules: Rules<'_>, recorded: &[u8], live: &[u8]) -> Result<(), String> {
    message(rules, "", recorded, live)
}

fn message(rules: Rules<'_>, path: &str, recorded: &[u8], live: &[u8]) -> Result<(), String> {
    let [recorded, live] = [recorded, live].map(|bytes| fields(bytes).map_err(|why| at_path(path, &why)));
    let of = |number| if path.is_empty() { format!("{number}") } else { format!("{path}.{number}") };
    let (recorded, recorded_any) = sorted(rules, recorded?, of);
    let (live, live_any) = sorted(rules, live?, of);
    if recorded.len() != live.len() {
        return Err(at_path(path, &format!("{} fields where there were {}", live.len(), recorded.len())));
    }
    for (was, is) in recorded.iter().zip(&live) {
        field(rules, &of(was.number), was, is)?;
    }
    let mut left = live_any;
    for was in &recorded_any {
        let path = of(was.number);
        let same = left.iter().position(|is| is == was);
        let found = same.or_else(|| left.iter().position(|is| field(rules, &path, was, is).is_ok()));
        let found =
            found.ok_or_else(|| at_path(&path, &format!("no entry is {}", crate::hex::encode(was.value))))?;
        left.swap_remove(found);
    }
    Ok(())
}

/// Fields whose order counts, and those in any order. Free ones are left out.
fn sorted<'a>(
    rules: Rules<'_>,
    fields: Vec<Field<'a>>,
    path: impl Fn(u64) -> String,
) -> (Vec<Field<'a>>, Vec<Field<'a>>) {
    let fields = fields.into_iter().filter(|field| !rules.free.contains(&path(field.number)));
    fields.partition(|field| !rules.unordered.contains(&path(field.number)))
}

fn field(rules: Rules<'_>, path: &str, was: &Field<'_>, is: &Field<'_>) -> Result<(), String> {
    if (was.number, was.kind) != (is.number, is.kind) {
        return Err(at_path(path, &format!("field {} comes instead", is.number)));
    }
    let inside = format!("{path}.");
    let has_rules = rules.free.iter().chain(rules.unordered).any(|rule| rule.starts_with(&inside));
    if was.kind == DELIMITED && has_rules {
        return message(rules, path, was.value, is.value);
    }
    if was.value != is.value {
        let [was, is] = [was, is].map(|field| crate::hex::encode(field.value));
        return Err(at_path(path, &format!("{is:.80} where it was {was:.80}")));
    }
    Ok(())
}

fn at_path(path: &str, why: &str) -> String {
    if path.is_empty() { format!("the message: {why}") } else { format!("field {path}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Field 1 is 5; fields 2 are messages with a field 1 and a field 3.
    fn answer(entries: &[(u8, u8)]) -> Vec<u8> {
        let entry = |(one, three): &(u8, u8)| [0x12, 4, 0x08, *one, 0x18, *three];
        [&[0x08, 5][..], &entries.iter().flat_map(entry).collect::<Vec<_>>()].concat()
    }

    #[test]
    fn every_byte_counts_where_no_rule_says_otherwise() {
        let recorded = answer(&[(1, 2), (3, 4)]);
        assert_eq!(compare(Rules::default(), &recorded, &recorded), Ok(()));
        for at in 0..recorded.len() {
            let mut other = recorded.clone();
            other[at] ^= 1;
            assert!(compare(Rules::default(), &recorded, &other).is_err(), "byte {at}");
        }
        assert!(compare(Rules::default(), &recorded, &recorded[..8]).is_err(), "a field is missing");
        assert!(compare(Rules::default(), &recorded[..8], &recorded).is_err(), "there is one more");
    }

    #[test]
    fn rules_are_for_their_paths_only() {
        let (free, unordered) = (strings(&["2.3"]), strings(&["2"]));
        let rules = Rules { free: &free, unordered: &unordered };
        let recorded = answer(&[(1, 2), (3, 4)]);
        assert_eq!(compare(rules, &recorded, &answer(&[(3, 9), (7, 0), (1, 8)])), Ok(()));
        assert!(compare(rules, &recorded, &answer(&[(3, 4), (2, 2)])).is_err(), "an entry is other");
        assert!(compare(rules, &recorded, &answer(&[(1, 2)])).is_err(), "an entry is gone");
        let mut other = recorded.clone();
        other[1] = 6;
        assert!(compare(rules, &recorded, &other).is_err(), "field 1 has no rule");
    }
}
