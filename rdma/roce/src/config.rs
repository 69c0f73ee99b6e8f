//! The limits and settings of a device.

use std::time::Duration;

use crate::window::{Aimd, Window};

/// The method by which RKeys are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RKeys {
    /// All 32 bits of an RKey are random.
    #[default]
    Random,
    /// The low `bits` bits of an RKey are the region's slot in the table of memory regions, and all other bits are
    /// random. This variant lets a responder in hardware find a region by the low `bits` bits of its RKey. A device can
    /// have at most 2^`bits` regions.
    WithSlot {
        /// The number of low bits of an RKey that are the region's slot, at most 31.
        bits: u8,
    },
}

/// The limits and settings of one device.
#[derive(Clone, Debug)]
pub struct Config {
    /// The maximum number of queue pairs of the device.
    pub max_qp: u32,
    /// The maximum number of memory regions of the device.
    pub max_mr: u32,
    /// The method by which the device makes RKeys.
    pub rkeys: RKeys,
    /// The maximum number of completion queues of the device.
    pub max_cq: u32,
    /// The maximum number of completions of one completion queue.
    pub max_cq_depth: u32,
    /// The maximum number of work requests in each of the two queues of a queue pair.
    pub max_wr: u32,
    /// The maximum number of scatter-gather elements of one work request.
    pub max_sge: u32,
    /// The maximum number of bytes of inline data, which are copied when a work request is posted.
    pub max_inline_data: u32,
    /// The maximum number of READs that a peer may have outstanding at one queue pair.
    pub max_responder_resources: u8,
    /// The timer code in the RNR NAKs that this device sends. The default code 12 is 0.64 ms. A queue pair that rdma_cm
    /// made sends the code 0, with which the peer waits for 655 ms.
    pub rnr_timer: u8,
    /// The maximum number of bytes in flight of one queue pair before the first acknowledgement. The default of 32 KiB
    /// is low, because the receive buffer of a peer's UDP socket may be small. With the default size of Linux, a
    /// receive buffer has room for only about 50 packets of 4 KiB.
    pub initial_window_bytes: u32,
    /// The maximum number of bytes in flight of one queue pair.
    pub max_window_bytes: u32,
    /// The function that makes the congestion window of a connection. The arguments of the function are
    /// `initial_window_bytes` and `max_window_bytes`, converted to packets.
    pub window: fn(u32, u32) -> Box<dyn Window>,
    /// The number of packets that a queue pair may send before the next queue pair may send.
    pub burst: u32,
    /// The shortest time without an acknowledgement after which the last packet is sent again (tail probe).
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
