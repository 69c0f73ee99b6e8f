//! Packets from registered memory: the one place that hands its addresses to the kernel.

use std::convert::Infallible;

use roce::{
    Transmit,
    icrc::{Icrc, WarmFlow},
    wire::{Bth, ICRC_LEN},
};
use verbs::Memory;

use crate::{
    memory::Regions,
    socket::{Segment, SendBatch},
};

/// Adds a packet to the batch; false when there is no room.
///
/// The batch then refers to the packet's regions: `Engine::release` drops what is unsent before a region goes.
pub(crate) fn build(send: &mut SendBatch, packet: &Transmit, flow: &mut WarmFlow, regions: &Regions) -> bool {
    let (len, pad) = (packet.datagram_len(), packet.pad());
    let header = packet.header.as_slice();
    let bth = header.first_chunk().expect("every packet begins with a BTH");
    let Some(mut segment) = send.segment(packet.to, len) else { return false };
    let mut icrc = flow.begin(segment.ip_id(), len, bth);
    icrc.update(&header[Bth::LEN..]);
    segment.copy(header);
    if !packet.inline.is_empty() {
        segment.copy(&packet.inline);
        icrc.update(&packet.inline);
    }
    for piece in &packet.pieces {
        let memory = regions.get(piece.region);
        if packet.copy_first {
            let copy = segment.space(piece.len as usize);
            memory.read(piece.offset as usize, copy);
            icrc.update(copy);
        } else {
            // SAFETY: a registered region stays mapped, and `Engine::release` is the only way to deregister one.
            unsafe { gather(&mut segment, &mut icrc, memory, piece.offset, piece.len) };
        }
    }
    let mut trailer = [0; 3 + ICRC_LEN];
    icrc.update(&trailer[..pad]);
    trailer[pad..pad + ICRC_LEN].copy_from_slice(&icrc.finish());
    segment.finish(&trailer[..pad + ICRC_LEN]);
    true
}

/// Bytes that are copied at a time for the ICRC: no packet has more of payload.
const PIECE: usize = 4096;

/// Appends `len` bytes of `memory` to a datagram without copying, and to its ICRC.
///
/// The kernel reads the bytes by their address. The ICRC is computed from a copy, piece by piece: the program, or another
/// process that maps the memory, may write it at any time, so there is no slice of it. Whoever posted the request promised
/// not to change the bytes until its completion. One that does so anyway makes a packet whose ICRC is wrong, which the
/// peer drops, and harms nothing else.
///
/// # Safety
/// The memory must stay mapped until the segment is sent, dropped or cleared.
unsafe fn gather(segment: &mut Segment<'_>, icrc: &mut Icrc, memory: &Memory, offset: u64, len: u32) {
    let (offset, len) = (offset as usize, len as usize);
    // Panics if the range does not lie inside; the core checked the bounds.
    let Ok(()) = memory.try_pieces::<PIECE, Infallible>(offset, len, |piece| {
        icrc.update(piece);
        Ok(())
    });
    // SAFETY: inside the memory, since `try_pieces` did not panic; readable until sent, by the caller's contract.
    unsafe { segment.gather(memory.as_ptr().add(offset), len) };
}
