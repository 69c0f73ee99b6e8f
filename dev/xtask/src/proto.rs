//! `proto`: the Rust of gRPC's messages and services, made of their .proto files.

use crate::{
    header::first_difference,
    repo::{self, names},
};
use anyhow::{Context, Result, anyhow};
use prost_build::Module;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

const SOURCES: &str = "proto/proto";
const MADE: &str = "proto/src/generated";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tell whether the files are as they would be made
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let made = make(&root)?;
    if options.check {
        let differences = differences(&committed(&root.join(MADE))?, &made);
        for difference in &differences {
            println!("{MADE}/{difference}\n    remedy: cargo xtask proto");
        }
        if differences.is_empty() {
            println!("{MADE} is as {SOURCES} has it");
        }
        return Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    for (name, text) in &made {
        let path = root.join(MADE).join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {MADE}/{name}");
    }
    for name in names(&root.join(MADE))?.iter().filter(|name| !made.contains_key(*name)) {
        let path = root.join(MADE).join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        println!("removed {MADE}/{name}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The texts of files by their names: one for each package.
fn make(root: &Path) -> Result<BTreeMap<String, String>> {
    let folder = root.join(SOURCES);
    let files: Vec<PathBuf> = names(&folder)?.iter().map(|name| folder.join(name)).collect();
    let set = protox::compile(&files, [&folder]).map_err(|error| anyhow!("{SOURCES}: {error}"))?;
    let module = |package: &str| Module::from_protobuf_package_name(package);
    let requests = set.file.into_iter().map(|file| (module(file.package()), file)).collect();
    // Channels and servers are the users' choice.
    let services = tonic_prost_build::configure().build_transport(false).service_generator();
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).service_generator(services);
    let made = config.generate(requests).with_context(|| format!("cannot make Rust of {SOURCES}"))?;
    let name = |module: &Module| module.to_file_name_or("root");
    Ok(made.iter().map(|(module, text)| (name(module), text.clone())).collect())
}

/// The texts of the files in a folder by their names.
fn committed(folder: &Path) -> Result<BTreeMap<String, String>> {
    let read = |name: String| {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((name, text))
    };
    names(folder)?.into_iter().map(read).collect()
}

fn differences(committed: &BTreeMap<String, String>, made: &BTreeMap<String, String>) -> Vec<String> {
    let superfluous = committed.keys().filter(|name| !made.contains_key(*name));
    let mut found: Vec<_> = superfluous.map(|name| format!("{name}:1: no source has it")).collect();
    for (name, text) in made {
        match committed.get(name).map(|committed| first_difference(committed, text)) {
            None => found.push(format!("{name}:1: missing")),
            Some(Some(line)) => found.push(format!("{name}:{line}: not as its source has it")),
            Some(None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_as_they_would_be_made() {
        let root = repo::root();
        let made = make(&root).unwrap();
        assert!(made.contains_key("naa.lb.v1.rs") && made.contains_key("sn_p4.v2.rs"), "{:?}", made.keys());
        assert_eq!(differences(&committed(&root.join(MADE)).unwrap(), &made), [""; 0], "cargo xtask proto");
    }

    #[test]
    fn differences_name_the_file_and_its_line() {
        let files = |files: &[(&str, &str)]| {
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let committed = files(&[("old.rs", ""), ("same.rs", "a\n"), ("stale.rs", "a\nb\n")]);
        let made = files(&[("new.rs", ""), ("same.rs", "a\n"), ("stale.rs", "a\nc\n")]);
        assert_eq!(
            differences(&committed, &made),
            ["old.rs:1: no source has it", "new.rs:1: missing", "stale.rs:2: not as its source has it"]
        );
    }
}
