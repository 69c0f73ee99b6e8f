//! Files as inputs of a call; `-` is standard input.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context as _, ensure};
use mrsp::region::MAX_REGION_BYTES;
use naa_host::{Error, Session};

use crate::Interrupted;

/// The number of bytes after which the progress is shown again.
const STRIDE: usize = 4 << 20;

/// The source of an input, which can be read several times.
#[derive(Debug)]
pub(crate) struct InputFile {
    path: PathBuf,
    len: usize,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A regular file, read straight into a region, and when it was last changed.
    File(File, Option<SystemTime>),
    /// The bytes that were read from a pipe or another file that is not regular.
    Read(Vec<u8>),
}

impl InputFile {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("cannot read {}", path.display());
        if path == Path::new("-") {
            return Self::read(path, io::stdin().lock());
        }
        let file = File::open(path).with_context(what)?;
        let meta = file.metadata().with_context(what)?;
        ensure!(!meta.is_dir(), "{} is a folder; give its files, or --in-dir", path.display());
        // Files of procfs have content, but no size.
        if !meta.is_file() || meta.len() == 0 {
            return Self::read(path, file);
        }
        let len = fitting(path, meta.len())?;
        Ok(Self { path: path.into(), len, content: Content::File(file, meta.modified().ok()) })
    }

    fn read(path: &Path, from: impl Read) -> anyhow::Result<Self> {
        let mut content = Vec::new();
        // One byte more than fits is read, to notice that the content is too long.
        let mut limited = from.take(MAX_REGION_BYTES + 1);
        limited.read_to_end(&mut content).with_context(|| format!("cannot read {}", path.display()))?;
        let len = fitting(path, content.len() as u64)?;
        Ok(Self { path: path.into(), len, content: Content::Read(content) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the input to the beginning of parameter `index`, calling `tick` every few MiB.
    pub(crate) fn fill(
        &mut self,
        session: &mut Session,
        index: usize,
        mut tick: impl FnMut() -> Result<(), Interrupted>,
    ) -> anyhow::Result<()> {
        match &mut self.content {
            Content::Read(content) => session.write(index, 0, content)?,
            Content::File(file, _) => {
                let failed = || {
                    format!(
                        "cannot read {} to its end; it may have changed while it was read",
                        self.path.display()
                    )
                };
                file.seek(SeekFrom::Start(0)).with_context(failed)?;
                let mut copy = Vec::new();
                for at in (0..self.len).step_by(STRIDE) {
                    let piece = at..self.len.min(at + STRIDE);
                    match session.slice_mut(index) {
                        Ok(region) => {
                            file.read_exact(&mut region[piece]).with_context(failed)?;
                        }
                        // The accelerator can write an in-out parameter at any time if the provider is verbs.
                        Err(Error::InReach) => {
                            copy.resize(piece.len(), 0);
                            file.read_exact(&mut copy).with_context(failed)?;
                            session.write(index, at, &copy)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                    tick()?;
                }
                let more = file.read(&mut [0]).with_context(failed)?;
                ensure!(more == 0, "{} changed while it was read; call again", self.path.display());
            }
        }
        Ok(())
    }

    /// Checks that the input file did not change during the call: a result must not be newer than a change that it does
    /// not include.
    pub(crate) fn check_unchanged(&self) -> anyhow::Result<()> {
        if let Content::File(file, changed) = &self.content {
            let now = file.metadata().and_then(|meta| meta.modified()).ok();
            ensure!(now == *changed, "{} changed during the call; call again", self.path.display());
        }
        Ok(())
    }

    /// Checks that the input file did not change and that no other file has taken its name.
    pub(crate) fn check_not_replaced(&self) -> anyhow::Result<()> {
        self.check_unchanged()?;
        if let Content::File(file, _) = &self.content {
            let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
            let same = file.metadata().ok().map(id) == std::fs::metadata(&self.path).ok().map(id);
            ensure!(same, "{} was replaced during the call; call again", self.path.display());
        }
        Ok(())
    }
}

fn fitting(path: &Path, bytes: u64) -> anyhow::Result<usize> {
    ensure!(
        bytes <= MAX_REGION_BYTES,
        "{} has more than {}, which is all a region holds; split it",
        path.display(),
        naa_measure::bytes(MAX_REGION_BYTES)
    );
    usize::try_from(bytes).context("more bytes than this machine can address")
}
