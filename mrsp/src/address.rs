//! The accelerator addresses that a host requests for its regions.

use crate::region::{NaaAddress, PAGE_BYTES};

/// The error for regions that do not fit into the accelerator's address space of 56 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regions reach beyond the 56-bit addresses of the accelerator; start them at a lower address")]
pub struct OutOfAddresses;

/// A plan that gives consecutive accelerator addresses to regions. The size of each region is rounded up to whole
/// pages.
///
/// A host session of this crate gives addresses to the internal regions first and to the parameters afterwards,
/// although the parameters come first in the AAR. NAAICE's C library does the same (naaice.c,
/// `naaice_init_communication_context`). A region of 0 bytes takes up no page and has the same address as the next
/// region.
#[derive(Clone, Copy, Debug)]
pub struct AddressPlan {
    next: u64,
}

impl AddressPlan {
    /// Creates an address plan that gives the accelerator address `start` to the first region.
    pub fn new(start: NaaAddress) -> Self {
        Self { next: start.get() }
    }

    /// Returns the accelerator address of the next region, whose size is `bytes` bytes.
    ///
    /// # Errors
    /// Returns an error if the region does not end inside the address space. If this method returns an error, the
    /// address plan is unchanged.
    pub fn place(&mut self, bytes: u64) -> Result<NaaAddress, OutOfAddresses> {
        let address = NaaAddress::new(self.next).ok_or(OutOfAddresses)?;
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(OutOfAddresses)?;
        if !address.holds(bytes) {
            return Err(OutOfAddresses);
        }
        // The end of the region's last page may lie beyond the address space, although the region itself ends inside
        // the address space.
        self.next = self.next.saturating_add(rounded);
        Ok(address)
    }
}
