//! The worker of a bridge, which counts what it is given and gives it back.

use std::{fs, hint::black_box, net::SocketAddr, sync::Arc};

use naa_events::{BridgeAddress, Config, Error, Geometry, Worker};
use roce_udp::free_loopback;

use super::{
    BridgeDelivery, Load, bridge,
    control::{State, answer_at},
};
use crate::sides::{Running, spawn};

/// Bytes of a ring: 64 of the large events.
const RING: usize = 64 << 20;
const MOST_SLOTS: usize = 1024;

pub(in crate::sides) fn serve(
    load: Load,
    delivery: BridgeDelivery,
    bridge: SocketAddr,
) -> anyhow::Result<(SocketAddr, Running)> {
    let state = Arc::new(State::default());
    let address = answer_at(state.clone(), |_| Ok(()))?;
    let source = match delivery {
        BridgeDelivery::Shared => BridgeAddress::Local(bridge::socket(bridge)),
        BridgeDelivery::Store | BridgeDelivery::Cut => BridgeAddress::Remote(bridge),
    };
    let slot = load.event.next_multiple_of(Geometry::UNIT as usize);
    let slots = (RING / slot).clamp(1, MOST_SLOTS) as u32;
    let geometry = Geometry::new(slots, u32::try_from(slot)?)?;
    let config = Config { geometry, local: Some(free_loopback()?), reconnect: None, ..Config::default() };
    let mut worker = Worker::open(&source, &config)?;
    if let BridgeAddress::Local(path) = &source {
        // Both ends are killed: nobody else would take it away.
        fs::remove_file(path)?;
    }
    spawn("worker", "the worker", move || -> Result<(), Error> {
        for events in 1.. {
            drop(black_box(worker.next()?));
            state.count(events);
        }
        Ok(())
    })?;
    Ok((address, Box::new(())))
}
