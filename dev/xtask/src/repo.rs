//! Where things are in this checkout, and how its programs are called.

use anyhow::{Context, Result, ensure};
use std::{
    env, fs, io,
    path::{Path, PathBuf, absolute},
    process::Command,
};

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs this program; a moved checkout then still finds itself.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.ancestors().nth(2).map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Cargo's target directory of the workspace, absolute.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => absolute(&dir).unwrap_or_else(|_| dir.into()),
        None => root().join("target"),
    }
}

/// The program `name` of the workspace as `cargo build --release` leaves it.
pub(crate) fn release_program(name: &str) -> PathBuf {
    target_dir().join("release").join(name)
}

/// Builds the release programs and libraries.
pub(crate) fn build_release() -> Result<()> {
    let built = cargo().args(["build", "--release", "--workspace"]).status();
    ensure!(built.context("cannot run cargo")?.success(), "the workspace does not build");
    Ok(())
}

/// `cargo`, to be run at the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_TARGET_DIR", target_dir());
    command
}

/// Every file of the checkout below `root`, relative to it, sorted, without build products.
pub(crate) fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            if kind.is_dir() && name != "target" && name != ".git" {
                folders.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                found.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The names of the files in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let entry = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let names = fs::read_dir(folder).and_then(|entries| entries.map(entry).collect::<io::Result<Vec<_>>>());
    let mut names = names.with_context(|| format!("cannot read {}", folder.display()))?;
    names.sort();
    Ok(names)
}

/// Whether a program of that name is on the search path.
pub(crate) fn has_program(name: &str) -> bool {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(system).any(|folder| folder.join(name).is_file())
}
