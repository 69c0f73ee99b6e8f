//! What a bridge tells hosts of itself: codes 81 and 82.

use std::net::SocketAddr;

use ejfat::{
    bridge::{EventLossCause, EventOutcome, EventTrace},
    reassembly::SegmentDropCause,
};
use ejfat_bridge::{BridgeHandle, Snapshot, WorkerReport};
use ejfat_lb::message;
use mrsp::builtin;
use naa_host::Device;
use naa_server::function::Handler;
use proto::events::v1;

use crate::{
    ask::{HostError, ServiceClient},
    reassembly,
    service::{service, text},
};

/// The functions of a server with a bridge.
pub fn bridge(handle: &BridgeHandle) -> [Handler; 2] {
    let (status, trace) = (handle.clone(), handle.clone());
    [
        service(builtin::BRIDGE_STATUS, "what the bridge does", None, "BridgeStatus", move |_| {
            Ok(message::encode(&bridge_status(&status.snapshot())))
        }),
        service(
            builtin::BRIDGE_TRACE,
            "the way of events through the bridge",
            Some("TraceRequest"),
            "TraceReply",
            move |request| {
                let v1::TraceRequest { tick } = message::decode(request).map_err(text)?;
                let traces = trace.trace(tick).ok_or("the bridge is too busy to answer; try again")?;
                Ok(message::encode(&v1::TraceReply { events: traces.iter().map(of_trace).collect() }))
            },
        ),
    ]
}

/// A bridge's counters as the message of its service.
pub fn bridge_status(snapshot: &Snapshot) -> v1::BridgeStatus {
    let events = &snapshot.events;
    let lost = EventLossCause::ALL.map(|cause| (cause.name().to_owned(), events.lost(cause)));
    let too_long = (SegmentDropCause::TooLong.name().to_owned(), snapshot.too_long);
    v1::BridgeStatus {
        reassembly: Some(reassembly::message(
            &snapshot.reassembly,
            0,
            snapshot.memory,
            snapshot.failed.clone(),
        )),
        kernel_drops: snapshot.kernel_drops,
        opened: events.opened,
        open: events.open,
        incomplete: events.incomplete,
        sent: events.sent,
        sent_bytes: events.sent_bytes,
        delivered: events.delivered,
        released: events.released,
        held_by_ended: events.held_by_ended,
        waiting: snapshot.waiting as u64,
        lost: lost.into_iter().chain([too_long]).collect(),
        fill: snapshot.fill,
        workers: snapshot.workers.iter().map(of_worker).collect(),
        wrong_credits: events.wrong_credits,
        refused: snapshot.refused,
        delivered_again: events.delivered_again,
        waiting_again: snapshot.waiting_again as u64,
        lost_with_workers: snapshot.lost_with_workers,
    }
}

fn of_worker(&WorkerReport { stats, peer, seconds }: &WorkerReport) -> v1::BridgeWorker {
    v1::BridgeWorker {
        worker: stats.id.number(),
        name: stats.name.to_string(),
        placing: stats.placing.name().to_owned(),
        peer: peer.map_or(String::new(), |peer| peer.to_string()),
        fill: stats.fill,
        stalled: stats.stalled,
        slots: stats.slots,
        slot_bytes: stats.slot_bytes,
        in_use: stats.in_use,
        outstanding: stats.outstanding,
        sent: stats.sent,
        bytes: stats.bytes,
        released: stats.released,
        wrong_credits: stats.wrong_credits,
        member: stats.filter.member.map(u32::from),
        seconds,
    }
}

fn of_trace(trace: &EventTrace) -> v1::TracedEvent {
    let since = |at: ejfat::Time| at.0.saturating_sub(trace.at.0);
    v1::TracedEvent {
        event: trace.opened.name.event,
        data_id: trace.opened.name.data_id.into(),
        tick: trace.opened.tick,
        length: trace.opened.length,
        first_segment: trace.unix,
        last_segment: since(trace.last),
        worker: trace.worker.map(|worker| worker.number()),
        sequence: trace.sequence,
        sent: trace.sent.map(since),
        delivered: trace.delivered.map(since),
        released: trace.released.map(since),
        fate: outcome(trace.outcome).to_owned(),
    }
}

fn outcome(outcome: EventOutcome) -> &'static str {
    match outcome {
        EventOutcome::Sent => "sent",
        EventOutcome::Delivered => "delivered",
        EventOutcome::Released => "released",
        EventOutcome::WorkerEnded => "held_by_ended",
        EventOutcome::Incomplete => "incomplete",
        EventOutcome::Lost(loss) => loss.name(),
    }
}

/// A bridge, asked over an ordinary session.
#[derive(Debug)]
pub struct BridgeQueries(ServiceClient);

impl BridgeQueries {
    /// Makes an object that queries the bridge at `peer`. Each query connects over `device` anew.
    pub fn new(device: Device, peer: SocketAddr) -> Self {
        Self(ServiceClient { device, peer })
    }

    /// Returns the counters and the workers of the bridge.
    ///
    /// # Errors
    /// Fails if the session fails, the bridge refuses the call, or the reply is not valid.
    pub fn status(&self) -> Result<v1::BridgeStatus, HostError> {
        self.0.ask(builtin::BRIDGE_STATUS, None)
    }

    /// Returns the event traces of the events with a tick, the newest event first.
    ///
    /// # Errors
    /// Fails if the session fails, the bridge refuses the call, or the reply is not valid.
    pub fn trace(&self, tick: u64) -> Result<Vec<v1::TracedEvent>, HostError> {
        let request = message::encode(&v1::TraceRequest { tick });
        let reply: v1::TraceReply = self.0.ask(builtin::BRIDGE_TRACE, Some(&request))?;
        Ok(reply.events)
    }
}
