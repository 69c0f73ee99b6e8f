//! The ends that receive.

use std::{
    hint::{self, black_box},
    io::IoSliceMut,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::{listen::Listen, reassembly::Config};
use ejfat_udp::{Error, ReceivedEvent, Receiver, ReceiverConfig};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, setsockopt, sockopt},
};

use super::{
    BUFFER, FLOODED_MEMORY, Load, Sink,
    control::{Manner, State, answer_at},
};
use crate::sides::{Running, spawn};

/// The longest datagram, merged or not.
pub(super) const DATAGRAM: usize = 1 << 16;
/// The time-out of incomplete events. It is short, so that incomplete events of one run do not disturb the next run.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);
/// The time for which a receiver spins before it sleeps, which is that of our devices.
const SPIN: Duration = Duration::from_micros(50);
/// Datagrams that a system call takes at most.
pub(super) const MOST_BATCH: usize = 32;

pub(in crate::sides) fn serve(load: Load, sink: Sink) -> anyhow::Result<(SocketAddr, Running)> {
    let state = Arc::new(State::default());
    let address = answer_at(state.clone(), |_| Ok(()))?;
    match sink {
        Sink::Buffer => into_buffer(socket(address)?, load.datagrams(), state)?,
        Sink::Receiver | Sink::Bounded => into_events(address, sink, state)?,
    }
    Ok((address, Box::new(())))
}

fn into_events(at: SocketAddr, sink: Sink, state: Arc<State>) -> anyhow::Result<()> {
    let usual = Config { timeout: TIMEOUT, ..Config::default() };
    let reassembly = if sink == Sink::Bounded {
        Config { max_event: FLOODED_MEMORY, memory: FLOODED_MEMORY.into(), ..usual }
    } else {
        usual
    };
    let config = ReceiverConfig { listen: vec![Listen::Port(at)], buffer: Some(BUFFER), reassembly };
    let mut receiver = Receiver::new(config)?;
    spawn("receiver", "the receiver of events", move || -> Result<(), Error> {
        let mut events = 0;
        loop {
            let deliver = |event: ReceivedEvent<'_>| {
                black_box(event.bytes);
                events += 1;
            };
            // This is how `naa ejfat recv` waits.
            receiver.poll(Duration::from_millis(100), deliver, |_| {})?;
            state.count(events);
            state.set_open(receiver.reassembler().open_events());
        }
    })
}

/// Opens a socket with GRO and the receive buffer that all sockets have.
pub(super) fn socket(at: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &BUFFER))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    Ok(socket)
}

/// Counts what comes, and nothing else. So many bytes are an event.
pub(super) fn into_buffer(socket: UdpSocket, event: usize, state: Arc<State>) -> anyhow::Result<()> {
    spawn("buffer", "the buffer that events are received in", move || {
        let mut batch = Batch::new();
        let mut bytes = 0;
        loop {
            match batch.receive(&socket, state.manner()) {
                Ok(lens) => bytes += lens.iter().sum::<usize>() as u64,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
            state.count(bytes / event as u64);
        }
    })
}

/// Datagrams of one system call, in one buffer.
pub(super) struct Batch {
    pub(super) buffer: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
    lens: Vec<usize>,
}

impl Batch {
    pub(super) fn new() -> Self {
        let headers = MultiHeaders::preallocate(MOST_BATCH, None);
        Self { buffer: vec![0; MOST_BATCH * DATAGRAM], headers, lens: Vec::with_capacity(MOST_BATCH) }
    }

    /// Waits until there is something. Gives the length of each datagram; each begins [`DATAGRAM`] behind the other.
    pub(super) fn receive(&mut self, socket: &UdpSocket, manner: Manner) -> nix::Result<&[usize]> {
        let begin = Instant::now();
        while manner.spin && begin.elapsed() < SPIN {
            match self.take(socket, manner, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => hint::spin_loop(),
                other => return other.map(|()| &self.lens[..]),
            }
        }
        self.take(socket, manner, MsgFlags::MSG_WAITFORONE).map(|()| &self.lens[..])
    }

    fn take(&mut self, socket: &UdpSocket, manner: Manner, flags: MsgFlags) -> nix::Result<()> {
        self.lens.clear();
        let parts = self.buffer.chunks_exact_mut(DATAGRAM).take(manner.batch.max(1) as usize);
        let mut slices: Vec<_> = parts.map(|part| [IoSliceMut::new(part)]).collect();
        let received = recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None)?;
        self.lens.extend(received.map(|message| message.bytes));
        Ok(())
    }
}
