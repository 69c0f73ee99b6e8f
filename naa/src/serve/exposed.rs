//! A server's counters, as Prometheus reads them and as JSON.

use std::{fmt, sync::Arc};

use naa_server::counters::{Cut, ServerCounters, SourceNetworkCounters};
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use serde_json::{Value, json};

use crate::metrics::families::{self, counters, family, metric};

#[derive(Debug)]
struct ServerCollector(Arc<ServerCounters>);

/// Returns a function that makes the text with the counters at the time of a request.
pub(super) fn text(stats: Arc<ServerCounters>) -> impl Fn() -> String + Send + Sync + 'static {
    families::text("naa_server", ServerCollector(stats))
}

/// The JSON object at the end; `peers` are those that have sessions, memory or calls.
pub(super) fn end(of: &ServerCounters, peers: &[SourceNetworkCounters]) -> Value {
    let cut: serde_json::Map<_, _> =
        Cut::ALL.into_iter().map(|cause| (cause.name().into(), of.calls_cut(cause).get().into())).collect();
    json!({"event": "end", "sessions": of.sessions_accepted.get(), "calls": of.calls.get(),
        "calls_failed": of.calls_failed.get(), "calls_cut": cut,
        "catalogue_lookups": of.catalogue_lookups.get(), "peers": peers_json(peers)})
}

/// The summary at the end as text.
pub(super) fn summary(of: &ServerCounters) -> String {
    let (sessions, calls, failed) = (of.sessions_accepted.get(), of.calls.get(), of.calls_failed.get());
    // Calls that timed out were answered, so `failed` counts them already.
    let cut = [Cut::HostLeft, Cut::ConnectionFailed, Cut::ServerEnded];
    let cut = match cut.map(|cause| of.calls_cut(cause).get()).iter().sum() {
        0_u64 => String::new(),
        cut => format!(", {cut} cut"),
    };
    let lookups = match of.catalogue_lookups.get() {
        0 => String::new(),
        lookups => format!(", {lookups} look-ups of the catalogue"),
    };
    format!("served {sessions} sessions, {calls} calls ({failed} failed{cut}){lookups}")
}

fn peers_json(peers: &[SourceNetworkCounters]) -> Value {
    let row = |of: &SourceNetworkCounters| {
        json!({"peer": of.peer.map(|peer| peer.to_string()), "sessions": of.sessions,
            "sessions_accepted": of.sessions_accepted, "memory": of.memory, "memory_refused": of.memory_refused,
            "calls": of.calls, "calls_refused": of.calls_refused, "calls_waiting": of.open.waiting,
            "calls_running": of.open.running, "calls_abandoned": of.open.abandoned})
    };
    peers.iter().map(row).collect()
}

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let of = &*self.0;
        for (name, help, value) in [
            ("sessions_accepted", "Sessions that began", &of.sessions_accepted),
            ("sessions_rejected", "Hosts that were refused", &of.sessions_rejected),
            ("sessions_failed", "Sessions that ended by an error", &of.sessions_failed),
            ("calls", "Calls, look-ups of the catalogue left out", &of.calls),
            ("catalogue_lookups", "Look-ups of the catalogue", &of.catalogue_lookups),
            (
                "calls_failed",
                "Calls answered with another code than 0, without those of the catalogue",
                &of.calls_failed,
            ),
            ("calls_timed_out", "Calls that did not end in time", &of.calls_timed_out),
            ("received_bytes", "Bytes of calls' regions", &of.bytes_in),
            ("sent_bytes", "Bytes of results", &of.bytes_out),
        ] {
            metric(&mut encoder, name, help, ConstCounter::new(value.get()))?;
        }
        let help = "Calls that were cut: nobody got the result of their function";
        let cut = Cut::ALL.map(|cause| (cause.name(), of.calls_cut(cause).get()));
        counters(&mut encoder, "calls_cut", help, "cause", cut)?;
        metric(&mut encoder, "sessions", "Sessions now", ConstGauge::new(of.sessions.get()))?;
        peers(&mut encoder, &of.peers())
    }
}

fn peers(encoder: &mut DescriptorEncoder<'_>, peers: &[SourceNetworkCounters]) -> fmt::Result {
    type Value = fn(&SourceNetworkCounters) -> u64;
    let now: [(&str, &str, Value); 5] = [
        ("peer_sessions", "Sessions of a peer now", |of| of.sessions as u64),
        ("peer_memory_bytes", "Memory of a peer", |of| of.memory),
        ("peer_calls_waiting", "Calls of a peer that wait for a worker", |of| of.open.waiting as u64),
        ("peer_calls_running", "Calls of a peer on workers", |of| of.open.running as u64),
        ("peer_calls_abandoned", "Calls that a peer gave up and that still run", |of| {
            of.open.abandoned as u64
        }),
    ];
    for (name, help, value) in now {
        let values = peers.iter().map(|of| ([("peer", label(of))], ConstGauge::new(value(of))));
        family(encoder, name, help, values)?;
    }
    let counted: [(&str, &str, Value); 3] = [
        ("peer_calls", "Calls of a peer since it came", |of| of.calls),
        ("peer_calls_refused", "Calls of a peer answered with BUSY", |of| of.calls_refused),
        ("peer_memory_refused", "Requests of a peer for memory that were refused", |of| of.memory_refused),
    ];
    counted.into_iter().try_for_each(|(name, help, value)| {
        counters(encoder, name, help, "peer", peers.iter().map(|of| (label(of), value(of))))
    })
}

fn label(of: &SourceNetworkCounters) -> String {
    of.peer.map(|peer| peer.to_string()).unwrap_or_default()
}
