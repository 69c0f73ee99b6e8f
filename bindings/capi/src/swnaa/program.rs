//! `struct context`, the part of a listener that its program sees and frees.
//!
//! Its arrays have as many places as the program's header says, so it is no Rust type. It is written through raw
//! pointers only, and for the last time when a slot comes back: a program that sees all slots free may free it.

use std::{
    ffi::{c_int, c_void},
    mem::offset_of,
    ptr,
    sync::atomic::{AtomicI32, Ordering},
};

use super::hook::Rpc;
use crate::naaice::layout::{CommContext, MainContext};

/// What stands before the arrays.
#[repr(C)]
struct Head {
    lock: libc::pthread_mutex_t,
    total_connections_lifetime: u8,
    master: *mut MainContext,
    con_mng: *mut u8,
}

/// Room for a context of either version of the header.
const MASTER_BYTES: usize = 160;

/// A program's `struct context`, and how many connections it has places for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramContext {
    at: *mut u8,
    places: usize,
}

// SAFETY: it is an address; who may write there when is said at each function.
unsafe impl Send for ProgramContext {}
// SAFETY: the same.
unsafe impl Sync for ProgramContext {}

impl ProgramContext {
    /// As programs expect it after `naaice_swnaa_init_master`: from `malloc`, since they free its parts. `None` if
    /// there is no memory. `places` is at most 256.
    pub(crate) fn new(places: usize, rpc: Option<Rpc>) -> Option<Self> {
        let size = size_of::<Head>() + places * 2 * size_of::<usize>() + size_of::<Option<Rpc>>();
        // SAFETY: plain allocations; what is null is freed as such.
        let [at, master, manager] = unsafe {
            [
                libc::calloc(1, size),
                libc::calloc(1, MASTER_BYTES),
                libc::calloc(1, top_offset(places) + size_of::<c_int>()),
            ]
        };
        if [at, master, manager].contains(&ptr::null_mut()) {
            // SAFETY: from `calloc`, or null.
            unsafe { [at, master, manager].into_iter().for_each(|part| libc::free(part)) };
            return None;
        }
        let this = Self { at: at.cast(), places };
        let (master, manager) = (master.cast::<MainContext>(), manager.cast::<u8>());
        // SAFETY: new, zeroed memory of these sizes. Up to `state` both versions of the header agree.
        unsafe {
            libc::pthread_mutex_init(&raw mut (*this.head()).lock, ptr::null());
            (&raw mut (*this.head()).master).write(master);
            (&raw mut (*this.head()).con_mng).write(manager);
            (&raw mut (*master).timeout).write(crate::naaice::context::DEFAULT_TIMEOUT);
            (&raw mut (*master).retry_count).write(crate::naaice::context::DEFAULT_RETRY_COUNT);
            for id in 0..places {
                manager.add(id).write(id as u8);
            }
            this.at.add(size - size_of::<Option<Rpc>>()).cast::<Option<Rpc>>().write(rpc);
        }
        this.top().store(places as i32, Ordering::Release);
        Some(this)
    }

    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.at.cast()
    }

    pub(crate) fn places(self) -> usize {
        self.places
    }

    /// Frees all of it.
    ///
    /// # Safety
    /// It lives, and nobody uses it any more.
    pub(crate) unsafe fn free(self) {
        // SAFETY: the caller's contract; all came from `calloc`.
        unsafe {
            libc::pthread_mutex_destroy(&raw mut (*self.head()).lock);
            libc::free((*self.head()).master.cast());
            libc::free((*self.head()).con_mng.cast());
            libc::free(self.at.cast());
        }
    }

    fn head(self) -> *mut Head {
        self.at.cast()
    }

    fn top(&self) -> &AtomicI32 {
        // SAFETY: the integer lives as long as the context; here it is only ever used as an atomic.
        unsafe { AtomicI32::from_ptr((*self.head()).con_mng.add(top_offset(self.places)).cast()) }
    }

    /// The timeout the program set, in seconds.
    ///
    /// # Safety
    /// It lives.
    pub(crate) unsafe fn timeout(self) -> f64 {
        // SAFETY: the caller's contract.
        unsafe { (&raw const (*(*self.head()).master).timeout).read_volatile() }
    }

    /// Slot `id` is used from now on by `worker`; `top` slots below it are free.
    ///
    /// # Safety
    /// It lives; one thread at a time does this or [`Self::returned`].
    pub(crate) unsafe fn taken(self, id: u8, worker: *mut CommContext, top: usize) {
        // SAFETY: the caller's contract; `id` is one of the places.
        unsafe {
            self.worker_slot(id).write_volatile(worker);
            let total = &raw mut (*self.head()).total_connections_lifetime;
            total.write_volatile(total.read_volatile().saturating_add(1));
        }
        self.top().store(top as i32, Ordering::Release);
    }

    /// The thread of slot `id`.
    ///
    /// # Safety
    /// It lives, and the slot is used.
    pub(crate) unsafe fn set_thread(self, id: u8, thread: libc::pthread_t) {
        // SAFETY: the caller's contract; the threads follow the workers.
        unsafe {
            self.worker_slot(0).add(self.places + usize::from(id)).cast::<libc::pthread_t>().write(thread)
        };
    }

    /// Slot `id` is free again, as the last of `top`. Nothing of the context is touched afterwards.
    ///
    /// # Safety
    /// It lives until `top` is stored; one thread at a time does this or [`Self::taken`].
    pub(crate) unsafe fn returned(self, id: u8, top: usize) {
        // SAFETY: the caller's contract; there are as many elements as places.
        unsafe {
            self.worker_slot(id).write_volatile(ptr::null_mut());
            (*self.head()).con_mng.add(top - 1).write_volatile(id);
        }
        self.top().store(top as i32, Ordering::Release);
    }

    /// The worker's context in slot `id`, null where there is none.
    ///
    /// # Safety
    /// It lives, and `id` is one of its places.
    pub(crate) unsafe fn worker(self, id: u8) -> *mut CommContext {
        // SAFETY: the caller's contract.
        unsafe { self.worker_slot(id).read_volatile() }
    }

    /// Puts a context into slot `id`.
    ///
    /// # Safety
    /// It lives, and `id` is one of its places.
    pub(crate) unsafe fn set_worker(self, id: u8, worker: *mut CommContext) {
        // SAFETY: the caller's contract.
        unsafe { self.worker_slot(id).write_volatile(worker) };
    }

    fn worker_slot(self, id: u8) -> *mut *mut CommContext {
        // SAFETY: the array follows the head, and has a place for every id that is used.
        unsafe { self.at.add(size_of::<Head>()).cast::<*mut CommContext>().add(usize::from(id)) }
    }
}

/// Where `top` is in `struct connection_management`.
fn top_offset(places: usize) -> usize {
    places.next_multiple_of(align_of::<c_int>())
}

const _: () = assert!(size_of::<Head>().is_multiple_of(align_of::<*mut CommContext>()));
#[cfg(target_arch = "x86_64")]
const _: () = assert!(
    offset_of!(Head, total_connections_lifetime) == 40
        && offset_of!(Head, master) == 48
        && offset_of!(Head, con_mng) == 56
        && size_of::<Head>() == 64
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_their_fields() {
        for places in [1, 3, 8, 256] {
            let context = ProgramContext::new(places, None).unwrap();
            // SAFETY: made here, and used by nobody else.
            unsafe {
                let read = |at: usize| context.at.add(at).cast::<usize>().read();
                assert!(read(size_of::<Head>()) == 0 && context.timeout() == 3600.0);
                let top = || (*context.head()).con_mng.add(top_offset(places)).cast::<c_int>().read();
                assert_eq!(top(), places as c_int);
                let last = (places - 1) as u8;
                context.taken(last, 16 as *mut CommContext, places - 1);
                assert_eq!((top(), context.worker(last).addr()), (places as c_int - 1, 16));
                context.returned(last, places);
                assert_eq!((top(), context.worker(last).addr()), (places as c_int, 0));
                assert_eq!((*context.head()).con_mng.add(places - 1).read(), last);
                assert_eq!((*context.head()).total_connections_lifetime, 1);
                context.free();
            }
        }
    }
}
