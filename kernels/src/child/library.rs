//! A library with kernels: loads it and reads its table.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char},
    path::Path,
};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use mrsp::{
    FunctionCode,
    catalogue::{Catalogue, Direction, FunctionInfo, ParamInfo, ParamKind},
};

use super::abi::{self, Compute, GetTable};
use crate::{message::DIRECTIONS, parent::CODES};

const SYMBOL: &str = "naa_kernel_get_table";
const MOST_DESCRIPTION: usize = 1000;
const MOST_NAME: usize = 255;
/// Arguments and status blocks are those of built-in functions.
const KINDS: [(u32, ParamKind); 6] = [
    (0, ParamKind::Bytes),
    (3, ParamKind::U32),
    (4, ParamKind::U64),
    (5, ParamKind::F32),
    (6, ParamKind::F64),
    (7, ParamKind::ComplexF64),
];

/// A kernel that can be called.
pub(super) struct LoadedKernel {
    pub(super) code: u8,
    pub(super) compute: Compute,
}

pub(super) struct Library {
    pub(super) kernels: Vec<LoadedKernel>,
    /// What they say about themselves.
    pub(super) catalogue: Vec<u8>,
    // Last: the code goes with it.
    _handle: Handle,
}

impl Library {
    /// # Errors
    /// What is wrong with it, without its name.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: constructors of the library run. It is somebody else's code, and this process exists to run it.
        let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| format!("cannot be loaded: {error}"))?;
        // SAFETY: the header declares the symbol with this type.
        let get_table = unsafe { handle.get::<GetTable>(SYMBOL.as_bytes()) }.map_err(|_| {
            format!("has no function {SYMBOL}; include naa_kernel.h and end with NAA_KERNELS")
        })?;
        // SAFETY: as the header declares it: no arguments.
        let table = unsafe { get_table() };
        // SAFETY: the library returns NULL or a table that stays; one that does not ends this process at the worst.
        let table = unsafe { table.as_ref() }.ok_or_else(|| format!("{SYMBOL} returned NULL"))?;
        let (mut functions, mut kernels) = (Vec::new(), Vec::new());
        for at in 0..checked(table)? {
            // SAFETY: element `at` of the library's array, at the distance it says.
            let kernel = unsafe { element::<abi::KernelEntry>(table.kernels, at, table.kernel_size) };
            let (function, kernel) = read(kernel, at, table.parameter_size)?;
            if functions.iter().any(|other: &FunctionInfo| other.code == function.code) {
                return Err(format!("declares code {} twice; give one kernel another", function.code));
            }
            functions.push(function);
            kernels.push(kernel);
        }
        functions.sort_by_key(|function| function.code);
        let catalogue = Catalogue { functions }.encode().map_err(|error| error.to_string())?;
        Ok(Self { kernels, catalogue, _handle: handle })
    }
}

/// The number of kernels, if the table is one of this version.
fn checked(table: &abi::KernelTable) -> Result<usize, String> {
    if table.abi != abi::ABI {
        let (theirs, ours) = (table.abi, abi::ABI);
        return Err(format!(
            "was compiled for version {theirs} of naa_kernel.h, this naa knows version {ours}; compile it again"
        ));
    }
    let fits = |size: u32, least: usize| size as usize >= least && size.is_multiple_of(8) && size <= 4096;
    if !fits(table.kernel_size, size_of::<abi::KernelEntry>())
        || !fits(table.parameter_size, size_of::<abi::KernelParam>())
    {
        return Err("has a table whose sizes are wrong; make it with NAA_KERNELS".into());
    }
    match table.kernel_count {
        0 => Err("declares no kernel; list them in NAA_KERNELS".into()),
        count if table.kernels.is_null() => Err(format!("declares {count} kernels at NULL")),
        count if count as usize > CODES.count() => Err(format!("declares {count} kernels, more than codes")),
        count => Ok(count as usize),
    }
}

/// # Safety
/// `array` has more than `at` elements, `stride` bytes apart, that begin with a `T` and stay.
unsafe fn element<'a, T>(array: *const T, at: usize, stride: u32) -> &'a T {
    // SAFETY: the caller's.
    unsafe { &*array.byte_add(at * stride as usize) }
}

fn read(kernel: &abi::KernelEntry, at: usize, stride: u32) -> Result<(FunctionInfo, LoadedKernel), String> {
    let code = u8::try_from(kernel.code).ok().filter(|code| CODES.contains(code));
    let code = code.ok_or_else(|| {
        let (code, first, last) = (kernel.code, CODES.start(), CODES.end());
        format!("kernel {at} has code {code}, give it one from {first} to {last}")
    })?;
    let of = |what: &str| format!("{what} of kernel {code}");
    let name = text(kernel.name, &of("the name"), MOST_NAME)?;
    if name.is_empty() {
        return Err(format!("kernel {code} has no name; give it one"));
    }
    let description = text(kernel.description, &of("the description"), MOST_DESCRIPTION)?;
    let compute = kernel.compute.ok_or_else(|| format!("kernel {code} has no compute function"))?;
    let count = match kernel.parameter_count {
        count if count > 255 => return Err(format!("kernel {code} has {count} parameters, more than 255")),
        count if count > 0 && kernel.parameters.is_null() => {
            return Err(format!("kernel {code} has {count} parameters at NULL"));
        }
        count => count as usize,
    };
    // SAFETY: elements of the library's array, at the distance it says.
    let declared = (0..count).map(|at| unsafe { element::<abi::KernelParam>(kernel.parameters, at, stride) });
    let parameters: Result<_, String> = declared
        .enumerate()
        .map(|(at, declared)| parameter(declared, &format!("parameter {at} of kernel {code}")))
        .collect();
    let parameters: Vec<ParamInfo> = parameters?;
    if !parameters.is_sorted_by_key(|parameter| parameter.direction == Direction::Internal) {
        return Err(format!(
            "kernel {code} declares an internal region before a parameter; internals come last"
        ));
    }
    let code = FunctionCode::constant(code);
    let function = FunctionInfo { code, name, description, pooled: true, parameters };
    Ok((function, LoadedKernel { code: code.get(), compute }))
}

fn parameter(declared: &abi::KernelParam, of: &str) -> Result<ParamInfo, String> {
    let direction = DIRECTIONS.get(declared.direction as usize).copied();
    let direction = direction.ok_or_else(|| format!("{of} has direction {}", declared.direction))?;
    let kind = KINDS.iter().find(|(number, _)| *number == declared.kind).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| format!("{of} has kind {}", declared.kind))?;
    let name = text(declared.name, &format!("the name of {of}"), MOST_NAME)?;
    if name.is_empty() {
        return Err(format!("{of} has no name"));
    }
    let description = text(declared.description, &format!("the description of {of}"), MOST_NAME)?;
    Ok(ParamInfo { direction, kind, name, description })
}

/// A text of the library; NULL is as good as empty.
fn text(text: *const c_char, what: &str, most: usize) -> Result<String, String> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: a C string of the library's that stays.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| format!("{what} is not UTF-8"))?;
    if text.len() > most {
        return Err(format!("{what} has {} bytes, more than {most}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{what} has control characters"));
    }
    Ok(text.to_owned())
}
