//! Options of a bridge on the command lines of `naa bridge` and `naa serve`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::ValueEnum;
use ejfat::{bridge, lb::LbId, listen::PortChoice, reassembly, ring::DeliveryMode, wire::LbHeader};
use ejfat_bridge::{Bridge, BridgeConfig, MemberLookup, WorkerSelection};
use ejfat_lb::SharedDataPlane;

use crate::{
    Usage,
    ejfat::{
        limits::Limits,
        values::{self, memory, seconds, size},
    },
};

/// How events are put into rings of other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RemoteDeliveryModeArg {
    /// Reassembled here, then written
    Store,
    /// Segment by segment, from where they were received
    Cut,
}

/// What decides who may have an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkerSelectionArg {
    /// Anybody: the one whose ring is least filled
    LeastFilled,
    /// The least filled of those who take its data id
    DataId,
    /// The member that load-balancer tables name for its tick
    Tables,
}

/// What happens to events that find no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackPressureArg {
    /// They wait, up to --waiting and --hold; then newer ones are lost
    Hold,
    /// They are lost
    DropNewest,
    /// They wait, up to --waiting; then the oldest are lost
    DropOldest,
}

#[derive(Clone, Debug, clap::Args)]
#[group(id = "bridge_settings")]
pub(crate) struct BridgeArgs {
    /// So many ports from each --listen on, or the ports from A to B, up to 16384. Ports that are somebody else's are
    /// skipped, and named; the first of a number must be free. A port costs an open file and a few KiB of the kernel's
    /// memory
    #[arg(long, value_name = "N|A-B")]
    pub(super) ports: Option<PortChoice>,
    /// Workers of this machine subscribe at this UNIX socket (unix:PATH), without a wire
    #[arg(long, value_name = "PATH")]
    local: Option<PathBuf>,
    /// How events get to workers that are not local [default: store]
    #[arg(long, value_enum, hide_possible_values = false)]
    placing: Option<RemoteDeliveryModeArg>,
    /// Which worker gets an event
    #[arg(long, value_enum, default_value_t = WorkerSelectionArg::LeastFilled)]
    route: WorkerSelectionArg,
    /// What happens to events whose worker has no room
    #[arg(long, value_enum, default_value_t = BackPressureArg::Hold)]
    pressure: BackPressureArg,
    /// Complete events that wait for room, at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    waiting: u32,
    /// Seconds that a complete event waits for room, at most, and that an event of a worker that ended waits to be delivered again
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    hold: f64,
    /// Seconds after which a worker that gives nothing back gets no more than one event in as many seconds until it does
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    stall: f64,
    /// Workers at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) max_workers: u32,
    #[command(flatten)]
    limits: Limits,
    /// Give an event up when it got no segment for so long
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The longest event that is taken; K and M are KiB and MiB
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = size)]
    max_event: u32,
    /// The most memory for events that are incomplete or wait. The rings of workers that ended may take as much again, while
    /// their events wait to be delivered again; G are GiB
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = memory)]
    memory: u64,
    /// Receive buffer of each socket
    #[arg(short, long, value_name = "BYTES", default_value = "8M", value_parser = size)]
    pub(super) buffer: u32,
}

/// Tables of a load balancer whose members are workers.
#[derive(Debug)]
struct Members {
    plane: Arc<SharedDataPlane>,
    lb: LbId,
}

impl MemberLookup for Members {
    fn member(&self, header: &LbHeader) -> Option<u16> {
        self.plane.path().member(self.lb, header)
    }
}

impl BridgeArgs {
    /// The default settings of a bridge that has no command line of its own.
    pub(crate) fn usual(local: Option<PathBuf>, limits: Limits) -> Self {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("bridge"));
        let usual = command.try_get_matches_from(["bridge"]).ok();
        let usual = usual.and_then(|matches| <Self as clap::FromArgMatches>::from_arg_matches(&matches).ok());
        Self { local, limits, ..usual.expect("every setting has a default") }
    }

    pub(crate) fn uses_tables(&self) -> bool {
        self.route == WorkerSelectionArg::Tables
    }

    /// Makes the bridge, and binds its ports.
    pub(crate) fn build(
        &self,
        listen: &[String],
        plane: Option<&Arc<SharedDataPlane>>,
    ) -> anyhow::Result<Bridge> {
        values::check_max_event(self.max_event, self.memory)?;
        let reassembly = reassembly::Config {
            max_open: 1024,
            max_open_per_source: 512,
            max_event: self.max_event,
            memory: self.memory,
            timeout: Duration::from_millis(self.timeout),
            seed: values::seed(),
            ..reassembly::Config::default()
        };
        let dispatch = bridge::Config {
            pressure: match self.pressure {
                BackPressureArg::Hold => bridge::BackPressure::Hold,
                BackPressureArg::DropNewest => bridge::BackPressure::DropNewest,
                BackPressureArg::DropOldest => bridge::BackPressure::DropOldest,
            },
            max_workers: self.max_workers,
            most_waiting: self.waiting,
            hold: seconds(self.hold, "--hold")?,
            redelivery_bytes: self.memory,
            stall: seconds(self.stall, "--stall")?,
            ..bridge::Config::default()
        };
        let route = match (self.route, plane) {
            (WorkerSelectionArg::LeastFilled, _) => WorkerSelection::LeastFilled,
            (WorkerSelectionArg::DataId, _) => WorkerSelection::DataId,
            (WorkerSelectionArg::Tables, Some(plane)) => {
                let lb = LbId::new(0).expect("the first one");
                WorkerSelection::Tables(Arc::new(Members { plane: plane.clone(), lb }))
            }
            (WorkerSelectionArg::Tables, None) => return Err(Usage::error("--route tables wants tables")),
        };
        let config = BridgeConfig {
            buffer: Some(self.buffer as usize),
            reassembly: self.limits.apply(reassembly, self.waiting),
            dispatch,
            placing: match self.placing {
                Some(RemoteDeliveryModeArg::Cut) => DeliveryMode::Cut,
                Some(RemoteDeliveryModeArg::Store) | None => DeliveryMode::Store,
            },
            route,
            local: self.local.clone(),
            ..BridgeConfig::new(values::listen(listen, self.ports)?.concat())
        };
        Ok(Bridge::new(config, values::seed())?)
    }
}
