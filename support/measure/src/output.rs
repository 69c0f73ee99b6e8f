//! The file of results for programs.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use naa_files::{CannotWrite, Destination};
use serde::Serialize;

/// The file of `--json`, looked at before anything is done.
#[derive(Debug)]
pub enum Json {
    /// The standard output of this process, which the path `-` names.
    Stdout,
    /// A file, which the report replaces when the report is complete.
    File(Destination),
    /// A device or a pipe.
    Special(File, PathBuf),
}

impl Json {
    /// Opens the output that `path` names: standard output for `-`, otherwise a file, a device or a pipe. An existing
    /// file is unchanged until [`Json::write`] replaces it.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let destination = Destination::new(path)?;
        if !destination.is_file() {
            let file = destination.open_special().map_err(|why| CannotWrite::new(path, why))?;
            return Ok(Self::Special(file, path.into()));
        }
        // The former file stays until the new one is complete.
        drop(destination.begin().map_err(|why| CannotWrite::new(path, why))?);
        Ok(Self::File(destination))
    }

    /// Writes `report` as indented JSON with a line feed at its end.
    ///
    /// # Errors
    /// Fails if `report` cannot be serialized, or if the output cannot be written.
    pub fn write(self, report: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report)?;
        match self {
            Self::Stdout => Ok(writeln!(io::stdout(), "{text}")?),
            Self::File(destination) => Ok(destination.replace(format!("{text}\n").as_bytes())?),
            Self::Special(mut file, path) => {
                writeln!(file, "{text}").with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_report_replaces_a_file_as_a_whole_and_follows_no_link() {
        let folder = std::env::temp_dir().join(format!("naa-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, victim) = (folder.join("report.json"), folder.join("victim"));
        fs::write(&path, "old").unwrap();
        fs::write(&victim, "old").unwrap();
        drop(Json::open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old", "it stays until there is something to replace it");
        let json = Json::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        json.write(&[1]).unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&victim).unwrap()),
            (b"[\n  1\n]\n".to_vec(), b"old".to_vec())
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
