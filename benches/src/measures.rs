//! What is measured, against what, and what it shall come to.

pub(crate) mod bridge;
pub(crate) mod capi;
pub(crate) mod ejfat;
pub(crate) mod lb;

use naa_measure::row::Target::{self, AtLeast, AtMost, Report};

use crate::sides::{
    Beside, Far, Near, Wait,
    call::Calls,
    engine::What,
    udp_stream::Packets,
    write::{Device, MESSAGE, Messages},
};

/// A contender is something that is measured, by processes of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contender {
    pub(crate) far: Option<Far>,
    /// The role of the process to which the far end passes on what it receives, if there is one.
    pub(crate) beside: Option<Beside>,
    pub(crate) near: Near,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// The places of our contender and of the reference among the contenders of the measure.
    pub(crate) ours: usize,
    pub(crate) reference: Option<Reference>,
    pub(crate) target: Target,
    pub(crate) aim: Option<Target>,
}

/// The value by which a figure is divided.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// The figure of the contender with this place.
    Contender(usize),
    /// The rate in GiB/s that the cores permit, which is that of the busiest one.
    Bound(Vec<Core>),
}

/// The work of one core for each GiB, as the sum of CPU times of other contenders in the same repeat. The CPU times are in
/// seconds per GiB.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) name: &'static str,
    /// Contenders by their place, each with the end that does this part: 0 is the near end, 1 the far one.
    pub(crate) parts: Vec<(usize, usize)>,
}

impl Reference {
    pub(crate) fn contender(&self) -> Option<usize> {
        match self {
            Self::Contender(place) => Some(*place),
            Self::Bound(_) => None,
        }
    }

    /// The places of the contenders that are measured for it.
    pub(crate) fn places(&self) -> Vec<usize> {
        match self {
            Self::Contender(place) => vec![*place],
            Self::Bound(cores) => {
                cores.iter().flat_map(|core| &core.parts).map(|(place, _)| *place).collect()
            }
        }
    }
}

/// Contenders that take turns within each repeat, and rows about them.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Comparison>,
    pub(crate) unit: &'static str,
    /// The unit of CPU time for each unit of work, and the factor from seconds to it. If the value is `None`, there are no rows about
    /// CPU time.
    pub(crate) cpu: Option<Cpu>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) unit: &'static str,
    pub(crate) per_second: f64,
    /// The names of the near end, of the far end, and of the process to which the far end passes on.
    pub(crate) ends: &'static [&'static str],
}

#[derive(Clone, Debug)]
pub(crate) enum Measure {
    Turns(Turns),
    /// The measure of idle sessions, which are all watched at the same time.
    Idle,
}

const STREAM_CPU: Cpu = Cpu { unit: "s/GiB", per_second: 1.0, ends: &["sender", "receiver"] };
const CALL_CPU: Cpu = Cpu { unit: "us/call", per_second: 1e6, ends: &["host", "server"] };

impl Measure {
    /// Returns the names of the rows, without the rows about CPU time.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Turns(turns) => turns.rows.iter().map(|row| row.name.clone()).collect(),
            Self::Idle => crate::idle::names(),
        }
    }

    pub(crate) fn needs_python(&self) -> bool {
        matches!(self, Self::Turns(turns) if turns.contenders.iter().any(|one| one.near == Near::Python))
    }

    pub(crate) fn is_about(&self, text: &str) -> bool {
        self.names().iter().any(|name| name.contains(text))
    }
}

/// The contenders of a measure, while it is put together.
#[derive(Default)]
struct Builder {
    contenders: Vec<Contender>,
    rows: Vec<Comparison>,
}

impl Builder {
    fn contender(&mut self, far: impl Into<Option<Far>>, near: Near) -> usize {
        self.contenders.push(Contender { far: far.into(), beside: None, near });
        self.contenders.len() - 1
    }

    /// Adds a contender whose far end passes on to a third process.
    fn passing(&mut self, far: Far, beside: Beside, near: Near) -> usize {
        self.contenders.push(Contender { far: Some(far), beside: Some(beside), near });
        self.contenders.len() - 1
    }

    fn row(
        &mut self,
        name: impl Into<String>,
        ours: usize,
        reference: impl Into<Option<usize>>,
        target: Target,
        aim: impl Into<Option<Target>>,
    ) {
        let reference = reference.into().map(Reference::Contender);
        let (name, aim) = (name.into(), aim.into());
        self.rows.push(Comparison { name, ours, reference, target, aim });
    }

    /// Adds a row whose reference is the rate that the busiest of `cores` permits.
    fn bounded(
        &mut self,
        name: impl Into<String>,
        ours: usize,
        cores: impl Into<Vec<Core>>,
        target: Target,
        aim: impl Into<Option<Target>>,
    ) {
        let (name, reference, aim) = (name.into(), Some(Reference::Bound(cores.into())), aim.into());
        self.rows.push(Comparison { name, ours, reference, target, aim });
    }

    fn measure(self, unit: &'static str, cpu: impl Into<Option<Cpu>>) -> Measure {
        let Self { contenders, rows } = self;
        Measure::Turns(Turns { contenders, rows, unit, cpu: cpu.into() })
    }
}

/// Returns all measures in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![
        writes_at_4096(),
        writes_at_1024(),
        writes_without_offload(),
        calls(Wait::Spin),
        calls(Wait::Block),
        adaptive_call(),
        pooled_call(),
        sessions(),
        awaited_calls(),
        tasks(),
        pools(),
        connecting(),
        loss(),
        Measure::Idle,
        engine(),
    ]
}

fn device(mtu: u32) -> Device {
    Device { mtu, offload: true, loss_per_million: 0, messages: Messages::LARGE }
}

fn writes(builder: &mut Builder, device: Device) -> usize {
    builder.contender(Far::Write(device), Near::Write(device))
}

fn udp(builder: &mut Builder, mtu: usize, offload: bool) -> usize {
    let packets = Packets { mtu, offload };
    builder.contender(Far::UdpStream(packets), Near::UdpStream(packets))
}

fn writes_at_4096() -> Measure {
    let mut b = Builder::default();
    let (ours, udp) = (writes(&mut b, device(4096)), udp(&mut b, 4096, true));
    let tcp = b.contender(Far::TcpStream, Near::TcpStream);
    b.row("WRITE 1 MiB, MTU 4096, vs raw UDP with GSO+GRO", ours, udp, AtLeast(0.62), AtLeast(0.7));
    b.row("WRITE 1 MiB, MTU 4096, vs TCP, 64 KiB writes", ours, tcp, AtLeast(1.5), AtLeast(2.0));
    b.measure("GiB/s", STREAM_CPU)
}

fn writes_at_1024() -> Measure {
    let mut b = Builder::default();
    let (ours, udp) = (writes(&mut b, device(1024)), udp(&mut b, 1024, true));
    b.row("WRITE 1 MiB, MTU 1024, vs raw UDP with GSO+GRO", ours, udp, AtLeast(0.5), AtLeast(0.6));
    b.measure("GiB/s", STREAM_CPU)
}

fn writes_without_offload() -> Measure {
    let mut b = Builder::default();
    let ours = writes(&mut b, Device { offload: false, ..device(4096) });
    let udp = udp(&mut b, 4096, false);
    let name = "WRITE 1 MiB, MTU 4096, no GSO/GRO, vs raw UDP without";
    b.row(name, ours, udp, AtLeast(0.85), AtLeast(0.9));
    b.measure("GiB/s", STREAM_CPU)
}

fn calls(wait: Wait) -> Measure {
    let mut b = Builder::default();
    let ours = b.contender(Far::Call(wait), Near::Call(Calls { wait, pooled: false }));
    let udp = b.contender(Far::UdpPing(wait), Near::UdpPing(wait));
    let bare = b.contender(Far::PortPing(wait), Near::PortPing(wait));
    let rpc = b.contender(Far::Rpc, Near::Rpc);
    let (how, [udp_target, udp_aim], rpc_target) = match wait {
        Wait::Spin => ("spinning", [1.7, 1.4], AtMost(0.25)),
        _ => ("blocking", [1.15, 1.05], AtMost(0.8)),
    };
    let name = format!("64-byte call, {how}, p50, vs UDP ping-pong, {how}");
    b.row(name, ours, udp, AtMost(udp_target), AtMost(udp_aim));
    b.row(format!("64-byte call, {how}, p50, vs its system calls alone"), ours, bare, Report, None);
    b.row(format!("64-byte call, {how}, p50, vs gRPC (tonic)"), ours, rpc, rpc_target, None);
    b.measure("us", CALL_CPU)
}

/// Adaptive waiting is the default. A program without RDMA would wait for a datagram asleep.
fn adaptive_call() -> Measure {
    let mut b = Builder::default();
    let wait = Wait::Adaptive;
    let ours = b.contender(Far::Call(wait), Near::Call(Calls { wait, pooled: false }));
    let udp = b.contender(Far::UdpPing(Wait::Block), Near::UdpPing(Wait::Block));
    let name = "64-byte call, adaptive, p50, vs UDP ping-pong, blocking";
    b.row(name, ours, udp, AtMost(0.5), AtMost(0.4));
    b.measure("us", CALL_CPU)
}

fn pooled_call() -> Measure {
    let mut b = Builder::default();
    let wait = Wait::Adaptive;
    let [pooled, inline] =
        [true, false].map(|pooled| b.contender(Far::Call(wait), Near::Call(Calls { wait, pooled })));
    b.row("64-byte call through the worker pool, p50, vs inline", pooled, inline, Report, None);
    b.measure("us", CALL_CPU)
}

fn sessions() -> Measure {
    let mut b = Builder::default();
    let sessions = |b: &mut Builder, count| b.contender(Far::Call(Wait::Adaptive), Near::Sessions(count));
    let one = sessions(&mut b, 1);
    b.row("64-byte calls per second, 1 session", one, None, Report, None);
    for count in [8, 64] {
        let many = sessions(&mut b, count);
        b.row(format!("64-byte calls per second, {count} sessions, vs 1 session"), many, one, Report, None);
    }
    b.measure("calls/s", CALL_CPU)
}

fn awaited_calls() -> Measure {
    let mut b = Builder::default();
    for (wait, how) in [(Wait::Adaptive, "adaptive"), (Wait::Block, "sleeping at once")] {
        let awaited = b.contender(Far::Call(wait), Near::Awaited(wait));
        let blocking = b.contender(Far::Call(wait), Near::Call(Calls { wait, pooled: false }));
        let name = format!("64-byte call awaited, {how}, p50, vs the same in a thread");
        b.row(name, awaited, blocking, AtMost(1.25), AtMost(1.1));
    }
    b.measure("us", CALL_CPU)
}

fn tasks() -> Measure {
    const COUNT: u32 = 64;
    let mut b = Builder::default();
    let tasks = b.contender(Far::Call(Wait::Adaptive), Near::Tasks(COUNT));
    let threads = b.contender(Far::Call(Wait::Adaptive), Near::Sessions(COUNT));
    let rpc = b.contender(Far::Rpc, Near::RpcTasks(COUNT));
    b.row("64-byte calls awaited by 64 tasks, vs 64 threads", tasks, threads, AtLeast(1.0), AtLeast(2.0));
    b.row("64-byte calls awaited by 64 tasks, vs gRPC (tonic)", tasks, rpc, AtLeast(5.0), AtLeast(8.0));
    b.measure("calls/s", CALL_CPU)
}

fn pools() -> Measure {
    let mut b = Builder::default();
    let [three, one] = [3, 1].map(|count| b.contender(Far::Servers(count), Near::Pool(count)));
    b.row("calls of 1 ms by 12 tasks, pool of 3 servers of one thread, vs 1", three, one, Report, None);
    b.measure("calls/s", CALL_CPU)
}

fn connecting() -> Measure {
    /// Connecting, agreeing on regions and calling take a round trip each.
    const PINGS: u32 = 3;
    let mut b = Builder::default();
    let connect = |b: &mut Builder, bytes| b.contender(Far::Call(Wait::Adaptive), Near::Connect(bytes));
    let (small, large) = (connect(&mut b, 4 << 10), connect(&mut b, 256 << 20));
    let pings = b.contender(Far::UdpPing(Wait::Block), Near::UdpPings(PINGS));
    let name = "connect + MRSP + first call, 4 x 4 KiB, vs 3 blocking UDP ping-pongs";
    b.row(name, small, pings, AtMost(1.1), AtMost(1.0));
    b.row("connect + MRSP + first call, 4 x 256 MiB, vs 4 x 4 KiB", large, small, AtMost(2.0), None);
    b.measure("ms", None)
}

fn loss() -> Measure {
    let mut b = Builder::default();
    let lossless = writes(&mut b, device(4096));
    let udp = udp(&mut b, 4096, true);
    // Targets and aims of the ratios to our goodput without loss, and to raw UDP.
    for (percent, loss_per_million, [target, aim], of_udp) in [
        ("0.1", 1_000, [0.8, 0.9], Some([0.5, 0.6])),
        ("1", 10_000, [0.4, 0.6], Some([0.28, 0.4])),
        ("5", 50_000, [0.1, 0.2], None),
    ] {
        let lossy = writes(&mut b, Device { loss_per_million, ..device(4096) });
        let name =
            |reference: &str| format!("WRITE 1 MiB, MTU 4096, {percent} % of packets lost, vs {reference}");
        b.row(name("none"), lossy, lossless, AtLeast(target), AtLeast(aim));
        if let Some([target, aim]) = of_udp {
            b.row(name("raw UDP without loss"), lossy, udp, AtLeast(target), AtLeast(aim));
        }
    }
    b.measure("GiB/s", STREAM_CPU)
}

fn engine() -> Measure {
    let mut b = Builder::default();
    let packet = naa_hot_paths::engine::Codec::new().bytes();
    let engine = |b: &mut Builder, what| b.contender(None, Near::Engine(what));
    let write = engine(&mut b, What::Write);
    let copy_message = engine(&mut b, What::Copy(MESSAGE));
    let codec = engine(&mut b, What::Codec);
    let icrc = engine(&mut b, What::Icrc);
    let copy_packet = engine(&mut b, What::Copy(packet));
    b.row("roce engine, both ends, WRITE 1 MiB, vs memcpy", write, copy_message, Report, None);
    b.row("roce codec, decode + encode a WRITE packet of 4 KiB, vs memcpy", codec, copy_packet, Report, None);
    b.row("roce ICRC of a WRITE packet of 4 KiB, vs memcpy", icrc, copy_packet, Report, None);
    b.measure("ns", None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_rows_name_contenders() {
        let all: Vec<_> = [all(), bridge::all(), capi::all(), ejfat::all()].concat();
        let names: Vec<_> = all.iter().flat_map(Measure::names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for measure in all {
            let Measure::Turns(turns) = measure else { continue };
            let all = turns.contenders.len();
            let references = turns.rows.iter().filter_map(|row| row.reference.as_ref());
            let places = references.flat_map(Reference::places).chain(turns.rows.iter().map(|row| row.ours));
            assert!(places.max() < Some(all));
        }
    }
}
