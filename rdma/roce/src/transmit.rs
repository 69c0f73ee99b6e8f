//! One packet to be sent, as instructions for the caller.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{
    memory::Piece,
    wire::{HeaderBuf, ICRC_LEN, ROCE_PORT, pad_of},
};

/// A packet to be sent: headers by value, payload by reference to registered memory. The caller gathers the payload,
/// appends the pad and the ICRC (which covers the IP ID that only the caller knows) and sends the packet. The value is
/// reused from packet to packet.
#[derive(Clone, Debug)]
pub struct Transmit {
    pub to: SocketAddr,
    /// The BTH and the extended headers.
    pub header: HeaderBuf,
    /// The payload in registered memory; empty if `inline` holds the payload.
    pub pieces: Vec<Piece>,
    /// The payload by value.
    pub inline: Vec<u8>,
    /// Whether a peer may write the pieces at any time; the ICRC must then be computed over the copy that is sent.
    pub copy_first: bool,
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            to: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), ROCE_PORT),
            header: HeaderBuf::new(),
            pieces: Vec::new(),
            inline: Vec::new(),
            copy_first: false,
        }
    }
}

impl Transmit {
    pub(crate) fn begin(&mut self, to: SocketAddr) {
        self.to = to;
        self.header = HeaderBuf::new();
        self.pieces.clear();
        self.inline.clear();
        self.copy_first = false;
    }

    pub fn payload_len(&self) -> usize {
        self.inline.len() + self.pieces.iter().map(|p| p.len as usize).sum::<usize>()
    }

    pub fn pad(&self) -> usize {
        pad_of(self.payload_len()).into()
    }

    /// The bytes of the UDP payload.
    pub fn datagram_len(&self) -> usize {
        self.header.as_slice().len() + self.payload_len() + self.pad() + ICRC_LEN
    }
}
