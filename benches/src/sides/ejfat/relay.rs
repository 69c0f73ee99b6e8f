//! What a load balancer is held against: a relay that looks nothing up.

use std::{
    io::IoSlice,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, setsockopt, sockopt},
};
use roce_udp::free_loopback;

use super::{
    BUFFER, Load,
    control::{Manner, State, answer_at},
    sink::{Batch, DATAGRAM, MOST_BATCH, socket},
};
use crate::sides::{Running, spawn};

/// Merged datagrams at once: more do not make it faster.
const MANNER: Manner = Manner { batch: 8, spin: false };

/// Relays to where it is told, in packets as they came.
pub(in crate::sides) fn serve(load: Load) -> anyhow::Result<(SocketAddr, Running)> {
    let to = Arc::new(OnceLock::new());
    let address_to = to.clone();
    let address = answer_at(Arc::new(State::default()), move |address| {
        address_to.set(address).ok().context("it relays already")
    })?;
    let from = socket(address)?;
    let out = UdpSocket::bind((free_loopback()?, 0))?;
    setsockopt(&out, sockopt::SndBuf, &BUFFER)?;
    // The option holds for every send: data that are longer than a datagram become several datagrams again.
    setsockopt(&out, sockopt::UdpGsoSegment, &i32::try_from(load.datagram())?)
        .context("this kernel has no UDP GSO")?;
    spawn("relay", "the relay", move || {
        out.connect(*to.wait())?;
        relay(&from, &out)
    })?;
    Ok((address, Box::new(())))
}

fn relay(from: &UdpSocket, out: &UdpSocket) -> anyhow::Result<()> {
    const NOWHERE_ELSE: [Option<SockaddrStorage>; MOST_BATCH] = [None; MOST_BATCH];
    let mut batch = Batch::new();
    let mut headers = MultiHeaders::preallocate(MOST_BATCH, None);
    loop {
        let lens = match batch.receive(from, MANNER) {
            Ok(lens) => lens.to_vec(),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let parts = batch.buffer.chunks_exact(DATAGRAM).zip(&lens);
        let slices: Vec<_> = parts.map(|(part, &len)| [IoSlice::new(&part[..len])]).collect();
        let mut left = &slices[..];
        while !left.is_empty() {
            match sendmmsg(out.as_raw_fd(), &mut headers, left, NOWHERE_ELSE, [], MsgFlags::empty()) {
                Ok(sent) => left = &left[sent.count()..],
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
