//! The accelerator addresses that a host requests for its regions.

use crate::region::{NaaAddress, PAGE_BYTES};

/// The regions do not fit into 56 bits of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regions reach beyond the 56-bit addresses of the accelerator; start them at a lower address")]
pub struct OutOfAddresses;

/// Addresses that follow one another from `start`, each region rounded up to whole pages.
///
/// The C library assigns addresses to internal regions first, then to parameters (naaice.c,
/// `naaice_init_communication_context`), although parameters come first on the wire. A region of 0 bytes takes no page
/// and has the same address as the next region.
#[derive(Clone, Copy, Debug)]
pub struct AddressPlan {
    next: u64,
}

impl AddressPlan {
    pub fn new(start: NaaAddress) -> Self {
        Self { next: start.get() }
    }

    /// The address of the next region, of `bytes` bytes.
    ///
    /// # Errors
    /// If the region does not end inside the address space. The plan is unchanged then.
    pub fn place(&mut self, bytes: u64) -> Result<NaaAddress, OutOfAddresses> {
        let address = NaaAddress::new(self.next).ok_or(OutOfAddresses)?;
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(OutOfAddresses)?;
        if !address.holds(bytes) {
            return Err(OutOfAddresses);
        }
        // The last page may end beyond the address space, but the region itself does not.
        self.next = self.next.saturating_add(rounded);
        Ok(address)
    }
}
