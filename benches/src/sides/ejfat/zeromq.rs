//! What a bridge is held against: events are reassembled, and pushed to the worker by ZeroMQ over TCP.

use std::{hint::black_box, net::SocketAddr, sync::Arc, thread, time::Duration};

use ejfat::{listen::Listen, reassembly::Config};
use ejfat_udp::{ReceivedEvent, Receiver, ReceiverConfig};
use zmq::{Context, Message, Socket, SocketType};

use super::{
    BUFFER,
    control::{State, answer_at},
    sink::TIMEOUT,
};
use crate::sides::{Running, spawn};

/// The TCP port of the pushing end, which has an address of its own.
const PORT: u16 = 4792;
/// Events that wait at either end: as many as a ring of the bridge's worker has.
const WAITING: i32 = 64;

fn at(far: SocketAddr) -> String {
    format!("tcp://{}:{PORT}", far.ip())
}

fn socket(kind: SocketType) -> anyhow::Result<Socket> {
    let socket = Context::new().socket(kind)?;
    socket.set_sndhwm(WAITING)?;
    socket.set_rcvhwm(WAITING)?;
    Ok(socket)
}

/// Reassembles as the receiver does, and pushes.
pub(in crate::sides) fn serve_push() -> anyhow::Result<(SocketAddr, Running)> {
    let state = Arc::new(State::default());
    let address = answer_at(state.clone(), |_| Ok(()))?;
    let reassembly = Config { timeout: TIMEOUT, ..Config::default() };
    let config = ReceiverConfig { listen: vec![Listen::Port(address)], buffer: Some(BUFFER), reassembly };
    let mut receiver = Receiver::new(config)?;
    let push = socket(SocketType::PUSH)?;
    push.bind(&at(address))?;
    thread::Builder::new().name("push".into()).spawn(move || {
        let mut refused = None;
        while refused.is_none() {
            // The receiver uses its memory again, so the message is a copy. It waits for room.
            let deliver = |event: ReceivedEvent<'_>| refused = push.send(Message::from(event.bytes), 0).err();
            if let Err(error) = receiver.poll(Duration::from_millis(100), deliver, |_| {}) {
                eprintln!("naa: the receiver of events: {error}");
                return;
            }
            state.set_open(receiver.reassembler().open_events());
        }
        eprintln!("naa: ZeroMQ does not push: {refused:?}");
    })?;
    Ok((address, Box::new(())))
}

/// Takes and counts.
pub(in crate::sides) fn serve_pull(far: SocketAddr) -> anyhow::Result<(SocketAddr, Running)> {
    let state = Arc::new(State::default());
    let address = answer_at(state.clone(), |_| Ok(()))?;
    let pull = socket(SocketType::PULL)?;
    pull.connect(&at(far))?;
    spawn("pull", "ZeroMQ does not pull", move || -> zmq::Result<()> {
        let mut message = Message::new();
        for events in 1.. {
            pull.recv(&mut message, 0)?;
            black_box(&*message);
            state.count(events);
        }
        Ok(())
    })?;
    Ok((address, Box::new(())))
}
