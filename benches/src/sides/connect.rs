//! Measures the time from the start of connecting to the end of the first call.

use std::{net::SocketAddr, time::Instant};

use anyhow::ensure;
use naa_host::{Device, Param, Session, SessionConfig};

use super::call::{TOUCH, device};
use crate::side::{Effort, Measure, Work};

/// Sessions one after the other in a repeat; the median counts.
const SESSIONS: usize = 5;

#[derive(Debug)]
pub(super) struct Connecting {
    device: Device,
    far: SocketAddr,
    /// The length of each of the four regions.
    bytes: u64,
}

impl Connecting {
    pub(super) fn new(bytes: u64, far: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { device: device()?, far, bytes })
    }

    /// Connects, agrees on regions, and has the first byte of one incremented.
    fn once(&self) -> anyhow::Result<f64> {
        let len = usize::try_from(self.bytes)?;
        let params = [Param::in_out(len), Param::input(len), Param::input(len), Param::input(len)];
        let start = Instant::now();
        let mut session = Session::connect(&self.device, self.far, &params, &SessionConfig::default())?;
        for param in 0..params.len() {
            session.set_bytes_to_send(param, Some(1))?;
        }
        session.call(TOUCH)?;
        let time = start.elapsed();
        ensure!(session.bytes(0, ..)?[0] == 1, "wrong result");
        session.finalize()?;
        Ok(time.as_secs_f64() * 1e3)
    }
}

impl Measure for Connecting {
    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let times = (0..SESSIONS).map(|_| self.once()).collect::<anyhow::Result<Vec<_>>>()?;
        let value = naa_measure::stats::median(&times).unwrap_or_default();
        Ok(Work { value, amount: SESSIONS as f64 })
    }
}
