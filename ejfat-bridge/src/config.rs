//! What a bridge is told.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use ejfat::{bridge, listen::Listen, reassembly, ring::Placing, wire::LbHeader};

/// Settings of a [`Bridge`](crate::Bridge).
#[derive(Debug)]
pub struct BridgeConfig {
    /// Where segments come.
    pub listen: Vec<Listen>,
    /// Bytes of each socket's receive buffer; `None`: the system's.
    pub buffer: Option<usize>,
    pub reassembly: reassembly::Config,
    pub dispatch: bridge::Config,
    /// Into rings of other machines.
    pub placing: Placing,
    pub route: Route,
    /// Where programs of this machine subscribe.
    pub local: Option<PathBuf>,
    /// Bytes of their rings together.
    pub local_memory: u64,
    /// Of 64 KiB, which segments are received in, and sent from in cut-through.
    pub receive_buffers: usize,
    /// Gets fill levels, so often.
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

/// What decides who may have an event.
#[derive(Clone, Debug)]
pub enum Route {
    /// Anybody, whose ring is least filled.
    LeastFilled,
    /// The least filled of those who take its data id.
    DataId,
    /// The member that tables name for its tick.
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
    /// Part of its slots in use, 0 to 1.
    pub fill: f64,
    /// It is given nothing for now.
    pub stalled: bool,
}

/// Who wants to know how full rings are: a control plane. It must not block.
pub trait FillSink: Send + fmt::Debug {
    /// Of all workers that are subscribed, and of all their rings together.
    fn levels(&mut self, workers: &[Level], all: f64);
}
