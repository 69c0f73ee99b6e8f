//! Packets from registered memory: the one place that hands its addresses to the kernel.

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

/// Appends `len` bytes of `memory` to a datagram without copying, and to its ICRC.
///
/// # Safety
/// The memory must stay mapped until the segment is sent, dropped or cleared.
unsafe fn gather(segment: &mut Segment<'_>, icrc: &mut Icrc, memory: &Memory, offset: u64, len: u32) {
    let (offset, len) = (offset as usize, len as usize);
    assert!(offset <= memory.len() && len <= memory.len() - offset, "the core checked the bounds");
    // SAFETY: inside the range by the assertion.
    let start = unsafe { memory.as_ptr().add(offset) };
    // SAFETY: mapped and readable; peers' writes are placed under the same lock, so not now. Whoever posted the request promised not to change the bytes until its
    // completion; one that does so anyway tears the packet, whose ICRC is then wrong, and harms nothing else: the
    // CRC's control flow does not depend on them.
    icrc.update(unsafe { std::slice::from_raw_parts(start, len) });
    // SAFETY: readable until sent, by the caller's contract.
    unsafe { segment.gather(start, len) };
}
