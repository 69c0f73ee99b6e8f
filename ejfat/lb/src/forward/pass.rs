//! Received datagrams to be sent, without a copy.
#![allow(unsafe_code, reason = "what is sent is gathered from where it was received")]

use std::{io, net::SocketAddr};

use ejfat::wire::LbHeader;
use naa_udp::{RecvBatch, SendBatch};

/// The bytes of a batch for copies. The batch copies nothing, but it requires room for the longest datagram.
pub(super) const BATCH_BYTES: usize = 1 << 16;

/// Clears the batch when it is dropped, so that no pointer stays in the batch.
struct Cleared<'a>(&'a mut SendBatch);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Sends each datagram to where `route` says, with its LB header or without. `flush` empties the batch.
pub(super) fn pass(
    received: &RecvBatch,
    send: &mut SendBatch,
    mut route: impl FnMut(SocketAddr, &[u8]) -> Option<(SocketAddr, bool)>,
    mut flush: impl FnMut(&mut SendBatch) -> io::Result<()>,
) -> io::Result<()> {
    let send = Cleared(send);
    for message in received.messages() {
        let segments = message.segments().map(|(_, datagram)| datagram);
        // One without a byte is counted too.
        let empty = (segments.len() == 0).then_some(&[][..]);
        for datagram in segments.chain(empty) {
            let Some((to, keep)) = route(message.from, datagram) else { continue };
            // What has a route has an LB header.
            let bytes = if keep { datagram } else { datagram.get(LbHeader::LEN..).unwrap_or_default() };
            if !push(send.0, to, bytes) {
                flush(send.0)?;
                // It takes one when it is empty; one that cannot go is dropped as on a wire.
                push(send.0, to, bytes);
            }
        }
    }
    drop(route);
    flush(send.0)
}

/// False if the batch is full.
fn push(send: &mut SendBatch, to: SocketAddr, bytes: &[u8]) -> bool {
    let Some(mut segment) = send.segment(to, bytes.len()) else { return false };
    // SAFETY: `bytes` are of the batch that `pass` borrows, and `pass` clears `send` before it returns.
    unsafe { segment.gather(bytes.as_ptr(), bytes.len()) };
    segment.finish(&[]);
    true
}
