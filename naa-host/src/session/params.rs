//! Methods of a session that read and write parameters, and that choose the part of an input that the next calls
//! send.

use std::{
    borrow::Cow,
    ops::{Bound, RangeBounds},
};

use mrsp::{
    RegionFlags,
    builtin::{BLOCK_BYTES, StatusBlock},
    plan::Part,
};

use super::Session;
use crate::{Error, buffer::HostRegion};

/// Checks that `len` bytes at `offset` lie inside parameter `index`.
fn inside(index: usize, offset: usize, len: usize, size: usize) -> Result<(), Error> {
    match offset.checked_add(len).filter(|&end| end <= size) {
        Some(_) => Ok(()),
        None => Err(Error::OutOfBounds { index, offset, len, size }),
    }
}

impl Session {
    /// Returns the bytes of parameter `index` as a slice, without a copy.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] from the call of [`invoke`](Self::invoke) until the outcome was returned. Fails
    /// with [`Error::NoSuchParam`] if there is no parameter `index`. Fails with [`Error::InReach`] if an accelerator
    /// may still be able to write to the parameter.
    pub fn slice(&self, index: usize) -> Result<&[u8], Error> {
        self.region(index)?.bytes()
    }

    /// Returns the bytes of parameter `index` as a mutable slice, without a copy.
    ///
    /// # Errors
    /// Fails with the same errors as [`slice`](Self::slice).
    pub fn slice_mut(&mut self, index: usize) -> Result<&mut [u8], Error> {
        self.region_mut(index)?.bytes_mut()
    }

    /// Returns the bytes of parameter `index` in `range`. If an accelerator may still be able to write to the
    /// parameter, the method returns a copy of the bytes instead of failing with [`Error::InReach`]. Otherwise, the
    /// bytes are not copied.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] from the call of [`invoke`](Self::invoke) until the outcome was returned. Fails
    /// with [`Error::NoSuchParam`] if there is no parameter `index`. Fails with [`Error::OutOfBounds`] if the bytes do
    /// not lie inside the parameter.
    pub fn bytes(&self, index: usize, range: impl RangeBounds<usize>) -> Result<Cow<'_, [u8]>, Error> {
        let region = self.region(index)?;
        let size = region.len();
        let offset = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => size,
        };
        let len = end.saturating_sub(offset);
        inside(index, offset, len, size)?;
        match region.bytes() {
            Ok(all) => Ok(Cow::Borrowed(&all[offset..offset + len])),
            Err(Error::InReach) => {
                let mut copy = vec![0; len];
                region.read(offset, &mut copy)?;
                Ok(Cow::Owned(copy))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a copy of all bytes of parameter `index`.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] from the call of [`invoke`](Self::invoke) until the outcome was returned. Fails
    /// with [`Error::NoSuchParam`] if there is no parameter `index`.
    pub fn to_vec(&self, index: usize) -> Result<Vec<u8>, Error> {
        let region = self.region(index)?;
        let mut copy = vec![0; region.len()];
        region.read(0, &mut copy)?;
        Ok(copy)
    }

    /// Copies `bytes` into parameter `index`, from `offset` on.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] from the call of [`invoke`](Self::invoke) until the outcome was returned. Fails
    /// with [`Error::NoSuchParam`] if there is no parameter `index`. Fails with [`Error::OutOfBounds`] if the bytes do
    /// not lie inside the parameter.
    pub fn write(&mut self, index: usize, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let region = self.region_mut(index)?;
        inside(index, offset, bytes.len(), region.len())?;
        region.write(offset, bytes)
    }

    /// Fills `out` with a copy of the bytes of parameter `index` that begin at `offset`.
    ///
    /// # Errors
    /// Fails with the same errors as [`write`](Self::write).
    pub fn read(&self, index: usize, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let region = self.region(index)?;
        inside(index, offset, out.len(), region.len())?;
        region.read(offset, out)
    }

    /// Returns the length of parameter `index` in bytes.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no parameter `index`.
    pub fn param_len(&self, index: usize) -> Result<usize, Error> {
        Ok(self.region(index)?.len())
    }

    /// Lets later calls send only the first `bytes` bytes of input `index`, or the whole input if `bytes` is `None`.
    ///
    /// # Errors
    /// Fails with the same errors as [`set_part_to_send`](Self::set_part_to_send).
    pub fn set_bytes_to_send(&mut self, index: usize, bytes: Option<u64>) -> Result<(), Error> {
        self.set_part_to_send(index, bytes.map(Part::prefix))
    }

    /// Lets later calls send only `part` of input `index`, or the whole input if `part` is `None`. The part has the
    /// same offset inside the parameter on the host and on the accelerator.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no parameter `index`. Fails with [`Error::NotInput`] if the
    /// parameter is not an input. Fails with [`Error::OutOfBounds`] if the part does not lie inside the parameter.
    pub fn set_part_to_send(&mut self, index: usize, part: Option<Part>) -> Result<(), Error> {
        let region = self.region(index)?;
        if !region.flags().intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND) {
            return Err(Error::NotInput { index });
        }
        let size = region.len();
        if let Some(Part { offset, bytes }) = part
            && offset.checked_add(bytes).is_none_or(|end| end > size as u64)
        {
            let [offset, len] = [offset, bytes].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            return Err(Error::OutOfBounds { index, offset, len, size });
        }
        self.parts[index] = part;
        Ok(())
    }

    /// Returns the status block of a built-in function, which lies at the start of the first output.
    ///
    /// # Errors
    /// Fails with [`Error::Status`] if there is no valid status block, and with [`Error::InCall`] while a call runs.
    pub fn status_block(&self) -> Result<StatusBlock, Error> {
        let mut params = self.regions.params().iter();
        let mut block = [0; BLOCK_BYTES];
        let mut len = 0;
        if let Some(region) = params.find(|region| region.flags().contains(RegionFlags::OUTPUT)) {
            len = region.len().min(BLOCK_BYTES);
            region.read(0, &mut block[..len])?;
        }
        StatusBlock::decode(&block[..len])
            .map_err(|source| Error::Status { peer: self.connection.peer, source })
    }

    /// Adds the detail of the status block to an `error` that is the failure of a function. Returns `error` unchanged
    /// if it is another error, or if the status block does not describe this failure. The detail explains the failure
    /// more closely than the return code does. If a session makes several calls, the program must clear the status
    /// block before each call. Otherwise, this method may use the status block of an earlier call for the failure of
    /// the last call.
    pub fn with_detail(&self, error: Error) -> Error {
        match (error, self.status_block()) {
            (Error::Function { peer, function, code, .. }, Ok(status))
                if (status.function, status.code) == (function, Some(code)) =>
            {
                Error::Function { peer, function, code, detail: status.detail }
            }
            (error, _) => error,
        }
    }

    /// Returns the number of bytes that are registered with the device for the parameters.
    pub fn registered_bytes(&self) -> u64 {
        self.regions.registered_bytes()
    }

    /// Returns the number of bytes in all regions that the accelerator advertised.
    pub fn accelerator_bytes(&self) -> u64 {
        self.machine.peer_regions().map_or(0, |regions| regions.iter().map(|r| u64::from(r.size)).sum())
    }

    /// Returns the number of parameters, not counting internal regions.
    pub fn params(&self) -> usize {
        self.regions.params().len()
    }

    pub(crate) fn region(&self, index: usize) -> Result<&HostRegion, Error> {
        self.regions.params().get(index).ok_or(Error::NoSuchParam { index, params: self.params() })
    }

    pub(crate) fn region_mut(&mut self, index: usize) -> Result<&mut HostRegion, Error> {
        let params = self.params();
        self.regions.params_mut().get_mut(index).ok_or(Error::NoSuchParam { index, params })
    }
}
