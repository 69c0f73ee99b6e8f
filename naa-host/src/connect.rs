//! From nothing to a session that is ready: connection, then regions.

use std::{net::SocketAddr, time::Instant};

use mrsp::{CallPlan, HostSession};
use verbs::{RejectReason, Unreachable};

use crate::{
    Device, Error, Param, SessionConfig,
    lease::{Buffer, Region},
    link::{Event, Link},
};

/// What a session is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) machine: HostSession,
    pub(crate) link: Link,
    pub(crate) regions: Vec<Region>,
    pub(crate) plan: CallPlan,
}

/// Connects to `peer` and agrees on regions.
pub(crate) fn establish(
    device: &Device,
    peer: SocketAddr,
    params: &[Param<'_>],
    buffers: Option<Vec<Buffer>>,
    config: &SessionConfig,
) -> Result<Parts, Error> {
    let deadline = Instant::now() + config.setup_timeout;
    let shared: Vec<_> = params.iter().filter(|param| !param.is_internal()).collect();
    let buffers = match buffers {
        Some(buffers) => fitting(buffers, &shared)?,
        None => shared.iter().map(|param| Buffer::new(param.len)).collect::<Result<_, _>>()?,
    };
    let longest = device.context().attr().max_msg;
    // One WRITE for each, and one more for each further message that a long one takes.
    let further: u64 = shared.iter().map(|param| (param.len as u64).saturating_sub(1) / longest).sum();
    let link = Link::new(device, peer, params.len(), u32::try_from(further).unwrap_or(u32::MAX))?;
    let regions = buffers.into_iter().zip(&shared).enumerate();
    let regions = regions.map(|(index, (buffer, param))| register(&link, index, buffer, param));
    let regions = regions.collect::<Result<Vec<_>, _>>()?;
    let announced: Vec<_> = regions.iter().map(Region::announced).collect();
    let internals: Vec<_> =
        params.iter().filter(|param| param.is_internal()).map(|param| param.len as u64).collect();
    let machine = HostSession::new(&config.host(), &announced, &internals)?;
    let plan = CallPlan::with_capacity(regions.len()).with_longest_write(longest);
    let mut parts = Parts { machine, link, regions, plan };
    parts.connect(config, deadline)?;
    parts.agree(config, deadline)?;
    Ok(parts)
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
    let start = buffer.as_mut_slice().get_mut(..len);
    start.ok_or(Error::OutOfBounds { index, offset: 0, len, size })?.copy_from_slice(param.content);
    Region::new(&link.pd, param.flags, buffer)
}

/// Queue pairs tried when the accelerator takes the number of each for one that it still remembers.
const QUEUE_PAIRS: usize = 4;

impl Parts {
    fn connect(&mut self, config: &SessionConfig, deadline: Instant) -> Result<(), Error> {
        for _ in 1..QUEUE_PAIRS {
            match self.connect_once(config, deadline) {
                Err(Error::ConnectionRefused { reason: RejectReason::STALE_CONNECTION, .. }) => {
                    self.link.renew()?;
                }
                result => return result,
            }
        }
        self.connect_once(config, deadline)
    }

    fn connect_once(&mut self, config: &SessionConfig, deadline: Instant) -> Result<(), Error> {
        self.link.post_receive()?;
        self.link.connect(&config.connection(config.setup_timeout))?;
        loop {
            match self.next(config, deadline)? {
                Some(Event::Established) => return Ok(()),
                Some(other) => self.unexpected(other)?,
                None => return Err(self.link.unreachable(Unreachable::NoAnswer)),
            }
        }
    }

    fn agree(&mut self, config: &SessionConfig, deadline: Instant) -> Result<(), Error> {
        let request = self.machine.start()?;
        self.link.send(&request)?;
        loop {
            match self.next(config, deadline)? {
                Some(Event::Message { len }) => {
                    self.message(len)?;
                    // For the first answer.
                    return self.link.post_receive();
                }
                Some(other) => self.unexpected(other)?,
                None => {
                    let (peer, limit) = (self.link.peer, config.setup_timeout);
                    return Err(Error::SetupTimedOut { peer, limit });
                }
            }
        }
    }

    /// What happened next; `None` if nothing did until `deadline`.
    fn next(&mut self, config: &SessionConfig, deadline: Instant) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.link.next()? {
                return Ok(Some(event));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.link.wait(config.wait, Some(deadline))?;
        }
    }

    fn message(&mut self, len: usize) -> Result<(), Error> {
        let (peer, message) = (self.link.peer, self.link.message(len));
        self.machine.handle_message(&message).map_err(|source| Error::Peer { peer, source })
    }

    /// The accelerator has nothing to say yet.
    fn unexpected(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Message { len } => self.message(len),
            Event::Response { immediate, bytes } => {
                let peer = self.link.peer;
                let answered = self.machine.handle_response(immediate, bytes);
                answered.map(drop).map_err(|source| Error::Peer { peer, source })
            }
            Event::Established | Event::Written => Ok(()),
        }
    }
}
