//! Events by RDMA.

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use ejfat::ring::{
    BLOCK, SubscribeResponse,
    call::{self, Parameter},
};
use naa_host::{Device, FunctionCode, Param, ReturnCode, SessionConfig, StreamingCall, StreamingLimits};
use verbs::Memory;

use crate::{
    Config, Error, Event,
    connection::{SubscriptionEnd, answer, subscription},
    credits::{Credits, RdmaCredits},
    memory::RingMemory,
    ring::WorkerRing,
};

const SUBSCRIBE: FunctionCode = FunctionCode::constant(call::CODE);

/// The most credit WRITEs in flight. Credits without room are sent later, together with newer ones.
const WRITES: u32 = 64;

/// How long the end of a subscription waits for the bridge to acknowledge credits.
const LAST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct RdmaSubscription {
    bridge: SocketAddr,
    descriptors: Memory,
    stream: StreamingCall,
}

impl RdmaSubscription {
    pub(crate) fn open(
        bridge: SocketAddr,
        config: &Config,
        limit: Duration,
        held: &Arc<AtomicU64>,
    ) -> Result<(Self, Arc<WorkerRing>, SubscribeResponse, String), Error> {
        let geometry = config.geometry;
        let device = match (config.local, config.provider) {
            (Some(local), Some(provider)) => Device::open_with(local, provider),
            (Some(local), None) => Device::open(local),
            (None, Some(provider)) => Device::towards_with(bridge, provider),
            (None, None) => Device::towards(bridge),
        }?;
        let subscription = subscription(config);
        let params = Parameter::ALL.map(|parameter| match parameter {
            Parameter::Subscription => Param::data(&subscription),
            _ if parameter.is_input() => Param::input(parameter.bytes(geometry)),
            _ => Param::output(parameter.bytes(geometry)),
        });
        let session = SessionConfig { setup_timeout: limit, ..config.session.clone() };
        // The bridge announces at most as many unread events as the ring has slots.
        let room = StreamingLimits { immediates: geometry.slots(), writes: WRITES };
        let opened = StreamingCall::open(&device, bridge, &params, &session, SUBSCRIBE, room);
        let (stream, writer) = match opened {
            Err(naa_host::Error::Function { code, detail, .. })
                if code == ReturnCode::BAD_ARGUMENTS && detail != 0 =>
            {
                let bridge = bridge.to_string();
                return Err(match call::refusal(detail) {
                    Ok(why) => Error::Refused { bridge, why },
                    Err(why) => Error::NoAnswer { bridge, why },
                });
            }
            opened => opened?,
        };
        let mut block = [0; BLOCK];
        stream.memory(Parameter::Response.number())?.read(0, &mut block);
        let answer = answer(&bridge.to_string(), &block, config.again)?;
        let memory = RingMemory::Registered(stream.memory(Parameter::Ring.number())?.clone());
        let credits = Credits::Rdma(Box::new(RdmaCredits::new(geometry, writer)));
        let ring = WorkerRing::new((geometry, config.again), memory, credits, held.clone());
        let how = format!("RDMA through {}", device.describe());
        let descriptors = stream.memory(Parameter::Descriptors.number())?.clone();
        Ok((Self { bridge, descriptors, stream }, ring, answer, how))
    }

    pub(crate) fn look(&mut self, ring: &Arc<WorkerRing>) -> Result<Option<Event>, SubscriptionEnd> {
        let announced = self.stream.try_next();
        self.event(ring, announced)
    }

    pub(crate) fn test(&mut self, ring: &Arc<WorkerRing>) -> Result<Option<Event>, SubscriptionEnd> {
        let announced = self.stream.test();
        self.event(ring, announced)
    }

    pub(crate) fn wait(
        &mut self,
        ring: &Arc<WorkerRing>,
        until: Option<Instant>,
    ) -> Result<Option<Event>, SubscriptionEnd> {
        let announced = self.stream.wait(until);
        self.event(ring, announced)
    }

    /// Waits before the end until the bridge has the credits that were sent.
    pub(crate) fn settle(&mut self) {
        if !self.stream.settle(LAST) {
            tracing::debug!(bridge = %self.bridge, "credit of the last events may not have arrived");
        }
    }

    pub(crate) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.stream.descriptor()?)
    }

    /// Returns the event that an immediate announces.
    fn event(
        &self,
        ring: &Arc<WorkerRing>,
        announced: Result<Option<u32>, naa_host::Error>,
    ) -> Result<Option<Event>, SubscriptionEnd> {
        let Some(sequence) = announced.map_err(end)? else { return Ok(None) };
        let descriptor = |at| {
            let mut block = [0; BLOCK];
            self.descriptors.read(at, &mut block);
            block
        };
        let given = ring
            .take(Some(sequence), descriptor)
            .map_err(|why| Error::Protocol { bridge: self.bridge.to_string(), why })?;
        Ok(Some(Event::new(ring.clone(), given)))
    }
}

fn end(error: naa_host::Error) -> SubscriptionEnd {
    match error {
        naa_host::Error::PeerGone { why, .. } => SubscriptionEnd::Gone(why.to_string()),
        other => other.into(),
    }
}
