//! What a session's regions are for.

use mrsp::{RegionFlags, region::NaaAddress};

/// A region on the host and the accelerator, or on the accelerator alone.
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    pub(crate) flags: RegionFlags,
    /// In bytes, up to 2 GiB.
    pub(crate) len: usize,
    pub(crate) content: &'a [u8],
    /// Asked for on the accelerator. `None`: counted up from the session's first.
    pub(crate) address: Option<NaaAddress>,
}

impl<'a> Param<'a> {
    const fn new(flags: RegionFlags, len: usize) -> Self {
        Self { flags, len, content: &[], address: None }
    }

    /// `len` bytes, sent with each call.
    pub const fn input(len: usize) -> Self {
        Self::new(RegionFlags::INPUT, len)
    }

    /// An input that starts as a copy of `content` and has its size.
    pub const fn data(content: &'a [u8]) -> Self {
        Self { flags: RegionFlags::INPUT, len: content.len(), content, address: None }
    }

    /// `len` bytes, received with each answer.
    pub const fn output(len: usize) -> Self {
        Self::new(RegionFlags::OUTPUT, len)
    }

    /// `len` bytes, sent with each call and received with its answer.
    pub const fn in_out(len: usize) -> Self {
        Self::new(RegionFlags::INPUT.union(RegionFlags::OUTPUT), len)
    }

    /// `len` bytes that are neither sent nor received, which the accelerator has too.
    pub const fn idle(len: usize) -> Self {
        Self::new(RegionFlags::NONE, len)
    }

    /// `len` bytes on the accelerator only. They have no index in the session.
    pub const fn internal(len: usize) -> Self {
        Self::new(RegionFlags::INTERNAL, len)
    }

    /// Sends the region with the first call only; it stays on the accelerator.
    #[must_use]
    pub const fn single_send(mut self) -> Self {
        self.flags = self.flags.union(RegionFlags::SINGLE_SEND);
        self
    }

    /// Asks for this address on the accelerator. Either all regions of a session say so, or none.
    #[must_use]
    pub const fn at(mut self, address: NaaAddress) -> Self {
        self.address = Some(address);
        self
    }

    /// Starts as a copy of `content`, which may be shorter than the region.
    #[must_use]
    pub const fn holding(mut self, content: &'a [u8]) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.flags.contains(RegionFlags::INTERNAL)
    }
}
