//! `header`: naa.h and naa_events.h, made of the files that implement them.

use crate::repo;
use anyhow::{Context, Result, anyhow};
use std::{fs, path::Path, process::ExitCode};

struct Header {
    path: &'static str,
    config: &'static str,
    folder: &'static str,
    /// What declares something, in the order of the header.
    sources: &'static [&'static str],
}

const HEADERS: [Header; 2] = [
    Header {
        path: "bindings/capi/include/naa.h",
        config: "bindings/capi/cbindgen.toml",
        folder: "bindings/capi/src/native",
        sources: &[
            "result",
            "text",
            "regions",
            "options",
            "outcome",
            "session",
            "functions",
            "call",
            "buffer",
            "arguments",
        ],
    },
    Header {
        path: "bindings/capi/include/naa_events.h",
        config: "bindings/capi/cbindgen-events.toml",
        folder: "bindings/capi/src/events",
        sources: &["options", "event", "worker"],
    },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tell whether the headers are as they would be made
    #[arg(long)]
    check: bool,
}

/// The paths of the headers, relative to the root of the checkout.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    HEADERS.iter().map(|header| header.path)
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let mut as_made = true;
    for header in &HEADERS {
        let (name, path, made) = (header.path, root.join(header.path), header.make(&root)?);
        if !options.check {
            fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {name}");
            continue;
        }
        let committed =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match first_difference(&committed, &made) {
            None => println!("{name} is as its sources have it"),
            Some(line) => {
                println!("{name}:{line}: not as its sources have it\n    remedy: cargo xtask header");
                as_made = false;
            }
        }
    }
    Ok(if as_made { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Header {
    fn make(&self, root: &Path) -> Result<String> {
        let config = cbindgen::Config::from_file(root.join(self.config))
            .map_err(|e| anyhow!("{}: {e}", self.config))?;
        let sources = self.sources.iter().map(|name| root.join(self.folder).join(name).with_extension("rs"));
        let builder = sources.fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
        let bindings = builder.generate().with_context(|| format!("cannot make {}", self.path))?;
        let mut made = Vec::new();
        bindings.write(&mut made);
        Ok(for_c(&String::from_utf8(made).context("the header is not UTF-8")?))
    }
}

/// Adapts the header to C. The section "Safety" of each function is removed, because it is written for Rust and the
/// text before it tells C programs the same. Negative numbers get parentheses, as in any header.
fn for_c(made: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut skipping = false;
    for line in made.lines() {
        if line.trim() == "* # Safety" {
            skipping = true;
            while lines.last().is_some_and(|line| line.trim() == "*") {
                lines.pop();
            }
        }
        skipping &= line.trim() != "*/";
        if !skipping {
            lines.push(line.trim_end());
        }
    }
    lines.iter().map(|line| negative_in_parentheses(line) + "\n").collect()
}

fn negative_in_parentheses(line: &str) -> String {
    match line.rsplit_once(' ') {
        Some((define, number)) if define.starts_with("#define ") && number.starts_with('-') => {
            format!("{define} ({number})")
        }
        _ => line.to_owned(),
    }
}

/// The line, from 1, where two texts begin to differ.
pub(crate) fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let (mut a, mut b) = (a.lines(), b.lines());
    (1..).find(|_| {
        let (a, b) = (a.next(), b.next());
        a != b || a.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_for_rust_are_left_out() {
        let made = "/**\n * Frees.\n *\n * # Safety\n * None.\n */\nvoid f(void);\n#define A -1\n";
        assert_eq!(for_c(made), "/**\n * Frees.\n */\nvoid f(void);\n#define A (-1)\n");
    }

    #[test]
    fn a_difference_has_a_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
        assert_eq!(first_difference("a", "a\n"), Some(2));
    }

    #[test]
    fn the_committed_headers_are_as_they_would_be_made() {
        let root = repo::root();
        for header in &HEADERS {
            let committed = fs::read_to_string(root.join(header.path)).unwrap();
            let made = header.make(&root).unwrap();
            assert_eq!(first_difference(&committed, &made), None, "{}: cargo xtask header", header.path);
        }
    }
}
