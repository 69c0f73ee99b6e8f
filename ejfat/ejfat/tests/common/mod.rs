//! A worker for tests, and segments for this worker.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::net::IpAddr;

use ejfat::{
    Time,
    reassembly::{Config, CopyCommand, Reassembler, SegmentDropCause},
    segment::{EventFields, LbVersion, SegmentSize, Segments},
    wire::ReHeader,
};

pub(crate) const NOW: Time = Time(1);

/// A worker with a reassembler, and with memory in which the worker executes the reassembler's copy commands.
pub(crate) struct WorkerModel {
    pub(crate) reassembler: Reassembler,
    memory: Vec<Vec<u8>>,
}

impl WorkerModel {
    pub(crate) fn new(config: Config) -> Self {
        let memory = vec![Vec::new(); config.slots as usize];
        Self { reassembler: Reassembler::new(config).unwrap(), memory }
    }

    pub(crate) fn handle(
        &mut self,
        now: Time,
        from: Option<IpAddr>,
        datagram: &[u8],
    ) -> Result<CopyCommand, SegmentDropCause> {
        let place = self.reassembler.handle(now, from, datagram)?;
        let memory = &mut self.memory[place.id.slot()];
        if place.opened {
            memory.clear();
            memory.resize(place.length as usize, 0xee);
        }
        let end = place.offset as usize + place.payload.len();
        memory[place.offset as usize..end].copy_from_slice(&datagram[place.payload.clone()]);
        Ok(place)
    }

    /// Passes a datagram to the reassembler, and carries out the copy command. If an event is complete with this
    /// datagram, releases the event and returns the event's bytes.
    pub(crate) fn event(
        &mut self,
        now: Time,
        from: Option<IpAddr>,
        datagram: &[u8],
    ) -> Result<Option<Vec<u8>>, SegmentDropCause> {
        let place = self.handle(now, from, datagram)?;
        Ok(place.complete.then(|| {
            assert!(self.reassembler.release(place.id));
            self.memory[place.id.slot()].clone()
        }))
    }

    pub(crate) fn bytes(&self, place: &CopyCommand) -> &[u8] {
        &self.memory[place.id.slot()]
    }
}

/// Returns a segment without an LB header, in the form that a worker receives.
pub(crate) fn segment(event: u64, offset: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    let header = ReHeader { data_id: 1, offset, length, event };
    [&header.encode()[..], payload].concat()
}

/// Returns the segments of an event with LB headers, in the form that a sender sends.
pub(crate) fn segments(name: EventFields, size: SegmentSize, event: &[u8]) -> Vec<Vec<u8>> {
    let segments = Segments::new(LbVersion::V2, size, name, event.len() as u64).unwrap();
    segments.map(|segment| [&segment.headers, &event[segment.payload]].concat()).collect()
}
