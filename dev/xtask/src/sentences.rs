//! The sentences of the comments of Rust source.

use crate::source;

/// A sentence of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// The line on which the comment begins, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// The first line of code behind the comment.
    pub(crate) item: String,
}

/// A comment: lines one below the other that begin in the same way.
struct Comment<'a> {
    line: usize,
    marker: &'a str,
    lines: Vec<&'a str>,
}

/// All sentences of the comments. Code blocks, tables and headings in comments are left out.
pub(crate) fn of_comments(text: &str) -> Vec<Sentence> {
    let lines: Vec<_> = text.lines().collect();
    let mut sentences = Vec::new();
    for comment in comments(text) {
        let behind = lines.iter().skip(comment.line - 1 + comment.lines.len());
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with(['#', '/']);
        let item = behind.clone().find(is_code).map(|line| line.trim().to_owned()).unwrap_or_default();
        let paragraphs = paragraphs(&comment.lines);
        sentences.extend(paragraphs.iter().flat_map(|paragraph| split(paragraph)).map(|text| Sentence {
            line: comment.line,
            text,
            item: item.clone(),
        }));
    }
    sentences
}

fn comments(text: &str) -> Vec<Comment<'_>> {
    let mut all: Vec<Comment<'_>> = Vec::new();
    for (at, whole) in source::line_comments(text) {
        let marker =
            ["///", "//!", "//"].into_iter().find(|marker| whole.starts_with(marker)).unwrap_or("//");
        let (line, body) = (source::line_of(text, at), &whole[marker.len()..]);
        match all.last_mut() {
            Some(last) if last.marker == marker && last.line + last.lines.len() == line => {
                last.lines.push(body)
            }
            _ => all.push(Comment { line, marker, lines: vec![body] }),
        }
    }
    all
}

fn paragraphs(lines: &[&str]) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut is_code = false;
    for line in lines.iter().map(|line| line.trim()) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        let is_left_out = is_fence || is_code || line.is_empty() || line.starts_with(['#', '|']);
        if is_left_out || item.is_some() {
            all.push(String::new());
        }
        if let Some(last) = all.last_mut().filter(|_| !is_left_out) {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(item.unwrap_or(line));
        }
    }
    all.retain(|paragraph| !paragraph.is_empty());
    all
}

/// Splits a paragraph behind each full stop that a new sentence follows.
fn split(paragraph: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut rest = paragraph;
    let begins = |text: &str| text.starts_with(|c: char| c.is_uppercase() || c == '`' || c == '[');
    let end = |text: &str| {
        text.match_indices(['.', '?', '!'])
            .map(|(at, _)| at + 1)
            .find(|&at| text[at..].strip_prefix(' ').is_some_and(begins) && !text[..at].ends_with("e.g."))
    };
    while let Some(at) = end(rest) {
        sentences.push(rest[..at].to_owned());
        rest = rest[at..].trim_start();
    }
    sentences.push(rest.to_owned());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_found_with_the_item_below() {
        let source = "//! One. Two\n//! goes on.\n\nuse x;\n\n/// Counts. `a` is b.\n///\n/// # Errors\n/// - If it\n///   fails.\n\
                      /// ```\n/// let x = 1;\n/// ```\n#[inline]\nfn f() { \"// no comment\"; // Beside it.\n}\n";
        let found: Vec<_> = of_comments(source).into_iter().map(|of| (of.line, of.text, of.item)).collect();
        let expected = [
            (1, "One.", "use x;"),
            (1, "Two goes on.", "use x;"),
            (6, "Counts.", "fn f() { \"// no comment\"; // Beside it."),
            (6, "`a` is b.", "fn f() { \"// no comment\"; // Beside it."),
            (6, "If it fails.", "fn f() { \"// no comment\"; // Beside it."),
            (15, "Beside it.", "}"),
        ];
        assert_eq!(found, expected.map(|(line, text, item)| (line, text.to_owned(), item.to_owned())));
    }
}
