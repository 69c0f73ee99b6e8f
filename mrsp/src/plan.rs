//! The RDMA WRITEs of a call or of its response.
//!
//! A call and a response each consist of WRITEs of the regions, one region after the other. The last WRITE has the
//! immediate. If no region is written, the plan has one WRITE_WITH_IMM of no bytes to the first region that the peer
//! announced. A parameter is written whole or in part, and a part has the same offset inside the parameter on both
//! sides. In the symmetric layout, a part of 0 bytes is a WRITE of no bytes. If the layout is not symmetric, one WRITE
//! may cover parts of several parameters, and a part of 0 bytes is not written. A WRITE that is longer than the
//! device's longest message is split into several WRITEs.

use crate::region::{RegionFlags, RemoteRegion};

/// One RDMA WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The number of the parameter from which the WRITE reads its bytes. Parameters are counted from 0, without
    /// internal regions. If `param` equals the number of parameters, the WRITE reads from the host's [staging
    /// region](crate::layout::Placed::staging_bytes).
    pub param: usize,
    /// The offset of the WRITE's first byte in the parameter or in the staging region.
    pub offset: u64,
    /// The length of the WRITE in bytes. The length of a [gathered](CallPlan::gathered) WRITE is the sum of the lengths
    /// of its pieces. A WRITE of the accelerator can cover several outputs. Such a WRITE begins in parameter `param`,
    /// and extends into the parameters that follow `param` in the accelerator's region.
    pub length: u32,
    /// The address in the peer's memory to which the first byte of the WRITE goes.
    pub remote_addr: u64,
    /// The RKey of the peer's region.
    pub rkey: u32,
    /// The immediate in native byte order. A WRITE that has an immediate is posted as a WRITE_WITH_IMM with the
    /// solicited-event bit.
    pub immediate: Option<u32>,
    /// The range of the WRITE's pieces in the plan's list of pieces. The range is empty if the WRITE is not gathered.
    pub pieces: WriteElements,
}

/// The range of a gathered WRITE's pieces in the plan's list of pieces (see [`CallPlan::gathered`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteElements {
    first: u32,
    count: u32,
}

/// One element of a WRITE's scatter-gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteElement {
    /// The number of the parameter from which the piece is read, counted as in [`Write::param`].
    pub param: usize,
    /// The offset of the piece in its parameter, in bytes.
    pub offset: u64,
    /// The length of the piece in bytes.
    pub length: u32,
}

/// A range of bytes of a parameter. In a list of `Option<Part>`, `None` stands for the whole parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of the part's first byte in the parameter, in bytes.
    pub offset: u64,
    /// The length of the part in bytes.
    pub bytes: u64,
}

impl Part {
    /// Returns the part that has the first `bytes` bytes of a parameter.
    pub const fn prefix(bytes: u64) -> Self {
        Self { offset: 0, bytes }
    }
}

/// The error for a part that does not lie inside its parameter, and for a list of parts that is longer than the list of
/// parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// A part whose offset is above 0 ends beyond its parameter.
    #[error("{bytes} bytes at {offset} of parameter {param} were asked for, which has {size}")]
    Outside {
        /// The number of the parameter, counted from 0.
        param: usize,
        /// The offset of the part in the parameter, in bytes.
        offset: u64,
        /// The length of the part in bytes.
        bytes: u64,
        /// The size of the parameter in bytes.
        size: u32,
    },
    /// A part whose offset is 0 is longer than its parameter, or a failed call has more status bytes than the first
    /// output can contain. The error for a part with another offset is [`PartError::Outside`].
    #[error("{bytes} bytes of parameter {param} were asked for, which has {size}")]
    TooLong {
        /// The number of the parameter, counted from 0.
        param: usize,
        /// The length of the part in bytes, or the number of status bytes.
        bytes: u64,
        /// The size of the parameter in bytes.
        size: u32,
    },
    /// The list of parts is longer than the list of parameters.
    #[error("lengths of {given} parameters were given, but there are {params}")]
    TooMany {
        /// The number of parts that the caller gave, each for one parameter.
        given: usize,
        /// The number of parameters of the session.
        params: usize,
    },
}

/// The WRITEs of a call or of a response, which are posted in order. If a plan is reused for each call, planning
/// allocates no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    writes: Vec<Write>,
    pieces: Vec<WriteElement>,
    longest: u32,
    most_pieces: u32,
}

impl Default for CallPlan {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl CallPlan {
    /// Returns an empty plan with room for calls of up to `params` parameters.
    pub fn with_capacity(params: usize) -> Self {
        // The plan has room for one WRITE more than there are parameters. If the session has only one parameter, the
        // response to a failed call needs this room. One WRITE of this response has the status block, and another WRITE
        // of no bytes has the immediate.
        let writes = Vec::with_capacity(params.saturating_add(1));
        Self { writes, pieces: Vec::new(), longest: u32::MAX, most_pieces: 1 }
    }

    /// Limits each WRITE to `bytes` bytes, or to 1 byte if `bytes` is 0.
    #[must_use]
    pub fn with_longest_write(mut self, bytes: u64) -> Self {
        self.longest = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Allows scatter-gather lists of up to `elements` elements, or of 1 element if `elements` is 0. A plan
    /// gathers no WRITEs if this method is not called.
    #[must_use]
    pub fn with_most_pieces(mut self, elements: u32) -> Self {
        self.most_pieces = elements.max(1);
        self
    }

    /// Returns the WRITEs in order. Only the last WRITE has an immediate.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns the pieces of `write`, a WRITE of this plan, in order. If `write` is not gathered, the returned list is
    /// empty, and the fields of `write` describe its only piece.
    pub fn gathered(&self, write: &Write) -> &[WriteElement] {
        let WriteElements { first, count } = write.pieces;
        self.pieces.get(first as usize..).and_then(|pieces| pieces.get(..count as usize)).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.pieces.clear();
    }

    /// Returns true if the last WRITE has room for `pieces` more pieces with `bytes` bytes in total.
    pub(crate) fn has_room(&self, pieces: u32, bytes: u64) -> bool {
        self.writes.last().is_some_and(|last| {
            last.pieces.count.max(1) + pieces <= self.most_pieces
                && u64::from(last.length) + bytes <= u64::from(self.longest)
        })
    }

    /// Adds `piece` to the last WRITE. The caller must check with [`has_room`](Self::has_room) that the last WRITE has
    /// room for `piece`.
    pub(crate) fn append(&mut self, piece: WriteElement) {
        let Some(last) = self.writes.last_mut() else { return };
        if last.pieces.count == 0 {
            // A plan has at most one piece for each parameter and one for each gap between parameters. A session has at
            // most 255 parameters, so the number of pieces fits into 32 bits.
            last.pieces = WriteElements { first: self.pieces.len() as u32, count: 1 };
            let Write { param, offset, length, .. } = *last;
            self.pieces.push(WriteElement { param, offset, length });
        }
        last.pieces.count += 1;
        last.length += piece.length;
        self.pieces.push(piece);
    }

    /// Adds `bytes` bytes to the end of the last WRITE. The caller must check with [`has_room`](Self::has_room) that
    /// the last WRITE has room for these bytes.
    pub(crate) fn extend(&mut self, bytes: u32) {
        let Some(last) = self.writes.last_mut() else { return };
        last.length += bytes;
        // If the last WRITE is gathered, the last piece of the plan belongs to this WRITE and must grow with it.
        if let Some(piece) = self.pieces.last_mut().filter(|_| last.pieces.count > 0) {
            piece.length += bytes;
        }
    }

    /// Adds the WRITEs that transfer `total` bytes from the offset `start` of parameter `param` to the offset `start`
    /// of the region `to`.
    pub(crate) fn push(&mut self, param: usize, start: u64, total: u32, to: &RemoteRegion) {
        self.push_to(param, start, total, to.addr.wrapping_add(start), to.rkey);
    }

    /// Adds the WRITEs that transfer `total` bytes from the offset `start` of parameter `param` to the remote address
    /// `addr`. If `total` is above the maximum length of a WRITE of this plan, several WRITEs are added.
    pub(crate) fn push_to(&mut self, param: usize, start: u64, total: u32, addr: u64, rkey: u32) {
        let mut done = 0;
        loop {
            let length = (total - done).min(self.longest);
            let (offset, remote_addr) = (start + u64::from(done), addr.wrapping_add(done.into()));
            let (immediate, pieces) = (None, WriteElements::default());
            self.writes.push(Write { param, offset, length, remote_addr, rkey, immediate, pieces });
            done += length;
            if done == total {
                break;
            }
        }
    }

    /// Puts `immediate` on the last WRITE. If the plan has no WRITE, a WRITE of no bytes to `first` is added.
    pub(crate) fn finish(&mut self, immediate: u32, first: &RemoteRegion) {
        if self.writes.is_empty() {
            self.push(0, 0, 0, first);
        }
        if let Some(last) = self.writes.last_mut() {
            last.immediate = Some(immediate);
        }
    }
}

/// Checks that each part lies inside its parameter. `sizes` has the size of each parameter. `parts` may have fewer
/// elements than `sizes`, because a parameter without an element in `parts` counts as whole.
pub(crate) fn check_parts(
    parts: &[Option<Part>],
    sizes: impl ExactSizeIterator<Item = u32>,
) -> Result<(), PartError> {
    if parts.len() > sizes.len() {
        return Err(PartError::TooMany { given: parts.len(), params: sizes.len() });
    }
    for (param, (part, size)) in parts.iter().zip(sizes).enumerate() {
        let Some(Part { offset, bytes }) = *part else { continue };
        if offset.checked_add(bytes).is_none_or(|end| end > u64::from(size)) {
            return Err(match offset {
                0 => PartError::TooLong { param, bytes, size },
                _ => PartError::Outside { param, offset, bytes, size },
            });
        }
    }
    Ok(())
}

/// Returns true if a parameter with these flags is sent with a call.
pub(crate) fn is_sent(flags: RegionFlags, single_send_done: bool) -> bool {
    let sent_before = single_send_done && flags.contains(RegionFlags::SINGLE_SEND);
    flags.contains(RegionFlags::INPUT) && !sent_before
}

/// Returns the part of parameter `param` that a WRITE must transfer: its offset and its length in bytes. `size` is the
/// size of the parameter, and the returned part always lies inside the parameter.
pub(crate) fn part(parts: &[Option<Part>], param: usize, size: u32) -> (u64, u32) {
    let all = Part::prefix(size.into());
    let Part { offset, bytes } = parts.get(param).copied().flatten().unwrap_or(all);
    let offset = offset.min(size.into());
    let bytes = bytes.min(u64::from(size) - offset);
    // The value of `bytes` is at most `size`, which has 32 bits, so the conversion never fails.
    (offset, u32::try_from(bytes).unwrap_or(size))
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

    #[test]
    fn bytes_at_the_end_of_a_write_belong_to_its_last_piece() {
        let to = RemoteRegion { addr: 0x1000, rkey: 7, size: 100 };
        let mut plan = CallPlan::with_capacity(3).with_most_pieces(4);
        plan.push(0, 0, 10, &to);
        plan.append(WriteElement { param: 1, offset: 0, length: 5 });
        plan.extend(3);
        assert_eq!((plan.writes()[0].length, plan.gathered(&plan.writes()[0])[1].length), (18, 8));
        // The second WRITE is not gathered, so `extend` changes only the length of the second WRITE, and not the last
        // piece of the first WRITE.
        plan.push(2, 0, 20, &to);
        plan.extend(4);
        assert_eq!((plan.writes()[1].length, plan.gathered(&plan.writes()[0])[1].length), (24, 8));
    }
}
