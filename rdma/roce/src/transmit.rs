//! A packet that the caller is to send.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{
    memory::Piece,
    wire::{HeaderBuf, ICRC_LEN, ROCE_PORT, pad_of},
};

/// A packet to be sent: its headers by value, and its payload by reference to registered memory. The caller gathers the
/// payload, appends the pad and the ICRC, and sends the packet. The caller computes the ICRC, because the ICRC covers
/// the IP identification, which this crate does not know. One `Transmit` is used for many packets, one after the other.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The address and UDP port to which the packet is sent.
    pub to: SocketAddr,
    /// The BTH and the extended headers.
    pub header: HeaderBuf,
    /// The payload in registered memory; empty if the payload is in `inline`.
    pub pieces: Vec<Piece>,
    /// The payload by value; empty if the payload is in `pieces`.
    pub inline: Vec<u8>,
    /// If `copy_first` is true, the caller must send a copy of the payload and compute the ICRC of this copy.
    /// `copy_first` is true for a READ response with payload, because the program or a peer may write the memory of
    /// `pieces` while the packet is sent.
    pub copy_first: bool,
    /// The packets that the endpoint has granted and that the caller can make of this packet.
    pub(crate) run: Run,
}

/// The packets that follow a packet in its run. A run is a row of MIDDLE packets of one message, or of the responses of
/// one READ, which differ only in the PSN and in the offset of the payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// The number of packets that follow.
    pub(crate) more: u32,
    /// The queue pair that sends the packets.
    pub(crate) qpn: u32,
    /// True if the packets are READ responses.
    pub(crate) responses: bool,
    /// The value of `Requester::run_epoch`, or of `PendingResponses::run_epoch`, when the run was granted.
    pub(crate) epoch: u32,
    /// The value of `DeviceTables::deregistered` when the run was granted.
    pub(crate) deregistered: u32,
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            to: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), ROCE_PORT),
            header: HeaderBuf::new(),
            pieces: Vec::new(),
            inline: Vec::new(),
            copy_first: false,
            run: Run::default(),
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
        self.run.more = 0;
    }

    /// Turns this packet into the next packet of its run. Returns false, and changes nothing, if the run has no further
    /// packet.
    ///
    /// If another method of the endpoint was called after `poll_transmit`, the caller must first call
    /// [`Endpoint::check_run`](crate::Endpoint::check_run), because the run may have ended.
    pub fn next_of_run(&mut self) -> bool {
        if self.run.more == 0 {
            return false;
        }
        self.run.more -= 1;
        self.header.next_psn();
        if let Some(piece) = self.pieces.first_mut() {
            piece.offset += u64::from(piece.len);
        }
        true
    }

    /// Forgets the packets of the run that follow this packet, as if the network had lost them.
    pub fn end_run(&mut self) {
        self.run.more = 0;
    }

    fn payload_len(&self) -> usize {
        self.inline.len() + self.pieces.iter().map(|p| p.len as usize).sum::<usize>()
    }

    /// Returns the number of pad bytes after the payload, 0 to 3. Pad bytes are zeros.
    pub fn pad(&self) -> usize {
        pad_of(self.payload_len()).into()
    }

    /// Returns the number of bytes of the UDP payload.
    pub fn datagram_len(&self) -> usize {
        self.header.as_slice().len() + self.payload_len() + self.pad() + ICRC_LEN
    }
}
