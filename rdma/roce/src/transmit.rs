//! One packet to be sent, as commands for the driver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{
    memory::Piece,
    wire::{HeaderBuf, ICRC_LEN, ROCE_PORT, pad_of},
};

/// Headers by value, payload by reference to registered memory. The driver gathers, appends the pad and the
/// ICRC (which covers the IP ID only it knows) and sends. Reused from packet to packet.
#[derive(Clone, Debug)]
pub struct Transmit {
    pub to: SocketAddr,
    /// BTH and extended headers.
    pub header: HeaderBuf,
    /// Payload in registered memory; empty when `inline` holds it.
    pub pieces: Vec<Piece>,
    /// Payload by value.
    pub inline: Vec<u8>,
    /// A peer may write the pieces at any time: take the ICRC over the copy that is sent.
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

    /// Bytes of the UDP payload.
    pub fn datagram_len(&self) -> usize {
        self.header.as_slice().len() + self.payload_len() + self.pad() + ICRC_LEN
    }
}
