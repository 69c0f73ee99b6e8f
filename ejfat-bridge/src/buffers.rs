//! Receive buffers for segments. While new segments are received into some buffers, WRITEs may still read other
//! buffers.
#![allow(unsafe_code, reason = "lends parts of registered memory as slices")]

use std::io::{self, IoSliceMut};

use ejfat_udp::Ports;
use verbs::{Access, Memory, Mr, Pd};

/// Receive buffers of [`Ports::BUFFER`] bytes. Each buffer takes one super-packet, which contains one or more
/// segments. A batch is the super-packets that one call of [`Buffers::take`] receives.
#[derive(Debug)]
pub(crate) struct Buffers {
    memory: Memory,
    /// The numbers of the free buffers. The buffers in `taken` are not in `free`.
    free: Vec<u32>,
    /// The number of users of each buffer. Each WRITE that reads the buffer is a user. The bridge itself is a
    /// user while it handles the segments in the buffer.
    users: Vec<u32>,
    /// The numbers of the buffers that [`Buffers::take`] has taken from `free`. The buffers at the front of
    /// this list contain the last batch until [`Buffers::done`] is called. All other buffers in the list are
    /// empty.
    taken: Vec<u32>,
}

impl Buffers {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let count = count.max(Ports::BATCH);
        let memory = region::alloc(count * Ports::BUFFER)?;
        let free = (0..count as u32).rev().collect();
        Ok(Self { memory, free, users: vec![0; count], taken: Vec::with_capacity(Ports::BATCH) })
    }

    /// Registers the buffers with a protection domain, so that queue pairs of this protection domain can send segments
    /// from the buffers by WRITEs.
    pub(crate) fn register(&self, pd: &Pd) -> Result<Mr, verbs::Error> {
        pd.reg_mr(&self.memory, Access::default())
    }

    /// Returns the number of buffers into which super-packets can be received. A buffer does not count as
    /// free while a WRITE reads it or the bridge handles the segments in it.
    pub(crate) fn free(&self) -> usize {
        let in_hand = |&&buffer: &&u32| self.users[buffer as usize] > 0;
        self.free.len() + self.taken.len() - self.taken.iter().take_while(in_hand).count()
    }

    /// Calls `receive` with at most `most` buffers, and with at most [`Ports::BATCH`]. `receive` must fill the buffers in their order, and must
    /// return the number of buffers that it filled.
    pub(crate) fn take<E>(
        &mut self,
        most: usize,
        receive: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        while self.taken.len() < Ports::BATCH
            && let Some(buffer) = self.free.pop()
        {
            self.taken.push(buffer);
        }
        let mut slices = arrayvec::ArrayVec::<_, { Ports::BATCH }>::new();
        for &buffer in self.taken.iter().take(most) {
            let start = buffer as usize * Ports::BUFFER;
            // SAFETY: the slice lies inside `self.memory`, which only this type writes. The slices do not
            // overlap, because the numbers in `taken` are different from each other. No WRITE reads a buffer
            // in `taken`, because `done` has removed the buffers of the previous batch from `taken`. No other
            // slice of the memory exists, because this method has `&mut self`.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(start), Ports::BUFFER) };
            slices.push(IoSliceMut::new(bytes));
        }
        let used = receive(&mut slices)?.min(slices.len());
        self.taken[..used].iter().for_each(|&buffer| self.users[buffer as usize] = 1);
        Ok(used)
    }

    /// Returns the number of the buffer that contains the super-packet with the index `at` in the last batch.
    pub(crate) fn received(&self, at: usize) -> u32 {
        self.taken[at]
    }

    /// Returns all bytes of the buffer with the number `buffer`. The buffer must be in use: the bridge handles
    /// the segments in it, or a WRITE reads it. Panics if the buffer is not in use.
    pub(crate) fn bytes(&self, buffer: u32) -> &[u8] {
        assert!(self.users[buffer as usize] > 0, "a buffer that somebody uses");
        let start = buffer as usize * Ports::BUFFER;
        // SAFETY: the slice lies inside `self.memory`, whose bytes were zero at first, so all bytes are initialized.
        // Nobody writes the buffer while the slice exists: [`Buffers::take`] has `&mut self`, and WRITEs only read the
        // buffer.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), Ports::BUFFER) }
    }

    /// Returns the address of the byte at `offset` of a buffer.
    pub(crate) fn addr(&self, buffer: u32, offset: usize) -> u64 {
        assert!(offset <= Ports::BUFFER, "inside a buffer");
        self.memory.addr() + (buffer as usize * Ports::BUFFER + offset) as u64
    }

    pub(crate) fn hold(&mut self, buffer: u32) {
        self.users[buffer as usize] += 1;
    }

    /// Removes one user of the buffer. This user is a WRITE that does not need the buffer any more, or the bridge after
    /// it has handled the segments in the buffer. The buffer becomes free when it has no user any more.
    pub(crate) fn release(&mut self, buffer: u32) {
        let users = &mut self.users[buffer as usize];
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.free.push(buffer);
        }
    }

    /// Notes that the bridge has handled the last batch, which has `used` super-packets. Each buffer of this
    /// batch becomes free, unless a WRITE reads the buffer.
    pub(crate) fn done(&mut self, used: usize) {
        for at in 0..used {
            let buffer = self.taken[at];
            self.release(buffer);
        }
        self.taken.drain(..used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(buffers: &mut Buffers, count: usize) -> Vec<u32> {
        let used = buffers
            .take(Ports::BATCH, |slices| {
                slices.iter_mut().take(count).for_each(|slice| slice[0] = 7);
                Ok::<_, ()>(count)
            })
            .unwrap();
        (0..used).map(|at| buffers.received(at)).collect()
    }

    #[test]
    fn a_buffer_is_received_into_again_when_nobody_reads_it() {
        let mut buffers = Buffers::new(Ports::BATCH).unwrap();
        let used = receive(&mut buffers, 2);
        assert_eq!((used.len(), buffers.bytes(used[0])[0]), (2, 7));
        buffers.hold(used[0]);
        buffers.done(2);
        assert_eq!(buffers.free(), Ports::BATCH - 1);
        let others = receive(&mut buffers, Ports::BATCH - 1);
        assert!(!others.contains(&used[0]));
        assert_eq!(buffers.free(), 0, "they are in hand");
        buffers.done(Ports::BATCH - 1);
        buffers.release(used[0]);
        assert_eq!(buffers.free(), Ports::BATCH);
    }

    #[test]
    fn no_more_are_lent_than_are_asked_for() {
        let mut buffers = Buffers::new(Ports::BATCH).unwrap();
        for most in [1, 3, Ports::BATCH] {
            assert_eq!(buffers.take(most, |slices| Ok::<_, ()>(slices.len())), Ok(most));
            buffers.done(most);
        }
    }

    #[test]
    fn with_none_free_nothing_is_lent() {
        let mut buffers = Buffers::new(Ports::BATCH).unwrap();
        let used = receive(&mut buffers, Ports::BATCH);
        used.iter().for_each(|&buffer| buffers.hold(buffer));
        buffers.done(Ports::BATCH);
        assert_eq!(buffers.free(), 0);
        let lent = buffers.take(Ports::BATCH, |slices| Ok::<_, ()>(slices.len()));
        assert_eq!(lent, Ok(0));
    }
}
