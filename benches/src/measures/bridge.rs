//! `naa bench bridge`: events by a bridge into a worker's memory, beside what is left out there or taken instead.

use naa_measure::row::Target::{AtLeast, AtMost, Report};

use super::{Builder, Core, Cpu, Measure, device};
use crate::sides::{
    Beside, Far, Near,
    ejfat::{BridgeDelivery, Figure, Load, Part, Sink, Timed},
    write::{Device, Messages},
};

const LARGE: Load = Load { event: 1 << 20, mtu: 9000 };
const SMALL: Load = Load { event: 8192, mtu: 9000 };

/// Returns all measures in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![local(), remote(), delivery(), latency(), small_local(), small_remote(), idle()]
}

const CPU: Cpu = Cpu { unit: "s/GiB", per_second: 1.0, ends: &["sender", "bridge", "worker"] };

fn bridged(b: &mut Builder, load: Load, figure: Figure, way: BridgeDelivery) -> usize {
    b.passing(Far::Bridge(way), Beside::Worker(load, way), Near::EventsBridged(load, figure))
}

fn reassembled(b: &mut Builder, load: Load, figure: Figure) -> usize {
    b.contender(Far::EventSink(load, Sink::Receiver), Near::Events(load, figure))
}

fn write(b: &mut Builder, messages: Messages) -> usize {
    let device = Device { messages, ..device(4096) };
    b.contender(Far::Write(device), Near::Write(device))
}

fn local() -> Measure {
    let mut b = Builder::default();
    for mtu in [9000, 1500] {
        let load = Load { mtu, ..LARGE };
        let ours = bridged(&mut b, load, Figure::Bytes, BridgeDelivery::Shared);
        let alone = reassembled(&mut b, load, Figure::Bytes);
        let name = format!("UDP to a worker of this host, 1 MiB events, MTU {mtu}, vs reassembly alone");
        b.row(name, ours, alone, AtLeast(0.85), AtLeast(0.95));
    }
    b.measure("GiB/s", CPU)
}

fn remote() -> Measure {
    let mut b = Builder::default();
    let [store, cut] =
        [BridgeDelivery::Store, BridgeDelivery::Cut].map(|way| bridged(&mut b, LARGE, Figure::Bytes, way));
    let write = write(&mut b, Messages::LARGE);
    let alone = reassembled(&mut b, LARGE, Figure::Bytes);
    // The bridge receives events and sends WRITEs; the sender of events and the worker, which receives WRITEs, share a core.
    let cores = [
        Core { name: "receive and send WRITEs", parts: vec![(alone, 1), (write, 0)] },
        Core { name: "sender and receive WRITEs", parts: vec![(alone, 0), (write, 1)] },
    ];
    #[cfg(feature = "zeromq")]
    let zeromq = b.passing(Far::EventPusher, Beside::Puller, Near::EventsBridged(LARGE, Figure::Bytes));
    let name = |way, reference| format!("UDP to a remote worker, 1 MiB events, {way}, vs {reference}");
    b.bounded(name("store", "the bound of its busiest core"), store, cores, AtLeast(0.85), AtLeast(0.95));
    b.row(name("store", "WRITE 1 MiB"), store, write, Report, None);
    b.row(name("cut", "WRITE 1 MiB"), cut, write, Report, None);
    #[cfg(feature = "zeromq")]
    {
        b.row(name("store", "ZeroMQ PUSH"), store, zeromq, AtLeast(1.15), AtLeast(1.3));
        b.row(name("cut", "ZeroMQ PUSH"), cut, zeromq, Report, None);
    }
    b.row(name("cut", "store"), cut, store, Report, None);
    b.measure("GiB/s", CPU)
}

fn delivery() -> Measure {
    let mut b = Builder::default();
    let way = BridgeDelivery::Store;
    let near = Near::EventLatency(LARGE, Timed::SinceLast, Part::P50);
    let ours = b.passing(Far::Bridge(way), Beside::Worker(LARGE, way), near);
    let name = "last segment received to delivered, 1 MiB events at half of the highest lossless rate, p50";
    b.row(name, ours, None, AtMost(1000.0), None);
    b.measure("us", None)
}

fn latency() -> Measure {
    let mut b = Builder::default();
    for (part, name) in [(Part::P50, "p50"), (Part::P99, "p99")] {
        let [store, cut] = [BridgeDelivery::Store, BridgeDelivery::Cut].map(|way| {
            let near = Near::EventLatency(LARGE, Timed::SinceFirst, part);
            b.passing(Far::Bridge(way), Beside::Worker(LARGE, way), near)
        });
        let name = format!("first segment to delivered, 1 MiB events, 1 GiB/s, {name}, cut vs store");
        b.row(name, cut, store, Report, None);
    }
    b.measure("us", None)
}

fn small_local() -> Measure {
    let mut b = Builder::default();
    let ours = bridged(&mut b, SMALL, Figure::Events, BridgeDelivery::Shared);
    let alone = reassembled(&mut b, SMALL, Figure::Events);
    b.row("8 KiB events to a worker of this host vs reassembly alone", ours, alone, Report, None);
    b.measure("k/s", CPU)
}

fn small_remote() -> Measure {
    let mut b = Builder::default();
    let [store, cut] =
        [BridgeDelivery::Store, BridgeDelivery::Cut].map(|way| bridged(&mut b, SMALL, Figure::Events, way));
    let write = write(&mut b, Messages::SMALL);
    let name = |way| format!("8 KiB events to a remote worker, {way}, vs WRITE_WITH_IMM 8 KiB");
    b.row(name("store"), store, write, AtLeast(0.5), None);
    b.row(name("cut"), cut, write, AtLeast(0.5), None);
    b.measure("k/s", CPU)
}

fn idle() -> Measure {
    let mut b = Builder::default();
    for (way, worker) in
        [(BridgeDelivery::Store, "remote worker"), (BridgeDelivery::Shared, "worker of this host")]
    {
        let ours = b.passing(Far::Bridge(way), Beside::Worker(LARGE, way), Near::EventWatch);
        b.row(format!("idle bridge, {worker} subscribed: CPU"), ours, None, AtMost(1.0), None);
    }
    b.measure("%", None)
}
