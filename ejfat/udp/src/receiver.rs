//! Receives events.

use std::{
    fmt, hint, io,
    io::IoSliceMut,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    reassembly::{Config, Incomplete, Name, Reassembler},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    param::page_size,
};

use crate::{
    Arena, Error,
    ports::{Ports, Received},
};

/// Batches of one socket before the others have their turn.
const TURNS: usize = 16;
/// So long it looks for more after something came, before it sleeps: to sleep and to be woken costs both ends more.
const SPIN: Duration = Duration::from_micros(20);

/// Where to listen, and what to keep.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Each in a UDP port of its own.
    pub listen: Vec<SocketAddr>,
    /// Of each socket; `None`: the system's.
    pub buffer: Option<usize>,
    /// The sender's address tells events apart. Off behind a load balancer, which puts its own.
    pub by_source: bool,
    pub reassembly: Config,
}

/// A complete event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub name: Name,
    pub from: Option<IpAddr>,
    pub bytes: &'a [u8],
}

/// Reassembles what arrives at some ports.
pub struct Receiver {
    ports: Ports,
    by_source: bool,
    reassembler: Reassembler,
    arena: Arena,
    buffers: Vec<u8>,
    received: [Received; Ports::BATCH],
    began: Instant,
    /// Something came just now.
    lively: bool,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("reassembler", &self.reassembler).finish_non_exhaustive()
    }
}

impl Receiver {
    pub fn new(mut config: ReceiverConfig) -> Result<Self, Error> {
        config.reassembly.page = u32::try_from(page_size()).unwrap_or(u32::MAX);
        let reassembler = Reassembler::new(config.reassembly)?;
        Ok(Self {
            ports: Ports::bind(&config.listen, config.buffer)?,
            by_source: config.by_source,
            arena: Arena::new(reassembler.config())?,
            reassembler,
            buffers: vec![0; Ports::BUFFER * Ports::BATCH],
            received: [Received::NONE; Ports::BATCH],
            began: Instant::now(),
            lively: false,
        })
    }

    /// The addresses, with the ports the system chose for 0.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.ports.addresses()
    }

    /// Bytes of a socket's receive buffer, as the system granted it: half of what it tells is its own overhead.
    pub fn buffer(&self) -> io::Result<usize> {
        self.ports.buffer()
    }

    pub fn reassembler(&self) -> &Reassembler {
        &self.reassembler
    }

    /// The memory of events.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// As [`Ports::kernel_drops`].
    pub fn kernel_drops(&self) -> Result<u64, Error> {
        self.ports.kernel_drops()
    }

    /// Sleeps until something arrives, an event times out, or `most` passes; for an instant it looks for more instead when
    /// something came the last time. What arrived by then is reassembled: each
    /// complete event goes to `deliver`, and its memory is free again when that returns; each one given up to `lost`.
    pub fn poll(
        &mut self,
        most: Duration,
        mut deliver: impl FnMut(Event<'_>),
        mut lost: impl FnMut(Incomplete),
    ) -> Result<(), Error> {
        // What came in time is looked at before anything is given up, however long this process stood still.
        let mut now = clock(self.began);
        let mut received = self.lively && self.look(most.min(SPIN), &mut deliver)?;
        if !received {
            now = clock(self.began);
            let due =
                self.reassembler.next_timeout().map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)));
            let ready = self.wait(due.map_or(most, |due| due.min(most)))?;
            now = clock(self.began);
            for port in ready {
                received |= self.drain(port, &mut deliver)?;
            }
        }
        self.lively = received;
        while let Some(incomplete) = self.reassembler.poll_given_up(now) {
            self.arena.release(incomplete.id);
            lost(incomplete);
        }
        Ok(())
    }

    /// Looks at all ports again and again until there is something, without sleeping. False if nothing came.
    fn look(&mut self, most: Duration, deliver: &mut impl FnMut(Event<'_>)) -> Result<bool, Error> {
        let begin = Instant::now();
        loop {
            let mut received = false;
            for port in 0..self.ports.len() {
                received |= self.drain(port, deliver)?;
            }
            if received || begin.elapsed() >= most {
                return Ok(received);
            }
            hint::spin_loop();
        }
    }

    /// What a port has, but not for ever. False if it has nothing.
    fn drain(&mut self, port: usize, deliver: &mut impl FnMut(Event<'_>)) -> Result<bool, Error> {
        let mut turns = 0;
        while turns < TURNS && self.receive(port, deliver)? {
            turns += 1;
        }
        Ok(turns > 0)
    }

    /// The ports that have something.
    fn wait(&self, most: Duration) -> Result<Vec<usize>, Error> {
        let mut fds: Vec<_> =
            self.ports.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let most = Timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        match poll(&mut fds, Some(&most)) {
            Ok(_) => {
                let has = |(at, fd): (usize, &PollFd<'_>)| (!fd.revents().is_empty()).then_some(at);
                Ok(fds.iter().enumerate().filter_map(has).collect())
            }
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(Error::io("wait for segments")(error.into())),
        }
    }

    /// One batch; false if there was none.
    fn receive(&mut self, port: usize, deliver: &mut impl FnMut(Event<'_>)) -> Result<bool, Error> {
        let mut now = clock(self.began);
        let mut buffers = self.buffers.chunks_exact_mut(Ports::BUFFER);
        let mut pieces: [IoSliceMut<'_>; Ports::BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().expect("one for each")));
        let count = self.ports.receive(port, &mut pieces, &mut self.received)?;
        for (received, buffer) in self.received[..count].iter().zip(self.buffers.chunks_exact(Ports::BUFFER))
        {
            let from = self.by_source.then_some(received.from);
            // One that is not even a header is counted.
            for datagram in received.datagrams(buffer) {
                let Ok(place) = self.reassembler.handle(now, from, datagram) else { continue };
                self.arena.place(&place, &datagram[place.payload.clone()]);
                if place.complete {
                    let bytes = self.arena.bytes(place.id.slot(), place.length as usize);
                    deliver(Event { name: place.name, from, bytes });
                    self.reassembler.release(place.id);
                    self.arena.release(place.id);
                    // Whoever took it may have taken long.
                    now = clock(self.began);
                }
            }
        }
        Ok(count > 0)
    }
}

fn clock(began: Instant) -> Time {
    Time(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
