//! Receives events.

use std::{
    fmt, hint, io,
    io::IoSliceMut,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    listen::Listen,
    reassembly::{Config, EventKey, Incomplete, Reassembler},
};
use rustix::param::page_size;

use crate::{
    Error, EventMemory, Gauge, PortCounters,
    gauge::{Levels, SAMPLE},
    ports::{Ports, ReceivedSegments},
};

/// Batches of one socket before the others have their turn.
const TURNS: usize = 16;
/// Looks in a row that did not find all that was there, before events are given up all the same: as many as a whole range
/// of ports may need.
const LOOKS: usize = 264;
/// So long it looks for more after something came, before it sleeps: to sleep and to be woken costs both ends more.
const SPIN: Duration = Duration::from_micros(20);

/// The addresses to listen on, and the limits of the reassembly.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The addresses and ports at which segments arrive.
    pub listen: Vec<Listen>,
    /// The receive buffer of each socket in bytes; `None`: the system's default.
    pub buffer: Option<usize>,
    /// The bounds of the reassembly, for example the most bytes of an event.
    pub reassembly: Config,
}

/// A complete event.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedEvent<'a> {
    /// The event number and the data id.
    pub name: EventKey,
    /// The address from which the event's last segment came, if it is known. If the segment came through a load
    /// balancer, it is the load balancer's address.
    pub from: Option<IpAddr>,
    /// The bytes of the event.
    pub bytes: &'a [u8],
}

/// Reassembles what arrives at some ports.
pub struct Receiver {
    ports: Ports,
    reassembler: Reassembler,
    memory: EventMemory,
    buffers: Vec<u8>,
    received: [ReceivedSegments; Ports::BATCH],
    /// The numbers of ports that may have something to receive.
    ready: Vec<usize>,
    /// Whether `ready` has all such ports.
    is_all: bool,
    /// What came before this time was looked at, unless [`LOOKS`] were not enough for that.
    seen: Time,
    /// Looks since the one that began at `seen`.
    looks: usize,
    /// Whether the log has a line that the system has no addresses for an event.
    logged_addresses: bool,
    began: Instant,
    /// Whether something came the last time.
    lively: bool,
    /// What other threads read, if there is a [`Gauge`].
    levels: Option<Arc<Levels>>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("reassembler", &self.reassembler).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Binds the ports and allocates the tables. The page size is always the system's, whatever the configuration says.
    ///
    /// # Errors
    /// Fails if a port cannot be bound, or if the bounds of the reassembly exclude each other.
    pub fn new(mut config: ReceiverConfig) -> Result<Self, Error> {
        config.reassembly.page = u32::try_from(page_size()).unwrap_or(u32::MAX);
        let reassembler = Reassembler::new(config.reassembly)?;
        Ok(Self {
            ports: Ports::bind(&config.listen, config.buffer)?,
            memory: EventMemory::new(reassembler.config()),
            reassembler,
            buffers: vec![0; Ports::BUFFER * Ports::BATCH],
            received: [ReceivedSegments::NONE; Ports::BATCH],
            ready: Vec::new(),
            is_all: false,
            seen: Time::default(),
            looks: 0,
            logged_addresses: false,
            began: Instant::now(),
            lively: false,
            levels: None,
        })
    }

    /// The addresses, with the ports the system chose for 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.addresses()
    }

    /// Addresses that were skipped, as in [`Ports::skipped`].
    pub fn skipped(&self) -> &[SocketAddr] {
        self.ports.skipped()
    }

    /// Counters of each port, as in [`Ports::counters`].
    pub fn port_counters(&self) -> Vec<PortCounters> {
        self.ports.counters()
    }

    /// Returns the size in bytes of a socket's receive buffer, as the operating system granted it. The Linux kernel
    /// uses half of this size for its own data.
    ///
    /// # Errors
    /// Fails if the operating system does not report the size.
    pub fn buffer(&self) -> io::Result<usize> {
        self.ports.buffer()
    }

    /// Returns the reassembler, which has the counters of segments and events.
    pub fn reassembler(&self) -> &Reassembler {
        &self.reassembler
    }

    /// The memory of events.
    pub fn event_memory(&self) -> &EventMemory {
        &self.memory
    }

    /// Returns the number of datagrams that the Linux kernel dropped at all ports, as [`Ports::all_kernel_drops`] does.
    ///
    /// # Errors
    /// Fails if the operating system does not report the drops of a socket.
    pub fn all_kernel_drops(&self) -> Result<u64, Error> {
        self.ports.all_kernel_drops()
    }

    /// Returns the number of datagrams that the Linux kernel dropped, as [`Ports::kernel_drops`] does.
    ///
    /// # Errors
    /// Fails if the operating system does not report the drops of a socket.
    pub fn kernel_drops(&self) -> Result<u64, Error> {
        self.ports.kernel_drops()
    }

    /// Begins to tell other threads the counters and the fill level of this receiver.
    ///
    /// # Errors
    /// Fails if this process may have no more open files.
    pub fn gauge(&mut self) -> Result<Gauge, Error> {
        let memory_bytes = self.reassembler.config().memory;
        let levels = match &self.levels {
            Some(levels) => levels.clone(),
            None => Arc::new(Levels::new(self.ports.sample(SAMPLE)?, memory_bytes)),
        };
        Ok(Gauge(self.levels.insert(levels).clone()))
    }

    /// Receives segments and reassembles them. The call sleeps until a segment arrives, an event times out, or `most`
    /// has passed. If segments came at the last call, the call first polls for a short time instead of sleeping.
    /// `deliver` gets each complete event, whose memory is free again when `deliver` returns. `lost` gets each event
    /// that was given up.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system refuses to wait for the sockets or to receive.
    pub fn poll(
        &mut self,
        most: Duration,
        mut deliver: impl FnMut(ReceivedEvent<'_>),
        mut lost: impl FnMut(Incomplete),
    ) -> Result<(), Error> {
        // What came in time is looked at before anything is given up, however long this process stood still.
        let mut received = self.lively && self.look(most.min(SPIN), &mut deliver)?;
        if !received {
            let now = clock(self.began);
            let due =
                self.reassembler.next_timeout().map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)));
            self.ready.clear();
            let most = due.map_or(most, |due| due.min(most));
            self.is_all = self.ports.wait(most, |port| self.ready.push(port))?;
            received |= self.drain_ready(now, &mut deliver)?;
            if self.reassembler.next_timeout().is_some_and(|at| at <= clock(self.began)) {
                received |= self.look(Duration::ZERO, &mut deliver)?;
            }
        }
        self.lively = received;
        while let Some(incomplete) = self.reassembler.poll_given_up(self.seen) {
            self.memory.release(incomplete.id);
            lost(incomplete);
        }
        if let Some(levels) = &self.levels {
            levels.put(&self.reassembler, 0);
        }
        Ok(())
    }

    /// Looks at all ports again and again until there is something, without sleeping. False if nothing came.
    fn look(&mut self, most: Duration, deliver: &mut impl FnMut(ReceivedEvent<'_>)) -> Result<bool, Error> {
        let begin = Instant::now();
        loop {
            let asked = clock(self.began);
            self.ready.clear();
            self.is_all = self.ports.ready(|port| self.ready.push(port))?;
            let received = self.drain_ready(asked, deliver)?;
            if received || begin.elapsed() >= most {
                return Ok(received);
            }
            hint::spin_loop();
        }
    }

    /// Receives what the ports in `ready` have, but not for ever. `asked`: when the kernel was asked which they are. Returns
    /// false if nothing came.
    fn drain_ready(
        &mut self,
        asked: Time,
        deliver: &mut impl FnMut(ReceivedEvent<'_>),
    ) -> Result<bool, Error> {
        let (mut received, mut is_dry) = (false, self.is_all);
        for at in 0..self.ready.len() {
            let mut turns = 0;
            while turns < TURNS && self.receive(self.ready[at], deliver)? {
                turns += 1;
            }
            received |= turns > 0;
            is_dry &= turns < TURNS;
        }
        self.looks += 1;
        if is_dry || self.looks >= LOOKS {
            (self.seen, self.looks) = (asked, 0);
        }
        Ok(received)
    }

    /// One batch; false if there was none.
    fn receive(&mut self, port: usize, deliver: &mut impl FnMut(ReceivedEvent<'_>)) -> Result<bool, Error> {
        let mut now = clock(self.began);
        let mut buffers = self.buffers.chunks_exact_mut(Ports::BUFFER);
        let mut pieces: [IoSliceMut<'_>; Ports::BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().expect("one for each")));
        let count = self.ports.receive(port, &mut pieces, &mut self.received)?;
        let mut waiting: usize = self.received[..count].iter().map(|received| received.len).sum();
        for (received, buffer) in self.received[..count].iter().zip(self.buffers.chunks_exact(Ports::BUFFER))
        {
            let from = Some(received.from);
            // One that is not even a header is counted.
            for datagram in received.datagrams(buffer) {
                waiting -= datagram.len();
                let Ok(place) = self.reassembler.handle(now, from, datagram) else { continue };
                if let Err(error) = self.memory.place(&place, &datagram[place.payload.clone()]) {
                    if !std::mem::replace(&mut self.logged_addresses, true) {
                        tracing::warn!("an event is given up: {error}");
                    }
                    self.reassembler.abandon(place.id);
                    continue;
                }
                if place.complete {
                    let bytes = self.memory.bytes(place.id.slot(), place.length as usize);
                    // The caller may take long to consume an event, so the levels are published before and after: the
                    // rest of a batch may be many events.
                    if let Some(levels) = &self.levels {
                        levels.put(&self.reassembler, waiting as u64);
                    }
                    deliver(ReceivedEvent { name: place.name, from, bytes });
                    if let Some(levels) = &self.levels {
                        levels.delivered();
                    }
                    self.reassembler.release(place.id);
                    self.memory.release(place.id);
                    // The clock is read again, because the caller may have taken long.
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
