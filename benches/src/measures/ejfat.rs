//! `naa bench ejfat`: EJFAT's data path beside copies of the same bytes.

use naa_measure::row::Target::{self, AtLeast, AtMost, Report};

use super::{Builder, Cpu, Measure};
use crate::sides::{
    Far, Near, control,
    ejfat::{By, FLOODED_MEMORY, Figure, Load, Sink},
    engine::What,
};

const EVENT: usize = 1 << 20;
const SMALL: usize = 8192;

/// Returns all measures in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![
        reassembling(),
        forwarding(),
        receiving(),
        receiving_small(),
        through(),
        idle(),
        flooded(),
        control_tick(),
        control_state(),
        control_store(),
    ]
}

const CPU: Cpu = Cpu { unit: "s/GiB", per_second: 1.0, ends: &["sender", "receiver"] };

fn engine(b: &mut Builder, what: What) -> usize {
    b.contender(None, Near::Engine(what))
}

/// The aim is 0.7 of the speed of a copy, which is 1.43 times its time.
fn reassembling() -> Measure {
    let mut b = Builder::default();
    let copy = engine(&mut b, What::Copy(EVENT));
    for (mtu, target) in [(9000, 2.0), (1500, 1.8)] {
        for (shuffled, order) in [(false, "in order"), (true, "shuffled")] {
            let ours = engine(&mut b, What::Reassemble { bytes: EVENT, mtu, shuffled });
            let name = format!("reassembler, 1 MiB event, MTU {mtu}, {order}, vs memcpy");
            b.row(name, ours, copy, AtMost(target), AtMost(1.43));
        }
    }
    let small = engine(&mut b, What::Reassemble { bytes: SMALL, mtu: 9000, shuffled: false });
    let copy = engine(&mut b, What::Copy(SMALL));
    b.row("reassembler, 8 KiB event, one segment, vs memcpy", small, copy, Report, None);
    b.measure("ns", None)
}

fn forwarding() -> Measure {
    let mut b = Builder::default();
    for bytes in [1500, 9000, 100] {
        let ours = engine(&mut b, What::Forward(bytes));
        let array = engine(&mut b, What::Pick(bytes));
        let name = format!("LB tables 8 x 4 x 512 and rewrite, {bytes} B packet, vs array lookup and copy");
        if bytes == 1500 {
            b.row(name, ours, array, AtMost(3.0), AtMost(2.5));
        } else {
            b.row(name, ours, array, Report, None);
        }
    }
    b.measure("ns", None)
}

fn control_tick() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(None, Near::Control(control::What::Period));
    b.row("control plane: period of 8 x 128 workers, all changed", ours, None, AtMost(5.0), AtMost(1.0));
    b.measure("ms", None)
}

fn control_state() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(None, Near::Control(control::What::State));
    b.row("control plane: a worker's state applied", ours, None, AtMost(2.0), AtMost(0.5));
    b.measure("us", None)
}

fn control_store() -> Measure {
    let mut b = Builder::default();
    let [ours, syncs] =
        [control::What::Commands, control::What::Syncs].map(|what| b.contender(None, Near::Control(what)));
    let name = "control plane: durable commands of 64 callers, vs syncs of the same disk";
    b.row(name, ours, syncs, AtLeast(8.0), AtLeast(32.0));
    b.measure("per s", None)
}

fn into(b: &mut Builder, load: Load, figure: Figure, sink: Sink) -> usize {
    b.contender(Far::EventSink(load, sink), Near::Events(load, figure))
}

fn receive(b: &mut Builder, name: String, load: Load, figure: Figure, [target, aim]: [Target; 2]) {
    let [ours, buffer] = [Sink::Receiver, Sink::Buffer].map(|sink| into(b, load, figure, sink));
    b.row(name, ours, buffer, target, aim);
}

fn receiving() -> Measure {
    let mut b = Builder::default();
    for mtu in [9000, 1500] {
        let name = format!("loopback UDP to memory, 1 MiB events, MTU {mtu}, lossless, vs recvmmsg+GRO");
        let load = Load { event: EVENT, mtu };
        receive(&mut b, name, load, Figure::Bytes, [AtLeast(0.7), AtLeast(0.85)]);
    }
    b.measure("GiB/s", CPU)
}

fn receiving_small() -> Measure {
    let mut b = Builder::default();
    let name = "loopback UDP to memory, 8 KiB events, one segment, lossless, vs recvmmsg+GRO".into();
    let load = Load { event: SMALL, mtu: 9000 };
    receive(&mut b, name, load, Figure::Events, [AtLeast(0.6), AtLeast(0.8)]);
    b.measure("k/s", CPU)
}

fn through() -> Measure {
    let mut b = Builder::default();
    for mtu in [9000, 1500] {
        let load = Load { event: EVENT, mtu };
        let [ours, relay] = [By::Balancer, By::Relay]
            .map(|by| b.contender(Far::EventPasser(load, by), Near::EventsThrough(load, Figure::Bytes, by)));
        let name = format!("LB forwarding over loopback, MTU {mtu}, lossless, vs relay without lookup");
        b.row(name, ours, relay, AtLeast(0.8), None);
    }
    b.measure("GiB/s", Cpu { ends: &["sender and receiver", "balancer"], ..CPU })
}

const NOTHING: Load = Load { event: SMALL, mtu: 9000 };

fn idle() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(Far::EventSink(NOTHING, Sink::Receiver), Near::EventWatch);
    b.row("idle receiver: CPU", ours, None, AtMost(1.0), None);
    b.measure("%", None)
}

/// Pages take at most one and a half times the memory for events, and tables and buffers a few MiB.
fn flooded() -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(Far::EventSink(NOTHING, Sink::Bounded), Near::EventFlood);
    let memory = FLOODED_MEMORY >> 20;
    let name = format!("receiver of {memory} MiB of events: memory that a hostile flood adds");
    b.row(name, ours, None, AtMost(1.5 * f64::from(memory) + 16.0), None);
    b.measure("MiB", None)
}
