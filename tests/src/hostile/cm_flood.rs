//! Floods of requests that never become connections, while others connect.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use naa_host::{Device, Param, Session, SessionConfig};
use roce::wire::mad::CmMessage;

use super::{
    case::{Case, Observation, Run, Text, Texts},
    environment::Environment,
    raw::{Offer, RawPeer},
};

/// What the bystanders' calls may take while the machine's two ends are busy with a flood.
const BUSY: Duration = Duration::from_millis(250);
const ROOM: &[&str] = &["cm_no_room"];
/// A connect that takes longer has failed.
const CONNECT: Duration = Duration::from_secs(2);

const fn flooded(name: Text, sent: Text, counters: Texts, run: Run) -> Case {
    Case::new(name, sent, "all others connect", counters, run).growth(8).p99(BUSY)
}

pub(super) const CASES: &[Case] = &[
    flooded("one address", "100000 REQs without RTU from one address", ROOM, |env| flood(env, 1, 100_000)),
    flooded("200 addresses", "100000 REQs without RTU from 200 addresses in turn", ROOM, |env| {
        flood(env, 200, 100_000)
    }),
    flooded(
        "600 addresses",
        "100000 REQs without RTU from 600 addresses in turn, more than there are places",
        &["cm_displaced"],
        |env| flood(env, 600, 100_000),
    )
    .long(),
];

/// Somebody who connects again and again, from an address without a past.
struct Newcomer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>, String>>,
}

impl Newcomer {
    fn start(local: IpAddr, server: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let device = Device::open(local).map_err(|e| e.to_string())?;
            let config = SessionConfig { setup_timeout: CONNECT, ..SessionConfig::default() };
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) || times.is_empty() {
                let start = Instant::now();
                let session = Session::connect(&device, server, &[Param::in_out(64)], &config);
                let session = session.map_err(|e| format!("connect {}: {e}", times.len() + 1))?;
                times.push(start.elapsed());
                session.finalize().map_err(|e| e.to_string())?;
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(times)
        });
        Self { stop, thread }
    }

    /// Median and worst of its connects.
    fn finish(self) -> Result<(usize, Duration, Duration), String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().map_err(|_| "a thread panicked".to_owned())??;
        times.sort_unstable();
        Ok((times.len(), times[times.len() / 2], times[times.len() - 1]))
    }
}

fn flood(env: &mut Environment, sources: usize, requests: u32) -> Result<Observation, String> {
    let server = env.server();
    let alone = Newcomer::start(env.address(), server);
    std::thread::sleep(Duration::from_millis(300));
    let (_, alone, alone_worst) = alone.finish()?;
    let mut peers = Vec::new();
    for _ in 0..sources {
        let mut peer = env.attacker()?;
        peer.polite = false;
        peers.push(peer);
    }
    let newcomer = Newcomer::start(env.address(), server);
    let start = Instant::now();
    let mut sent = 0;
    while sent < requests {
        for peer in &mut peers {
            burst(peer, server, 64.min(requests / sources as u32))?;
            sent += 64.min(requests / sources as u32);
            // About 100 000 a second: more than this only fills the socket.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    let rate = f64::from(sent) / start.elapsed().as_secs_f64();
    let (connects, median, worst) = newcomer.finish()?;
    let note = format!(
        "{connects} connects, {} us median, {} us worst, alone {} and {}; {:.0} REQs/s",
        median.as_micros(),
        worst.as_micros(),
        alone.as_micros(),
        alone_worst.as_micros(),
        rate
    );
    Ok(Observation::noted("all others connect", note))
}

fn burst(peer: &mut RawPeer, server: SocketAddr, requests: u32) -> Result<(), String> {
    for _ in 0..requests {
        let mut mad = peer.request(server, &Offer::default());
        if let CmMessage::Req(req) = &mut mad.message {
            req.ca_guid = roce::cm::embedded_guid(peer.random.next_u32());
        }
        peer.send_mad_bytes(server.ip(), &mad.encode())?;
    }
    peer.flush()
}
