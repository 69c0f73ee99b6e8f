//! Output of a machine, as it comes.

use anyhow::{Context, Result};
use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

pub(super) type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// What a growing file has gained.
pub(super) struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    pub(super) fn forward(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        if self.file.is_none() {
            // The machine makes it when the command starts.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).context("cannot read what the machine writes")?;
        if !bytes.is_empty() {
            sink(&bytes).context("cannot hand on what the machine writes")?;
        }
        Ok(())
    }
}

/// Puts a mark in front of every line, and hands on whole lines only.
pub(super) struct Marked {
    mark: &'static str,
    begun: Vec<u8>,
}

impl Marked {
    pub(super) const fn new(mark: &'static str) -> Self {
        Self { mark, begun: Vec::new() }
    }

    pub(super) fn write(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.begun.split_off(whole);
        let lines = std::mem::replace(&mut self.begun, rest);
        lines.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| sink(&self.marked(line)))
    }

    /// The last line, if it was not ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        if self.begun.is_empty() { Ok(()) } else { self.write(b"\n", sink) }
    }

    fn marked(&self, line: &[u8]) -> Vec<u8> {
        [self.mark.as_bytes(), line].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, io::Write};

    #[test]
    fn a_tail_gives_each_byte_once() {
        let path = env::temp_dir().join(format!("rxe-vm-tail-{}", std::process::id()));
        let mut tail = Tail::new(path.clone());
        let mut seen = Vec::new();
        let mut forward = |seen: &mut Vec<u8>| tail.forward(&mut |b| seen.write_all(b)).expect("readable");
        forward(&mut seen);
        fs::write(&path, "one ").expect("written");
        forward(&mut seen);
        fs::write(&path, "one two").expect("written");
        forward(&mut seen);
        forward(&mut seen);
        fs::remove_file(&path).expect("removed");
        assert_eq!(seen, b"one two");
    }

    #[test]
    fn lines_are_marked_whole() {
        let mut marked = Marked::new("b: ");
        let mut seen = Vec::new();
        for part in ["on", "e\n\ntw", "", "o\nthree"] {
            marked.write(part.as_bytes(), &mut |b| seen.write_all(b)).expect("writable");
        }
        assert_eq!(String::from_utf8_lossy(&seen), "b: one\nb: \nb: two\n");
        marked.finish(&mut |b| seen.write_all(b)).expect("writable");
        marked.finish(&mut |b| seen.write_all(b)).expect("writable");
        assert_eq!(String::from_utf8_lossy(&seen), "b: one\nb: \nb: two\nb: three\n");
    }
}
