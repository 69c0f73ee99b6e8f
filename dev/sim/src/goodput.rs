//! The speed of the engine and its driver without a network between.

use std::time::{Duration, Instant};

use roce::Time;
use simnet::Arrival;

use super::{
    cm,
    environment::remote,
    node::{Datagram, Node},
    plan::Plan,
    traffic,
};

/// What a measurement came to, both ends on one thread.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    pub packets: u64,
    pub bytes: u64,
    pub wall: Duration,
}

/// Writes the same 256 KiB `messages` times at a path MTU of 4096.
pub fn goodput(messages: usize) -> Result<Goodput, String> {
    let plan = Plan::lossless();
    let (traffic, images) = traffic::draw(&plan);
    let mut nodes = [0, 1].map(|n| Node::new(&plan, n, &images[n], messages as u32 + 64));
    cm::connect(&plan, &mut nodes)?;
    let op = &traffic[0].operations[0];
    let remote = remote(op, &nodes[1]);
    let start = Instant::now();
    let (mut posted, mut done, mut packets, mut now) = (0, 0, 0, 0);
    while done < messages {
        while posted < messages && nodes[0].post_send(posted, op, remote).is_ok() {
            posted += 1;
        }
        now += 1000;
        for from in [0, 1] {
            let arrivals = arrivals(now, nodes[from].pump(now)?);
            packets += arrivals.len() as u64;
            nodes[1 - from].receive(now, &arrivals)?;
        }
        let send_cq = nodes[0].send_cq;
        done += nodes[0].poll(send_cq).len();
        nodes[0].endpoint.handle_timeout(Time(now));
    }
    Ok(Goodput { packets, bytes: messages as u64 * op.data.len() as u64, wall: start.elapsed() })
}

fn arrivals(at: u64, trains: Vec<Vec<Datagram>>) -> Vec<Arrival<Datagram>> {
    trains.into_iter().flatten().map(|packet| Arrival { at, packet, corrupted: None }).collect()
}
