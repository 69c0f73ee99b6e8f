//! A bridge on real sockets: senders, workers as processes, and both killed at random moments.
//!
//! | module | what |
//! |---|---|
//! | `contents`, `ledger` | what is sent, and what became of each event |
//! | `senders` | threads that send |
//! | `serve`, `counts` | a bridge, in this process or one of its own, and what it counts |
//! | `worker`, `process`, `far` | workers and bridges as processes: what they do, how they are started, what they print |
//! | `stream` | every event arrives once and whole |
//! | `kills` | whoever is killed costs what it had, and nothing else |
//! | `role` | the command line of all that |

mod contents;
mod counts;
mod far;
mod kills;
mod ledger;
mod process;
pub mod role;
mod senders;
mod serve;
mod stream;
mod worker;

pub use far::WorkerLocation;
pub use kills::kills;
pub use stream::stream;

use std::{
    net::IpAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use ejfat::ring::DeliveryMode;
use naa_provider::ProviderChoice;

use serve::BridgeProcessConfig;

const LOOK: Duration = Duration::from_millis(5);

/// What a run works with.
#[derive(Clone, Debug)]
pub struct Case {
    /// The bridge's address, and whose device it has there.
    pub bind: IpAddr,
    pub provider: ProviderChoice,
    pub placing: DeliveryMode,
    pub workers: Vec<WorkerLocation>,
    pub seed: u64,
    /// The exponent N of workers: a peer that is silent for about eight times 4.096 us * 2^N is dead.
    pub ack_timeout: u8,
    /// What workers and bridges are: the program of [`role`].
    pub program: PathBuf,
}

impl Case {
    /// The bridge, in a run of this name.
    fn bridge(&self, run: &str) -> BridgeProcessConfig {
        let local = std::env::temp_dir().join(format!("naa-{run}-{}-{}.sock", self.bind, std::process::id()));
        let Self { bind, provider, placing, .. } = *self;
        BridgeProcessConfig { bind, provider, placing, local, instance: 1 }
    }
}

/// Asks until it is so.
fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > limit {
            return false;
        }
        thread::sleep(LOOK);
    }
    true
}

fn placing(text: &str) -> Result<DeliveryMode, String> {
    let ways = [DeliveryMode::Store, DeliveryMode::Cut];
    ways.into_iter().find(|way| way.name() == text).ok_or_else(|| format!("{text}: write store or cut"))
}
