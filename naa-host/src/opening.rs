//! A session in the making, step by step: connection, then regions. Nothing here waits but [`Opening::reach`].

use std::{net::SocketAddr, time::Instant};

use mrsp::{CallPlan, HostSession, host::SetupError};
use verbs::{RejectReason, Unreachable};

use crate::{
    Buffer, Device, Error, Param, Session, SessionConfig,
    lease::Region,
    link::{Event, Link},
};

/// How far a session in the making is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Idle,
    Connecting,
    Connected,
    /// The accelerator was asked for regions.
    Agreeing,
    Agreed,
}

/// What is agreed on.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) machine: HostSession,
    pub(crate) regions: Vec<Region>,
    pub(crate) plan: CallPlan,
}

/// A session in the making.
///
/// | call | from | to |
/// |---|---|---|
/// | [`connect`](Self::connect) | Idle | Connecting |
/// | [`step`](Self::step) | Connecting | Connected |
/// | [`agree`](Self::agree), after [`prepare`](Self::prepare) | Connected | Agreeing |
/// | [`step`](Self::step) | Agreeing | Agreed |
/// | [`into_session`](Self::into_session) | Agreed | |
///
/// After an error it is over.
#[derive(Debug)]
pub struct Opening {
    stage: Stage,
    /// Queue pairs that may still be tried.
    spare: usize,
    room: Room,
    config: SessionConfig,
    // Before the regions: its queue pair goes first.
    link: Link,
    terms: Option<Terms>,
    // Last: everything above is of this device.
    device: Device,
}

/// What the queue pair was made for.
#[derive(Clone, Copy, Debug)]
struct Room {
    regions: usize,
    /// WRITEs beyond one for each region.
    further: u64,
}

impl Room {
    fn of(params: &[Param<'_>], longest: u64) -> Self {
        let shared = params.iter().filter(|param| !param.is_internal());
        let further = shared.map(|param| (param.len as u64).saturating_sub(1) / longest).sum();
        Self { regions: params.len(), further }
    }
}

/// Queue pairs tried when the accelerator takes the number of each for one that it still remembers.
const QUEUE_PAIRS: usize = 4;

impl Opening {
    /// Everything a session on `params` needs but connection and regions. Their flags and content do not count yet.
    ///
    /// # Errors
    /// [`Error::Device`] and [`Error::Memory`].
    pub fn new(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let room = Room::of(params, device.context().attr().max_msg);
        let link = Link::new(device, peer, room.regions, u32::try_from(room.further).unwrap_or(u32::MAX))?;
        Ok(Self {
            stage: Stage::Idle,
            terms: None,
            spare: QUEUE_PAIRS - 1,
            room,
            config: config.clone(),
            link,
            device: device.clone(),
        })
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// Asks the accelerator for a connection. Nothing happens in another stage than Idle.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn connect(&mut self) -> Result<(), Error> {
        if self.stage == Stage::Idle {
            self.dial()?;
            self.stage = Stage::Connecting;
        }
        Ok(())
    }

    fn dial(&mut self) -> Result<(), Error> {
        self.link.post_receive()?;
        self.link.connect(&self.config.connection(self.config.setup_timeout))
    }

    /// Registers the regions, in any stage before Agreeing; once more if they changed. `buffers` as
    /// [`Session::connect_with`] has it; without it they are made.
    ///
    /// # Errors
    /// [`Error::Setup`], [`Error::OutOfBounds`], [`Error::Buffers`] or [`Error::Buffer`] if `params` make no session,
    /// or take more than those that were given in the beginning; [`Error::Device`] and [`Error::Memory`].
    pub fn prepare(&mut self, params: &[Param<'_>], buffers: Option<Vec<Buffer>>) -> Result<(), Error> {
        let longest = self.device.context().attr().max_msg;
        let room = Room::of(params, longest);
        if room.regions > self.room.regions || room.further > self.room.further {
            let limit = u8::try_from(self.room.regions).unwrap_or(u8::MAX);
            return Err(SetupError::TooManyRegions { asked: room.regions, limit }.into());
        }
        let shared: Vec<_> = params.iter().filter(|param| !param.is_internal()).collect();
        let buffers = match buffers {
            Some(buffers) => fitting(buffers, &shared)?,
            None => shared.iter().map(|param| Buffer::new(param.len)).collect::<Result<_, _>>()?,
        };
        let regions = buffers.into_iter().zip(&shared).enumerate();
        let regions = regions.map(|(index, (buffer, param))| register(&self.link, index, buffer, param));
        let regions = regions.collect::<Result<Vec<_>, _>>()?;
        let announced: Vec<_> = regions.iter().map(Region::announced).collect();
        let internals: Vec<_> =
            params.iter().filter(|param| param.is_internal()).map(|param| param.len as u64).collect();
        let mut machine = HostSession::new(&self.config.host(), &announced, &internals)?;
        let wire_order = shared.iter().copied().chain(params.iter().filter(|param| param.is_internal()));
        if let Some(addresses) = wire_order.map(|param| param.address).collect::<Option<Vec<_>>>() {
            machine.place(&addresses)?;
        }
        let plan = CallPlan::with_capacity(regions.len()).with_longest_write(longest);
        self.terms = Some(Terms { machine, regions, plan });
        Ok(())
    }

    /// Asks the accelerator for the regions that were prepared. True if so: there is a connection, and it was not
    /// asked before.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::PeerGone`].
    pub fn agree(&mut self) -> Result<bool, Error> {
        let (Stage::Connected, Some(terms)) = (self.stage, &mut self.terms) else { return Ok(false) };
        let request = terms.machine.start()?;
        self.link.send(&request)?;
        self.stage = Stage::Agreeing;
        Ok(true)
    }

    /// Takes what has happened, without waiting.
    ///
    /// # Errors
    /// [`Error::ConnectionRefused`], [`Error::Unreachable`], [`Error::PeerGone`], [`Error::Peer`], [`Error::Device`].
    pub fn step(&mut self) -> Result<Stage, Error> {
        while matches!(self.stage, Stage::Connecting | Stage::Agreeing) {
            match self.link.next() {
                Ok(Some(event)) => self.handle(event)?,
                Ok(None) => break,
                Err(Error::ConnectionRefused { reason: RejectReason::STALE_CONNECTION, .. })
                    if self.stage == Stage::Connecting && self.spare > 0 =>
                {
                    self.spare -= 1;
                    self.link.renew()?;
                    self.dial()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.stage)
    }

    fn handle(&mut self, event: Event) -> Result<(), Error> {
        let peer = self.link.peer;
        let wrong = |source| Error::Peer { peer, source };
        match (event, &mut self.terms) {
            (Event::Established, _) if self.stage == Stage::Connecting => self.stage = Stage::Connected,
            (Event::Message { len }, Some(terms)) if self.stage == Stage::Agreeing => {
                terms.machine.handle_message(&self.link.message(len)).map_err(wrong)?;
                // For the first answer.
                self.link.post_receive()?;
                self.stage = Stage::Agreed;
            }
            // The accelerator has nothing to say yet, and says who it is by saying something.
            (Event::Message { len }, Some(terms)) => {
                terms.machine.handle_message(&self.link.message(len)).map_err(wrong)?;
            }
            (Event::Response { immediate, bytes }, Some(terms)) => {
                terms.machine.handle_response(immediate, bytes).map_err(wrong)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until [`step`](Self::step) may have something to do, or until `until`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn wait(&self, until: Instant) -> Result<(), Error> {
        self.link.wait(self.config.wait, Some(until)).map(drop)
    }

    /// Steps and waits until the stage is reached, or `deadline` passes.
    ///
    /// # Errors
    /// [`Error::Unreachable`] or [`Error::SetupTimedOut`] in time; else as [`step`](Self::step).
    pub fn reach(&mut self, stage: Stage, deadline: Instant) -> Result<(), Error> {
        while self.step()? < stage {
            if Instant::now() >= deadline {
                return Err(self.late());
            }
            self.wait(deadline)?;
        }
        Ok(())
    }

    /// What it means that nothing came in time.
    pub fn late(&self) -> Error {
        match self.stage {
            Stage::Agreeing | Stage::Agreed => {
                Error::SetupTimedOut { peer: self.link.peer, limit: self.config.setup_timeout }
            }
            _ => self.link.unreachable(Unreachable::NoAnswer),
        }
    }

    /// The session, once Agreed.
    pub fn into_session(self) -> Option<Session> {
        let Self { stage: Stage::Agreed, terms: Some(terms), link, config, device, .. } = self else {
            return None;
        };
        Some(Session::of(terms, link, &config, device))
    }
}

/// `buffers`, if they are as `params` have it.
fn fitting(buffers: Vec<Buffer>, params: &[&Param<'_>]) -> Result<Vec<Buffer>, Error> {
    if buffers.len() != params.len() {
        return Err(Error::Buffers { buffers: buffers.len(), params: params.len() });
    }
    let mut both = buffers.iter().zip(params).enumerate();
    match both.find(|(_, (buffer, param))| buffer.len() != param.len) {
        Some((index, (buffer, param))) => Err(Error::Buffer { index, len: buffer.len(), size: param.len }),
        None => Ok(buffers),
    }
}

fn register(link: &Link, index: usize, mut buffer: Buffer, param: &Param<'_>) -> Result<Region, Error> {
    let (size, len) = (param.len, param.content.len());
    if len > size {
        return Err(Error::OutOfBounds { index, offset: 0, len, size });
    }
    // Memory of the program's own may not be referred to without need: another session may have it in a call.
    if len > 0 {
        buffer.as_mut_slice()[..len].copy_from_slice(param.content);
    }
    Region::new(&link.pd, param.flags, buffer)
}
