//! Events by RDMA.

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use ejfat::ring::{
    Answer, BLOCK,
    call::{self, Parameter},
};
use naa_host::{Device, FunctionCode, Param, ReturnCode, SessionConfig, Stream, StreamRoom};
use verbs::Memory;

use crate::{
    Config, Error, Event,
    connection::{End, answer, subscription},
    credits::{self, Credits},
    memory::Place,
    ring::Ring,
};

const SUBSCRIBE: FunctionCode = FunctionCode::constant(call::CODE);

/// The most credit WRITEs in flight. Credits without room are sent later, together with newer ones.
const WRITES: u32 = 64;

/// How long the end of a subscription waits for the bridge to acknowledge credits.
const LAST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Remote {
    bridge: SocketAddr,
    descriptors: Memory,
    stream: Stream,
}

impl Remote {
    pub(crate) fn open(
        bridge: SocketAddr,
        config: &Config,
        limit: Duration,
        held: &Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Ring>, Answer, String), Error> {
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
        let room = StreamRoom { immediates: geometry.slots(), writes: WRITES };
        let opened = Stream::open(&device, bridge, &params, &session, SUBSCRIBE, room);
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
        stream.memory(Parameter::Answer.number())?.read(0, &mut block);
        let answer = answer(&bridge.to_string(), &block, config.again)?;
        let place = Place::Registered(stream.memory(Parameter::Ring.number())?.clone());
        let credits = Credits::Remote(Box::new(credits::Remote::new(geometry, writer)));
        let ring = Ring::new((geometry, config.again), place, credits, held.clone());
        let how = format!("RDMA through {}", device.describe());
        let descriptors = stream.memory(Parameter::Descriptors.number())?.clone();
        Ok((Self { bridge, descriptors, stream }, ring, answer, how))
    }

    pub(crate) fn look(&mut self, ring: &Arc<Ring>) -> Result<Option<Event>, End> {
        let told = self.stream.try_next();
        self.event(ring, told)
    }

    pub(crate) fn test(&mut self, ring: &Arc<Ring>) -> Result<Option<Event>, End> {
        let told = self.stream.test();
        self.event(ring, told)
    }

    pub(crate) fn wait(&mut self, ring: &Arc<Ring>, until: Option<Instant>) -> Result<Option<Event>, End> {
        let told = self.stream.wait(until);
        self.event(ring, told)
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
        ring: &Arc<Ring>,
        told: Result<Option<u32>, naa_host::Error>,
    ) -> Result<Option<Event>, End> {
        let Some(sequence) = told.map_err(end)? else { return Ok(None) };
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

fn end(error: naa_host::Error) -> End {
    match error {
        naa_host::Error::PeerGone { why, .. } => End::Gone(why.to_string()),
        other => other.into(),
    }
}
