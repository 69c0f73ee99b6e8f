//! Files as inputs and outputs of a call; `-` is standard input or output.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use mrsp::region::MAX_REGION_BYTES;

/// Bytes between two looks at the progress.
const STRIDE: usize = 4 << 20;

/// What an input is read from, as often as need be.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    len: usize,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A regular file, read straight into a region.
    File(File),
    /// Of a pipe or the like.
    Read(Vec<u8>),
}

impl Source {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("cannot read {}", path.display());
        if path == Path::new("-") {
            return Self::read(path, io::stdin().lock());
        }
        let file = File::open(path).with_context(what)?;
        let meta = file.metadata().with_context(what)?;
        ensure!(!meta.is_dir(), "{} is a folder; give its files", path.display());
        // Files of procfs have content, but no size.
        if !meta.is_file() || meta.len() == 0 {
            return Self::read(path, file);
        }
        let len = fitting(path, meta.len())?;
        Ok(Self { path: path.into(), len, content: Content::File(file) })
    }

    fn read(path: &Path, from: impl Read) -> anyhow::Result<Self> {
        let mut content = Vec::new();
        // One more than fits, to tell.
        let mut limited = from.take(MAX_REGION_BYTES + 1);
        limited.read_to_end(&mut content).with_context(|| format!("cannot read {}", path.display()))?;
        let len = fitting(path, content.len() as u64)?;
        Ok(Self { path: path.into(), len, content: Content::Read(content) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies the input to `region`, which has its length, calling `tick` every few MiB.
    pub(super) fn fill(&mut self, region: &mut [u8], mut tick: impl FnMut()) -> anyhow::Result<()> {
        match &mut self.content {
            Content::Read(content) => region.copy_from_slice(content),
            Content::File(file) => {
                let failed = || {
                    format!(
                        "cannot read {} to its end; it may have changed while it was read",
                        self.path.display()
                    )
                };
                file.seek(SeekFrom::Start(0)).with_context(failed)?;
                for piece in region.chunks_mut(STRIDE) {
                    file.read_exact(piece).with_context(failed)?;
                    tick();
                }
                let more = file.read(&mut [0]).with_context(failed)?;
                ensure!(more == 0, "{} changed while it was read; call again", self.path.display());
            }
        }
        Ok(())
    }
}

fn fitting(path: &Path, bytes: u64) -> anyhow::Result<usize> {
    ensure!(
        bytes <= MAX_REGION_BYTES,
        "{} has more than {}, which is all a region holds; split it",
        path.display(),
        crate::show::bytes(MAX_REGION_BYTES)
    );
    usize::try_from(bytes).context("more bytes than this machine can address")
}

/// Where a result goes. A file appears when it is complete.
#[derive(Debug)]
pub(super) struct Sink {
    path: PathBuf,
}

impl Sink {
    /// Fails at once where writing is bound to fail.
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("cannot write {}: {} is no folder; create it", path.display(), folder.display());
        }
        ensure!(!path.is_dir(), "cannot write {}: it is a folder; name a file in it", path.display());
        Ok(Self { path: path.into() })
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Writes everything, calling `tick` every few MiB.
    pub(super) fn write(&self, bytes: &[u8], tick: impl FnMut()) -> anyhow::Result<()> {
        let failed = || match self.is_stdout() {
            true => "cannot write standard output".to_owned(),
            false => format!("cannot write {}", self.path.display()),
        };
        if self.is_stdout() {
            return write_all(&mut io::stdout().lock(), bytes, tick).with_context(failed);
        }
        if self.path.exists() && !self.path.is_file() {
            // A device or a pipe: not to be replaced by a file.
            let mut out = File::options().write(true).open(&self.path).with_context(failed)?;
            return write_all(&mut out, bytes, tick).with_context(failed);
        }
        let target = link_target(&self.path);
        let mut partial = target.clone().into_os_string();
        partial.push(".partial");
        let written = File::create(&partial).and_then(|mut out| {
            if let Ok(existing) = target.metadata() {
                out.set_permissions(existing.permissions())?;
            }
            write_all(&mut out, bytes, tick)
        });
        let renamed = written.and_then(|()| std::fs::rename(&partial, &target));
        renamed.with_context(|| {
            // What is wrong has been found; a rest that cannot be removed adds nothing.
            let _ = std::fs::remove_file(&partial);
            failed()
        })
    }
}

/// Where writing to `path` ends up; the file need not exist.
fn link_target(path: &Path) -> PathBuf {
    /// As the kernel follows.
    const LINKS: usize = 40;
    let mut target = path.to_path_buf();
    for _ in 0..LINKS {
        let Ok(link) = target.read_link() else { break };
        target = target.parent().map_or_else(|| link.clone(), |folder| folder.join(&link));
    }
    target
}

fn write_all(out: &mut impl Write, bytes: &[u8], mut tick: impl FnMut()) -> io::Result<()> {
    for piece in bytes.chunks(STRIDE) {
        out.write_all(piece)?;
        tick();
    }
    out.flush()
}
