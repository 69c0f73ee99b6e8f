//! The structures of `naa_kernel.h`, version 1.

use std::ffi::{c_char, c_void};

pub(super) const ABI: u32 = 1;

/// Where kernels throw C++ exceptions, these may reach `main` and end the process there.
pub(super) type Compute = unsafe extern "C-unwind" fn(*mut KernelCall) -> i32;
pub(super) type GetTable = unsafe extern "C-unwind" fn() -> *const KernelTable;

#[repr(C)]
pub(super) struct KernelTable {
    pub(super) abi: u32,
    pub(super) kernel_size: u32,
    pub(super) parameter_size: u32,
    pub(super) kernel_count: u32,
    pub(super) kernels: *const KernelEntry,
}

#[repr(C)]
pub(super) struct KernelEntry {
    pub(super) code: u32,
    pub(super) parameter_count: u32,
    pub(super) name: *const c_char,
    pub(super) description: *const c_char,
    pub(super) parameters: *const KernelParam,
    pub(super) compute: Option<Compute>,
}

#[repr(C)]
pub(super) struct KernelParam {
    pub(super) direction: u32,
    pub(super) kind: u32,
    pub(super) name: *const c_char,
    pub(super) description: *const c_char,
}

#[repr(C)]
pub(super) struct KernelData {
    pub(super) address: *mut c_void,
    pub(super) size: u64,
    pub(super) produced: u64,
    pub(super) direction: u32,
    pub(super) reserved: u32,
}

#[repr(C)]
pub(super) struct KernelCall {
    pub(super) struct_size: u32,
    pub(super) user: u32,
    pub(super) data_count: u32,
    pub(super) parameter_count: u32,
    pub(super) data: *mut KernelData,
    pub(super) text: *mut c_char,
    pub(super) text_size: u32,
    pub(super) reserved: u32,
}
