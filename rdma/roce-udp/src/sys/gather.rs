//! Builds packets from registered memory. Only this module passes addresses of regions to the Linux kernel.

use std::convert::Infallible;

use naa_udp::{DatagramBuilder, SendBatch};
use roce::{
    Transmit,
    icrc::{Icrc, WarmFlow},
    wire::{Bth, ICRC_LEN},
};
use verbs::Memory;

use super::fold::{BLOCK, fold};
use crate::memory::RegionTable;

/// Adds a packet to the send batch; returns false if the send batch has no room for the packet.
///
/// Payload that is not copied stays in the packet's regions, and the send batch contains the address of the payload
/// until the packet is sent or dropped. `Engine::release` therefore drops all unsent packets of the send batch before
/// it removes a region.
pub(crate) fn build(
    send: &mut SendBatch,
    packet: &Transmit,
    flow: &mut WarmFlow,
    regions: &RegionTable,
) -> bool {
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
            // SAFETY: a region stays mapped as long as `regions` has it. Only `Engine::release` removes regions from
            // `regions`. Before it removes a region, it drops all unsent packets of the send batch.
            unsafe { gather(&mut segment, &mut icrc, memory, piece.offset, piece.len) };
        }
    }
    let mut trailer = [0; 3 + ICRC_LEN];
    icrc.update(&trailer[..pad]);
    trailer[pad..pad + ICRC_LEN].copy_from_slice(&icrc.finish());
    segment.finish(&trailer[..pad + ICRC_LEN]);
    true
}

/// The maximum number of bytes that are copied at once. If the ICRC of bytes is not computed by folding (see [`fold`]),
/// the bytes are copied piece by piece, and the ICRC is computed from the copies. The maximum length is the largest
/// path MTU, so one piece is enough for the payload of any packet.
const PIECE: usize = 4096;
/// The minimum number of payload bytes for which the ICRC is computed without a copy, by folding. A payload with fewer
/// bytes has at most one whole block. If there is only one block, [`fold`] only copies this block and saves no work.
/// The ICRC of such a payload is therefore computed from a copy.
const LEAST_FOLDED: usize = 2 * BLOCK;

/// Appends `len` bytes of `memory` to a datagram without a copy, and adds these bytes to the datagram's ICRC.
///
/// The Linux kernel gets only the address of the bytes and reads them when the packet is sent. The program, or another
/// process that maps the memory, may write the memory at any time, so no slice of the memory may exist. If the
/// processor has the instructions of [`fold`] and `len` is at least [`LEAST_FOLDED`], all whole blocks of [`BLOCK`]
/// bytes are added to the ICRC directly from the memory. All other bytes are added to the ICRC from a copy. The program
/// that posted the work request has promised not to change the bytes until the work request completes. If a program
/// changes the bytes before the completion, the packet's ICRC is wrong and the peer drops the packet; no other harm is
/// done.
///
/// # Safety
/// The memory must stay mapped until the segment is sent, dropped or cleared.
unsafe fn gather(segment: &mut DatagramBuilder<'_>, icrc: &mut Icrc, memory: &Memory, offset: u64, len: u32) {
    let (offset, len) = (offset as usize, len as usize);
    let inside = offset.checked_add(len).is_some_and(|end| end <= memory.len());
    assert!(inside, "the core checked the bounds");
    // SAFETY: `offset` is inside the memory.
    let at = unsafe { memory.as_ptr().add(offset) };
    let blocks = len / BLOCK;
    // SAFETY: the blocks lie inside the memory, which is mapped.
    let fold = |register| unsafe { fold(register, at, blocks) };
    let folded = if len >= LEAST_FOLDED && icrc.update_folded(fold) { blocks * BLOCK } else { 0 };
    let Ok(()) = memory.try_pieces::<PIECE, Infallible>(offset + folded, len - folded, |piece| {
        icrc.update(piece);
        Ok(())
    });
    // SAFETY: the range is inside the memory. The caller guarantees that the memory stays mapped until the segment is
    // sent, dropped or cleared.
    unsafe { segment.gather(at, len) };
}
