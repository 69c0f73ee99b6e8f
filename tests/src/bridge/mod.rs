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
pub use kills::{Kills, kills};
pub use stream::{Streaming, stream};

use std::{
    thread,
    time::{Duration, Instant},
};

use ejfat::ring::DeliveryMode;

const LOOK: Duration = Duration::from_millis(5);

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
