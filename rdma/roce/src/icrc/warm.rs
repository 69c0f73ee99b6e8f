//! A flow with cached ICRC states. The packets of one burst differ little in the bytes before the BTH, so the cached
//! states fit most packets.

use crc32fast::Hasher;

use super::{Flow, Icrc};
use crate::wire::Bth;

/// A flow with the ICRC states after the bytes before the BTH, for recently used lengths and identifications.
#[derive(Clone, Debug)]
pub struct WarmFlow {
    flow: Flow,
    /// The direct-mapped cache, whose index is the identification modulo 16. An entry is a key (length and
    /// identification) and the ICRC state for this key.
    states: [(u32, u32); 16],
}

/// A key that never occurs, because a datagram of 65535 bytes does not fit into an IP packet.
const NEVER: u32 = u32::MAX;

impl WarmFlow {
    pub const fn new(flow: Flow) -> Self {
        Self { flow, states: [(NEVER, 0); 16] }
    }

    pub const fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Begins the ICRC of a packet as [`Icrc::begin`] does, but uses a cached state if possible.
    pub fn begin(&mut self, ip_id: u16, datagram_len: usize, bth: &[u8; Bth::LEN]) -> Icrc {
        let key = u32::from(datagram_len as u16) << 16 | u32::from(ip_id);
        let slot = &mut self.states[usize::from(ip_id) % 16];
        if slot.0 != key {
            *slot = (key, self.flow.before_bth(ip_id, datagram_len).finalize());
        }
        let mut hasher = Hasher::new_with_initial(slot.1);
        hasher.update(&masked(bth));
        Icrc(hasher)
    }
}

/// Returns the BTH in the form that the ICRC covers. Byte 4, which has FECN and BECN, is set to ones, because routers
/// may change these bits.
pub(super) fn masked(bth: &[u8; Bth::LEN]) -> [u8; Bth::LEN] {
    let mut masked = *bth;
    masked[4] = 0xff;
    masked
}
