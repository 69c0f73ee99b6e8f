//! IP packets in frames, some of them damaged.

use simnet::Random;

/// The IP packet at the begin of these bytes, without padding behind it. Bytes that are not as long as their header says are left alone.
pub(crate) fn without_padding(bytes: &[u8]) -> &[u8] {
    let be16 = |at: usize| {
        bytes.get(at..at + 2).map_or(0, |bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let length = match bytes[0] >> 4 {
        4 => be16(2),
        6 => be16(4) + 40,
        _ => 0,
    };
    bytes.get(..length).filter(|packet| !packet.is_empty()).unwrap_or(bytes)
}

/// Damages some packets: pads them, cuts them off, or flips bits of their headers. Returns whether it did.
pub(crate) fn damage(random: &mut Random, packet: &mut Vec<u8>) -> bool {
    match random.below(12) {
        // Long padding comes when the packet itself has long left.
        0 if random.chance(50_000) => packet.extend(vec![0; 5000]),
        0 => packet.extend(vec![0; random.range(1..=80) as usize]),
        1 => packet.truncate(random.range(1..=packet.len() as u64) as usize),
        2 => {
            let most = packet.len().min(90) as u64;
            packet[random.below(most) as usize] ^= 1 << random.below(8);
        }
        3 => {
            let at = random.below(packet.len().min(12) as u64) as usize;
            packet[at] = random.next_u32() as u8;
        }
        _ => return false,
    }
    true
}
