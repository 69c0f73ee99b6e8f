//! A session, as a program has it whose parameters are arrays of its own.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mrsp::{builtin, layout::LayoutChoice};
use naa_host::{Buffer, Device, LayoutRule, Param, Session, SessionConfig};

use super::{
    Opened,
    check::{self, Leg},
};
use crate::{
    layouts::{
        point::{Direction, Workload},
        sizes::sizes,
    },
    sides::{Wait, call::times},
};

/// A repeat has no more.
const MOST_CALLS: u32 = 4000;
/// While the number of calls is looked for, so many times as many the next time at most.
const STEP: u32 = 4;

#[derive(Debug)]
pub(super) struct Caller {
    session: Session,
    direction: Direction,
    /// The layout that error messages name.
    choice: LayoutChoice,
    /// The number of checks that were made.
    checks: u32,
}

impl Caller {
    /// Connects, and makes the first call, which are timed, and a call that shows whether all bytes arrive.
    pub(super) fn connect(
        device: &Device,
        far: SocketAddr,
        workload: &Workload,
        choice: LayoutChoice,
        rule: Option<LayoutRule>,
        wait: Wait,
    ) -> anyhow::Result<(Self, Opened)> {
        let direction = workload.direction;
        let lens = sizes(workload).into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>()?;
        let params: Vec<_> = lens.iter().map(|&len| param(direction, len)).collect();
        let buffers = lens.iter().enumerate().map(|(index, &len)| buffer(index, len));
        let buffers = buffers.collect::<anyhow::Result<Vec<_>>>()?;
        let config = SessionConfig {
            wait: wait.into(),
            max_regions: u8::MAX,
            layout: choice,
            layout_rule: rule,
            ..SessionConfig::default()
        };
        let start = Instant::now();
        let mut session = Session::connect_with(device, far, &params, buffers, &config)?;
        let connected = Instant::now();
        session.call(builtin::NOTHING)?;
        let called = Instant::now();
        let opened = Opened {
            setup_us: micros(connected - start),
            first_us: micros(called - connected),
            used: session.layout().to_string(),
            host_registered: session.registered_bytes(),
            server_registered: session.accelerator_bytes(),
        };
        let mut caller = Self { session, direction, choice, checks: 0 };
        caller.check()?;
        Ok((caller, opened))
    }

    /// Calls until the last ones took about half of `seconds`, and gives how many take all of it.
    pub(super) fn fill(&mut self, seconds: f64) -> anyhow::Result<u32> {
        let mut calls = 1;
        loop {
            let took = self.run(calls)?.iter().sum::<u64>() as f64 / 1e9;
            let wanted = f64::from(calls) * seconds / took.max(1e-9);
            let wanted = wanted.ceil().clamp(1.0, f64::from(MOST_CALLS)) as u32;
            if took >= 0.5 * seconds || calls >= MOST_CALLS {
                return Ok(wanted);
            }
            // The first calls are slow, so it is approached in steps.
            calls = wanted.clamp(calls + 1, calls * STEP);
        }
    }

    /// Nanoseconds of each call.
    pub(super) fn run(&mut self, calls: u32) -> anyhow::Result<Vec<u64>> {
        let Self { session, choice, .. } = self;
        times(calls, || session.call(builtin::NOTHING).with_context(|| format!("layout {choice}")))
    }

    /// Sends bytes that were not sent before, and looks at those that come back.
    fn check(&mut self) -> anyhow::Result<()> {
        self.checks += 1;
        let (params, salt) = (self.session.params(), self.checks);
        for index in 0..params {
            let mut bytes = vec![0; self.session.param_len(index)?];
            check::fill(&mut bytes, index, salt, Leg::There);
            self.session.write(index, 0, &bytes)?;
        }
        let call = check::call(&mut self.session, salt);
        call.with_context(|| format!("bytes sent with layout {}", self.choice))?;
        // Inputs are as they were.
        let leg = if self.direction == Direction::In { Leg::There } else { Leg::Back };
        for index in 0..params {
            let wrong = check::first_wrong(&self.session.bytes(index, ..)?, index, salt, leg);
            ensure!(
                wrong.is_none(),
                "layout {} returns wrong bytes: parameter {index} from byte {} on",
                self.choice,
                wrong.unwrap_or_default()
            );
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> anyhow::Result<()> {
        self.check()?;
        Ok(self.session.finalize()?)
    }
}

fn param(direction: Direction, len: usize) -> Param<'static> {
    match direction {
        Direction::In => Param::input(len),
        Direction::Out => Param::output(len),
        Direction::Both => Param::in_out(len),
    }
}

/// Touched, as arrays with data in them are.
fn buffer(index: usize, len: usize) -> anyhow::Result<Buffer> {
    let mut buffer = Buffer::new(len)?;
    check::fill(buffer.as_mut_slice()?, index, 0, Leg::There);
    Ok(buffer)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
