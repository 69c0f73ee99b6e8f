//! The packages of the workspace, as `cargo metadata` tells them.

use crate::repo;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
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

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// A path inside this checkout.
    pub(crate) local: bool,
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
    let json: Value = serde_json::from_slice(&output.stdout).context("cargo metadata gave no JSON")?;
    let root = repo::root();
    list(&json["packages"]).iter().map(|package| read(package, &root)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read(package: &Value, root: &Path) -> Result<Package> {
    let path = text(&package["manifest_path"]);
    let manifest = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let folder =
        Path::new(&path).parent().map(|p| p.strip_prefix(root).unwrap_or(p).to_string_lossy().into_owned());
    let dependencies = list(&package["dependencies"])
        .iter()
        .map(|d| Dependency {
            name: text(&d["name"]),
            kind: d["kind"].as_str().map(str::to_owned),
            local: d["path"].is_string(),
        })
        .collect();
    Ok(Package { name: text(&package["name"]), folder: folder.unwrap_or_default(), manifest, dependencies })
}
