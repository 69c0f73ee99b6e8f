//! The function that a program of NAAICE's `main` defines to name its kernels.
//!
//! The library is one for hosts and servers, and hosts define no such function: so it is referred to weakly.

use std::{
    arch::naked_asm,
    ffi::{c_int, c_void},
};

use crate::naaice::layout::CommContext;

/// A kernel of NAAICE's `main`.
pub(crate) type NaaiceKernel = unsafe extern "C" fn(*mut CommContext);
/// `match_function_code`: leaves null where it knows no kernel.
pub(crate) type Match = unsafe extern "C" fn(u8, *mut Option<NaaiceKernel>) -> c_int;
/// `rpc_function_t` of NAAICE's `next`: returns 0 or an error code.
pub(crate) type Rpc = unsafe extern "C" fn(u8, *mut CommContext) -> u8;

/// How the program's kernels are called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    Match(Match),
    Rpc(Rpc),
}

/// The program's `match_function_code`, if it has one the linker or loader could see.
pub(crate) fn linked() -> Option<Match> {
    let address = address();
    // SAFETY: not null, it is the address of the program's function, whose signature the header declares.
    (!address.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, Match>(address) })
}

/// Where the symbol is, by the global offset table; null if nobody defines it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn address() -> *const c_void {
    naked_asm!(".weak match_function_code", "mov rax, qword ptr [rip + match_function_code@GOTPCREL]", "ret")
}

/// Where the symbol is, by the global offset table; null if nobody defines it.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn address() -> *const c_void {
    naked_asm!(
        ".weak match_function_code",
        "adrp x0, :got:match_function_code",
        "ldr x0, [x0, :got_lo12:match_function_code]",
        "ret"
    )
}
