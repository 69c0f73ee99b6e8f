//! Just enough reading of Rust source for the scanners of `tidy`: code without comments and literals, and the
//! paths it names.

/// The same text, byte for byte as long, with comments and the insides of string and character literals blanked.
/// Newlines stay, so offsets and line numbers do too.
pub(crate) fn strip(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(bytes, at);
        if end > at {
            out[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
            at = end;
        } else {
            at += 1;
        }
    }
    // Only whole comments and literals were overwritten, with ASCII.
    String::from_utf8_lossy(&out).into_owned()
}

/// The comments that begin with `//`, each with its offset. One that goes over several lines is several comments.
pub(crate) fn line_comments(source: &str) -> Vec<(usize, &str)> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(bytes, at);
        if bytes[at..].starts_with(b"//") {
            found.push((at, &source[at..end]));
        }
        at = end.max(at + 1);
    }
    found
}

/// The end of the comment or literal that starts at `at`; `at` itself if none does.
fn skip(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => at + find(rest, b'\n').unwrap_or(rest.len()),
        b'/' if rest.starts_with(b"/*") => at + block_comment(rest),
        b'"' => at + 1 + quoted(&rest[1..], b'"'),
        b'r' if !continues_word(bytes, at) => at + raw_string(rest),
        b'\'' => at + character(rest),
        _ => at,
    }
}

fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|b| *b == wanted)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether the byte before `at` belongs to the same word; the `b` and `c` of `br""` and `cr""` do not count.
fn continues_word(bytes: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| bytes[before]) {
        Some(b'b' | b'c') => at >= 2 && is_word(bytes[at - 2]),
        Some(byte) => is_word(byte),
        None => false,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length up to and including the closing quote, of a literal whose opening quote is already behind.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a raw string `r#"..."#`; 0 if this is not one.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let closing: Vec<u8> = [b'"'].into_iter().chain(std::iter::repeat_n(b'#', hashes)).collect();
    let start = hashes + 2;
    rest[start..]
        .windows(closing.len())
        .position(|w| w == closing)
        .map_or(rest.len(), |p| start + p + closing.len())
}

/// Length of a character literal; 0 if the quote starts a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', ..] => (1 + quoted(&rest[1..], b'\'')).min(rest.len()),
        [_, first, ..] => {
            // The leading ones of a character's first byte tell how many bytes it has in UTF-8.
            let width = first.leading_ones().max(1) as usize;
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// The line number, from 1, of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|b| **b == b'\n').count()
}

/// Offsets of `word` where it is not part of a longer word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).is_some_and(|b| is_word(bytes[b]));
        let after = bytes.get(at + word.len()).is_some_and(|b| is_word(*b));
        !before && !after
    })
}

/// Every path that stripped code names, with its line: `std::net::UdpSocket` also where it is written
/// `use std::{fmt, net::UdpSocket}`.
pub(crate) fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut prefixes: Vec<String> = Vec::new();
    let mut current = String::new();
    let mut start = 0;
    for (at, token) in tokens(code) {
        match token {
            "::" => current.push_str("::"),
            "{" => {
                // Only a brace right behind `::` opens an import group; others reset the prefix.
                let group = if current.ends_with("::") { current.clone() } else { String::new() };
                let outer = prefixes.last().filter(|_| !group.is_empty()).cloned().unwrap_or_default();
                prefixes.push(outer + &group);
                current.clear();
            }
            word if is_word(word.as_bytes()[0]) && (current.is_empty() || current.ends_with("::")) => {
                if current.is_empty() {
                    start = at;
                }
                current.push_str(word);
                continue;
            }
            _ => {}
        }
        if token != "::" {
            flush(code, &prefixes, &mut current, start, &mut found);
            if token == "}" {
                prefixes.pop();
            }
            if is_word(token.as_bytes()[0]) {
                start = at;
                current.push_str(token);
            }
        }
    }
    flush(code, &prefixes, &mut current, start, &mut found);
    found
}

fn flush(
    code: &str,
    prefixes: &[String],
    current: &mut String,
    start: usize,
    found: &mut Vec<(usize, String)>,
) {
    if !current.is_empty() {
        let prefix = prefixes.last().map_or("", String::as_str);
        found.push((line_of(code, start), format!("{prefix}{}", current.trim_matches(':'))));
        current.clear();
    }
}

/// Words, `::` and single other characters, without white space.
fn tokens(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = code.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let word = rest.iter().take_while(|b| is_word(**b)).count();
        let len = word.max(if rest.starts_with(b"::") { 2 } else { 1 });
        let start = at;
        at += len;
        Some((start, &code[start..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let source = "a // unsafe\n/* x /* y */ unsafe */ b \"unsafe \\\" z\" c r#\"unsafe \" \"# d\n'x' '\\'' &'a str";
        let code = strip(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(code.lines().count(), source.lines().count());
        assert!(!code.contains("unsafe"));
        let rest: Vec<_> = code.split_whitespace().collect();
        assert_eq!(rest, ["a", "b", "c", "d", "&'a", "str"]);
    }

    #[test]
    fn prefixed_raw_strings_and_raw_identifiers() {
        assert_eq!(strip("br\"//\" x").split_whitespace().collect::<Vec<_>>(), ["b", "x"]);
        assert_eq!(strip("for\"a\""), "for   ");
        assert_eq!(strip("r#type"), "r#type");
    }

    #[test]
    fn unterminated_literals_end_with_the_text() {
        for source in ["\"abc\\", "'\\", "r##\"abc\"#", "/* abc", "'", "é'é"] {
            assert_eq!(strip(source).len(), source.len());
        }
    }

    #[test]
    fn words_have_boundaries() {
        assert_eq!(words("unsafe unsafe_code xunsafe {unsafe}", "unsafe").collect::<Vec<_>>(), [0, 28]);
    }

    #[test]
    fn paths_of_groups_are_spelled_out() {
        let code = "use std::{\n fmt,\n net::{UdpSocket, SocketAddr as A},\n};\nfn f(x: &mut a::B) { Instant::now() }";
        let found = paths(code);
        for wanted in [
            (2, "std::fmt"),
            (3, "std::net::UdpSocket"),
            (3, "std::net::SocketAddr"),
            (5, "a::B"),
            (5, "Instant::now"),
        ] {
            assert!(found.contains(&(wanted.0, wanted.1.to_owned())), "{wanted:?} not in {found:?}");
        }
    }
}
