//! Events of a bridge as a stream.

mod bridge;

use std::{thread, time::Duration};

use bridge::{BridgeSide, RingModel, check, config, content, local_pair, remote_pair, until};
use naa_events::{Error, Worker, asynchronous::Events};
use tokio::{runtime::Builder, time::timeout};
use tokio_stream::StreamExt as _;

/// A limit that no step of these tests reaches, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const SLOTS: u64 = 16;

/// Receives more events than the ring holds. Tasks release them in another order than they came. At the end, the program
/// keeps events until all slots are in use.
fn stream<M: RingModel + Send>(mut side: BridgeSide<M>, worker: Worker, events: u64) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for event in 0..events + SLOTS + 1 {
                let bytes = content(event, [0, 1, 64, 33][event as usize % 4]);
                until("no room", || side.put(event, &bytes));
            }
            until("credit is missing", || {
                side.look();
                side.slots.outstanding() == 0
            });
            assert_eq!((side.wrong, side.slots.in_use()), (0, 0));
            side
        });
        runtime.block_on(async {
            let mut stream = Events::of(worker).unwrap();
            let mut kept = Vec::new();
            for expected in 0..events {
                let event = timeout(LONG, stream.next()).await.unwrap().unwrap().unwrap();
                assert_eq!(event.descriptor().name.event, expected);
                check(&event);
                match expected % 3 {
                    0 => drop(event),
                    1 => _ = tokio::spawn(async move { check(&event) }),
                    _ => kept.push(event),
                }
                if kept.len() == 3 {
                    drop(kept.remove(1));
                    kept.truncate(1);
                }
            }
            kept.clear();
            // A program that keeps all slots gets no further event before it releases one. Any task can release it.
            for _ in 0..SLOTS {
                kept.push(timeout(LONG, stream.next()).await.unwrap().unwrap().unwrap());
            }
            assert!(timeout(Duration::from_millis(50), stream.next()).await.is_err());
            let released = kept.remove(5);
            let last = timeout(LONG, stream.next());
            let release = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(released);
            };
            let (last, ()) = tokio::join!(last, release);
            let last = last.unwrap().unwrap().unwrap();
            assert_eq!(last.descriptor().name.event, events + SLOTS);
            drop((last, kept));
            assert_eq!(stream.stats().held, 0);
            while !sending.is_finished() {
                assert!(timeout(Duration::from_millis(5), stream.next()).await.is_err());
            }
            drop(stream);
        });
    });
}

#[test]
fn events_are_awaited_kept_and_released_by_tasks() {
    let (_bridge, side, worker) = local_pair("asynchronous", &config(SLOTS as u32, 64));
    stream(side, worker, 3000);
    let (_bridge, side, worker) = remote_pair("127.0.6.50", &config(SLOTS as u32, 64), &[]);
    stream(side, worker, 3000);
}

#[test]
fn the_end_of_the_bridge_is_the_last_item() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (bridge, mut side, worker) = local_pair("asynchronous-end", &config(SLOTS as u32, 64));
    runtime.block_on(async {
        let mut stream = Events::of(worker).unwrap();
        assert!(side.put(0, &content(0, 9)));
        let event = timeout(LONG, stream.next()).await.unwrap().unwrap().unwrap();
        drop((side, bridge));
        let end = timeout(LONG, stream.next()).await.unwrap().unwrap();
        assert!(matches!(end, Err(Error::BridgeGone { .. })), "{end:?}");
        assert!(timeout(LONG, stream.next()).await.unwrap().is_none());
        check(&event);
    });
}
