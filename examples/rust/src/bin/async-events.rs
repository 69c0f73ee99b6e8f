//! Sums of the bytes of events, computed by tasks while further events arrive.
//!
//! ```text
//! cargo run --release -p naa-examples --bin async-events -- SOURCE EVENTS
//! ```
//!
//! SOURCE is a bridge, `ADDRESS[:PORT]` or `unix:PATH`.

use naa_events::{Config, Event, asynchronous::Events};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of events that are in work at a time. An event that is in work keeps its slots, so the bridge gives a worker
/// that falls behind no more events than it can hold.
const IN_WORK: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(source), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: async-events SOURCE EVENTS".into());
    };
    let mut left: u64 = count.parse()?;
    let mut events = Events::open(&source.parse()?, &Config::default()).await?;
    println!("subscribed");
    let mut tasks = JoinSet::new();
    let (mut total, mut bytes) = (0_u64, 0_u64);
    while left > 0 || !tasks.is_empty() {
        tokio::select! {
            Some(event) = events.next(), if left > 0 && tasks.len() < IN_WORK => {
                left -= 1;
                let event = event?;
                bytes += event.len() as u64;
                // The sum takes a while, so it must not run on a thread that serves other tasks.
                tasks.spawn_blocking(move || sum(&event));
            }
            Some(sum) = tasks.join_next() => total += sum?,
        }
    }
    println!("{} events, {bytes} bytes, sum {total}", events.stats().events);
    Ok(())
}

/// Returns the sum of the event's bytes. The event is released at the end of this function.
fn sum(event: &Event) -> u64 {
    let mut sum = 0;
    let result: Result<(), std::convert::Infallible> = event.try_pieces(|piece| {
        sum += piece.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        Ok(())
    });
    let Ok(()) = result;
    sum
}
