//! From nothing to a session that is ready: connection, then regions.

use std::{net::SocketAddr, time::Instant};

use mrsp::{CallPlan, HostSession};

use crate::{
    Device, Error, Param, SessionConfig,
    lease::Region,
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
    config: &SessionConfig,
) -> Result<Parts, Error> {
    let deadline = Instant::now() + config.setup_timeout;
    let link = Link::new(device, peer, params.len())?;
    let shared = params.iter().enumerate().filter(|(_, param)| !param.is_internal());
    let regions =
        shared.map(|(index, param)| allocate(&link, index, param)).collect::<Result<Vec<_>, _>>()?;
    let announced: Vec<_> = regions.iter().map(Region::announced).collect();
    let internals: Vec<_> =
        params.iter().filter(|param| param.is_internal()).map(|param| param.len as u64).collect();
    let machine = HostSession::new(&config.host(), &announced, &internals)?;
    let plan = CallPlan::with_capacity(regions.len());
    let mut parts = Parts { machine, link, regions, plan };
    parts.connect(config, deadline)?;
    parts.agree(config, deadline)?;
    Ok(parts)
}

fn allocate(link: &Link, index: usize, param: &Param<'_>) -> Result<Region, Error> {
    let (size, len) = (param.len, param.content.len());
    if len > size {
        return Err(Error::OutOfBounds { index, offset: 0, len, size });
    }
    let mut region = Region::new(&link.pd, param.flags, size)?;
    if let Some(start) = region.bytes_mut().and_then(|bytes| bytes.get_mut(..len)) {
        start.copy_from_slice(param.content);
    }
    Ok(region)
}

impl Parts {
    fn connect(&mut self, config: &SessionConfig, deadline: Instant) -> Result<(), Error> {
        self.link.post_receive()?;
        self.link.connect(&config.connection(config.setup_timeout))?;
        match self.next(config, deadline, "the connection")? {
            Event::Established => Ok(()),
            other => self.unexpected(other),
        }
    }

    fn agree(&mut self, config: &SessionConfig, deadline: Instant) -> Result<(), Error> {
        let request = self.machine.start()?;
        self.link.send(&request)?;
        match self.next(config, deadline, "the agreement on regions")? {
            Event::Message { len } => {
                let message = self.link.message(len);
                let peer = self.link.peer;
                self.machine.handle_message(&message).map_err(|source| Error::Peer { peer, source })?;
                // For the first answer.
                self.link.post_receive()
            }
            other => self.unexpected(other),
        }
    }

    fn next(
        &mut self,
        config: &SessionConfig,
        deadline: Instant,
        doing: &'static str,
    ) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.link.next()? {
                return Ok(event);
            }
            if Instant::now() >= deadline {
                let (peer, limit) = (self.link.peer, config.setup_timeout);
                return Err(Error::TimedOut { peer, doing, limit });
            }
            self.link.wait(config.wait, Some(deadline))?;
        }
    }

    /// Before regions are agreed on nothing but a message may come.
    fn unexpected(&mut self, event: Event) -> Result<(), Error> {
        let peer = self.link.peer;
        let wrong = match event {
            Event::Response { immediate, bytes } => self.machine.handle_response(immediate, bytes).err(),
            Event::Message { len } => {
                let message = self.link.message(len);
                self.machine.handle_message(&message).err()
            }
            Event::Established | Event::Written => None,
        };
        wrong.map_or(Ok(()), |source| Err(Error::Peer { peer, source }))
    }
}
