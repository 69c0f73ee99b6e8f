//! The RNR NAK timer codes (IBTA vol. 1, table 45).

use std::time::Duration;

/// The delay of each timer code, in units of 10 us.
const TABLE: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time for which a requester waits after an RNR NAK whose timer code is the low five bits of `code`.
pub(crate) fn delay(code: u8) -> Duration {
    Duration::from_micros(u64::from(TABLE[usize::from(code & 0x1f)]) * 10)
}
