//! A writer into an output region. When the region is full, the writer only counts the bytes.

use std::io::{self, Write};

use crate::call::CallFailure;

#[derive(Debug)]
pub(crate) struct Bounded<'a> {
    out: &'a mut [u8],
    written: usize,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, written: 0 }
    }

    /// Writes `bytes`. Bytes that do not fit into the region are only counted.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.out.get_mut(self.written..) {
            let fit = room.len().min(bytes.len());
            room[..fit].copy_from_slice(&bytes[..fit]);
        }
        self.written = self.written.saturating_add(bytes.len());
    }

    /// Returns the number of bytes that were passed to `push`. If these bytes did not fit into the region, this method
    /// fails, and the failure contains their number.
    pub(crate) fn finish(self, output: usize) -> Result<usize, CallFailure> {
        if self.written <= self.out.len() {
            Ok(self.written)
        } else {
            Err(CallFailure::OutputTooSmall { output, needed: Some(self.written as u64) })
        }
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
