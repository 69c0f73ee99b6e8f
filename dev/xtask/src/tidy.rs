//! `tidy`: the rules of the code base that a compiler does not know.

mod addresses;
mod layers;
mod openings;
mod purity;
mod slices;
mod text;
mod unsafe_fence;

use crate::{metadata, repo, source};
use anyhow::{Context, Result};
use std::{
    fmt, fs,
    path::Path,
    process::{Command, ExitCode},
};

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the root of the checkout.
    pub(crate) path: String,
    /// The first line has number 1.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    remedy: {}", self.path, self.line, self.what, self.remedy)
    }
}

/// A text file of the checkout.
struct File {
    path: String,
    text: String,
    /// The text without comments and literals, if it is Rust source.
    code: Option<String>,
}

pub(crate) fn run() -> Result<ExitCode> {
    let root = repo::root();
    let packages = metadata::packages()?;
    let files = read_files(&root)?;
    let mut findings = Vec::new();
    for package in &packages {
        findings.extend(layers::check(package, &packages));
        findings.extend(purity::check_dependencies(package));
        findings.extend(unsafe_fence::check_package(package));
    }
    let openings = openings::Openings::read(&root)?;
    for file in &files {
        findings.extend(text::check(&file.path, &file.text, file.code.as_deref()));
        findings.extend(addresses::check(&file.path, &file.text));
        if let Some(code) = &file.code {
            findings.extend(openings.check(&file.path, &file.text));
            findings.extend(unsafe_fence::check_code(&file.path, code));
            findings.extend(slices::check_code(&file.path, code));
            findings.extend(purity::check_code(&file.path, code));
            findings.extend(unsafe_fence::check_root(&file.path, code));
        }
    }
    findings.extend(crate::fuzz::unlisted_targets(&root)?);
    let formatted = check_format(&root)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} packages, {} findings", files.len(), packages.len(), findings.len());
    Ok(if findings.is_empty() && formatted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in repo::files(root)? {
        let bytes = fs::read(root.join(&path)).with_context(|| format!("cannot read {}", path.display()))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let code = path.extension().is_some_and(|e| e == "rs").then(|| source::strip(&text));
        files.push(File { path: path.to_string_lossy().into_owned(), text, code });
    }
    Ok(files)
}

fn check_format(root: &Path) -> Result<bool> {
    let mut workspace = repo::cargo();
    workspace.args(["fmt", "--all"]);
    // The fuzz targets are a workspace of their own.
    let mut fuzz = repo::cargo();
    fuzz.args(["fmt", "--manifest-path"]).arg(root.join("dev/fuzz/Cargo.toml"));
    let mut formatted = true;
    for (mut command, remedy) in
        [(workspace, "cargo fmt --all"), (fuzz, "cargo fmt --manifest-path dev/fuzz/Cargo.toml")]
            as [(Command, _); 2]
    {
        let status = command
            .args(["--", "--check", "-l"])
            .status()
            .context("cannot run cargo fmt: rustup component add rustfmt")?;
        if !status.success() {
            println!("the files above are not formatted\n    remedy: {remedy}");
            formatted = false;
        }
    }
    Ok(formatted)
}

/// Whether `path` is `allowed`, or is in it: a folder ends in `/`.
fn is_of(path: &str, allowed: &str) -> bool {
    if allowed.ends_with('/') { path.starts_with(allowed) } else { path == allowed }
}

/// The line, from 1, of the first line of `manifest` that starts with `key`.
fn manifest_line(manifest: &str, key: &str) -> usize {
    let starts = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    1 + manifest.lines().position(starts).unwrap_or(0)
}

/// A package of a test.
#[cfg(test)]
fn package(name: &str, dependencies: &[(&str, Option<&str>, bool)]) -> metadata::Package {
    let dependencies = dependencies
        .iter()
        .map(|(name, kind, local)| metadata::Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
            path: local.then(String::new),
        })
        .collect();
    metadata::Package {
        name: name.to_owned(),
        folder: name.to_owned(),
        manifest: "[lints]\nworkspace = true\n".to_owned(),
        dependencies,
    }
}
