//! Limits of reassembly on command lines.

use ejfat::reassembly::{Config, LimitsBy};

const MOST_EVENTS: i64 = 1 << 16;

/// How many events of which senders may be incomplete at a time.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "reassembly_limits")]
pub(crate) struct Limits {
    /// Segments come from a load balancer, whose address says nothing about their sender: limits are for each stream
    /// (address and data id) instead of each address, and more events may be incomplete
    #[arg(long)]
    behind_lb: bool,
    /// Events that are incomplete at a time; one more evicts the stalest of the sender that has most [default: 512, of a
    /// bridge 1024; 16384 with --behind-lb]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_EVENTS))]
    max_open: Option<u32>,
    /// Incomplete events of one sender, or of one stream with --behind-lb; one more evicts its stalest [default: 256, of a
    /// bridge 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_EVENTS))]
    max_open_per_sender: Option<u32>,
    /// Senders, or streams, that have limits of their own; all others share those of one [default: 256; 1024 with
    /// --behind-lb]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_senders: Option<u32>,
}

/// The most open events behind a load balancer. It is so high that memory is the limit in practice.
const OPEN_BEHIND_LB: u32 = 16_384;
const STREAMS: u32 = 1024;

impl Limits {
    pub(crate) fn behind_lb() -> Self {
        Self { behind_lb: true, ..Self::default() }
    }

    /// Puts the limits into a configuration; those that the command line does not name stay as in `usual`, or as --behind-lb
    /// has them. `complete` slots are added for complete events.
    pub(crate) fn apply(&self, usual: Config, complete: u32) -> Config {
        let (open, senders) =
            if self.behind_lb { (OPEN_BEHIND_LB, STREAMS) } else { (usual.max_open, usual.max_sources) };
        let max_open = self.max_open.unwrap_or(open);
        Config {
            limits_by: if self.behind_lb { LimitsBy::Stream } else { LimitsBy::Address },
            slots: max_open + complete,
            max_open,
            max_open_per_source: self.max_open_per_sender.unwrap_or(usual.max_open_per_source).min(max_open),
            max_sources: self.max_senders.unwrap_or(senders),
            ..usual
        }
    }
}
