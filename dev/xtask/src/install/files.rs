//! Writing below a prefix, and taking away again what was written.

use super::plan::{Item, Source};
use anyhow::{Context, Result, bail};
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

/// Says below the prefix what was installed there: a line per file, and per folder made, which ends in a slash.
pub(super) const MANIFEST: &str = "share/naa/installed";

/// Puts all items below `root` and removes what an earlier installation had besides.
pub(super) fn install(root: &Path, items: &[Item]) -> Result<()> {
    let before = read_manifest(root)?;
    let mut now = BTreeSet::new();
    for item in items {
        now.extend(make_folders(root, &item.path)?);
        put(item, &root.join(&item.path))?;
        now.insert(line(&item.path));
    }
    now.extend(make_folders(root, Path::new(MANIFEST))?);
    let gone: Vec<_> = before.iter().filter(|line| !line.ends_with('/') && !now.contains(*line)).collect();
    for line in gone {
        remove_file(root, line)?;
    }
    // Folders of earlier installations are still ours.
    now.extend(before.into_iter().filter(|line| line.ends_with('/')));
    let text: String = now.iter().map(|line| format!("{line}\n")).collect();
    let manifest = Item { path: MANIFEST.into(), what: "", source: Source::Text(text.into()), mode: 0o644 };
    put(&manifest, &root.join(MANIFEST))
}

/// Takes away what the manifest names; says how many files that were.
pub(super) fn uninstall(root: &Path) -> Result<usize> {
    let lines = read_manifest(root)?;
    if lines.is_empty() {
        bail!("{} is missing: nothing is installed below that prefix", root.join(MANIFEST).display());
    }
    let (folders, files): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.ends_with('/'));
    for line in &files {
        remove_file(root, line)?;
    }
    remove_file(root, MANIFEST)?;
    // The innermost folders are removed first. Folders that contain files of other programs stay.
    for folder in folders.iter().rev() {
        match fs::remove_dir(root.join(checked(folder)?)) {
            Err(error) if !is_expected(&error) => {
                return Err(error).with_context(|| format!("cannot remove {}", root.join(folder).display()));
            }
            _ => {}
        }
    }
    Ok(files.len())
}

fn is_expected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound)
}

fn line(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn read_manifest(root: &Path) -> Result<BTreeSet<String>> {
    let path = root.join(MANIFEST);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A manifest's path, if it stays below the prefix.
fn checked(line: &str) -> Result<&Path> {
    let path = Path::new(line);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        bail!("the manifest names {line}, which is not below the prefix; nothing more is removed");
    }
    Ok(path)
}

fn remove_file(root: &Path, line: &str) -> Result<()> {
    let path = root.join(checked(line)?);
    unless_missing(fs::remove_file(&path)).with_context(|| format!("cannot remove {}", path.display()))
}

/// It is no error that a file is not there to be removed.
fn unless_missing(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The folders above `path` that were not there, below the prefix.
fn make_folders(root: &Path, path: &Path) -> Result<Vec<String>> {
    let mut made = Vec::new();
    let mut folders: Vec<_> = path.ancestors().skip(1).collect();
    folders.reverse();
    for folder in folders {
        let at = root.join(folder);
        if at.is_dir() {
            continue;
        }
        fs::create_dir_all(&at).with_context(|| format!("cannot make {}", at.display()))?;
        fs::set_permissions(&at, PermissionsExt::from_mode(0o755))?;
        if folder != Path::new("") {
            made.push(line(folder) + "/");
        }
    }
    Ok(made)
}

/// In one step, so that programs that run from the old file keep it.
fn put(item: &Item, path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    let new = path.with_file_name(format!(".{}.new", name.display()));
    unless_missing(fs::remove_file(&new)).with_context(cannot)?;
    match &item.source {
        Source::Link(to) => symlink(to, &new).with_context(cannot)?,
        Source::File(from) => {
            fs::copy(from, &new).with_context(|| format!("{} from {}", cannot(), from.display()))?;
        }
        Source::Text(text) => fs::write(&new, text).with_context(cannot)?,
    }
    if !matches!(item.source, Source::Link(_)) {
        fs::set_permissions(&new, PermissionsExt::from_mode(item.mode)).with_context(cannot)?;
    }
    fs::rename(&new, path).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> Item {
        Item { path: path.into(), what: "", source: Source::Text(path.into()), mode: 0o644 }
    }

    #[test]
    fn what_was_installed_goes_and_the_rest_stays() {
        let root = std::env::temp_dir().join(format!("naa-files-{}", std::process::id()));
        fs::create_dir_all(root.join("share")).unwrap();
        fs::write(root.join("share/other"), "").unwrap();
        install(&root, &[text("lib/a/old"), text("share/naa/x")]).unwrap();
        install(&root, &[text("bin/new"), text("share/naa/x")]).unwrap();
        assert!(!root.join("lib/a/old").exists() && root.join("bin/new").exists());
        assert_eq!(uninstall(&root).unwrap(), 2);
        let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["share"]);
        assert!(root.join("share/other").exists() && !root.join("share/naa").exists());
        assert!(uninstall(&root).unwrap_err().to_string().contains("nothing is installed"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_manifest_cannot_lead_elsewhere() {
        assert!(checked("../etc/passwd").is_err() && checked("/etc/passwd").is_err());
        assert_eq!(checked("lib/naa/").unwrap(), Path::new("lib/naa/"));
    }
}
