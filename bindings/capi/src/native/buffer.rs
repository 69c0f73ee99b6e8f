//! Memory that is registered once for many sessions.

use std::{
    any::Any,
    collections::BTreeMap,
    ffi::c_void,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use naa_host::Error;
use verbs::Memory;

use super::{
    mapped::{self, Use},
    naa_result,
    result::{Problem, guarded},
};
use crate::handles::{HandleTable, WaitLimit};

/// Memory for regions of many sessions, one after another or at once.
///
/// Sessions whose regions lie inside such memory find it registered with the network device, which spares large
/// regions most of the time it takes to connect. Nothing else is different: give its address as naa_region.addr. Any
/// thread may use a buffer at any time.
#[derive(Debug)]
pub struct naa_buffer(());

static BUFFERS: HandleTable<Memory> = HandleTable::new("a buffer", 0x4e42);

/// The buffers by address. They do not overlap.
static LIVING: Mutex<BTreeMap<usize, Memory>> = Mutex::new(BTreeMap::new());

fn living() -> MutexGuard<'static, BTreeMap<usize, Memory>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a living buffer, if all of these bytes are its.
pub(super) fn part(addr: usize, len: usize) -> Option<Memory> {
    let living = living();
    let (start, memory) = living.range(..=addr).next_back()?;
    let offset = addr - start;
    (offset <= memory.len() && len <= memory.len() - offset).then(|| memory.slice(offset, len))
}

/// Gives `size` zeroed bytes, starting on a page. Free them by naa_buffer_free().
///
/// NAA_ERROR_MEMORY, NAA_ERROR_ARGUMENT.
///
/// # Safety
/// `buffer` points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_buffer_alloc(size: u64, buffer: *mut *mut naa_buffer) -> naa_result {
    guarded(|| {
        let size = usize::try_from(size).map_err(|_| Problem::argument("size is too large"))?;
        let memory = region::alloc(size).map_err(Error::Memory)?;
        // SAFETY: the caller's contract.
        unsafe { hand_out(memory, buffer) }
    })
}

/// Makes `size` bytes at `addr`, which are the program's, a buffer. They stay the program's: keep them until the
/// buffer is freed and all sessions that used them are closed.
///
/// NAA_ERROR_ARGUMENT also if they are part of another buffer, or not mapped for reading and writing.
///
/// # Safety
/// `buffer` points to a place for a pointer; the memory stays mapped as said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_buffer_wrap(
    addr: *mut c_void,
    size: u64,
    buffer: *mut *mut naa_buffer,
) -> naa_result {
    guarded(|| {
        let bad = |problem: String| Problem::argument(format!("the memory to wrap: {problem}"));
        let len = usize::try_from(size).map_err(|_| Problem::argument("size is too large"))?;
        if len == 0 {
            return Err(bad("size is 0; a buffer has at least one byte".to_owned()));
        }
        mapped::check(addr.addr(), len, Use::Write).map_err(bad)?;
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(Wrapped);
        // SAFETY: mapped, and kept by the program (contract of this function); it touches the memory as the sessions'
        // contract allows.
        let memory = unsafe { Memory::from_raw_parts(addr.cast(), len, owner) };
        // SAFETY: the caller's contract.
        unsafe { hand_out(memory, buffer) }
    })
}

/// The owner of wrapped memory, which the program keeps: something to be known by.
struct Wrapped;

/// # Safety
/// If `buffer` is not NULL, it points to a place for a pointer.
unsafe fn hand_out(memory: Memory, buffer: *mut *mut naa_buffer) -> Result<(), Problem> {
    if buffer.is_null() {
        return Err(Problem::NoPlace("buffer"));
    }
    let (start, end) = (memory.as_ptr().addr(), memory.as_ptr().addr() + memory.len());
    let mut living = living();
    let before = living.range(..end).next_back();
    if before.is_some_and(|(addr, other)| addr + other.len().max(1) > start) {
        return Err(Problem::argument(
            "the memory is part of another buffer, or has one in it; free that first",
        ));
    }
    let handle = BUFFERS.insert(memory.clone())?;
    living.insert(start, memory);
    drop(living);
    // SAFETY: the caller's contract.
    unsafe { buffer.write_unaligned(std::ptr::without_provenance_mut(handle)) };
    Ok(())
}

/// Where the memory of a buffer begins; NULL if `buffer` is none.
///
/// # Safety
/// None: `buffer` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_buffer_data(buffer: *const naa_buffer) -> *mut c_void {
    memory(buffer).map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// Bytes of a buffer; 0 if `buffer` is none.
///
/// # Safety
/// None: `buffer` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_buffer_size(buffer: *const naa_buffer) -> u64 {
    memory(buffer).map_or(0, |memory| memory.len() as u64)
}

fn memory(buffer: *const naa_buffer) -> Option<Memory> {
    BUFFERS.wait_for(buffer.addr()).ok().map(|memory| memory.clone())
}

/// Frees a buffer; NULL is allowed. Memory of naa_buffer_alloc() stays until the last session that has a region in it
/// is closed.
///
/// NAA_ERROR_ARGUMENT if `buffer` is none, or was freed.
///
/// # Safety
/// None: `buffer` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_buffer_free(buffer: *mut naa_buffer) -> naa_result {
    guarded(|| {
        if buffer.is_null() {
            return Ok(());
        }
        let memory = BUFFERS.remove(buffer.addr(), WaitLimit::Unlimited)?;
        living().remove(&memory.as_ptr().addr());
        Ok(())
    })
}
