//! A `struct naaice_communication_context`, as the program sees it.
//!
//! The program may read and write every field whenever it has the thread, so nothing here is kept twice: what it
//! may change is read from the struct each time.

use std::{
    alloc::handle_alloc_error,
    collections::BTreeSet,
    ffi::CStr,
    ptr::NonNull,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{
    array::CArray,
    layout::{CommContext, MainContext, MrInternal, MrLocal, MrPeer, NextContext},
    numbered::numbered,
};

/// The header that the program was compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderVersion {
    Main,
    Next,
}

numbered! {
    /// `naaice_communication_state`.
    State, i32, name() -> &'static CStr;
    Init = 0: c"INIT",
    Ready = 1: c"READY",
    Connected = 2: c"CONNECTED",
    MrspSending = 10: c"MRSP_SENDING",
    MrspReceiving = 11: c"MRSP_RECEIVING",
    MrspDone = 12: c"MRSP_DONE",
    DataSending = 20: c"DATA_SENDING",
    Calculating = 21: c"CALCULATING",
    DataReceiving = 22: c"DATA_RECEIVING",
    Finished = 30: c"FINISHED",
    Error = 40: c"ERROR",
}

/// NAAICE's DEFAULT_TIMEOUT, in seconds.
pub(crate) const DEFAULT_TIMEOUT: f64 = 3600.0;
/// NAAICE's DEFAULT_RETRY_COUNT.
pub(crate) const DEFAULT_RETRY_COUNT: u8 = 7;

/// The larger of both layouts, and room for the field that NAAICE's `next` has with its memory service.
#[repr(C, align(16))]
struct Block([u8; 160]);

/// Addresses of contexts that were left to the program, so that a leak checker sees that somebody knows them. One that
/// the program frees is given out again: there are no more than it leaves lying about.
static LEFT: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The struct, and the arrays that its pointers lead to.
#[derive(Debug)]
pub(crate) struct Public {
    block: NonNull<Block>,
    /// To the program, with the end of this.
    left: bool,
    version: HeaderVersion,
    locals: CArray<MrLocal>,
    peers: CArray<MrPeer>,
    internals: CArray<MrInternal>,
}

// SAFETY: the struct and its arrays are owned; programs use a context on one thread at a time (`registry`).
unsafe impl Send for Public {}

/// `$get` and `$set` of a field that both layouts have.
macro_rules! field {
    ($($get:ident, $set:ident: $field:ident $type:ty;)*) => {$(
        #[allow(dead_code, reason = "some fields are only written, some only read")]
        pub(crate) fn $get(&self) -> $type {
            // SAFETY: the block is of this layout, and as long as `self`; no reference to a field exists.
            unsafe {
                match self.version {
                    HeaderVersion::Main => (&raw const (*self.main()).$field).read_volatile(),
                    HeaderVersion::Next => (&raw const (*self.next()).$field).read_volatile(),
                }
            }
        }

        #[allow(dead_code, reason = "some fields are only written, some only read")]
        pub(crate) fn $set(&self, value: $type) {
            // SAFETY: as for reading.
            unsafe {
                match self.version {
                    HeaderVersion::Main => (&raw mut (*self.main()).$field).write_volatile(value),
                    HeaderVersion::Next => (&raw mut (*self.next()).$field).write_volatile(value),
                }
            }
        }
    )*};
}

impl Public {
    /// In state INIT, with NAAICE's defaults; everything else is zero.
    pub(crate) fn new(version: HeaderVersion) -> Self {
        // By malloc, since programs free what they are left with.
        // SAFETY: takes no pointers.
        let block = unsafe { libc::calloc(1, size_of::<Block>()) }.cast();
        let Some(block) = NonNull::new(block) else { handle_alloc_error(std::alloc::Layout::new::<Block>()) };
        let (locals, peers, internals) =
            (CArray::new(Vec::new()), CArray::new(Vec::new()), CArray::new(Vec::new()));
        let public = Self { block, left: false, version, locals, peers, internals };
        public.set_timeout(DEFAULT_TIMEOUT);
        public.set_retry_count(DEFAULT_RETRY_COUNT);
        public
    }

    /// For the program, which knows what it points to.
    pub(crate) fn as_ptr(&self) -> *mut CommContext {
        self.block.as_ptr().cast()
    }

    /// The struct stays when this is dropped, and is the program's to free: it looks at `state` after the clean-up.
    pub(crate) fn leave(&mut self) {
        self.left = true;
    }

    pub(crate) fn version(&self) -> HeaderVersion {
        self.version
    }

    fn main(&self) -> *mut MainContext {
        self.block.as_ptr().cast()
    }

    fn next(&self) -> *mut NextContext {
        self.block.as_ptr().cast()
    }

    field! {
        timeout, set_timeout: timeout f64;
        retry_count, set_retry_count: retry_count u8;
        max_inline_data, set_max_inline_data: max_inline_data u16;
        return_index, set_return_index: mr_return_idx u8;
        fncode, set_fncode: fncode u8;
        writes_done, set_writes_done: rdma_writes_done u8;
        bytes_received, set_bytes_received: bytes_received u32;
        inputs, set_inputs: no_input_mrs u8;
        outputs, set_outputs: no_output_mrs u8;
        calls, set_calls: no_rpc_calls u32;
        immediate, set_immediate: immediate [u8; 4];
        connection_id, set_connection_id: connection_id u8;
    }

    field! {
        locals_pointer, set_locals_pointer: mr_local_data *mut MrLocal;
        locals_count, set_locals_count: no_local_mrs u8;
        peers_pointer, set_peers_pointer: mr_peer_data *mut MrPeer;
        peers_count, set_peers_count: no_peer_mrs u8;
        internals_pointer, set_internals_pointer: mr_internal *mut MrInternal;
        internals_count, set_internals_count: no_internal_mrs u8;
    }

    /// The state, which programs read in loops, also on other threads. `None` if one wrote nonsense there.
    pub(crate) fn state(&self) -> Option<State> {
        State::from_number(self.state_cell().load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state_cell().store(state as i32, Ordering::Release);
    }

    fn state_cell(&self) -> &AtomicI32 {
        // SAFETY: both layouts have it at the same place (static assertion), aligned, and it is only ever used as an
        // atomic, by C too.
        unsafe { &(*self.main()).state }
    }

    /// What the accelerator said beside success: a return code (main; 255 stands for all that do not fit a byte), or
    /// the user's 24 bits (next).
    pub(crate) fn set_answer(&self, value: u32) {
        let code = u8::try_from(value).unwrap_or(u8::MAX);
        // SAFETY: as for other fields.
        unsafe {
            match self.version {
                HeaderVersion::Main => (&raw mut (*self.main()).naa_returncode).write_volatile(code),
                HeaderVersion::Next => {
                    (&raw mut (*self.next()).response_user_immediate).write_volatile(value)
                }
            }
        }
    }

    pub(crate) fn answer(&self) -> u32 {
        // SAFETY: as for other fields.
        unsafe {
            match self.version {
                HeaderVersion::Main => (&raw const (*self.main()).naa_returncode).read_volatile().into(),
                HeaderVersion::Next => (&raw const (*self.next()).response_user_immediate).read_volatile(),
            }
        }
    }

    /// Only `next` has such a field.
    pub(crate) fn set_response_received(&self, received: bool) {
        if self.version == HeaderVersion::Next {
            // SAFETY: as for other fields.
            unsafe { (&raw mut (*self.next()).response_received).write_volatile(received) };
        }
    }

    /// This side's regions. Their number is ours, whatever `no_local_mrs` says now.
    pub(crate) fn locals(&self) -> &CArray<MrLocal> {
        &self.locals
    }

    /// Sets this side's regions, at most 255. Pointers to them that the program took before are invalid then.
    pub(crate) fn set_locals(&mut self, regions: Vec<MrLocal>) {
        self.locals = CArray::new(regions);
        self.set_locals_pointer(self.locals.as_ptr());
        self.set_locals_count(count(&self.locals));
    }

    pub(crate) fn peers(&self) -> &CArray<MrPeer> {
        &self.peers
    }

    pub(crate) fn set_peers(&mut self, regions: Vec<MrPeer>) {
        self.peers = CArray::new(regions);
        self.set_peers_pointer(self.peers.as_ptr());
        self.set_peers_count(count(&self.peers));
    }

    pub(crate) fn internals(&self) -> &CArray<MrInternal> {
        &self.internals
    }

    pub(crate) fn set_internals(&mut self, regions: Vec<MrInternal>) {
        self.internals = CArray::new(regions);
        self.set_internals_pointer(self.internals.as_ptr());
        self.set_internals_count(count(&self.internals));
    }
}

fn count<T: Copy>(array: &CArray<T>) -> u8 {
    u8::try_from(array.len()).unwrap_or(u8::MAX)
}

impl Drop for Public {
    fn drop(&mut self) {
        self.set_locals(Vec::new());
        self.set_peers(Vec::new());
        self.set_internals(Vec::new());
        if self.left {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).insert(self.block.addr().get());
        } else {
            // SAFETY: from `calloc` in `new`, and given back once.
            unsafe { libc::free(self.block.as_ptr().cast()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_have_the_fields_where_programs_look() {
        for (version, bytes_received) in [(HeaderVersion::Main, 124), (HeaderVersion::Next, 132)] {
            let public = Public::new(version);
            public.set_bytes_received(0x0102_0304);
            public.set_state(State::Finished);
            public.set_answer(17);
            // SAFETY: inside the block.
            let read = |at: usize| unsafe { public.as_ptr().cast::<u8>().add(at).cast::<u32>().read() };
            assert_eq!((read(bytes_received), read(68)), (0x0102_0304, 30));
            assert_eq!((public.answer(), public.state()), (17, Some(State::Finished)));
            assert_eq!((public.timeout(), public.retry_count()), (3600.0, 7));
        }
    }

    #[test]
    fn a_return_code_beyond_a_byte_is_not_success() {
        let public = Public::new(HeaderVersion::Main);
        public.set_answer(0x100);
        assert_eq!(public.answer(), 255);
    }

    #[test]
    fn arrays_are_the_programs_to_change() {
        let mut public = Public::new(HeaderVersion::Main);
        let region = MrInternal { addr: 4096, size: 7 };
        public.set_internals(vec![region; 3]);
        // SAFETY: the program's side of it.
        unsafe { (*public.internals_pointer().add(2)).size = 9 };
        assert_eq!(public.internals().iter().map(|region| region.size).collect::<Vec<_>>(), [7, 7, 9]);
        public.internals().update(0, |region| region.size = 1);
        assert_eq!((public.internals().get(0).unwrap().size, public.internals_count()), (1, 3));
        assert!(public.internals().get(3).is_none());
    }
}
