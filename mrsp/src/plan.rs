//! A call, or its results, as RDMA WRITEs.
//!
//! Both directions have one shape: WRITEs of the regions in order, the last one with the immediate; if there
//! is nothing to write, a WRITE_WITH_IMM of no bytes to the first region announced by the peer. Regions are
//! written whole or in part, to where the part lies in the peer's region; a part of 0 bytes is a WRITE too. What is
//! longer than a message of the device may be goes in several.

use crate::region::RemoteRegion;

/// One RDMA WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which of the session's parameters the bytes come from, counted without internal regions.
    pub param: usize,
    /// Where in the parameter they start.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    /// Makes it a WRITE_WITH_IMM, to be sent with the solicited-event bit. Host byte order.
    pub immediate: Option<u32>,
}

/// How much of a region is written: `None` for all of it.
pub type Prefix = Option<u64>;

/// Bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub bytes: u64,
}

impl Part {
    /// The first `bytes`.
    pub const fn prefix(bytes: u64) -> Self {
        Self { offset: 0, bytes }
    }
}

/// More was asked to be written than a region has, or lengths were given for regions that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error("{bytes} bytes at {offset} of parameter {param} were asked for, which has {size}")]
    Outside { param: usize, offset: u64, bytes: u64, size: u32 },
    #[error("{bytes} bytes of parameter {param} were asked for, which has {size}")]
    TooLong { param: usize, bytes: u64, size: u32 },
    #[error("lengths of {given} parameters were given, but there are {params}")]
    TooMany { given: usize, params: usize },
}

/// WRITEs to be posted in order. Keep it from call to call: planning into it then allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    writes: Vec<Write>,
    longest: u32,
}

impl Default for CallPlan {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl CallPlan {
    /// With room for calls of up to `params` parameters.
    pub fn with_capacity(params: usize) -> Self {
        // One more than parameters: a failure's status precedes a write of no bytes.
        Self { writes: Vec::with_capacity(params.saturating_add(1)), longest: u32::MAX }
    }

    /// No WRITE of more than `bytes`, at least 1.
    #[must_use]
    pub fn with_longest_write(mut self, bytes: u64) -> Self {
        self.longest = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Exactly the last one has an immediate.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(crate) fn clear(&mut self) {
        self.writes.clear();
    }

    /// `total` bytes of parameter `param` from `start` on, to the same place in `to`.
    pub(crate) fn push(&mut self, param: usize, start: u64, total: u32, to: &RemoteRegion) {
        let &RemoteRegion { addr, rkey, .. } = to;
        let mut done = 0;
        loop {
            let length = (total - done).min(self.longest);
            let offset = start + u64::from(done);
            let remote_addr = addr.wrapping_add(offset);
            self.writes.push(Write { param, offset, length, remote_addr, rkey, immediate: None });
            done += length;
            if done == total {
                break;
            }
        }
    }

    /// Puts `immediate` on the last write, or on one of no bytes to `first`.
    pub(crate) fn finish(&mut self, immediate: u32, first: &RemoteRegion) {
        if self.writes.is_empty() {
            self.push(0, 0, 0, first);
        }
        if let Some(last) = self.writes.last_mut() {
            last.immediate = Some(immediate);
        }
    }
}

/// Checks the parts of all parameters, of the given sizes. Fewer parts than parameters are fine.
pub(crate) fn check_parts(
    parts: &[Option<Part>],
    sizes: impl ExactSizeIterator<Item = u32>,
) -> Result<(), PrefixError> {
    if parts.len() > sizes.len() {
        return Err(PrefixError::TooMany { given: parts.len(), params: sizes.len() });
    }
    for (param, (part, size)) in parts.iter().zip(sizes).enumerate() {
        let Some(Part { offset, bytes }) = *part else { continue };
        if offset.checked_add(bytes).is_none_or(|end| end > u64::from(size)) {
            return Err(match offset {
                0 => PrefixError::TooLong { param, bytes, size },
                _ => PrefixError::Outside { param, offset, bytes, size },
            });
        }
    }
    Ok(())
}

/// What of parameter `param`, of `size` bytes, to write: never more than there is.
pub(crate) fn part(parts: &[Option<Part>], param: usize, size: u32) -> (u64, u32) {
    let all = Part::prefix(size.into());
    let Part { offset, bytes } = parts.get(param).copied().flatten().unwrap_or(all);
    let offset = offset.min(size.into());
    let bytes = bytes.min(u64::from(size) - offset);
    // At most `size`.
    (offset, u32::try_from(bytes).unwrap_or(size))
}

/// Checks the prefixes of all parameters, of the given sizes. Fewer prefixes than parameters are fine.
pub(crate) fn check_prefixes(
    prefixes: &[Prefix],
    sizes: impl ExactSizeIterator<Item = u32>,
) -> Result<(), PrefixError> {
    if prefixes.len() > sizes.len() {
        return Err(PrefixError::TooMany { given: prefixes.len(), params: sizes.len() });
    }
    for (param, (prefix, size)) in prefixes.iter().zip(sizes).enumerate() {
        if let Some(bytes) = prefix.filter(|&bytes| bytes > u64::from(size)) {
            return Err(PrefixError::TooLong { param, bytes, size });
        }
    }
    Ok(())
}

/// Bytes of parameter `param`, of `size` bytes, to write. Never more than `size`.
pub(crate) fn length(prefixes: &[Prefix], param: usize, size: u32) -> u32 {
    let bytes = prefixes.get(param).copied().flatten();
    bytes.and_then(|bytes| u32::try_from(bytes).ok()).map_or(size, |bytes| bytes.min(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(longest: u64, bytes: u32) -> Vec<(u64, u32, u64, bool)> {
        let to = RemoteRegion { addr: 0x1000, rkey: 7, size: bytes };
        let mut plan = CallPlan::with_capacity(1).with_longest_write(longest);
        plan.push(0, 0, bytes, &to);
        plan.finish(9, &to);
        plan.writes().iter().map(|w| (w.offset, w.length, w.remote_addr, w.immediate.is_some())).collect()
    }

    #[test]
    fn long_regions_go_in_several_messages() {
        assert_eq!(planned(4, 4), [(0, 4, 0x1000, true)]);
        assert_eq!(planned(4, 0), [(0, 0, 0x1000, true)]);
        assert_eq!(planned(4, 9), [(0, 4, 0x1000, false), (4, 4, 0x1004, false), (8, 1, 0x1008, true)]);
        assert_eq!(planned(u64::MAX, u32::MAX).len(), 1);
        assert_eq!(planned(1 << 30, u32::MAX).len(), 4);
    }
}
