//! The parameters and internal regions of a session.

use mrsp::{RegionFlags, region::NaaAddress};

/// Either a parameter, which has a region on the host and on the accelerator, or an internal region, which exists only
/// on the accelerator.
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    pub(crate) flags: RegionFlags,
    /// The size of the parameter or internal region in bytes, at most 2 GiB.
    pub(crate) len: usize,
    pub(crate) content: &'a [u8],
    /// The address on the accelerator that the host requests. If `address` is `None`, the address on the accelerator is
    /// computed from [`SessionConfig::address_start`](crate::SessionConfig::address_start) and the sizes of the
    /// preceding regions.
    pub(crate) address: Option<NaaAddress>,
}

impl<'a> Param<'a> {
    const fn new(flags: RegionFlags, len: usize) -> Self {
        Self { flags, len, content: &[], address: None }
    }

    /// Makes an input of `len` bytes, which is sent with each call.
    pub const fn input(len: usize) -> Self {
        Self::new(RegionFlags::INPUT, len)
    }

    /// Makes an input whose initial content is `content` and whose size is the length of `content`.
    pub const fn data(content: &'a [u8]) -> Self {
        Self { flags: RegionFlags::INPUT, len: content.len(), content, address: None }
    }

    /// Makes an output of `len` bytes, which is received with each response.
    pub const fn output(len: usize) -> Self {
        Self::new(RegionFlags::OUTPUT, len)
    }

    /// Makes an in-out parameter of `len` bytes, which is sent with each call and received with each response.
    pub const fn in_out(len: usize) -> Self {
        Self::new(RegionFlags::INPUT.union(RegionFlags::OUTPUT), len)
    }

    /// Makes a parameter of `len` bytes that is neither sent nor received, but has a region on the accelerator.
    pub const fn idle(len: usize) -> Self {
        Self::new(RegionFlags::NONE, len)
    }

    /// Makes an internal region of `len` bytes, which only the accelerator has. The methods of a session take the index
    /// of a parameter, and internal regions have no index.
    pub const fn internal(len: usize) -> Self {
        Self::new(RegionFlags::INTERNAL, len)
    }

    /// Makes this a single-send parameter, which is sent with the first call only and stays on the accelerator.
    #[must_use]
    pub const fn single_send(mut self) -> Self {
        self.flags = self.flags.union(RegionFlags::SINGLE_SEND);
        self
    }

    /// Requests `address` on the accelerator for this region. A session must request addresses either for all its
    /// regions or for none.
    #[must_use]
    pub const fn at(mut self, address: NaaAddress) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets the initial content of the region, which may be shorter than the region.
    #[must_use]
    pub const fn holding(mut self, content: &'a [u8]) -> Self {
        self.content = content;
        self
    }

    /// Returns the same parameter without its initial content.
    #[cfg(feature = "tokio")]
    pub(crate) fn without_content(&self) -> Param<'static> {
        Param { flags: self.flags, len: self.len, content: &[], address: self.address }
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.flags.contains(RegionFlags::INTERNAL)
    }
}
