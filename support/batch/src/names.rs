//! Finds the input files of a batch and the names of their results.

use std::{
    collections::{HashMap, HashSet},
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mrsp::{FunctionCode, builtin};
use walkdir::WalkDir;

use crate::Refused;

/// Which files a batch takes, and where their results go.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files, each for one call; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    /// Folders: each file in them and below is for one call.
    pub in_dir: Vec<PathBuf>,
    /// The folder of the results. If there is none, results are only told.
    pub out_dir: Option<PathBuf>,
    /// What is added to the names of results, or removed by decompression. If there is none, the function decides.
    pub suffix: Option<String>,
    /// Whether files are left out whose result is newer than they are.
    pub resume: bool,
    /// The number of sessions at once, at least 1. If there is none, the number of cores decides.
    pub sessions: Option<usize>,
}

/// A file to be offloaded.
#[derive(Debug)]
pub struct Item {
    /// The path of the file; `-` is standard input.
    pub input: PathBuf,
    /// The path of the result; `None` if the result is only printed.
    pub(crate) output: Option<PathBuf>,
    /// The length of the file; 0 if it is not known.
    pub bytes: u64,
    /// Why the file cannot be offloaded, if so.
    pub(crate) problem: Option<String>,
}

/// A file, and its name below the folder of results.
struct NamedFile {
    path: PathBuf,
    below: PathBuf,
    meta: Result<Metadata, String>,
}

/// Replaces patterns by the files that match them. Other names stay as they are.
///
/// # Errors
/// Fails if a pattern is wrong, if no file matches it, or if a folder cannot be read.
pub fn expand(inputs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for input in inputs {
        let pattern = input.to_str().filter(|text| text.contains(['*', '?', '[']));
        let Some(pattern) = pattern.filter(|_| input.symlink_metadata().is_err()) else {
            all.push(input.clone());
            continue;
        };
        let paths = glob::glob(pattern)
            .map_err(|error| Refused::error(format!("{pattern} is no file and no pattern: {error}")))?;
        let before = all.len();
        for path in paths {
            let path = path.with_context(|| format!("cannot look for {pattern}"))?;
            if !path.is_dir() && !naa_files::is_unfinished(&path) {
                all.push(path);
            }
        }
        if all.len() == before {
            anyhow::bail!("no file matches {pattern}");
        }
    }
    Ok(all)
}

/// All files of a batch, in the order of the command line; the files of a folder are sorted by name.
pub(crate) fn items(files: &Files, function: FunctionCode) -> anyhow::Result<Vec<Item>> {
    let naming = Naming::new(files, function);
    let mut found: Vec<_> = files.inputs.iter().map(|path| named(path)).collect();
    for folder in &files.in_dir {
        walk(folder, &naming, &mut found);
    }
    let items: Vec<_> = found.into_iter().map(|found| naming.item(found)).collect();
    naming.check(&items)?;
    Ok(items)
}

fn named(path: &Path) -> NamedFile {
    // Standard input has no name, so its result cannot have one either.
    let (name, file) = match path {
        path if path == Path::new("-") => (None, Path::new("/dev/stdin")),
        path => (path.file_name(), path),
    };
    let meta = file.metadata().map_err(|error| format!("cannot read {}: {error}", path.display()));
    NamedFile { path: path.into(), below: name.map(PathBuf::from).unwrap_or_default(), meta }
}

/// Finds all files below a folder. Links are followed. Entries that are neither file nor folder are left out, and so
/// are results of this command.
fn walk(folder: &Path, naming: &Naming<'_>, found: &mut Vec<NamedFile>) {
    let entries = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    let is_ours = |path: &Path, meta: Option<Metadata>| {
        naa_files::is_unfinished(path) || meta.is_some_and(|meta| naming.is_out_dir(&meta))
    };
    for entry in
        entries.filter_entry(|entry| entry.depth() == 0 || !is_ours(entry.path(), entry.metadata().ok()))
    {
        let (path, meta) = match entry {
            Ok(entry) if entry.file_type().is_dir() => continue,
            Ok(entry) => (entry.path().to_owned(), entry.metadata()),
            Err(error) => (error.path().unwrap_or(folder).to_owned(), Err(error)),
        };
        let below = path.strip_prefix(folder).unwrap_or(&path).to_owned();
        let meta = meta.map_err(|error| format!("cannot read {}: {error}", path.display()));
        if meta.as_ref().is_ok_and(|meta| !meta.is_file()) {
            // Filters of the log know this name.
            tracing::warn!(target: "naa::call::names", "{} is no regular file and left out", path.display());
            continue;
        }
        let same_folder = meta.is_ok() && naming.is_out_dir_itself(folder);
        if same_folder && naming.is_result(&below) {
            continue;
        }
        found.push(NamedFile { path, below, meta });
    }
}

/// The rules for the names of results.
struct Naming<'a> {
    out_dir: Option<&'a Path>,
    suffix: &'a str,
    /// Whether the suffix is removed instead of added.
    strips: bool,
    out_id: Option<(u64, u64)>,
}

fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl<'a> Naming<'a> {
    fn new(files: &'a Files, function: FunctionCode) -> Self {
        let (usual, strips) = match function {
            builtin::ZSTD_COMPRESS => (".zst", false),
            builtin::ZSTD_DECOMPRESS => (".zst", true),
            builtin::LZ4_COMPRESS => (".lz4", false),
            builtin::LZ4_DECOMPRESS => (".lz4", true),
            _ => ("", false),
        };
        let out_dir = files.out_dir.as_deref();
        let out_id = out_dir.and_then(|path| path.metadata().ok()).as_ref().map(id);
        Self { out_dir, suffix: files.suffix.as_deref().unwrap_or(usual), strips, out_id }
    }

    fn is_out_dir(&self, meta: &Metadata) -> bool {
        self.out_id == Some(id(meta))
    }

    fn is_out_dir_itself(&self, folder: &Path) -> bool {
        folder.metadata().is_ok_and(|meta| self.is_out_dir(&meta))
    }

    /// Whether a file in the folder of results is a result.
    fn is_result(&self, name: &Path) -> bool {
        !self.strips && !self.suffix.is_empty() && name.to_string_lossy().ends_with(self.suffix)
    }

    fn item(&self, found: NamedFile) -> Item {
        let NamedFile { path, below, meta } = found;
        let (bytes, mut problem) = match meta {
            Ok(meta) => (meta.len(), None),
            Err(problem) => (0, Some(problem)),
        };
        let output = self.out_dir.and_then(|folder| match self.name(&below) {
            Ok(name) => Some(folder.join(name)),
            Err(error) => {
                problem.get_or_insert(format!("{}: {error}", path.display()));
                None
            }
        });
        Item { input: path, output, bytes, problem }
    }

    fn name(&self, below: &Path) -> Result<PathBuf, String> {
        let Some(name) = below.file_name() else {
            return Err("has no name for its result; use --out".into());
        };
        if !self.strips {
            let mut name = name.to_owned();
            name.push(self.suffix);
            return Ok(below.with_file_name(name));
        }
        let text = name.to_str().ok_or("its name is not UTF-8; rename it, or use --out")?;
        let stem = text.strip_suffix(self.suffix).filter(|stem| !stem.is_empty());
        let stem = stem.ok_or(format!("its name does not end in {}; see --suffix", self.suffix))?;
        Ok(below.with_file_name(stem))
    }

    /// Checks that no two results have the same name, and that no result is an input.
    fn check(&self, items: &[Item]) -> anyhow::Result<()> {
        let inputs: HashSet<_> =
            items.iter().filter_map(|item| item.input.metadata().ok()).map(|meta| id(&meta)).collect();
        let mut taken = HashMap::new();
        for item in items {
            let Some(output) = &item.output else { continue };
            let (input, result) = (item.input.display(), output.display());
            if let Some(other) = taken.insert(output, &item.input) {
                let other = other.display();
                let text = format!(
                    "{other} and {input} would both become {result}; use --in-dir, which keeps folders"
                );
                return Err(Refused::error(text));
            }
            if output.metadata().is_ok_and(|meta| meta.is_file() && inputs.contains(&id(&meta))) {
                let text = format!(
                    "{result} would be overwritten, but it is an input; give another --out-dir or --suffix"
                );
                return Err(Refused::error(text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(suffix: &str, strips: bool) -> Naming<'_> {
        Naming { out_dir: Some(Path::new("out")), suffix, strips, out_id: None }
    }

    #[test]
    fn results_are_named_after_inputs() {
        let name = |naming: Naming<'_>, below: &str| naming.name(Path::new(below));
        assert_eq!(name(naming(".zst", false), "a/b.c"), Ok("a/b.c.zst".into()));
        assert_eq!(name(naming("", false), "a/b.c"), Ok("a/b.c".into()));
        assert_eq!(name(naming(".zst", true), "a/b.c.zst"), Ok("a/b.c".into()));
        assert!(name(naming(".zst", true), "a/b.c").is_err());
        assert!(name(naming(".zst", true), ".zst").is_err());
        assert!(name(naming(".zst", false), "").is_err());
    }
}
