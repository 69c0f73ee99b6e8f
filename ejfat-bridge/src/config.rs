//! Settings of a bridge.

use std::{fmt, path::PathBuf, sync::Arc};

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
        }
    }
}

/// The rule that decides which worker gets an event.
#[derive(Clone, Debug)]
pub enum WorkerSelection {
    /// The worker with the least filled ring gets the event.
    LeastFilled,
    /// Among the workers that take events with the event's data id, the worker with the least filled ring gets the
    /// event.
    DataId,
    /// The bridge looks up the event's LB header in load-balancer tables. The event goes to the member that the tables
    /// name. If the event has no LB header, or if the tables name no member, the worker with the least filled ring gets
    /// the event.
    Tables(Arc<dyn MemberLookup>),
}

/// Load-balancer tables in which a bridge looks up the member that gets an event.
pub trait MemberLookup: Send + Sync + fmt::Debug {
    /// Returns the number of the member that gets an event with the LB header `header`; `None` if the tables name no
    /// member for this header.
    fn member(&self, header: &LbHeader) -> Option<u16>;
}
