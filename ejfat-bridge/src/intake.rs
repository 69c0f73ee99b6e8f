//! The receiving part of a bridge, which also owns the receive buffers and the spill memory.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ejfat::{
    Time,
    reassembly::{CopyCommand, Incomplete, Reassembler},
};
use ejfat_udp::{EventMemory, Ports, ReceivedSegments};
use rustix::param::page_size;

use crate::{BridgeConfig, Error, WorkerSelection, buffers::Buffers};
use ejfat::bridge::{EligibleWorkers, Opened};

/// The number of receive buffers for segments, 64 KiB each. In the delivery mode cut-through, segments are sent to
/// workers directly from these buffers.
const RECEIVE_BUFFERS: usize = 256;

/// The receiving part of a bridge: sockets, reassembler, receive buffers and spill memory.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) ports: Ports,
    pub(crate) reassembler: Reassembler,
    pub(crate) spill: EventMemory,
    pub(crate) buffers: Buffers,
    received: [ReceivedSegments; Ports::BATCH],
    route: WorkerSelection,
    began: Instant,
}

impl Intake {
    pub(crate) fn new(config: &BridgeConfig) -> Result<Self, Error> {
        let mut reassembly = config.reassembly.clone();
        reassembly.page = u32::try_from(page_size()).unwrap_or(u32::MAX);
        let reassembler = Reassembler::new(reassembly)?;
        let buffers = Buffers::new(RECEIVE_BUFFERS).map_err(Error::io("allocate receive buffers"))?;
        Ok(Self {
            ports: Ports::bind(&config.listen, config.buffer)?,
            spill: EventMemory::new(reassembler.config()),
            reassembler,
            buffers,
            received: [ReceivedSegments::NONE; Ports::BATCH],
            route: config.route.clone(),
            began: Instant::now(),
        })
    }

    pub(crate) fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.began);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn now(&self) -> Time {
        self.time(Instant::now())
    }

    /// Receives at most `most` super-packets of segments on the UDP port with the index `port`. Returns the number of
    /// receive buffers that were filled. After the caller has handled the segments in these buffers, it must call [`Buffers::done`]
    /// with the returned number.
    pub(crate) fn receive(&mut self, port: usize, most: usize) -> Result<usize, ejfat_udp::Error> {
        if self.buffers.free() == 0 {
            return Ok(0);
        }
        let Self { ports, received, buffers, .. } = self;
        buffers.take(most, |slices| ports.receive(port, slices, received))
    }

    pub(crate) fn batch(&self, at: usize) -> (u32, ReceivedSegments) {
        (self.buffers.received(at), self.received[at])
    }

    /// Returns the description of a new event for the dispatcher. `place` is the result of [`Reassembler::handle`] for the
    /// segment that opened the event.
    pub(crate) fn opened(&self, place: &CopyCommand) -> Opened {
        let target = match &self.route {
            WorkerSelection::LeastFilled => EligibleWorkers::Anybody,
            WorkerSelection::DataId => EligibleWorkers::DataId(place.name.data_id),
            WorkerSelection::Tables(tables) => {
                let member = place.lb.and_then(|header| tables.member(&header));
                member.map_or(EligibleWorkers::Anybody, EligibleWorkers::Member)
            }
        };
        let tick = place.lb.map(|header| header.tick);
        Opened { id: place.id, name: place.name, tick, length: place.length, target }
    }

    /// Takes the next event that was evicted to make room for another event, and frees the spill memory of the evicted
    /// event.
    pub(crate) fn evicted(&mut self) -> Option<Incomplete> {
        self.reassembler.poll_evicted().inspect(|incomplete| self.spill.release(incomplete.id))
    }

    pub(crate) fn given_up(&mut self, now: Time) -> Option<Incomplete> {
        self.reassembler.poll_given_up(now).inspect(|incomplete| self.spill.release(incomplete.id))
    }
}

/// Returns the current UNIX time in nanoseconds.
pub(crate) fn unix() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
