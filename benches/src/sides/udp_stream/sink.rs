//! The end that receives and counts.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recv, recvmmsg, setsockopt, sockopt},
};
use roce_udp::free_loopback;

use super::{Ack, BATCH, CONTROL, Packets, Start, is_nothing, socket};
use crate::sides::{Running, spawn};

pub(in crate::sides) fn serve(packets: Packets) -> anyhow::Result<(SocketAddr, Running)> {
    let socket = socket((free_loopback()?, 0).into())?;
    setsockopt(&socket, sockopt::UdpGroSegment, &packets.offload)?;
    let address = socket.local_addr()?;
    spawn("sink", "the end that is sent to by UDP", move || listen(&socket, packets))?;
    Ok((address, Box::new(())))
}

/// Waits for runs.
fn listen(socket: &UdpSocket, packets: Packets) -> anyhow::Result<()> {
    let mut receiver = Receiver::new(packets);
    let mut connected = false;
    loop {
        let mut bytes = [0; CONTROL + 1];
        let (len, from) = match socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if is_nothing(Errno::from_raw(error.raw_os_error().unwrap_or_default())) => continue,
            // The other end has gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // What is left of a run that lost packets is longer.
        let Some(start) = bytes.get(..len).and_then(Start::decode) else { continue };
        if !connected {
            socket.connect(from)?;
            connected = true;
        }
        socket.send(&Ack { run: start.run, received: 0, lost: false }.encode())?;
        let lost = receiver.run(socket, &start)?;
        if lost {
            socket.send(&Ack { run: start.run, received: 0, lost }.encode())?;
        }
    }
}

/// Buffers, used again and again.
struct Receiver {
    packets: Packets,
    /// The bytes of one super-packet, or of a batch of datagrams.
    buffer: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
    lens: Vec<usize>,
}

impl Receiver {
    fn new(packets: Packets) -> Self {
        let len = if packets.offload { 1 << 16 } else { BATCH * packets.datagram() };
        let headers = MultiHeaders::preallocate(BATCH, None);
        Self { packets, buffer: vec![0; len], headers, lens: Vec::with_capacity(BATCH) }
    }

    /// Receives all packets of a run. Whether any was lost.
    fn run(&mut self, socket: &UdpSocket, start: &Start) -> anyhow::Result<bool> {
        let (mut received, mut told) = (0, 0);
        while received < start.packets {
            match start.wait.until(|flags| self.receive(socket, flags)) {
                Ok(()) => {}
                Err(error) if is_nothing(error) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
            let Some(count) = self.in_order(received) else { return Ok(true) };
            received += count;
            if received - told >= start.every || received == start.packets {
                told = received;
                socket.send(&Ack { run: start.run, received, lost: false }.encode())?;
            }
        }
        Ok(false)
    }

    /// One super-packet, or a batch of what is there.
    fn receive(&mut self, socket: &UdpSocket, flags: MsgFlags) -> nix::Result<()> {
        self.lens.clear();
        if self.packets.offload {
            self.lens.push(recv(socket.as_raw_fd(), &mut self.buffer, flags)?);
            return Ok(());
        }
        let parts = self.buffer.chunks_exact_mut(self.packets.datagram());
        let mut slices: Vec<_> = parts.map(|part| [IoSliceMut::new(part)]).collect();
        let flags = flags | MsgFlags::MSG_WAITFORONE;
        let received = recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None)?;
        self.lens.extend(received.map(|message| message.bytes));
        Ok(())
    }

    /// The number of packets now in the buffer if they follow `received` others, and nothing else is there.
    fn in_order(&self, received: u64) -> Option<u64> {
        let datagram = self.packets.datagram();
        let (mut next, mut at) = (received, 0);
        for len in &self.lens {
            for packet in self.buffer.get(at..at + len)?.chunks(datagram) {
                let sequence = u64::from_be_bytes(*packet.first_chunk()?);
                if packet.len() != datagram || sequence != next {
                    return None;
                }
                next += 1;
            }
            at += datagram.max(*len);
        }
        Some(next - received)
    }
}
