//! The end that sends events, and searches for the rate.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use ejfat::segment::LbVersion;
use ejfat_udp::{Sender, SenderConfig};
use roce_udp::free_loopback;

use super::{
    By, Figure, Load,
    control::{Ask, Control, Latencies, Manner, State, clock},
    search::{Found, Trial, highest},
    sink,
};
use crate::{
    cpu,
    side::{Effort, Measure, Work},
};

/// Bytes of a GiB.
pub(super) const GIB: f64 = (1u64 << 30) as f64;
/// A trial takes so much of a repeat.
const TRIAL: f64 = 0.3;
/// Where nothing arrives whole somebody else had the cores, for a moment perhaps.
const SEARCHES: u32 = 3;
/// Datagrams that the buffer takes at once, spinning or not: the best is chosen.
const BATCHES: [u32; 4] = [1, 4, 16, 32];

#[derive(Debug)]
pub(in crate::sides) struct Source {
    load: Load,
    figure: Figure,
    to: SocketAddr,
    control: Control,
    /// What a relay sends back; else the far end receives.
    back: Option<Arc<State>>,
    /// What puts events into memory of whoever receives them.
    bridge: Option<Control>,
    /// Something of the last run may be open there.
    lossy: bool,
    bytes: Vec<u8>,
    next: u64,
    manner: Manner,
    known: Option<f64>,
    sent: u64,
    /// CPU seconds per GiB of the ends at the rate that was found last, where nothing was lost.
    cpu: Option<[f64; 3]>,
}

impl Source {
    pub(in crate::sides) fn connect(load: Load, figure: Figure, far: SocketAddr) -> anyhow::Result<Self> {
        let control = Control::connect(far)?;
        let (bytes, manner) = (vec![0x5a; load.event], Manner { batch: BATCHES[0], spin: false });
        Ok(Self {
            load,
            figure,
            to: far,
            control,
            back: None,
            bridge: None,
            lossy: false,
            bytes,
            next: 0,
            manner,
            known: None,
            sent: 0,
            cpu: None,
        })
    }

    /// A bridge puts what is sent into the memory of a worker, who counts it.
    pub(in crate::sides) fn bridged(
        load: Load,
        figure: Figure,
        bridge: SocketAddr,
        worker: SocketAddr,
    ) -> anyhow::Result<Self> {
        let source = Self::connect(load, figure, worker)?;
        Ok(Self { to: bridge, bridge: Some(Control::connect(bridge)?), ..source })
    }

    /// The far end passes on what is sent.
    pub(in crate::sides) fn through(
        load: Load,
        figure: Figure,
        by: By,
        far: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut source = Self::connect(load, figure, far)?;
        let event = match by {
            By::Relay => load.datagrams(),
            By::Balancer | By::Changing => load.without_lb_headers(),
        };
        let socket = sink::socket((free_loopback()?, 0).into())?;
        source.control.ask(Ask::To(socket.local_addr()?))?;
        let state = Arc::new(State::default());
        sink::into_buffer(socket, event, state.clone())?;
        source.back = Some(state);
        Ok(source)
    }

    /// Sends for so long.
    pub(super) fn send(&mut self, rate: Option<f64>, seconds: f64) -> anyhow::Result<Trial> {
        if self.lossy && self.bridge.is_some() {
            self.settle()?;
        }
        self.control.ask(Ask::Begin(self.manner))?;
        let before = self.back.as_ref().map(|state| {
            state.set_manner(self.manner);
            state.settled()
        });
        // The sender's rate includes the headers, because they are on the wire, too.
        let headers = self.load.packets() as f64 / self.load.event as f64;
        let rate = rate.map(|rate| rate * headers * 8.0);
        let Load { mtu, .. } = self.load;
        let config =
            SenderConfig { mtu, rate, sockets: 1, version: LbVersion::V2, ..SenderConfig::new(self.to) };
        let mut sender = Sender::new(config)?;
        let (begin, time) = (Instant::now(), Duration::from_secs_f64(seconds));
        let began = clock();
        while begin.elapsed() < time {
            sender.send(self.next, 0, &self.bytes)?;
            self.next += 1;
        }
        let sent = clock();
        let events = sender.sent().events;
        let report = self.control.ask(Ask::End { events: if before.is_some() { 0 } else { events } })?;
        let (arrived, last) = match (&self.back, before) {
            (Some(state), Some(before)) => (state.arrived(before, events), state.last()),
            _ => (report.events, report.last),
        };
        self.sent += sender.sent().bytes;
        // What waits on its way when the last was sent is not there yet.
        let took = Duration::from_nanos(last.max(sent) - began);
        let rate = |events: u64| events as f64 * self.load.event as f64 / took.as_secs_f64();
        self.lossy = arrived != events;
        Ok(Trial { rate: rate(events), arrived: rate(arrived), lost: self.lossy })
    }

    /// Waits until the bridge has delivered all events, and makes it count latencies anew.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let bridge = self.bridge.as_mut().context("there is no bridge")?;
        bridge.ask(Ask::Begin(self.manner))?;
        self.lossy = false;
        Ok(())
    }

    /// How long events took since [`Self::settle`], if it is a bridge.
    pub(super) fn latencies(&mut self) -> anyhow::Result<Option<Latencies>> {
        let bridge = self.bridge.as_mut().context("there is no bridge")?;
        Ok(bridge.ask(Ask::Latencies)?.latencies)
    }

    /// CPU seconds of the sender, of the bridge if there is one, and of what receives.
    fn cpus(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut cpus = vec![cpu::time()?];
        for far in self.bridge.iter_mut().chain([&mut self.control]) {
            cpus.push(far.ask(Ask::Look)?.cpu);
        }
        Ok(cpus)
    }

    /// CPU seconds per GiB of the ends while events are sent at a rate, or `None` if some are lost each time. The search
    /// for the rate loses events, which cost less than those that arrive.
    fn lossless_cpu(&mut self, rate: f64, seconds: f64) -> anyhow::Result<Option<[f64; 3]>> {
        for _ in 0..SEARCHES {
            if self.bridge.is_some() {
                self.settle()?;
            }
            let (sent, before) = (self.sent, self.cpus()?);
            let trial = self.send(Some(rate), seconds)?;
            if !trial.lost {
                let (after, gib) = (self.cpus()?, (self.sent - sent) as f64 / GIB);
                let mut cpu = [0.0; 3];
                for (cpu, (after, before)) in cpu.iter_mut().zip(after.iter().zip(&before)) {
                    *cpu = (after - before) / gib;
                }
                return Ok(Some(cpu));
            }
        }
        Ok(None)
    }

    /// How the buffer receives most.
    fn choose_manner(&mut self, seconds: f64) -> anyhow::Result<()> {
        let mut best = (0.0, self.manner);
        for (batch, spin) in BATCHES.into_iter().flat_map(|batch| [(batch, false), (batch, true)]) {
            self.manner = Manner { batch, spin };
            let Trial { arrived, .. } = self.send(None, seconds)?;
            if arrived > best.0 {
                best = (arrived, self.manner);
            }
        }
        self.manner = best.1;
        Ok(())
    }

    fn search(&mut self, seconds: f64) -> anyhow::Result<Found> {
        for _ in 0..SEARCHES {
            if let Some(found) = highest(self.known, |rate| self.send(rate, seconds))? {
                return Ok(found);
            }
            self.known = None;
        }
        bail!("events are lost at any rate: this machine is too busy to measure")
    }

    /// The highest rate at which nothing is lost, in bytes per second.
    pub(super) fn highest(&mut self, effort: &Effort) -> anyhow::Result<f64> {
        let found = self.search(effort.seconds * TRIAL)?;
        self.known = Some(found.rate);
        Ok(found.rate)
    }
}

impl Measure for Source {
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        let seconds = effort.seconds * TRIAL;
        let is_bridged = self.bridge.is_some();
        if is_bridged {
            self.settle()?;
        } else {
            self.choose_manner(seconds)?;
        }
        let found = self.search(seconds)?;
        self.known = Some(found.rate);
        let rate = (!found.unpaced).then_some(found.rate);
        if is_bridged {
            self.settle()?;
        }
        let before = self.cpus()?;
        self.send(rate, seconds)?;
        let after = self.cpus()?;
        let busy = |(after, before): (&f64, &f64)| format!("{:.0} %", (after - before) / seconds * 100.0);
        let busy = after.iter().zip(&before).map(busy).collect::<Vec<_>>().join(", ");
        let limit = if found.unpaced { "the sender limits" } else { "the receiving end limits" };
        let ends = if is_bridged { "sender, bridge and worker" } else { "sender and receiver" };
        let report = format!("{limit}: {ends} take {busy} of a core");
        let latencies = if is_bridged { self.latencies()? } else { None };
        Ok(latencies.map_or(report.clone(), |Latencies { since_first_segment: [p50, p99], .. }| {
            format!("{report}; first segment to delivered p50 {p50:.0} us, p99 {p99:.0} us")
        }))
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let before = self.sent;
        let rate = self.highest(effort)?;
        self.cpu = self.lossless_cpu(rate, effort.seconds * TRIAL)?;
        let value = match self.figure {
            Figure::Bytes => rate / GIB,
            Figure::Events => rate / self.load.event as f64 / 1e3,
        };
        Ok(Work { value, amount: (self.sent - before) as f64 / GIB })
    }

    fn cpu(&self) -> Option<[f64; 3]> {
        self.cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sides::ejfat::{
        BridgeDelivery, Sink, serve_balancer, serve_bridge, serve_relay, serve_sink, serve_worker,
    };

    /// Both ends in one process, for a moment, slowly.
    #[test]
    fn events_arrive_at_every_end() {
        let load = Load { event: 100_000, mtu: 9000 };
        let arrive = |mut source: Source| {
            let trial = source.send(Some(20e6), 0.05).unwrap();
            assert!(trial.arrived > 0.0 && trial.arrived <= trial.rate, "{trial:?}");
        };
        for sink in [Sink::Receiver, Sink::Buffer] {
            let (far, _running) = serve_sink(load, sink).unwrap();
            arrive(Source::connect(load, Figure::Bytes, far).unwrap());
        }
        for by in [By::Relay, By::Balancer] {
            let served = if by == By::Relay { serve_relay(load) } else { serve_balancer(None) };
            let (far, _running) = served.unwrap();
            arrive(Source::through(load, Figure::Bytes, by, far).unwrap());
        }
        for delivery in [BridgeDelivery::Shared, BridgeDelivery::Store, BridgeDelivery::Cut] {
            let (far, _running) = serve_bridge(delivery).unwrap();
            let (worker, _running) = serve_worker(load, delivery, far).unwrap();
            let mut source = Source::bridged(load, Figure::Bytes, far, worker).unwrap();
            source.settle().unwrap();
            assert_eq!(source.latencies().unwrap(), None);
            source.send(Some(20e6), 0.05).unwrap();
            let latencies = source.latencies().unwrap().unwrap();
            for [p50, p99] in [latencies.since_first_segment, latencies.since_last_segment] {
                assert!(0.0 < p50 && p50 <= p99);
            }
            arrive(source);
        }
        #[cfg(feature = "zeromq")]
        {
            let (far, _running) = crate::sides::ejfat::serve_push().unwrap();
            let (worker, _running) = crate::sides::ejfat::serve_pull(far).unwrap();
            arrive(Source::bridged(load, Figure::Bytes, far, worker).unwrap());
        }
    }
}
