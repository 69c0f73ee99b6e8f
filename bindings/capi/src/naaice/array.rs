//! Arrays that a program reaches through a pointer in a struct of its own header.

use std::{ops::Range, ptr::NonNull};

/// An array of fixed length. Elements are copied in and out, since a program may change them between calls.
#[derive(Debug)]
pub(crate) struct CArray<T: Copy>(NonNull<[T]>);

// SAFETY: the array is owned; elements are plain values.
unsafe impl<T: Copy> Send for CArray<T> {}

impl<T: Copy> CArray<T> {
    pub(crate) fn new(elements: Vec<T>) -> Self {
        Self(NonNull::from(Box::leak(elements.into_boxed_slice())))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The pointer for C; null if there are no elements.
    pub(crate) fn as_ptr(&self) -> *mut T {
        if self.len() == 0 { std::ptr::null_mut() } else { self.0.cast().as_ptr() }
    }

    pub(crate) fn indices(&self) -> Range<usize> {
        0..self.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<T> {
        // SAFETY: inside the array; no reference to an element exists.
        (index < self.len()).then(|| unsafe { self.0.cast::<T>().add(index).read() })
    }

    /// Changes an element, if there is such.
    pub(crate) fn update(&self, index: usize, change: impl FnOnce(&mut T)) {
        if let Some(mut element) = self.get(index) {
            change(&mut element);
            // SAFETY: as in `get`.
            unsafe { self.0.cast::<T>().add(index).write(element) };
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.indices().filter_map(|index| self.get(index))
    }
}

impl<T: Copy> Drop for CArray<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::leak`, and given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
