//! Buffers that segments are received in, and that WRITEs may still read while others are received.
#![allow(unsafe_code, reason = "lends parts of registered memory as slices")]

use std::io::{self, IoSliceMut};

use ejfat_udp::Ports;
use verbs::{Access, Memory, Mr, Pd};

/// Buffers of [`Ports::BUFFER`] bytes.
#[derive(Debug)]
pub(crate) struct Buffers {
    memory: Memory,
    /// Those that nobody reads.
    free: Vec<u32>,
    /// WRITEs that read each, and one more while it is received into.
    users: Vec<u32>,
    /// Taken by [`Buffers::take`] and not received into yet.
    taken: Vec<u32>,
}

impl Buffers {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let count = count.max(Ports::BATCH);
        let memory = region::alloc(count * Ports::BUFFER)?;
        let free = (0..count as u32).rev().collect();
        Ok(Self { memory, free, users: vec![0; count], taken: Vec::with_capacity(Ports::BATCH) })
    }

    /// For WRITEs of a protection domain.
    pub(crate) fn register(&self, pd: &Pd) -> Result<Mr, verbs::Error> {
        pd.reg_mr(&self.memory, Access::default())
    }

    /// Buffers that can be received into next, besides those of the batch in hand.
    pub(crate) fn free(&self) -> usize {
        let in_hand = |&&buffer: &&u32| self.users[buffer as usize] > 0;
        self.free.len() + self.taken.len() - self.taken.iter().take_while(in_hand).count()
    }

    /// Lends up to [`Ports::BATCH`] buffers to receive into; `receive` tells how many it used.
    pub(crate) fn take<E>(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        while self.taken.len() < Ports::BATCH
            && let Some(buffer) = self.free.pop()
        {
            self.taken.push(buffer);
        }
        let mut slices = arrayvec::ArrayVec::<_, { Ports::BATCH }>::new();
        for &buffer in &self.taken {
            let start = buffer as usize * Ports::BUFFER;
            // SAFETY: inside the memory, which nobody else writes; the numbers in `taken` are different from each other, no
            // WRITE reads them (`users` was 0), and `&mut self` keeps other slices away.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(start), Ports::BUFFER) };
            slices.push(IoSliceMut::new(bytes));
        }
        let used = receive(&mut slices)?.min(slices.len());
        self.taken[..used].iter().for_each(|&buffer| self.users[buffer as usize] = 1);
        Ok(used)
    }

    /// The number of a buffer that was received into, of those used by the last [`Buffers::take`].
    pub(crate) fn received(&self, at: usize) -> u32 {
        self.taken[at]
    }

    /// Of a buffer that was received into.
    pub(crate) fn bytes(&self, buffer: u32) -> &[u8] {
        assert!(self.users[buffer as usize] > 0, "a buffer that somebody uses");
        let start = buffer as usize * Ports::BUFFER;
        // SAFETY: inside the memory, initialised with zeros, and not received into before nobody uses it any more; WRITEs
        // only read.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), Ports::BUFFER) }
    }

    /// Where a byte of a buffer lies.
    pub(crate) fn addr(&self, buffer: u32, offset: usize) -> u64 {
        assert!(offset <= Ports::BUFFER, "inside a buffer");
        self.memory.addr() + (buffer as usize * Ports::BUFFER + offset) as u64
    }

    pub(crate) fn hold(&mut self, buffer: u32) {
        self.users[buffer as usize] += 1;
    }

    /// One user less.
    pub(crate) fn release(&mut self, buffer: u32) {
        let users = &mut self.users[buffer as usize];
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.free.push(buffer);
        }
    }

    /// All datagrams of the last batch, of so many buffers, were looked at.
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
            .take(|slices| {
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
    fn with_none_free_nothing_is_lent() {
        let mut buffers = Buffers::new(Ports::BATCH).unwrap();
        let used = receive(&mut buffers, Ports::BATCH);
        used.iter().for_each(|&buffer| buffers.hold(buffer));
        buffers.done(Ports::BATCH);
        assert_eq!(buffers.free(), 0);
        let lent = buffers.take(|slices| Ok::<_, ()>(slices.len()));
        assert_eq!(lent, Ok(0));
    }
}
