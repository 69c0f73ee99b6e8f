//! The headers in EJFAT's UDP datagrams.
//!
//! ```text
//! to the load balancer   LB header (16) | RE header (20) | payload
//! to a worker                             RE header (20) | payload   (the member's rule may keep the LB header)
//! to the control plane   sync header (28)
//! ```

mod lb;
mod re;
mod sync;

pub use lb::{LbHeader, Select, is_data_port};
pub use re::{ReHeader, Versions};
pub use sync::SyncHeader;

/// The default UDP port of a load balancer's data address. The two bytes of the port are "LB" in ASCII.
pub const DATA_PORT: u16 = 0x4c42;

/// The default UDP ports at which segments are received. Port 16384 is the lowest UDP port that the P4 data plane
/// accepts, and is the port that udplbd2 and E2SAR announce.
pub const DATA_PORTS: [u16; 2] = [DATA_PORT, 16_384];

/// The reason why bytes are not a header of EJFAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are fewer bytes than the header has. The value is the number of bytes that there are.
    #[error("{0} bytes are too short for the header")]
    Short(usize),
    /// A sync datagram is longer than a sync header. The value is the length of the datagram in bytes.
    #[error("{0} bytes are too long for a sync header")]
    Long(usize),
    /// The first two bytes are not the magic bytes of the header. The value is the first two bytes as a big-endian
    /// number.
    #[error("the header begins with {0:#06x}, which is another protocol's")]
    Magic(u16),
    /// The version of the header is not accepted. The value is the version in the header.
    #[error("version {0} of the header is not known here")]
    Version(u8),
}
