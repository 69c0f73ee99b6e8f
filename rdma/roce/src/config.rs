//! The limits and settings of a device.

use std::time::Duration;

use crate::window::{Aimd, Window};

/// How RKeys are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RKeys {
    /// All 32 bits are random.
    #[default]
    Random,
    /// The low `bits`, at most 31, are the region's slot, and the other bits are random. Hardware looks a region up by its slot. There
    /// can be at most 2^`bits` regions.
    WithSlot { bits: u8 },
}

/// The limits of one device, each with the reason for its default.
#[derive(Clone, Debug)]
pub struct Config {
    pub max_qp: u32,
    pub max_mr: u32,
    pub rkeys: RKeys,
    pub max_cq: u32,
    pub max_cq_depth: u32,
    /// The most work requests per queue of a queue pair.
    pub max_wr: u32,
    pub max_sge: u32,
    /// The most bytes that are copied while posting instead of gathered while sending.
    pub max_inline_data: u32,
    /// The most READs that a peer may have outstanding at one queue pair.
    pub max_responder_resources: u8,
    /// The timer code of sent RNR NAKs: 12 is 0.64 ms. The code 0, which rdma_cm leaves in place, delays the peer by 655 ms.
    pub rnr_timer: u8,
    /// The bytes in flight before the first acknowledgement: a default receive buffer holds about 50 packets of 4 KiB.
    pub initial_window_bytes: u32,
    /// The most bytes in flight.
    pub max_window_bytes: u32,
    /// Makes a connection's congestion window; its arguments are the two sizes above in packets.
    pub window: fn(u32, u32) -> Box<dyn Window>,
    /// The packets that one queue pair may send before the next queue pair's turn.
    pub burst: u32,
    /// The shortest time after which the last packet is sent again to a silent peer, because the tail may be lost.
    pub min_probe: Duration,
    /// The shortest time after which all unacknowledged packets are retransmitted.
    pub min_rto: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_qp: 16_384,
            max_mr: 1 << 20,
            rkeys: RKeys::Random,
            max_cq: 65_536,
            max_cq_depth: 1 << 20,
            max_wr: 16_384,
            max_sge: 32,
            max_inline_data: 512,
            max_responder_resources: 16,
            rnr_timer: 12,
            initial_window_bytes: 32 * 1024,
            max_window_bytes: 1024 * 1024,
            window: |start, max| Box::new(Aimd::new(start, max)),
            burst: 64,
            min_probe: Duration::from_micros(250),
            min_rto: Duration::from_millis(4),
        }
    }
}

impl Config {
    pub(crate) fn new_window(&self, mtu: u32) -> Box<dyn Window> {
        (self.window)(self.initial_window_bytes / mtu, self.max_window_bytes / mtu)
    }
}
