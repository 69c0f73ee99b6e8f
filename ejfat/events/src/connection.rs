//! A subscription that a bridge took, whichever way events come.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use ejfat::ring::{Answer, BLOCK, Malformed, Subscription};

use crate::{Config, Error, Event, Source, local::Local, remote::Remote, ring::Ring};

/// How a subscription ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The bridge is gone, and may come back.
    Gone(String),
    Error(Error),
}

impl<E: Into<Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ring: Arc<Ring>,
    pub(crate) answer: Answer,
    /// Which way and why, for people.
    pub(crate) how: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Remote(Box<Remote>),
    Local(Local),
}

impl Connection {
    /// Subscribes; the bridge has so long to answer.
    pub(crate) fn open(
        source: &Source,
        config: &Config,
        limit: Duration,
        held: &Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        match source {
            Source::Remote(bridge) => {
                let (remote, ring, answer, how) = Remote::open(*bridge, config, limit, held)?;
                Ok(Self { ring, answer, how, way: Way::Remote(Box::new(remote)) })
            }
            Source::Local(path) => {
                let (local, ring, answer) = Local::open(path, config, limit, held)?;
                Ok(Self { ring, answer, how: "memory that both map".to_owned(), way: Way::Local(local) })
            }
        }
    }

    /// The next event, if it is there.
    pub(crate) fn look(&mut self) -> Result<Option<Event>, End> {
        match &mut self.way {
            Way::Remote(remote) => remote.look(&self.ring),
            Way::Local(local) => local.look(&self.ring),
        }
    }

    /// Tests like [`look`](Self::look), and arms the [descriptor](Self::descriptor) if there is no event.
    pub(crate) fn test(&mut self) -> Result<Option<Event>, End> {
        self.ring.rest();
        match &mut self.way {
            Way::Remote(remote) => remote.test(&self.ring),
            Way::Local(local) => local.test(&self.ring),
        }
    }

    /// Waits for the next event until `until`. Returns no event if the time is up, or if there was other work to do.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Result<Option<Event>, End> {
        self.ring.rest();
        match &mut self.way {
            Way::Remote(remote) => remote.wait(&self.ring, until),
            Way::Local(local) => local.wait(&self.ring, until),
        }
    }

    /// The file descriptor is readable when [`test`](Self::test) has something to do after it returned no event.
    pub(crate) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        match &mut self.way {
            Way::Remote(remote) => remote.descriptor(),
            Way::Local(local) => Ok(local.descriptor()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Credits are sent now, so that released events do not count as held by a worker that ended.
        self.ring.rest();
        if let Way::Remote(remote) = &mut self.way {
            remote.settle();
        }
        // Events that outlive this connection send no credits any more.
        self.ring.end();
    }
}

pub(crate) fn subscription(config: &Config) -> [u8; BLOCK] {
    let Config { geometry, filter, name, again, .. } = *config;
    Subscription { geometry, filter, name, again }.encode()
}

/// Decodes a bridge's answer. `again`: whether the worker asked for events of workers that ended; the answer has to say the same.
pub(crate) fn answer(bridge: &str, block: &[u8; BLOCK], again: bool) -> Result<Answer, Error> {
    let bridge = || bridge.to_owned();
    let answer = Answer::decode(block).map_err(|why| Error::NoAnswer { bridge: bridge(), why })?;
    let answer = answer.map_err(|why| Error::Refused { bridge: bridge(), why })?;
    if answer.again != again {
        return Err(Error::NoAnswer { bridge: bridge(), why: Malformed::Field });
    }
    Ok(answer)
}
