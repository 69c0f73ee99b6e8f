//! Settings of a bridge.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use ejfat::{bridge, listen::Listen, reassembly, ring::Placing, wire::LbHeader};

/// Settings of a [`Bridge`](crate::Bridge).
#[derive(Debug)]
pub struct BridgeConfig {
    /// The addresses at which segments are received.
    pub listen: Vec<Listen>,
    /// The size of each socket's receive buffer in bytes; `None`: the system's default.
    pub buffer: Option<usize>,
    pub reassembly: reassembly::Config,
    pub dispatch: bridge::Config,
    /// The delivery mode for rings of remote workers.
    pub placing: Placing,
    pub route: Route,
    /// The path of the socket at which local workers subscribe.
    pub local: Option<PathBuf>,
    /// The most bytes of all local workers' rings together.
    pub local_memory: u64,
    /// The number of buffers of 64 KiB in which segments are received, and from which cut-through sends them.
    pub receive_buffers: usize,
    /// Gets fill levels at this interval.
    pub fill: Option<(Box<dyn FillSink>, Duration)>,
}

impl BridgeConfig {
    pub fn new(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            buffer: None,
            reassembly: reassembly::Config::default(),
            dispatch: bridge::Config::default(),
            placing: Placing::Store,
            route: Route::LeastFilled,
            local: None,
            local_memory: naa_server::default_memory(),
            receive_buffers: 256,
            fill: None,
        }
    }
}

/// What decides which worker gets an event.
#[derive(Clone, Debug)]
pub enum Route {
    /// Any worker; the one with the least filled ring gets it.
    LeastFilled,
    /// The least filled of the workers that take the event's data id.
    DataId,
    /// The member that the load-balancer tables name for the event's tick.
    Tables(Arc<dyn Steering>),
}

/// Load-balancer tables, as far as a bridge needs them.
pub trait Steering: Send + Sync + fmt::Debug {
    /// The member that gets an event with this header.
    fn member(&self, header: &LbHeader) -> Option<u16>;
}

/// How full a worker's ring is.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    pub worker: u32,
    pub name: String,
    pub member: Option<u16>,
    /// The part of its slots that is in use, 0 to 1.
    pub fill: f64,
    /// Whether the worker is stalled, and gets nothing for now.
    pub stalled: bool,
}

/// A receiver of fill levels, such as a control plane. It must not block.
pub trait FillSink: Send + fmt::Debug {
    /// Takes the fill levels of all subscribed workers, and the one of all their rings together.
    fn levels(&mut self, workers: &[Level], all: f64);
}
