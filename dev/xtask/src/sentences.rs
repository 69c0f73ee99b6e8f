//! The sentences of the comments of Rust source.

use crate::source;

/// A sentence of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// The line on which the comment begins, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// The sentences before it in its paragraph.
    pub(crate) before: String,
    /// The code behind the comment, up to the end of a signature, or `(the module)`.
    pub(crate) item: String,
    /// The line of code that the item is in, such as `pub struct Config {`. Empty if it is in none.
    pub(crate) parent: String,
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
        let line = comment.line;
        let (above, rest) = lines.split_at(line - 1);
        let (item, parent) = match comment.marker {
            "//!" => ("(the module)".to_owned(), String::new()),
            _ => (item(&rest[comment.lines.len()..]), parent(above, rest[0])),
        };
        for paragraph in paragraphs(&comment.lines) {
            let all = split(&paragraph);
            for (at, text) in all.iter().cloned().enumerate() {
                let (before, item, parent) = (all[..at].join(" "), item.clone(), parent.clone());
                sentences.push(Sentence { line, text, before, item, parent });
            }
        }
    }
    sentences
}

/// Returns the first line of code and, if it has an open parenthesis, the lines up to its end, but at most six.
fn item(lines: &[&str]) -> String {
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with(['#', '/']);
    let mut item = String::new();
    for line in lines.iter().filter(is_code).take(6) {
        item.push_str(if item.is_empty() || item.ends_with('(') { "" } else { " " });
        item.push_str(line.trim());
        if item.matches('(').count() <= item.matches(')').count() {
            break;
        }
    }
    item
}

/// Returns the first line of the item, or of the statement, that `of` is indented in.
fn parent(above: &[&str], of: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // The last line of a signature of several lines is such as `) -> u8 {`, and a block behind `where` begins with `{`.
    let begins = |line: &&&str| {
        let text = line.trim();
        !text.is_empty() && text != "where" && !text.starts_with([')', '{', '}', '/', '#'])
    };
    let parent = above.iter().rev().filter(begins).find(|line| indent(line) < indent(of));
    parent.map_or_else(String::new, |line| line.trim().to_owned())
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
        let found = of_comments(source);
        let found: Vec<_> =
            found.iter().map(|of| (of.line, &of.text[..], &of.before[..], &of.item[..])).collect();
        let item = "fn f() { \"// no comment\"; // Beside it.";
        let expected = [
            (1, "One.", "", "(the module)"),
            (1, "Two goes on.", "One.", "(the module)"),
            (6, "Counts.", "", item),
            (6, "`a` is b.", "Counts.", item),
            (6, "If it fails.", "", item),
            (15, "Beside it.", "", "}"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_item_is_whole_and_has_its_parent() {
        let source = "pub struct A {\n    /// One.\n    pub b: V<(u8, u8)>,\n    c: u8,\n}\n\nimpl A {\n    /// Two.\n\
                      \x20   fn f(\n        (a, c): (u8, u8),\n        b: u8,\n    ) -> u8\n    where\n        A: B,\n    {\n\
                      \x20       // Three.\n        a\n    }\n}\n\nconst B: [u8; 1] = [\n    // Four.\n    1,\n];\n\n\
                      /// Five.\nfn g() {}\n";
        let found: Vec<_> = of_comments(source).into_iter().map(|of| (of.item, of.parent)).collect();
        let expected = [
            ("pub b: V<(u8, u8)>,", "pub struct A {"),
            ("fn f((a, c): (u8, u8), b: u8, ) -> u8", "impl A {"),
            ("a", "fn f("),
            ("1,", "const B: [u8; 1] = ["),
            ("fn g() {}", ""),
        ];
        assert_eq!(found, expected.map(|(item, parent)| (item.to_owned(), parent.to_owned())));
    }
}
