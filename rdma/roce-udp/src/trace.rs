//! The trace of a device: the packets that the device refused, each with its refusal cause.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use roce::{Observer, Refusal, RefusalCause, Time};

/// A packet that a device received and did not execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPacket {
    /// The time at which the packet was refused, counted from the opening of the device.
    pub at: Duration,
    /// The UDP address of the sender.
    pub from: SocketAddr,
    /// The reason for which the device did not execute the packet.
    pub cause: RefusalCause,
    /// Fields of the packet's headers; `None` if the datagram could not be decoded as a RoCE packet.
    pub header: Option<RefusedHeader>,
}

/// The header fields by which a refused packet can be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedHeader {
    /// The opcode in the BTH.
    pub opcode: u8,
    /// The number of the destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// The packet sequence number, 24 bits.
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

/// The list of the packets that a device refused. The device adds packets to the list, and a program that has a clone
/// of the `Trace` takes the packets from the list.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Taken>>);

/// The packets that a device refused since the previous [`Trace::take`].
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// The recorded packets, the oldest first, at most [`Trace::ROOM`].
    pub packets: Vec<RefusedPacket>,
    /// The number of refused packets that were not recorded, because the trace already contained [`Trace::ROOM`]
    /// packets. Without this limit, a peer could fill the memory with packets that the device refuses.
    pub missed: u64,
}

impl Trace {
    /// The maximum number of packets that a trace stores until [`take`](Self::take) is called.
    pub const ROOM: usize = 1024;

    /// Returns the packets that were refused since the previous call of this method, and empties the list.
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

/// Adds the packets that the engine refuses in one turn to the device's trace, if the device has a trace.
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
