//! Settings of a bridge.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use ejfat::{bridge, listen::Listen, reassembly, ring::DeliveryMode, wire::LbHeader};

/// Settings of a [`Bridge`](crate::Bridge).
#[derive(Debug)]
pub struct BridgeConfig {
    /// The addresses at which segments are received.
    pub listen: Vec<Listen>,
    /// The size of each socket's receive buffer in bytes; `None` for the system's default.
    pub buffer: Option<usize>,
    /// The limits and settings of the reassembler. The bridge replaces [`reassembly::Config::page`] by the page size of
    /// the system.
    pub reassembly: reassembly::Config,
    /// The limits and settings of the dispatcher.
    pub dispatch: bridge::Config,
    /// The delivery mode for rings of remote workers.
    pub placing: DeliveryMode,
    /// The rule that decides which worker gets an event.
    pub route: WorkerSelection,
    /// The path of the socket at which local workers subscribe.
    pub local: Option<PathBuf>,
    /// The maximum number of bytes of all local workers' rings together.
    pub local_memory: u64,
    /// The number of receive buffers for segments, 64 KiB each. In the delivery mode cut-through, segments are sent to
    /// workers directly from these buffers.
    pub receive_buffers: usize,
    /// A receiver of fill levels, and the time between two reports of fill levels to this receiver.
    pub fill: Option<(Box<dyn FillSink>, Duration)>,
}

impl BridgeConfig {
    /// Creates settings for a bridge that receives segments at `listen`. All other settings have default values: only
    /// remote workers can subscribe, and each event goes to the worker with the least filled ring.
    pub fn new(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            buffer: None,
            reassembly: reassembly::Config::default(),
            dispatch: bridge::Config::default(),
            placing: DeliveryMode::Store,
            route: WorkerSelection::LeastFilled,
            local: None,
            local_memory: naa_server::default_memory(),
            receive_buffers: 256,
            fill: None,
        }
    }
}

/// The rule that decides which worker gets an event.
#[derive(Clone, Debug)]
pub enum WorkerSelection {
    /// The worker with the least filled ring gets the event.
    LeastFilled,
    /// Among the workers that take the event's data id, the worker with the least filled ring gets the event.
    DataId,
    /// The member that load-balancer tables name for the event's LB header gets the event. If the event has no LB
    /// header, or if the tables name no member, the worker with the least filled ring gets the event.
    Tables(Arc<dyn MemberLookup>),
}

/// The part of load-balancer tables that a bridge needs: the choice of an event's member.
pub trait MemberLookup: Send + Sync + fmt::Debug {
    /// Returns the number of the member that gets an event with the LB header `header`; `None` if the tables name no
    /// member for this header.
    fn member(&self, header: &LbHeader) -> Option<u16>;
}

/// The fill level of a worker's ring.
#[derive(Clone, Debug, PartialEq)]
pub struct FillLevel {
    /// The number of the worker. Each new worker of a bridge has a higher number than all workers before.
    pub worker: u32,
    /// The name that the worker gave in its subscription. The bridge uses the name only in logs and reports.
    pub name: String,
    /// The member number of the worker in the load balancer's tables, or `None` if the worker gave no member number.
    pub member: Option<u16>,
    /// The part of the ring's slots that is in use, 0 to 1.
    pub fill: f64,
    /// True if the worker is stalled. A worker is stalled if it has events and has released none of them for
    /// [`bridge::Config::stall`], or if it has unacknowledged WRITEs and has acknowledged none of them for
    /// [`bridge::Config::silence`]. A stalled worker gets at most one event in each period of
    /// [`bridge::Config::stall`].
    pub stalled: bool,
}

/// A receiver of fill levels, such as a control plane. The methods of a [`FillSink`] must not block.
pub trait FillSink: Send + fmt::Debug {
    /// Reports the fill levels. `workers` has the fill level of each subscribed worker, and `all` is the fill level of
    /// all rings together.
    fn levels(&mut self, workers: &[FillLevel], all: f64);
}
