//! The regions of a session, as C gives them.

use std::{ffi::c_void, sync::Arc};

use naa_host::{Buffer, Error, Param};
use verbs::Memory;

use super::{buffer, mapped, mapped::Use, result::Problem};

/// Sent to the accelerator with each call.
pub const NAA_INPUT: u32 = 1;
/// Received with each answer.
pub const NAA_OUTPUT: u32 = 2;
/// Both: sent with each call, then overwritten by the answer.
pub const NAA_INOUT: u32 = 3;
/// An input that is sent with the first call of the session only and stays on the accelerator.
pub const NAA_SINGLE_SEND: u32 = 4;
/// Memory on the accelerator only, kept from call to call; `addr` is NULL. This flag excludes all others.
pub const NAA_INTERNAL: u32 = 8;

/// A region: memory that the accelerator has too.
///
/// The memory is the program's. It is registered where it is and never copied, needs no alignment, may be on the
/// stack or in the heap, and must stay there until the session is closed. The program may read and write
/// it. From naa_call_start() until the end of the call was reported, it must not write inputs nor touch outputs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_region {
    /// Where it begins. May be NULL if `size` is 0.
    pub addr: *mut c_void,
    /// In bytes, up to 2 GiB (2147483648).
    pub size: u64,
    /// NAA_INPUT, NAA_OUTPUT, NAA_INOUT or NAA_INTERNAL; the first three also with NAA_SINGLE_SEND.
    pub flags: u32,
}

/// What a session is made of.
pub(super) struct RegionList {
    pub(super) params: Vec<Param<'static>>,
    pub(super) memory: Vec<Memory>,
    /// The number of each region when internal ones are not counted; `None` for an internal region.
    pub(super) numbers: Vec<Option<usize>>,
    /// The number of the first output when internal regions are not counted; `None` if there is no output.
    pub(super) first_output: Option<usize>,
}

impl RegionList {
    pub(super) fn read(regions: &[naa_region]) -> Result<Self, Problem> {
        let mut read =
            Self { params: Vec::new(), memory: Vec::new(), numbers: Vec::new(), first_output: None };
        for (index, region) in regions.iter().enumerate() {
            let bad = |problem: &str| Problem::argument(format!("region {index}: {problem}"));
            let param = param(region).map_err(|problem| bad(&problem))?;
            if region.flags & NAA_INTERNAL == 0 {
                let usage = if region.flags & NAA_OUTPUT == 0 { Use::Read } else { Use::Write };
                if usage == Use::Write {
                    read.first_output.get_or_insert(read.memory.len());
                }
                read.numbers.push(Some(read.memory.len()));
                read.memory.push(memory(region, usage, bad)?);
            } else {
                read.numbers.push(None);
            }
            read.params.push(param);
        }
        Ok(read)
    }

    /// The same memory each time: several addresses may be tried.
    pub(super) fn buffers(&self) -> Vec<Buffer> {
        // SAFETY: the program keeps the memory until the session is closed, and does not touch it during calls
        // (contract of `naa_session_connect`); this library hands out no slices of it.
        self.memory.iter().map(|memory| unsafe { Buffer::from_memory(memory.clone()) }).collect()
    }

    /// How many of `regions` are inputs.
    pub(super) fn inputs(regions: &[naa_region]) -> usize {
        regions.iter().filter(|region| region.flags & (NAA_INPUT | NAA_SINGLE_SEND) != 0).count()
    }
}

fn param(region: &naa_region) -> Result<Param<'static>, String> {
    const REMEDY: &str =
        "use NAA_INPUT, NAA_OUTPUT, NAA_INOUT or NAA_INTERNAL, with NAA_SINGLE_SEND for inputs";
    let size = usize::try_from(region.size).map_err(|_| format!("{} bytes are too many", region.size))?;
    match region.flags {
        NAA_INTERNAL if !region.addr.is_null() => {
            Err("addr is not NULL; an internal region has no memory here".to_owned())
        }
        NAA_INTERNAL => Ok(Param::internal(size)),
        flags if flags & !(NAA_INOUT | NAA_SINGLE_SEND) != 0 => {
            Err(format!("flags {flags:#x} are unknown; {REMEDY}"))
        }
        flags => {
            let param = match flags & NAA_INOUT {
                NAA_INPUT => Param::input(size),
                NAA_OUTPUT => Param::output(size),
                NAA_INOUT => Param::in_out(size),
                _ if flags == NAA_SINGLE_SEND => Param::input(size),
                _ => return Err(format!("flags are 0; {REMEDY}")),
            };
            Ok(if flags & NAA_SINGLE_SEND == 0 { param } else { param.single_send() })
        }
    }
}

fn memory(region: &naa_region, usage: Use, bad: impl Fn(&str) -> Problem) -> Result<Memory, Problem> {
    let size = usize::try_from(region.size).map_err(|_| bad("size is too large"))?;
    if size == 0 {
        // The memory has no bytes, but an address of its own.
        return Ok(region::alloc(0).map_err(Error::Memory)?);
    }
    mapped::check(region.addr.addr(), size, usage).map_err(|problem| bad(&problem))?;
    if let Some(part) = buffer::part(region.addr.addr(), size) {
        return Ok(part);
    }
    // SAFETY: mapped (checked as far as it can be) and kept by the program until the session is closed; nobody has
    // references to it (contract of `naa_session_connect`).
    Ok(unsafe { Memory::from_raw_parts(region.addr.cast(), size, Arc::new(())) })
}
