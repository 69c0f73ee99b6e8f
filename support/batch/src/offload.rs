//! Makes one call: reads input files into regions, and returns the bytes of the results.

use std::{
    borrow::Cow,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use mrsp::{
    FunctionCode, ReturnCode, U24,
    builtin::{Arguments, BLOCK_BYTES},
};
use naa_host::{
    Accelerators, Device, Error, Param, PooledSession, Session, SessionConfig, asynchronous::Attempts,
};

use crate::{
    files::InputFile,
    plan::{Listed, Plan},
    progress::{Phase, Progress},
};

/// The time between two calls of [`Progress::tick`].
const TICK: Duration = Duration::from_millis(100);

/// The accelerator, and the device and the settings for sessions with it.
#[derive(Debug)]
pub struct Accelerator {
    /// The device to call from.
    pub device: Device,
    /// The address of the accelerator.
    pub server: SocketAddr,
    /// The settings of sessions.
    pub config: SessionConfig,
    /// Further accelerators, if there are several.
    pub others: Vec<(Device, SocketAddr)>,
    /// If there are several accelerators, the pool of all of them, from which sessions come.
    pub pool: Option<Accelerators>,
}

/// A session with the accelerator, or with one of a pool.
#[derive(Debug)]
enum Connected {
    Alone(Box<Session>),
    Pooled(Box<PooledSession>),
}

impl Deref for Connected {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            Self::Alone(session) => session,
            Self::Pooled(session) => session,
        }
    }
}

impl DerefMut for Connected {
    fn deref_mut(&mut self) -> &mut Session {
        match self {
            Self::Alone(session) => session,
            Self::Pooled(session) => session,
        }
    }
}

/// Returns true if the call of a file must be made again after `error`. The session may have been lost before the call was
/// posted, or during the call.
pub(crate) fn again(attempts: &mut Attempts, error: &anyhow::Error) -> bool {
    let lost = error.downcast_ref();
    let posted = matches!(lost, Some(Error::PeerGone { function: Some(_), .. }));
    lost.is_some_and(|error| attempts.again(error, posted))
}

/// The times of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) connect: Duration,
    pub(crate) offloaded: Duration,
}

/// The sizes of regions that small files share, so that one session serves many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRegions {
    pub(crate) input: usize,
    pub(crate) room: usize,
}

/// Makes calls. It keeps one session as long as the session's regions fit.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    peer: &'a Accelerator,
    shared: Option<BatchRegions>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    session: Connected,
    layout: CallParams,
    /// The number of bytes in each output that are a result.
    produced: Vec<usize>,
}

/// Where the parameters of a plan are.
#[derive(Debug)]
struct CallParams {
    lens: Vec<(Kind, usize)>,
    /// The indices of the parameters that get the input files, and of those that have the results, each in the order of
    /// the files.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// The indices of the argument block and of the status block.
    blocks: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Input,
    Output,
    InOut,
}

impl CallParams {
    fn new(plan: &Plan, inputs: &[InputFile], shared: Option<BatchRegions>) -> Self {
        let mut ins = inputs.iter().map(InputFile::len);
        match plan {
            Plan::Builtin { room, .. } => {
                let small = shared.filter(|shared| ins.clone().all(|len| len <= shared.input));
                let mut lens = vec![(Kind::Input, BLOCK_BYTES)];
                lens.extend(ins.map(|len| (Kind::Input, small.map_or(len, |shared| shared.input))));
                let room = small.map_or(*room, |shared| shared.room.max(*room));
                lens.extend([(Kind::Output, BLOCK_BYTES), (Kind::Output, room)]);
                let status = 1 + inputs.len();
                Self {
                    lens,
                    inputs: (1..status).collect(),
                    outputs: vec![status + 1],
                    blocks: Some((0, status)),
                }
            }
            Plan::Listed(parameters) => {
                // The plan was checked: as many parameters are sent as there are files.
                let mut next = || ins.next().unwrap_or(0);
                let len = |parameter: &Listed| match parameter {
                    Listed::Input => (Kind::Input, next()),
                    Listed::Output(room) => (Kind::Output, *room),
                    Listed::InOut => (Kind::InOut, next()),
                };
                Self::of(parameters.iter().map(len).collect())
            }
        }
    }

    /// The layout of a function without argument block; a parameter that is input and output has an input file and a
    /// result.
    fn of(lens: Vec<(Kind, usize)>) -> Self {
        let those = |but: Kind| {
            let of_kind = lens.iter().enumerate().filter(move |(_, (kind, _))| *kind != but);
            of_kind.map(|(index, _)| index).collect()
        };
        let (inputs, outputs) = (those(Kind::Output), those(Kind::Input));
        Self { lens, inputs, outputs, blocks: None }
    }

    fn params(&self) -> Vec<Param<'static>> {
        let param = |&(kind, len): &(Kind, usize)| match kind {
            Kind::Input => Param::input(len),
            Kind::Output => Param::output(len),
            Kind::InOut => Param::in_out(len),
        };
        self.lens.iter().map(param).collect()
    }

    /// Whether regions of this layout are large enough for `wanted`, and do not need much more memory.
    fn fits(&self, wanted: &Self) -> bool {
        /// The total length of regions that is always acceptable, in bytes.
        const LITTLE: usize = 64 << 20;
        let total = |layout: &Self| layout.lens.iter().map(|(_, len)| len).sum::<usize>();
        // If there is no argument block, the function works on all of a region.
        let exact = self.blocks.is_none();
        let fit = |(ours, theirs): (&(Kind, usize), &(Kind, usize))| {
            ours.0 == theirs.0 && if exact { ours.1 == theirs.1 } else { ours.1 >= theirs.1 }
        };
        self.lens.len() == wanted.lens.len()
            && self.lens.iter().zip(&wanted.lens).all(fit)
            && total(self) <= LITTLE.max(total(wanted).saturating_mul(4))
    }
}

impl<'a> Caller<'a> {
    pub(crate) fn new(peer: &'a Accelerator, shared: Option<BatchRegions>) -> Self {
        Self { peer, shared, open: None }
    }

    /// Makes a call: connects unless there is a session that fits, reads `inputs` into the regions, calls, and waits.
    pub(crate) fn call(
        &mut self,
        function: FunctionCode,
        plan: &Plan,
        inputs: &mut [InputFile],
        times: &mut Times,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        let called = self
            .connected(plan, inputs, times, progress)
            .and_then(|(peer, open)| open.call(peer, function, plan, inputs, times, progress));
        if called.is_err() && self.open.as_ref().is_some_and(|open| !open.is_usable()) {
            self.open = None;
        }
        called
    }

    fn connected(
        &mut self,
        plan: &Plan,
        inputs: &[InputFile],
        times: &mut Times,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<(&'a Accelerator, &mut Open)> {
        let layout = CallParams::new(plan, inputs, self.shared);
        let peer = self.peer;
        let open = match self.open.take().filter(|open| open.layout.fits(&layout)) {
            Some(open) => open,
            None => {
                let start = Instant::now();
                progress.phase(Phase::Connecting(peer.server));
                let session = peer.connect(layout.params(), progress)?;
                times.connect += start.elapsed();
                Open { session, layout, produced: Vec::new() }
            }
        };
        Ok((peer, self.open.insert(open)))
    }

    /// The results of the last call: the regions themselves, or copies where the accelerator could change the regions
    /// while they are written to files.
    pub(crate) fn results(&self) -> Result<Vec<Cow<'_, [u8]>>, Error> {
        let Some(open) = &self.open else { return Ok(Vec::new()) };
        let outputs = open.layout.outputs.iter().zip(&open.produced);
        outputs.map(|(&index, &bytes)| open.session.bytes(index, ..bytes)).collect()
    }

    pub(crate) fn finalize(self) -> Result<(), Error> {
        match self.open.map(|open| open.session) {
            Some(Connected::Alone(session)) => session.finalize(),
            // Other tasks of the pool may need the session.
            Some(Connected::Pooled(_)) | None => Ok(()),
        }
    }
}

impl Open {
    fn call(
        &mut self,
        peer: &Accelerator,
        function: FunctionCode,
        plan: &Plan,
        inputs: &mut [InputFile],
        times: &mut Times,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        let Self { session, layout, produced } = self;
        produced.clear();
        for (source, &index) in inputs.iter_mut().zip(&layout.inputs) {
            progress.phase(Phase::Reading(source.path()));
            let len = source.len();
            source.fill(session, index, || progress.tick())?;
            session.set_bytes_to_send(index, Some(len as u64))?;
        }
        if let Some(((arguments, status), values)) = layout.blocks.zip(plan.arguments()) {
            session.write(arguments, 0, &values.encode())?;
            session.write(status, 0, &[0; BLOCK_BYTES])?;
        }
        let bytes = inputs.iter().map(|input| input.len() as u64).sum();
        progress.phase(Phase::Computing(bytes));
        let start = Instant::now();
        let called = peer.wait(session, function, progress);
        times.offloaded += start.elapsed();
        let last = called.map_err(|error| detailed(error, session, plan.arguments()))?;
        *produced = peer.produced(session, layout, last as usize)?;
        Ok(())
    }

    /// Whether the session can make another call. It still can after errors of files and functions.
    fn is_usable(&self) -> bool {
        !self.session.is_over() && !self.session.is_in_call()
    }
}

impl Accelerator {
    /// Connects on a thread of its own, because a user who interrupts the program does not wait for it; the process
    /// ends then.
    fn connect(&self, params: Vec<Param<'static>>, progress: &mut dyn Progress) -> anyhow::Result<Connected> {
        let (device, server, config) = (self.device.clone(), self.server, self.config.clone());
        let pool = self.pool.clone();
        let (sender, receiver) = mpsc::sync_channel(1);
        let connecting = std::thread::Builder::new().name("naa-connect".into()).spawn(move || {
            // Sending fails if nobody waits any more.
            let _ = sender.send(match pool {
                Some(pool) => pool.session(&params).map(|session| Connected::Pooled(Box::new(session))),
                None => Session::connect(&device, server, &params, &config)
                    .map(|session| Connected::Alone(Box::new(session))),
            });
        });
        connecting.context("cannot start a thread to connect; raise `ulimit -u`")?;
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(session) => return Ok(session?),
                Err(mpsc::RecvTimeoutError::Timeout) => progress.tick()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("connecting to {server} panicked"),
            }
        }
    }

    /// Makes the call, and returns the number of bytes of the last WRITE.
    fn wait(
        &self,
        session: &mut Session,
        function: FunctionCode,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<u32> {
        session.invoke(function, U24::ZERO)?;
        loop {
            if let Some(outcome) = session.wait_timeout(TICK)? {
                return Ok(outcome.into_result()?.last_write_bytes);
            }
            progress.tick()?;
        }
    }

    /// The number of bytes of each result. Built-in functions write it into the status block; for other functions, only
    /// the length of the last WRITE is known.
    fn produced(&self, session: &Session, layout: &CallParams, last: usize) -> Result<Vec<usize>, Error> {
        let status = layout.blocks.map(|_| session.status_block()).transpose()?;
        let all = layout.outputs.iter().enumerate();
        all.map(|(output, &index)| {
            let size = session.param_len(index)?;
            let produced = match &status {
                // Output 0 in the status block is the block itself.
                Some(status) => status.produced.get(output + 1).copied().unwrap_or(0),
                None if Some(&index) == layout.outputs.last() => last as u64,
                None => size as u64,
            };
            let fits = usize::try_from(produced).ok().filter(|&bytes| bytes <= size);
            fits.ok_or(Error::Produced { peer: session.peer(), output, produced, size })
        })
        .collect()
    }
}

/// Adds the detail of the status block to an error of a built-in function, if the block arrived.
fn detailed(error: anyhow::Error, session: &Session, arguments: Option<&Arguments>) -> anyhow::Error {
    match (error.downcast(), arguments) {
        (Ok(error), Some(_)) => session.with_detail(error).into(),
        (Ok(error), None) => error.into(),
        (Err(error), _) => error,
    }
}

/// If a call failed because its output was too small, the size that the output must have: the size that the function
/// says, otherwise twice `room`.
pub(crate) fn room_needed(error: &anyhow::Error, room: usize) -> Option<usize> {
    match error.downcast_ref()? {
        Error::Function { code: ReturnCode::OUTPUT_TOO_SMALL, detail, .. } => {
            let stated = usize::try_from(*detail).ok().filter(|&stated| stated > room);
            Some(stated.unwrap_or(room.saturating_mul(2)))
        }
        _ => None,
    }
}
