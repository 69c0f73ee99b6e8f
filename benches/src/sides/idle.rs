//! A host whose sessions do nothing.

use std::{net::SocketAddr, thread, time::Duration};

use mrsp::builtin;
use naa_host::{Device, Param, Session, SessionConfig};

use super::call::{BYTES, device};
use crate::side::{Effort, Measure, Work};

#[derive(Debug)]
pub(super) struct Idle {
    count: u32,
    far: SocketAddr,
    device: Device,
    /// The first is not counted: with it come the pages that the first session of a process touches.
    sessions: Vec<Session>,
}

impl Idle {
    pub(super) fn new(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        let mut idle = Self { count, far, device: device()?, sessions: Vec::new() };
        idle.open()?;
        Ok(idle)
    }

    /// One more session, which has made a call.
    fn open(&mut self) -> anyhow::Result<()> {
        let params = [Param::in_out(BYTES)];
        let mut session = Session::connect(&self.device, self.far, &params, &SessionConfig::default())?;
        session.call(builtin::INCREMENT)?;
        self.sessions.push(session);
        Ok(())
    }
}

impl Measure for Idle {
    /// Opens the sessions.
    fn warm_up(&mut self, _: &Effort) -> anyhow::Result<String> {
        (0..self.count).try_for_each(|_| self.open())?;
        Ok(String::new())
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        thread::sleep(Duration::from_secs_f64(effort.idle_seconds));
        Ok(Work { value: effort.idle_seconds, amount: effort.idle_seconds })
    }
}
