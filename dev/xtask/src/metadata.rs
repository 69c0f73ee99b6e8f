//! The packages of the workspace, as `cargo metadata` tells them.

use crate::repo;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::{fs, path::Path};

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root of the checkout.
    pub(crate) folder: String,
    /// The text of its `Cargo.toml`.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Where it is inside this checkout. `None` for one of a registry.
    pub(crate) path: Option<String>,
}

/// What cargo tells.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

impl Package {
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }
}

pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = repo::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let told: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata gave no JSON")?;
    let root = repo::root();
    told.packages.into_iter().map(|package| read(package, &root)).collect()
}

fn read(package: Described, root: &Path) -> Result<Package> {
    let Described { name, manifest_path: path, dependencies } = package;
    let manifest = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let folder =
        Path::new(&path).parent().map(|p| p.strip_prefix(root).unwrap_or(p).to_string_lossy().into_owned());
    Ok(Package { name, folder: folder.unwrap_or_default(), manifest, dependencies })
}
