//! Functions that NAAICE's library has without declaring them, as far as programs can make use of them.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::{context::State, error::Error, host, outcome::number};
use crate::boundary;

/// The name of a `naaice_communication_state`, exported by NAAICE too.
#[unsafe(no_mangle)]
pub extern "C" fn get_state_str(state: c_int) -> *const c_char {
    State::from_number(state).map_or(c"UNKNOWN", State::name).as_ptr()
}

/// The name of an `enum ibv_wc_opcode`, exported by NAAICE too.
#[unsafe(no_mangle)]
pub extern "C" fn get_ibv_wc_opcode_str(opcode: c_uint) -> *const c_char {
    const NAMES: [(c_uint, &CStr); 10] = [
        (0, c"IBV_WC_SEND"),
        (1, c"IBV_WC_RDMA_WRITE"),
        (2, c"IBV_WC_RDMA_READ"),
        (3, c"IBV_WC_COMP_SWAP"),
        (4, c"IBV_WC_FETCH_ADD"),
        (5, c"IBV_WC_BIND_MW"),
        (6, c"IBV_WC_LOCAL_INV"),
        (7, c"IBV_WC_TSO"),
        (128, c"IBV_WC_RECV"),
        (129, c"IBV_WC_RECV_RDMA_WITH_IMM"),
    ];
    NAMES.iter().find(|(number, _)| *number == opcode).map_or(c"UNKNOWN", |(_, name)| name).as_ptr()
}

/// Where regions of these sizes would be asked for, exported by NAAICE too.
///
/// # Safety
/// The pointers are null, or lead to as many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_sequential_naa_addresses(
    amount: c_uint,
    offset: u64,
    sizes: *const usize,
    addresses: *mut u64,
) {
    // What goes wrong is the thread's last error: the function returns nothing.
    let _ = number("get_sequential_naa_addresses", || {
        // SAFETY: this function's contract.
        let sizes = unsafe { boundary::elements(sizes, amount as usize) };
        let sizes = sizes.ok_or(Error::Pointer { what: "sizes" })?;
        if addresses.is_null() || !addresses.is_aligned() {
            return Err(Error::Pointer { what: "addresses" });
        }
        for (index, address) in host::sequential(offset, sizes.iter().copied()).into_iter().enumerate() {
            // SAFETY: there are as many addresses as sizes.
            unsafe { addresses.add(index).write(address) };
        }
        Ok(())
    });
}
