//! Packets of a peer that does not keep to the protocol.

use roce::{
    opcode,
    wire::{Bth, ICRC_LEN},
};
use simnet::Random;

use super::node::{Datagram, finish};

/// A variation of `packet` with a right ICRC; `None` when it cannot have one.
pub(super) fn mutate(random: &mut Random, packet: &Datagram) -> Option<Datagram> {
    let mut forged = packet.clone();
    let body = packet.bytes.len().checked_sub(ICRC_LEN)?;
    forged.bytes.truncate(body);
    let mut bth = Bth::decode(forged.bytes.first_chunk()?);
    match random.below(7) {
        0 => bth.opcode = random.range(0..=opcode::ACKNOWLEDGE.into()) as u8,
        1 => bth.psn = bth.psn.plus(random.range(0..=8) as u32).minus(4),
        2 => bth.psn = bth.psn.plus(random.next_u32()),
        3 => bth.pad = random.below(4) as u8,
        // Bits of the extended headers.
        4 | 5 if body > Bth::LEN => {
            let bits = (body - Bth::LEN).min(20) as u64 * 8;
            for _ in 0..random.range(1..=3) {
                let bit = random.below(bits) as usize;
                forged.bytes[Bth::LEN + bit / 8] ^= 1 << (bit % 8);
            }
        }
        _ => {
            let len = random.range(Bth::LEN as u64..=body as u64 + 64) as usize;
            forged.bytes.resize(len, 0x5a);
        }
    }
    forged.bytes[..Bth::LEN].copy_from_slice(&bth.encode());
    finish(&mut forged.bytes, forged.from, forged.to, forged.ip_id);
    Some(forged)
}
