//! Buffers and parameters of numbers, so that a program need not convert numbers to bytes itself.
//!
//! The bytes of a number are sent as they are in memory. Host and accelerator must therefore have the same byte order,
//! which is little-endian for all built-in functions.

use std::borrow::Cow;

use bytemuck::{Pod, allocation::pod_collect_to_vec, cast_slice, try_cast_slice, try_cast_slice_mut};

use crate::{Buffer, Error, Param, Session};

impl<T: Pod> Buffer<T> {
    /// Makes a buffer of `count` values, all of whose bytes are 0.
    ///
    /// # Errors
    /// Fails with [`Error::Memory`] if the memory cannot be allocated.
    pub fn zeroed(count: usize) -> Result<Self, Error> {
        // A length that is too large to be represented is also too large to be allocated.
        let bytes = count.saturating_mul(size_of::<T>());
        Ok(Buffer::new(bytes)?.retyped())
    }

    /// Makes a buffer with a copy of `values`.
    ///
    /// # Errors
    /// Fails with [`Error::Memory`] if the memory cannot be allocated.
    pub fn of(values: &[T]) -> Result<Self, Error> {
        let mut buffer = Buffer::new(size_of_val(values))?;
        buffer.write(0, cast_slice(values));
        Ok(buffer.retyped())
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        match size_of::<T>() {
            0 => 0,
            size => self.byte_len() / size,
        }
    }

    /// Returns the values of the buffer as a slice, without a copy.
    ///
    /// # Errors
    /// Fails with [`Error::InReach`] if an accelerator may still be able to write to the buffer, and with
    /// [`Error::Unaligned`] if the buffer does not begin at a multiple of the alignment of `T`.
    pub fn values(&self) -> Result<&[T], Error> {
        try_cast_slice(self.bytes()?).map_err(|_| unaligned::<T>())
    }

    /// Returns the values of the buffer as a mutable slice, without a copy.
    ///
    /// # Errors
    /// Fails with the same errors as [`values`](Self::values).
    pub fn values_mut(&mut self) -> Result<&mut [T], Error> {
        try_cast_slice_mut(self.bytes_mut()?).map_err(|_| unaligned::<T>())
    }

    /// Returns a copy of the values, which is possible even if an accelerator can write to the buffer.
    pub fn to_values(&self) -> Vec<T> {
        // A type without bytes has no values in memory.
        if size_of::<T>() == 0 { Vec::new() } else { pod_collect_to_vec(&self.copy_of_bytes()) }
    }

    /// Returns the buffer as a buffer of bytes, which a session takes.
    pub fn into_bytes(self) -> Buffer {
        self.retyped()
    }
}

impl Buffer {
    /// Returns the buffer, which a session may have returned, as a buffer of values of type `T`.
    ///
    /// # Errors
    /// Fails with [`Error::NotWhole`] if the length of the buffer is not a multiple of the size of `T`.
    pub fn cast<T: Pod>(self) -> Result<Buffer<T>, Error> {
        check_whole::<T>(self.len())?;
        Ok(self.retyped())
    }
}

impl<'a> Param<'a> {
    /// Makes an input whose initial content is `values`.
    pub fn values<T: Pod>(values: &'a [T]) -> Self {
        Self::data(cast_slice(values))
    }

    /// Makes an output of `count` values of type `T`.
    pub const fn output_of<T>(count: usize) -> Self {
        Self::output(count.saturating_mul(size_of::<T>()))
    }

    /// Makes an in-out parameter whose initial content is `values`.
    pub fn in_out_values<T: Pod>(values: &'a [T]) -> Self {
        Self::in_out(size_of_val(values)).holding(cast_slice(values))
    }
}

impl Session {
    /// Returns the values of parameter `index`. The values are copied if an accelerator may still be able to write to
    /// the parameter, or if the parameter does not begin at a multiple of the alignment of `T`. Otherwise, they are
    /// borrowed.
    ///
    /// # Errors
    /// Fails with [`Error::NotWhole`] if the length of the parameter is not a multiple of the size of `T`, and with the
    /// same errors as [`bytes`](Self::bytes).
    pub fn values<T: Pod>(&self, index: usize) -> Result<Cow<'_, [T]>, Error> {
        let bytes = self.bytes(index, ..)?;
        check_whole::<T>(bytes.len())?;
        Ok(match bytes {
            Cow::Borrowed(bytes) => match try_cast_slice(bytes) {
                Ok(values) => Cow::Borrowed(values),
                Err(_) => Cow::Owned(pod_collect_to_vec(bytes)),
            },
            Cow::Owned(bytes) => Cow::Owned(pod_collect_to_vec(&bytes)),
        })
    }

    /// Returns the values of parameter `index` as a mutable slice, without a copy.
    ///
    /// # Errors
    /// Fails with [`Error::NotWhole`] if the length of the parameter is not a multiple of the size of `T`, with
    /// [`Error::Unaligned`] if the parameter does not begin at a multiple of the alignment of `T`, and with the same
    /// errors as [`slice_mut`](Self::slice_mut).
    pub fn values_mut<T: Pod>(&mut self, index: usize) -> Result<&mut [T], Error> {
        let bytes = self.slice_mut(index)?;
        check_whole::<T>(bytes.len())?;
        try_cast_slice_mut(bytes).map_err(|_| unaligned::<T>())
    }

    /// Copies `values` into parameter `index`, from the value with the number `first` on.
    ///
    /// # Errors
    /// Fails with the same errors as [`write`](Self::write).
    pub fn write_values<T: Pod>(&mut self, index: usize, first: usize, values: &[T]) -> Result<(), Error> {
        self.write(index, first.saturating_mul(size_of::<T>()), cast_slice(values))
    }
}

fn check_whole<T>(len: usize) -> Result<(), Error> {
    match size_of::<T>() {
        0 => Err(Error::NotWhole { len, size: 0 }),
        size if len.is_multiple_of(size) => Ok(()),
        size => Err(Error::NotWhole { len, size }),
    }
}

fn unaligned<T>() -> Error {
    Error::Unaligned { alignment: align_of::<T>() }
}
