//! The protocol without sockets, on one thread.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use naa_hot_paths::{
    ejfat::{Forwarding, Reassembly},
    engine::{Codec, Copying, Icrc, Pair},
};
use serde::{Deserialize, Serialize};

use super::fill::{START, fill};
use crate::side::{Effort, Measure, Work};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A WRITE of 1 MiB between two endpoints.
    Write,
    /// Decoding and encoding a WRITE packet.
    Codec,
    /// The ICRC of a packet.
    Icrc,
    /// Copying so many bytes.
    Copy(usize),
    /// An event of EJFAT.
    Reassemble { bytes: usize, mtu: u16, shuffled: bool },
    /// A packet of so many bytes by the load balancer's tables.
    Forward(usize),
    /// The same by an array.
    Pick(usize),
}

pub(super) struct Engine {
    once: Box<dyn FnMut() -> Option<()>>,
    /// How often it is done in a repeat.
    amount: u64,
}

impl Engine {
    pub(super) fn new(what: What) -> anyhow::Result<Self> {
        let once: Box<dyn FnMut() -> Option<()>> = match what {
            What::Write => {
                let mut pair = Pair::new().context("the engine does not connect")?;
                Box::new(move || pair.write())
            }
            What::Codec => {
                let mut codec = Codec::new();
                Box::new(move || codec.run())
            }
            What::Icrc => {
                let icrc = Icrc::new().context("no flow")?;
                Box::new(move || {
                    icrc.run();
                    Some(())
                })
            }
            What::Reassemble { bytes, mtu, shuffled } => {
                let mut reassembly = Reassembly::new(bytes, mtu, shuffled).context("no segments")?;
                Box::new(move || reassembly.run())
            }
            What::Forward(bytes) => {
                let mut forwarding = Forwarding::new(bytes).context("the tables are too small")?;
                Box::new(move || forwarding.forward())
            }
            What::Pick(bytes) => {
                let mut forwarding = Forwarding::new(bytes).context("the tables are too small")?;
                Box::new(move || {
                    forwarding.pick();
                    Some(())
                })
            }
            What::Copy(bytes) => {
                let mut copying = Copying::new(bytes);
                Box::new(move || {
                    copying.run();
                    Some(())
                })
            }
        };
        Ok(Self { once, amount: START })
    }

    fn repeat(&mut self, times: u64) -> anyhow::Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            (self.once)().context("the engine fails")?;
        }
        Ok(start.elapsed())
    }
}

impl Measure for Engine {
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        (self.amount, _) = fill(effort, |times| self.repeat(times))?;
        Ok(String::new())
    }

    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let time = self.repeat(self.amount)?;
        let amount = self.amount as f64;
        Ok(Work { value: time.as_secs_f64() * 1e9 / amount, amount })
    }
}
