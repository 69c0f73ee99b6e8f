//! What no file may contain, and how long a source file may be.

use super::Finding;
use crate::{header, source};
use std::path::Path;

const MOST_LINES: usize = 600;
/// The endings of files that have at most [`MOST_LINES`] lines.
const SOURCES: &[&str] = &["rs", "sv", "py", "pyi", "c", "cpp", "h", "sh", "f90"];
/// How bindgen and prost begin what they write.
const GENERATED: &[&str] = &["/* automatically generated", "// This file is @generated"];

const UNFINISHED: &str = "finish it, or leave the feature out";
const ALONE: &str = "the project stands alone: state the fact here, or copy the data into tests/captures";

/// In code, outside comments and literals.
const IN_CODE: &[(&str, &str)] = &[
    ("todo!(", UNFINISHED),
    ("unimplemented!(", UNFINISHED),
    ("#[ignore", "make the test fit for every run, or remove it"),
];

/// Anywhere, in any file. Written in two parts so that this file passes.
const IN_TEXT: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), UNFINISHED),
    (concat!("../", "shared"), ALONE),
    (concat!("work/", "shared"), ALONE),
];

/// `code` is `text` without comments and literals, if it is Rust source.
pub(crate) fn check(path: &str, text: &str, code: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (text, table) in [(text, IN_TEXT), (code.unwrap_or_default(), IN_CODE)] {
        for (wanted, remedy) in table {
            let lines = text.match_indices(wanted).map(|(at, _)| source::line_of(text, at));
            findings.extend(lines.map(|line| Finding::new(path, line, format!("`{wanted}`"), *remedy)));
        }
    }
    let lines = text.lines().count();
    if lines > MOST_LINES && is_written_by_hand(path, text) {
        let what = format!("{lines} lines, more than {MOST_LINES}");
        let remedy = "move a part with a purpose of its own into a file, or join code that is there twice";
        findings.push(Finding::new(path, MOST_LINES + 1, what, remedy));
    }
    findings
}

/// Whether a file is source code that no program makes.
fn is_written_by_hand(path: &str, text: &str) -> bool {
    let ending = Path::new(path).extension();
    ending.is_some_and(|ending| SOURCES.iter().any(|source| ending == *source))
        && !GENERATED.iter().any(|mark| text.starts_with(mark))
        && !header::paths().any(|made| made == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("a.rs", text, Some(&source::strip(text))).iter().map(|f| f.line).collect()
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(
            lines("fn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() { unimplemented!(\"x\") }"),
            [2, 5, 4]
        );
        assert_eq!(lines("// todo!()\n\"#[ignore]\""), [0_usize; 0]);
    }

    #[test]
    fn marks_are_found_in_comments_and_other_files() {
        let mark = concat!("x\n# FIX", "ME later");
        assert_eq!(check("a.toml", mark, None).len(), 1);
        assert_eq!(lines(concat!("// see ../", "shared/x")), [1]);
    }

    #[test]
    fn long_files_that_no_program_makes_are_found() {
        let long = "\n".repeat(MOST_LINES + 1);
        for path in ["a.rs", "a/b.sv", "a.h"] {
            let found = check(path, &long, path.ends_with(".rs").then_some(""));
            assert_eq!(found.len(), 1, "{path}");
        }
        for mark in GENERATED {
            let generated = format!("{mark} by x */{}", "\n".repeat(MOST_LINES));
            assert!(check("a.rs", &generated, Some("")).is_empty());
        }
        assert!(check("a.rs", &"\n".repeat(MOST_LINES), Some("")).is_empty());
        for path in ["a.md", "Makefile", "bindings/capi/include/naa.h"] {
            assert!(check(path, &long, None).is_empty(), "{path}");
        }
    }
}
