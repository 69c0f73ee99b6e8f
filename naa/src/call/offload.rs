//! One call from files to bytes.

use std::{
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use mrsp::{
    FunctionCode, ReturnCode, U24,
    builtin::{Arguments, BLOCK_BYTES},
};
use naa_host::{Device, Error, Param, Session, SessionConfig};

use super::{
    files::Source,
    plan::Plan,
    progress::{Progress, TICK},
};
use crate::{peer, show};

/// How to reach the accelerator.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) device: Device,
    pub(super) server: SocketAddr,
    pub(super) config: SessionConfig,
    /// What a call may take.
    pub(super) timeout: Option<Duration>,
}

/// What one call took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) connect: Duration,
    pub(super) offloaded: Duration,
}

/// A call that was made; its results are still in their regions.
#[derive(Debug)]
pub(super) struct Made {
    session: Session,
    /// Indices of parameters, and how much of each is a result.
    outputs: Vec<(usize, usize)>,
}

impl Made {
    pub(super) fn results(&self) -> Result<Vec<&[u8]>, Error> {
        self.outputs.iter().map(|&(index, bytes)| Ok(&self.session.lease(index)?[..bytes])).collect()
    }

    pub(super) fn finalize(self) -> Result<(), Error> {
        self.session.finalize()
    }
}

/// Where the parameters of a plan are.
struct Layout {
    lens: Vec<(Kind, usize)>,
    inputs: Range<usize>,
    outputs: Range<usize>,
    /// Argument and status block.
    blocks: Option<(usize, usize)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Input,
    Output,
    InOut,
}

impl Layout {
    fn new(plan: &Plan, inputs: &[Source]) -> Self {
        let ins = inputs.iter().map(Source::len);
        let count = inputs.len();
        let of = |kind| move |len| (kind, len);
        match plan {
            Plan::Builtin { room, .. } => {
                let mut lens = vec![(Kind::Input, BLOCK_BYTES)];
                lens.extend(ins.map(of(Kind::Input)));
                lens.extend([(Kind::Output, BLOCK_BYTES), (Kind::Output, *room)]);
                let status = 1 + count;
                Self { lens, inputs: 1..status, outputs: status + 1..status + 2, blocks: Some((0, status)) }
            }
            Plan::InOut => {
                let lens = ins.map(of(Kind::InOut)).collect();
                Self { lens, inputs: 0..count, outputs: 0..count, blocks: None }
            }
            Plan::Raw { rooms } => {
                let lens: Vec<_> =
                    ins.map(of(Kind::Input)).chain(rooms.iter().copied().map(of(Kind::Output))).collect();
                let all = lens.len();
                Self { lens, inputs: 0..count, outputs: count..all, blocks: None }
            }
        }
    }

    fn params(&self) -> Vec<Param<'static>> {
        let param = |&(kind, len): &(Kind, usize)| match kind {
            Kind::Input => Param::input(len),
            Kind::Output => Param::output(len),
            Kind::InOut => Param::in_out(len),
        };
        self.lens.iter().map(param).collect()
    }
}

impl Peer {
    /// Connects, reads `inputs` into the regions, calls, waits.
    pub(super) fn call(
        &self,
        function: FunctionCode,
        plan: &Plan,
        inputs: &mut [Source],
        times: &mut Times,
        progress: &mut Progress,
    ) -> anyhow::Result<Made> {
        let layout = Layout::new(plan, inputs);
        let start = Instant::now();
        progress.phase(format!("connecting to {}", self.server));
        let mut session = Session::connect(&self.device, self.server, &layout.params(), &self.config)?;
        times.connect += start.elapsed();
        for (source, index) in inputs.iter_mut().zip(layout.inputs.clone()) {
            progress.phase(format!("reading {}", source.path().display()));
            source.fill(session.lease_mut(index)?, || progress.tick())?;
        }
        if let Some(((arguments, status), values)) = layout.blocks.zip(plan.arguments()) {
            session.write(arguments, 0, &values.encode())?;
            session.write(status, 0, &[0; BLOCK_BYTES])?;
        }
        let bytes = inputs.iter().map(|input| input.len() as u64).sum();
        progress.phase(format!("sending {} and computing", show::bytes(bytes)));
        let start = Instant::now();
        let called = self.wait(&mut session, function, progress);
        times.offloaded += start.elapsed();
        let last = match called {
            Ok(last) => last as usize,
            Err(error) => return Err(detailed(error, &session, plan.arguments())),
        };
        let outputs = self.produced(&session, &layout, last)?;
        Ok(Made { session, outputs })
    }

    /// Calls; gives the bytes written last.
    fn wait(
        &self,
        session: &mut Session,
        function: FunctionCode,
        progress: &mut Progress,
    ) -> anyhow::Result<u32> {
        let deadline = self.timeout.map(|limit| (Instant::now() + limit, limit));
        session.invoke(function, U24::ZERO)?;
        loop {
            if let Some(outcome) = session.wait_timeout(TICK)? {
                return Ok(outcome.into_result()?.last_write_bytes);
            }
            if let Some((_, limit)) = deadline.filter(|(deadline, _)| Instant::now() >= *deadline) {
                return Err(peer::timed_out(self.server, limit));
            }
            progress.tick();
        }
    }

    /// Built-in functions say how much they produced; of others the last WRITE's length is known.
    fn produced(
        &self,
        session: &Session,
        layout: &Layout,
        last: usize,
    ) -> Result<Vec<(usize, usize)>, Error> {
        let status = layout.blocks.map(|_| session.status_block()).transpose()?;
        let all = layout.outputs.clone().enumerate();
        all.map(|(output, index)| {
            let size = session.lease(index)?.len();
            let produced = match &status {
                // The block counts itself as output 0.
                Some(status) => status.produced.get(output + 1).copied().unwrap_or(0),
                None if index + 1 == layout.outputs.end => last as u64,
                None => size as u64,
            };
            let fits = usize::try_from(produced).ok().filter(|&bytes| bytes <= size);
            let bytes = fits.ok_or(Error::Produced { peer: self.server, output, produced, size })?;
            Ok((index, bytes))
        })
        .collect()
    }
}

/// The status block says more than the immediate, if it arrived.
fn detailed(error: anyhow::Error, session: &Session, arguments: Option<&Arguments>) -> anyhow::Error {
    match (error.downcast_ref(), arguments.map(|_| session.status_block())) {
        (Some(&Error::Function { peer, function, code, .. }), Some(Ok(status)))
            if status.code == Some(code) =>
        {
            Error::Function { peer, function, code, detail: status.detail }.into()
        }
        _ => error,
    }
}

/// How large an output must be, if that is what a call failed for: what the function says, else twice as much.
pub(super) fn room_needed(error: &anyhow::Error, room: usize) -> Option<usize> {
    match error.downcast_ref()? {
        Error::Function { code: ReturnCode::OUTPUT_TOO_SMALL, detail, .. } => {
            let stated = usize::try_from(*detail).ok().filter(|&stated| stated > room);
            Some(stated.unwrap_or(room.saturating_mul(2)))
        }
        _ => None,
    }
}
