//! A subscription that a bridge took, by either transport.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use ejfat::ring::{BLOCK, Malformed, SubscribeResponse, Subscription};

use crate::{
    BridgeAddress, Config, Error, Event, rdma::RdmaSubscription, ring::WorkerRing, shared::SharedSubscription,
};

/// How a subscription ended.
#[derive(Debug)]
pub(crate) enum SubscriptionEnd {
    /// The bridge is gone, and may come back.
    Gone(String),
    Error(Error),
}

impl<E: Into<Error>> From<E> for SubscriptionEnd {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

#[derive(Debug)]
pub(crate) struct BridgeConnection {
    pub(crate) ring: Arc<WorkerRing>,
    pub(crate) answer: SubscribeResponse,
    /// Which transport and why, for people.
    pub(crate) how: String,
    transport: SubscriptionTransport,
}

#[derive(Debug)]
enum SubscriptionTransport {
    Rdma(Box<RdmaSubscription>),
    Shared(SharedSubscription),
}

impl BridgeConnection {
    /// Subscribes; the bridge has so long to answer.
    pub(crate) fn open(
        source: &BridgeAddress,
        config: &Config,
        limit: Duration,
        held: &Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        match source {
            BridgeAddress::Remote(bridge) => {
                let (rdma, ring, answer, how) = RdmaSubscription::open(*bridge, config, limit, held)?;
                Ok(Self { ring, answer, how, transport: SubscriptionTransport::Rdma(Box::new(rdma)) })
            }
            BridgeAddress::Local(path) => {
                let (shared, ring, answer) = SharedSubscription::open(path, config, limit, held)?;
                let how = "memory that both map".to_owned();
                Ok(Self { ring, answer, how, transport: SubscriptionTransport::Shared(shared) })
            }
        }
    }

    /// The next event, if it is there.
    pub(crate) fn look(&mut self) -> Result<Option<Event>, SubscriptionEnd> {
        match &mut self.transport {
            SubscriptionTransport::Rdma(rdma) => rdma.look(&self.ring),
            SubscriptionTransport::Shared(shared) => shared.look(&self.ring),
        }
    }

    /// Tests like [`look`](Self::look), and arms the [descriptor](Self::descriptor) if there is no event.
    pub(crate) fn test(&mut self) -> Result<Option<Event>, SubscriptionEnd> {
        self.ring.set_idle();
        match &mut self.transport {
            SubscriptionTransport::Rdma(rdma) => rdma.test(&self.ring),
            SubscriptionTransport::Shared(shared) => shared.test(&self.ring),
        }
    }

    /// Waits for the next event until `until`. Returns no event if the time is up, or if there was other work to do.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Result<Option<Event>, SubscriptionEnd> {
        self.ring.set_idle();
        match &mut self.transport {
            SubscriptionTransport::Rdma(rdma) => rdma.wait(&self.ring, until),
            SubscriptionTransport::Shared(shared) => shared.wait(&self.ring, until),
        }
    }

    /// The file descriptor is readable when [`test`](Self::test) has something to do after it returned no event.
    pub(crate) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        match &mut self.transport {
            SubscriptionTransport::Rdma(rdma) => rdma.descriptor(),
            SubscriptionTransport::Shared(shared) => Ok(shared.descriptor()),
        }
    }
}

impl Drop for BridgeConnection {
    fn drop(&mut self) {
        // Credits are sent now, so that released events do not count as held by a worker that ended.
        self.ring.set_idle();
        if let SubscriptionTransport::Rdma(rdma) = &mut self.transport {
            rdma.settle();
        }
        // Events that outlive this connection send no credits any more.
        self.ring.end();
    }
}

pub(crate) fn subscription(config: &Config) -> [u8; BLOCK] {
    let Config { geometry, filter, name, again, .. } = *config;
    Subscription { geometry, filter, name, redelivery: again }.encode()
}

/// Decodes a bridge's answer. `again`: whether the worker asked for events of workers that ended; the answer has to say the same.
pub(crate) fn answer(bridge: &str, block: &[u8; BLOCK], again: bool) -> Result<SubscribeResponse, Error> {
    let bridge = || bridge.to_owned();
    let answer = SubscribeResponse::decode(block).map_err(|why| Error::NoAnswer { bridge: bridge(), why })?;
    let answer = answer.map_err(|why| Error::Refused { bridge: bridge(), why })?;
    if answer.redelivery != again {
        return Err(Error::NoAnswer { bridge: bridge(), why: Malformed::Field });
    }
    Ok(answer)
}
