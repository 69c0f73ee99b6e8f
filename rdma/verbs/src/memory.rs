//! Memory that peers may access.
//!
//! While a region is registered for remote access, a peer may change the region's bytes at any moment. Rust's rules for
//! references do not allow such changes, so this module returns bytes as slices only in unsafe functions. The safe
//! functions access the bytes only by copying them or by writing zeros. They hide the pointers from the compiler, so
//! that the compiler makes no assumption about the bytes. This is the only module of the crate with `unsafe` code.
#![allow(unsafe_code)]

use std::{any::Any, fmt, mem::MaybeUninit, sync::Arc};

/// A range of mapped memory, kept alive by its owner. The clones of a `Memory` refer to the same bytes.
#[derive(Clone)]
pub struct Memory {
    addr: *mut u8,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the range stays mapped until the owner is dropped (contract of `from_raw_parts`). Every safe access through
// this type is a copy, during which the bytes may change.
unsafe impl Send for Memory {}
// SAFETY: every safe access through this type is a copy, which several threads may make at the same time.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:p}, {} bytes)", self.addr, self.len)
    }
}

impl Memory {
    /// Makes a `Memory` of the `len` bytes at `addr`.
    ///
    /// # Safety
    /// The bytes must be initialised and must lie in one allocation. Until `owner` is dropped, the range must stay
    /// mapped, readable and writable. While the range is registered for remote access, no Rust reference to its bytes
    /// may exist. At other times, Rust references to its bytes may exist. While such a reference exists, no access of
    /// the device, of a `Memory` or of other code may break Rust's rules for it.
    ///
    /// # Panics
    /// Panics if `addr` is null or if `len` is more than `isize::MAX`, because no Rust slice can have such bytes.
    pub unsafe fn from_raw_parts(addr: *mut u8, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(!addr.is_null(), "memory does not begin at the null address");
        assert!(isize::try_from(len).is_ok(), "memory of {len} bytes is longer than a slice can be");
        Self { addr, len, owner }
    }

    /// The address of the first byte, as peers and work requests name it.
    pub fn addr(&self) -> u64 {
        self.addr as u64
    }

    /// The address of the first byte as a pointer. Other threads and peers may change the bytes at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.addr
    }

    /// The number of bytes in the range.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the range has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The owner that keeps the range mapped. Until the owner is dropped, the range stays mapped at the same addresses.
    pub fn owner(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.owner
    }

    /// Returns a part of this memory, with the same owner.
    ///
    /// # Panics
    /// Panics if the part is not inside the memory.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        self.check(offset, len);
        // SAFETY: `check` has verified that the part is inside this memory, which lies in one allocation (contract of
        // `from_raw_parts`).
        Self { addr: unsafe { self.addr.add(offset) }, len, owner: self.owner.clone() }
    }

    /// Copies `bytes` into the memory at `offset`.
    ///
    /// # Panics
    /// Panics if `bytes` does not fit into the memory at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: `check` has verified that the range to write is inside this memory. The contract of `from_raw_parts`
        // excludes references to the bytes that this method writes, so the slice `bytes` does not overlap this range.
        unsafe { copy(self.addr.add(offset), bytes.as_ptr(), bytes.len()) }
    }

    /// Fills `out` with a copy of the bytes of the memory that begin at `offset`.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: `check` has verified that the range to read is inside this memory. The contract of `from_raw_parts`
        // excludes mutable references to the bytes that this method reads, so the slice `out` does not overlap this
        // range.
        unsafe { copy(out.as_mut_ptr(), self.addr.add(offset), out.len()) }
    }

    /// Copies the `len` bytes at `offset` of this memory into the memory `to`, at the offset `at`. The memory `to` may
    /// be this memory itself.
    ///
    /// # Panics
    /// Panics if the range to read is not inside this memory, or if the range to write is not inside `to`.
    pub fn copy_to(&self, offset: usize, to: &Self, at: usize, len: usize) {
        self.check(offset, len);
        to.check(at, len);
        // SAFETY: `check` has verified that both ranges are inside their memories, and `std::ptr::copy` permits
        // overlapping ranges. Peers may write to the ranges during the copy. `black_box` therefore hides both addresses
        // from the compiler, so that the compiler makes no assumption about the bytes.
        unsafe {
            let (from, to) = (self.addr.add(offset), to.addr.add(at));
            std::ptr::copy(std::hint::black_box(from), std::hint::black_box(to), len);
        }
    }

    /// Returns a copy of the `len` bytes at `offset`.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub fn to_vec(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(offset, &mut out);
        out
    }

    /// Copies the `len` bytes at `offset` piece by piece, and passes the copy of each piece to `take`. Each piece has
    /// `N` bytes, except the last piece, which may be shorter. Each copy is on the stack, so no memory is allocated,
    /// and a peer's write cannot change the copy while `take` runs.
    ///
    /// # Errors
    /// Returns the first error that `take` returns, and copies no further piece after this error.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub fn try_pieces<const N: usize, E>(
        &self,
        offset: usize,
        len: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const { assert!(N > 0, "a piece has bytes") };
        self.check(offset, len);
        let mut piece = MaybeUninit::<[u8; N]>::uninit();
        let mut done = 0;
        while done < len {
            let n = N.min(len - done);
            let at = piece.as_mut_ptr().cast::<u8>();
            // SAFETY: the `n` bytes to copy are inside this memory, because `check` has verified the whole range. The
            // pointer `at` points to a local array with room for at least `n` bytes.
            unsafe { copy(at, self.addr.add(offset + done), n) };
            // SAFETY: `at` points to the local array `piece`, so `at` is not null. The `n` bytes lie in this one
            // allocation, which is not longer than `isize::MAX`. Bytes need no alignment. `copy` has just initialised
            // the `n` bytes. `take` cannot keep the slice, so the slice is gone before `copy` writes these bytes again.
            take(unsafe { std::slice::from_raw_parts(at, n) })?;
            done += n;
        }
        Ok(())
    }

    /// Writes zeros to the whole range.
    pub fn zero(&self) {
        // SAFETY: the whole range is writable, and the contract of `from_raw_parts` excludes references to the bytes
        // that this method writes. Bytes need no alignment.
        unsafe { std::ptr::write_bytes(std::hint::black_box(self.addr), 0, self.len) }
    }

    /// Returns the bytes as a slice; the caller guarantees that no peer can write them.
    ///
    /// # Safety
    /// Until the slice is dropped, the memory must not be registered for remote writes, and nothing may write it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: `from_raw_parts` has checked that the address is not null and that the length is not above
        // `isize::MAX`. Bytes need no alignment. The bytes are initialised and lie in one allocation, which stays
        // mapped because `self` keeps the owner (contract of `from_raw_parts`). Nothing writes the bytes until the
        // slice is dropped (contract of this function).
        unsafe { std::slice::from_raw_parts(self.addr, self.len) }
    }

    /// Returns the bytes as a mutable slice; the caller guarantees that no peer can access them.
    ///
    /// # Safety
    /// Until the slice is dropped, the memory must not be registered for remote access, and nothing else may read or
    /// write it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: `from_raw_parts` has checked that the address is not null and that the length is not above
        // `isize::MAX`. Bytes need no alignment. The bytes are initialised and writable. They lie in one allocation,
        // which stays mapped because `self` keeps the owner (contract of `from_raw_parts`). Nothing else reads or
        // writes the bytes until the slice is dropped (contract of this function).
        unsafe { std::slice::from_raw_parts_mut(self.addr, self.len) }
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{len} bytes at {offset} do not lie inside a region of {}",
            self.len
        );
    }
}

/// Copies `n` bytes through pointers that are hidden from the compiler. Because the compiler cannot see what the
/// pointers refer to, it makes no assumption about the bytes. If a peer writes the bytes during the copy, the copy can
/// contain a mix of old and new data, but nothing worse happens.
///
/// # Safety
/// `n` bytes must be readable at `src` and writable at `dst`, without overlap.
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // `black_box` hides from the compiler to which memory the pointers refer.
    // SAFETY: both ranges are valid and do not overlap, by the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(std::hint::black_box(src), std::hint::black_box(dst), n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns memory whose owner is a vector with a copy of `bytes`.
    fn memory(bytes: &[u8]) -> Memory {
        let mut bytes = bytes.to_vec();
        let (addr, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the owner keeps the bytes at this address, and no reference to them exists.
        unsafe { Memory::from_raw_parts(addr, len, Arc::new(bytes)) }
    }

    #[test]
    #[should_panic(expected = "the null address")]
    fn memory_at_the_null_address_is_refused() {
        // SAFETY: `from_raw_parts` panics before it makes a `Memory`.
        unsafe { Memory::from_raw_parts(std::ptr::null_mut(), 0, Arc::new(())) };
    }

    #[test]
    #[should_panic(expected = "longer than a slice can be")]
    fn memory_that_is_longer_than_a_slice_can_be_is_refused() {
        let addr = std::ptr::NonNull::dangling().as_ptr();
        // SAFETY: `from_raw_parts` panics before it makes a `Memory`.
        unsafe { Memory::from_raw_parts(addr, isize::MAX as usize + 1, Arc::new(())) };
    }

    #[test]
    fn pieces_are_copies_that_cover_the_range_in_order() {
        let all: Vec<u8> = (0..100).collect();
        let memory = memory(&all);
        for (offset, len) in [(0, 0), (0, 100), (7, 16), (7, 17), (99, 1), (100, 0)] {
            let (mut seen, mut lens) = (Vec::new(), Vec::new());
            let taken: Result<(), ()> = memory.try_pieces::<16, _>(offset, len, |piece| {
                seen.extend_from_slice(piece);
                lens.push(piece.len());
                Ok(())
            });
            assert_eq!((taken, &seen[..]), (Ok(()), &all[offset..offset + len]));
            assert!(lens.iter().rev().skip(1).all(|&len| len == 16), "{lens:?}");
        }
    }

    #[test]
    fn a_piece_does_not_change_when_the_memory_does() {
        let memory = memory(&[1; 40]);
        let mut sum = 0;
        let taken: Result<(), ()> = memory.try_pieces::<16, _>(0, 40, |piece| {
            memory.write(0, &[9; 40]);
            sum += piece.iter().map(|&byte| u32::from(byte)).sum::<u32>();
            Ok(())
        });
        assert_eq!((taken, sum), (Ok(()), 16 + 24 * 9), "the first piece was copied before the write");
    }

    #[test]
    fn a_piece_that_is_refused_is_the_last() {
        let memory = memory(&[0; 40]);
        let mut pieces = 0;
        let taken = memory.try_pieces::<16, _>(0, 40, |_| {
            pieces += 1;
            if pieces == 2 { Err("full") } else { Ok(()) }
        });
        assert_eq!((taken, pieces), (Err("full"), 2));
    }

    #[test]
    #[should_panic(expected = "do not lie inside")]
    fn pieces_beyond_the_memory_are_not_copied() {
        let _ = memory(&[0; 40]).try_pieces::<16, ()>(30, 11, |_| Ok(()));
    }
}
