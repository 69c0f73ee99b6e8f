//! Handles: pointers that programs hold and that lead nowhere.
//!
//! A handle is a number: what kind it is of, which entry of a table it stands for and how many have had that entry
//! before. So null pointers, nonsense, handles of another kind and handles that were freed are told apart from good
//! ones without looking at memory, and none of them is a real address. Looking one up takes no lock; using it takes its
//! own, which nobody else wants unless two threads use one handle. A thread waits a moment for another one, because
//! asking for functions uses a session only in its first and last moment.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, TryLockResult,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const _: () = assert!(usize::BITS == 64, "handles need 64 bits");

/// Bits of a handle that say which entry.
const INDEX_BITS: u32 = 20;
/// Bits above them that say how many had the entry before.
const GENERATION_BITS: u32 = 28;
const LAST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// The first chunk has as many entries, each further one twice as many as the one before.
const FIRST_CHUNK: usize = 16;
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.ilog2()) as usize;

/// A handle that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misuse {
    #[error("the handle is NULL; {0} is needed")]
    Null(&'static str),
    #[error("the handle is none, or was freed; {0} is needed")]
    Unknown(&'static str),
    #[error("{0} is in use by another thread; let one thread at a time use it")]
    Busy(&'static str),
    #[error("there are too many of its kind already; free {0} first")]
    Full(&'static str),
}

#[derive(Debug)]
struct HandleEntry<T> {
    /// The generation of the handle that the entry is in use for, or of the next one.
    generation: AtomicU32,
    object: Mutex<Option<T>>,
}

impl<T> Default for HandleEntry<T> {
    fn default() -> Self {
        Self { generation: AtomicU32::new(1), object: Mutex::new(None) }
    }
}

/// The locked object of an entry, the entry, and its index.
type LockedEntry<'a, T> = (MutexGuard<'a, Option<T>>, &'a HandleEntry<T>, usize);

/// How long to wait for another thread that uses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// For [`BRIEF`], which is longer than another thread needs to look at the object, and shorter than most calls.
    Brief,
    Unlimited,
}

/// The time that a thread waits for another one that only looks at an object.
const BRIEF: Duration = Duration::from_millis(10);
/// The pause between two looks at a lock that another thread has.
const PAUSE: Duration = Duration::from_micros(50);

/// All objects of a kind.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    /// The kind of the objects, with an article: "a session".
    kind: &'static str,
    /// The upper bits of its handles: no address of a program has them.
    tag: u16,
    /// Entries never move.
    chunks: [OnceLock<Box<[HandleEntry<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

/// The entries that are not in use.
#[derive(Debug)]
struct Free {
    returned: Vec<usize>,
    /// The first entry that was never used; the ones after it were not used either.
    next: usize,
}

/// An object in use.
#[derive(Debug)]
pub(crate) struct InUse<'a, T>(MutexGuard<'a, Option<T>>);

impl<T> Deref for InUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a slot in use has its object")
    }
}

impl<T> DerefMut for InUse<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a slot in use has its object")
    }
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(kind: &'static str, tag: u16) -> Self {
        let free = Mutex::new(Free { returned: Vec::new(), next: 0 });
        Self { kind, tag, chunks: [const { OnceLock::new() }; CHUNKS], free }
    }

    /// A handle for `object`.
    pub(crate) fn insert(&self, object: T) -> Result<usize, Misuse> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.returned.pop() {
                Some(index) => index,
                None => {
                    let index = free.next;
                    free.next += 1;
                    index
                }
            }
        };
        let entry = self.entry_to_fill(index).ok_or(Misuse::Full(self.kind))?;
        *entry.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
        let generation = entry.generation.load(Ordering::Relaxed) as usize;
        Ok((self.tag as usize) << (INDEX_BITS + GENERATION_BITS) | generation << INDEX_BITS | index)
    }

    /// What `handle` stands for, for this thread alone. [`Misuse::Busy`] if another thread has it for more than a moment.
    pub(crate) fn get(&self, handle: usize) -> Result<InUse<'_, T>, Misuse> {
        self.find(handle, WaitLimit::Brief).map(|(guard, ..)| InUse(guard))
    }

    /// The same; waits for a thread that has it.
    pub(crate) fn wait_for(&self, handle: usize) -> Result<InUse<'_, T>, Misuse> {
        self.find(handle, WaitLimit::Unlimited).map(|(guard, ..)| InUse(guard))
    }

    /// What `handle` stood for; now it stands for nothing.
    pub(crate) fn remove(&self, handle: usize, limit: WaitLimit) -> Result<T, Misuse> {
        let (mut guard, entry, index) = self.find(handle, limit)?;
        let object = guard.take().ok_or(Misuse::Unknown(self.kind))?;
        let generation = entry.generation.load(Ordering::Relaxed);
        entry.generation.store(generation + 1, Ordering::Relaxed);
        drop(guard);
        // An entry whose numbers are used up is never used again.
        if generation < LAST_GENERATION {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).returned.push(index);
        }
        Ok(object)
    }

    fn find(&self, handle: usize, limit: WaitLimit) -> Result<LockedEntry<'_, T>, Misuse> {
        if handle == 0 {
            return Err(Misuse::Null(self.kind));
        }
        let unknown = Misuse::Unknown(self.kind);
        if handle >> (INDEX_BITS + GENERATION_BITS) != self.tag.into() {
            return Err(unknown);
        }
        let index = handle & ((1 << INDEX_BITS) - 1);
        let generation = (handle >> INDEX_BITS) as u32 & LAST_GENERATION;
        let entry = self.entry(index).ok_or(unknown)?;
        // Before the lock, so that a stale handle is in nobody's way; and under it, where it counts.
        let is_current = || entry.generation.load(Ordering::Relaxed) == generation;
        if !is_current() {
            return Err(unknown);
        }
        let locked = match limit {
            WaitLimit::Brief => try_lock_briefly(&entry.object),
            WaitLimit::Unlimited => entry.object.lock().map_err(TryLockError::Poisoned),
        };
        let object = match locked {
            Ok(object) => object,
            // A panic left it as it was then; it is still of one piece.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Misuse::Busy(self.kind)),
        };
        if object.is_none() || !is_current() {
            return Err(unknown);
        }
        Ok((object, entry, index))
    }

    fn entry(&self, index: usize) -> Option<&HandleEntry<T>> {
        let (chunk, at) = position(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn entry_to_fill(&self, index: usize) -> Option<&HandleEntry<T>> {
        let (chunk, at) = position(index);
        let entries = self.chunks.get(chunk)?;
        entries.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| HandleEntry::default()).collect()).get(at)
    }
}

/// Locks `object`, unless another thread has it for longer than [`BRIEF`].
fn try_lock_briefly<T>(object: &Mutex<T>) -> TryLockResult<MutexGuard<'_, T>> {
    let mut locked = object.try_lock();
    let start = Instant::now();
    while matches!(locked, Err(TryLockError::WouldBlock)) && start.elapsed() < BRIEF {
        thread::sleep(PAUSE);
        locked = object.try_lock();
    }
    locked
}

/// Which chunk, and where in it.
fn position(index: usize) -> (usize, usize) {
    let shifted = index + FIRST_CHUNK;
    let chunk = (shifted.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    (chunk, shifted - (FIRST_CHUNK << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    static APPLES: HandleTable<u32> = HandleTable::new("an apple", 0x4e01);
    static PEARS: HandleTable<u32> = HandleTable::new("a pear", 0x4e02);

    #[test]
    fn only_what_lives_is_found() {
        let (apple, pear) = (APPLES.insert(3).unwrap(), PEARS.insert(4).unwrap());
        *APPLES.get(apple).unwrap() += 1;
        assert_eq!((*APPLES.get(apple).unwrap(), *PEARS.get(pear).unwrap()), (4, 4));
        let stack = 0_u64;
        for nonsense in [pear, 1, usize::MAX, apple ^ 1, apple ^ 1 << INDEX_BITS, (&raw const stack).addr()] {
            assert_eq!(APPLES.get(nonsense).err(), Some(Misuse::Unknown("an apple")), "{nonsense:#x}");
        }
        assert_eq!(APPLES.get(0).err(), Some(Misuse::Null("an apple")));
        let held = APPLES.get(apple).unwrap();
        assert_eq!(APPLES.get(apple).err(), Some(Misuse::Busy("an apple")));
        assert_eq!(APPLES.remove(apple, WaitLimit::Brief).err(), Some(Misuse::Busy("an apple")));
        drop(held);
        assert_eq!(APPLES.remove(apple, WaitLimit::Brief), Ok(4));
        let next = APPLES.insert(5).unwrap();
        assert_ne!(next, apple, "a freed handle never comes back");
        assert_eq!(APPLES.get(apple).err(), Some(Misuse::Unknown("an apple")));
        assert_eq!(APPLES.remove(next, WaitLimit::Unlimited), Ok(5));
    }

    #[test]
    fn slots_are_where_they_belong() {
        assert_eq!([0, 15, 16, 47, 48].map(position), [(0, 0), (0, 15), (1, 0), (1, 31), (2, 0)]);
        assert_eq!(position((1 << INDEX_BITS) - FIRST_CHUNK - 1).0, CHUNKS - 1);
        static MANY: HandleTable<usize> = HandleTable::new("one of many", 0x4e03);
        let handles: Vec<_> = (0..1000).map(|n| MANY.insert(n).unwrap()).collect();
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(MANY.remove(handle, WaitLimit::Brief), Ok(n));
        }
    }
}
