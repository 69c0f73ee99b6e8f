//! Results: files that appear under their names when they are complete, or standard output.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use anyhow::Context as _;
use naa_files::{CannotWrite, Destination};

use crate::{Interrupted, Refused};

/// The number of bytes after which the progress is shown again.
const STRIDE: usize = 4 << 20;

/// The destination of a result.
#[derive(Debug)]
pub(crate) struct ResultOutput {
    /// The file; `None` is standard output.
    destination: Option<Destination>,
    /// Whether the file is synced to disk before it gets its name.
    sync: bool,
}

/// Names of standard output, whose file must not be replaced.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Whether `path` is a name of standard output.
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

impl ResultOutput {
    /// Makes a sink. It fails at once if writing to it cannot succeed.
    pub(crate) fn new(path: &Path, sync: bool) -> anyhow::Result<Self> {
        let destination = if is_stdout(path) { None } else { Some(Destination::new(path)?) };
        Ok(Self { destination, sync })
    }

    /// Removes unfinished files that dead processes left in the folder of the result.
    pub(crate) fn remove_abandoned(&self) {
        if let Some(destination) = self.destination.as_ref().filter(|to| to.is_file()) {
            destination.folder().remove_abandoned();
        }
    }

    /// Writes all bytes, and calls `tick` every few MiB. If `ready` fails at the end, the result does not get its name.
    pub(crate) fn write(
        &self,
        bytes: &[u8],
        tick: impl FnMut() -> Result<(), Interrupted>,
        ready: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(destination) = &self.destination else {
            ready()?;
            return write_all(&mut io::stdout().lock(), bytes, tick, |error| {
                anyhow::Error::new(error).context("cannot write standard output")
            });
        };
        let path = destination.path();
        let failed = |error: io::Error| match destination.is_file() {
            true => CannotWrite::new(path, error).into(),
            // The kind of the error stays, so that a closed pipe can be recognised, which is no failure.
            false => anyhow::Error::new(error).context(format!("cannot write {}", path.display())),
        };
        destination.write(self.sync, |file| write_all(file, bytes, tick, failed), ready)
    }
}

/// Syncs `folder`, so that the names of results in it are on disk.
pub(crate) fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    let synced = naa_files::ResultFolder::open(folder).and_then(|folder| folder.sync());
    synced.with_context(|| format!("cannot bring the results in {} to disk", folder.display()))
}

/// Refuses two results for the same file. Devices and pipes take any number of results.
pub(crate) fn check_distinct(sinks: &[ResultOutput]) -> anyhow::Result<()> {
    let mut taken = BTreeSet::<(u64, u64, OsString)>::new();
    let mut stdout = 0;
    for sink in sinks {
        let Some(destination) = &sink.destination else {
            stdout += 1;
            let text = "standard output would get two results, and nobody could tell them apart; name files";
            if stdout > 1 {
                return Err(Refused::error(text));
            }
            continue;
        };
        let path = destination.path().display();
        let (device, inode, name) = destination.id().with_context(|| format!("cannot look at {path}"))?;
        if destination.is_file() && !taken.insert((device, inode, name.to_owned())) {
            return Err(Refused::error(format!("{path} would be written twice; name each output")));
        }
    }
    Ok(())
}

fn write_all(
    out: &mut impl Write,
    bytes: &[u8],
    mut tick: impl FnMut() -> Result<(), Interrupted>,
    failed: impl Fn(io::Error) -> anyhow::Error,
) -> anyhow::Result<()> {
    for piece in bytes.chunks(STRIDE) {
        out.write_all(piece).map_err(&failed)?;
        tick()?;
    }
    out.flush().map_err(&failed)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use anyhow::bail;

    use super::*;

    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("naa-output-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn count(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_refused_result_leaves_what_was_there() {
        let folder = folder("refused");
        let path = folder.join("result");
        fs::write(&path, "old").unwrap();
        let sink = ResultOutput::new(&path, true).unwrap();
        assert!(sink.write(b"new", || Ok(()), || bail!("changed")).is_err());
        assert!(sink.write(b"new", || Err(Interrupted), || Ok(())).is_err());
        assert_eq!((fs::read(&path).unwrap(), count(&folder)), (b"old".to_vec(), 1));
        sink.write(b"new", || Ok(()), || Ok(())).unwrap();
        assert_eq!((fs::read(&path).unwrap(), count(&folder)), (b"new".to_vec(), 1));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_results_are_not_for_one_place() {
        let folder = folder("distinct");
        let refusal = |names: &[&str]| {
            let sink = |name: &&str| ResultOutput::new(Path::new(name), false).unwrap();
            let sinks: Vec<_> = names.iter().map(sink).collect();
            check_distinct(&sinks).err().map(|error| error.to_string())
        };
        let file = |name: &str| folder.join(name).display().to_string();
        let (result, same, link) = (file("result"), file("./result"), file("link"));
        std::os::unix::fs::symlink("result", &link).unwrap();
        assert_eq!(refusal(&["-", &result, &file("other"), "/dev/null", "/dev/null"]), None);
        for twice in [&result, &same, &link] {
            let text = refusal(&["-", &result, twice]).unwrap();
            assert!(text.contains(&format!("{twice} would be written twice")), "{text}");
        }
        for stdout in STDOUT {
            assert!(refusal(&[&result, "-", stdout]).unwrap().contains("standard output"), "{stdout}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
