//! The trace of a device: the packets that it refused, with the cause.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use roce::{Observer, Refusal, RefusalCause, Time};

/// A packet that a device received and did not execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPacket {
    /// The time since the device was opened.
    pub at: Duration,
    pub from: SocketAddr,
    pub cause: RefusalCause,
    /// The headers of the packet, if the datagram is a packet.
    pub header: Option<RefusedHeader>,
}

/// The fields of a refused packet that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedHeader {
    pub opcode: u8,
    pub dest_qp: u32,
    pub psn: u32,
    /// The RKey, address and DMA length of a WRITE or READ request.
    pub remote: Option<roce::wire::Reth>,
}

impl RefusedHeader {
    /// The name of the opcode.
    pub fn operation(&self) -> &'static str {
        roce::opcode::info(self.opcode).map_or("unknown", |info| info.name)
    }
}

/// The trace of a device. The device writes it, and the owner of a clone takes what was written.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Taken>>);

/// The refused packets since they were taken last.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    pub packets: Vec<RefusedPacket>,
    /// The number of later packets that had no room. A peer decides how many packets are refused, so the room is bounded.
    pub missed: u64,
}

impl Trace {
    /// The most packets that wait to be taken.
    pub const ROOM: usize = 1024;

    /// Takes the packets that were refused since the last call.
    pub fn take(&self) -> Taken {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, packet: RefusedPacket) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.packets.len() < Self::ROOM {
            taken.packets.push(packet);
        } else {
            taken.missed += 1;
        }
    }
}

/// The observer of one turn. It writes to the trace, if the device has one.
#[derive(Debug)]
pub(crate) struct Tracer<'a> {
    pub(crate) trace: Option<&'a Trace>,
    pub(crate) now: Time,
}

impl Observer for Tracer<'_> {
    fn refused(&mut self, refusal: &Refusal<'_>) {
        let Some(trace) = self.trace else { return };
        let header = refusal.packet.map(|packet| RefusedHeader {
            opcode: packet.bth.opcode,
            dest_qp: packet.bth.dest_qp,
            psn: packet.bth.psn.value(),
            remote: packet.reth,
        });
        let at = Duration::from_nanos(self.now.nanos());
        trace.add(RefusedPacket { at, from: refusal.from, cause: refusal.cause, header });
    }
}
