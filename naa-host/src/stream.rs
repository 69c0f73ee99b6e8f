//! A session with one streaming call: after the response the accelerator writes outputs and sends immediates as it likes, and the
//! host writes to inputs.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mrsp::{
    FunctionCode, HostSession, RegionFlags, U24,
    host::CallOutcome,
    layout::{Choice, Layout},
};
use verbs::{Memory, WaitMode, Wake};

use crate::{
    Device, Error, Outcome, Param, Session, SessionConfig, Writer,
    alarm::Alarm,
    link::{Event, Extra, Link},
    opening::Opening,
    regions::Regions,
    session::{Parts, probe_target},
};

/// How much may be under way on a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRoom {
    /// Immediates that the accelerator may send before the program takes the first of them.
    pub immediates: u32,
    /// WRITEs of the program that may be unacknowledged.
    pub writes: u32,
}

/// A connection whose streaming call was answered, so that the accelerator goes on sending.
///
/// The regions belong to the device and the accelerator until the stream is dropped, so there are no slices of their bytes. They
/// are copied out of [`memory`](Self::memory); a program that knows which bytes the accelerator writes at which time can make
/// slices of its own. The memory stays mapped as long as somebody holds it.
#[derive(Debug)]
pub struct Stream {
    machine: HostSession,
    acknowledged: Arc<AtomicU64>,
    wait: WaitMode,
    config: SessionConfig,
    alarm: Option<Alarm>,
    // This field is before the regions, so that its queue pair is destroyed first.
    link: Link,
    regions: Regions,
    // This field is the last, because everything above belongs to the device.
    _device: Device,
}

impl Stream {
    /// Connects to `peer`, calls `function` and waits for its response. Each parameter has a region of its own, whatever the
    /// layout of `config`.
    ///
    /// # Errors
    /// The same errors as [`Session::connect`]; [`Error::AnswerTimedOut`] after `config.setup_timeout`; [`Error::Function`] if
    /// the function fails, with the first eight bytes of the first output as its detail; [`Error::Device`] if the device cannot
    /// hold that many work requests.
    pub fn open(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
        function: FunctionCode,
        room: StreamRoom,
    ) -> Result<(Self, Writer), Error> {
        let config = SessionConfig { layout: Choice::Fixed(Layout::Symmetric), ..config.clone() };
        let writes = room.writes.max(1);
        let extra = Extra { sends: writes, receives: room.immediates, late_acks: false };
        let opening = Opening::with_extra(device, peer, params, &config, extra)?;
        let mut session = Session::complete(opening, params, None, &config)?;
        // One receive is posted already, and one replaces that of the response. All are posted before the call, since immediates
        // follow the response at once.
        session.post_receives(room.immediates.saturating_add(1))?;
        session.invoke(function, U24::ZERO)?;
        let Parts { machine, link, regions, wait, device } = session.into_parts();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut stream = Self {
            machine,
            acknowledged: acknowledged.clone(),
            wait,
            config,
            alarm: None,
            link,
            regions,
            _device: device,
        };
        let outcome = stream.answer(function)?;
        let _ = outcome.into_result().map_err(|error| stream.detailed(error))?;
        let regions = stream.machine.peer_regions().unwrap_or_default();
        let writer = Writer::new(&stream.link, &stream.regions, regions, writes.into(), acknowledged);
        Ok((stream, writer))
    }

    /// Adds a detail to the error: the first eight bytes of the first output, little-endian, in which a function that fails can
    /// say why.
    fn detailed(&self, error: Error) -> Error {
        let output = self.regions.params().iter().find(|region| region.flags().contains(RegionFlags::OUTPUT));
        match (error, output.and_then(|region| region.memory())) {
            (Error::Function { peer, function, code, .. }, Some(memory)) if memory.len() >= 8 => {
                let mut bytes = [0; 8];
                memory.read(0, &mut bytes);
                Error::Function { peer, function, code, detail: u64::from_le_bytes(bytes) }
            }
            (error, _) => error,
        }
    }

    /// Waits for the response of the call, and takes nothing that came after it.
    fn answer(&mut self, function: FunctionCode) -> Result<Outcome, Error> {
        let limit = self.config.setup_timeout;
        let deadline = Instant::now().checked_add(limit);
        loop {
            while let Some(event) = self.link.next()? {
                let Event::Response { immediate, bytes } = event else {
                    self.other(event)?;
                    continue;
                };
                let peer = self.link.peer;
                let wrong = |source| Error::Peer { peer, source };
                let answered = self.machine.handle_response(immediate, bytes).map_err(wrong)?;
                self.link.post_receive()?;
                let CallOutcome { function, answer, last_write_bytes } = answered;
                return Ok(Outcome { peer, function, answer, last_write_bytes });
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::AnswerTimedOut { peer: self.link.peer, function, limit });
            }
            self.link.wait(self.wait, deadline)?;
        }
    }

    /// The next immediate, if there is one. Taking it allows the accelerator to send one more.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::Peer`] and [`Error::Device`], after which the stream is over.
    pub fn try_next(&mut self) -> Result<Option<u32>, Error> {
        while let Some(event) = self.link.next()? {
            let Event::Response { immediate, .. } = event else {
                self.other(event)?;
                continue;
            };
            self.link.post_receive()?;
            let now = self.link.clock.now();
            self.link.liveness.heard(now);
            return Ok(Some(immediate));
        }
        Ok(None)
    }

    fn other(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Message { len } => {
                let (peer, message) = (self.link.peer, self.link.message(len));
                self.machine.handle_message(&message).map_err(|source| Error::Peer { peer, source })?;
                self.link.post_receive()
            }
            Event::Streamed => {
                // The WRITEs before this one are acknowledged with it.
                self.acknowledged.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Event::Response { .. } | Event::Written | Event::Established => Ok(()),
        }
    }

    /// Waits for the next immediate, until `deadline` at the latest. Returns `None` at the deadline, and earlier if a WRITE was
    /// acknowledged or for no reason. Meanwhile liveness probes are sent at the `probe_interval` of the configuration.
    ///
    /// # Errors
    /// The same errors as [`try_next`](Self::try_next).
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<u32>, Error> {
        if let Some(immediate) = self.try_next()? {
            return Ok(Some(immediate));
        }
        self.probe()?;
        let until = [deadline, self.link.liveness.next()].into_iter().flatten().min();
        if self.link.wait(self.wait, until)? == Wake::TimedOut {
            self.link.clock.rang();
            self.probe()?;
        }
        self.try_next()
    }

    /// Returns the next immediate as [`try_next`](Self::try_next) does. If there is none, it arms the
    /// [descriptor](Self::descriptor).
    ///
    /// # Errors
    /// The same errors as [`try_next`](Self::try_next).
    pub fn test(&mut self) -> Result<Option<u32>, Error> {
        loop {
            if let Some(immediate) = self.try_next()? {
                return Ok(Some(immediate));
            }
            if self.alarm.is_some() {
                // A deadline may have ended the wait.
                self.link.clock.rang();
            }
            self.probe()?;
            let until = self.link.liveness.next();
            let Some(alarm) = &self.alarm else { return Ok(None) };
            if self.link.arm(alarm, until)? {
                return Ok(None);
            }
        }
    }

    /// A file descriptor for event loops. After [`test`](Self::test) returned no immediate, it becomes readable when `test` has
    /// something to do. Nothing is to be read from it. It is valid as long as the stream.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => {
                let alarm = self.link.alarm()?;
                // The last `test` did not arm anything.
                alarm.set(Some(Instant::now())).map_err(|e| verbs::Error::io("cannot set a timer", e))?;
                alarm
            }
        };
        let alarm: &Alarm = self.alarm.insert(alarm);
        Ok(alarm.as_fd())
    }

    /// Sends a liveness probe when one is due.
    fn probe(&mut self) -> Result<(), Error> {
        let Some(now) = self.link.clock.look().filter(|&now| self.link.liveness.is_probe_due(now)) else {
            return Ok(());
        };
        self.link.probe(probe_target(&self.machine), now)
    }

    /// Waits until everything that was written has arrived, at most for `limit`. To be called before the end of a stream, since
    /// WRITEs that are under way at the end may be lost. Immediates that come meanwhile are lost. Returns false if it is not
    /// known that everything arrived.
    pub fn settle(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let to = probe_target(&self.machine);
        loop {
            // A probe that is under way may have been sent before the last WRITE.
            let fresh = !self.link.is_probing();
            if self.link.probe(to, Instant::now()).is_err() {
                return false;
            }
            loop {
                match self.link.next() {
                    Ok(Some(_)) => continue,
                    Ok(None) if !self.link.is_probing() => break,
                    Ok(None) if Instant::now() < until => {}
                    Ok(None) | Err(_) => return false,
                }
                if self.link.wait(self.wait, Some(until)).is_err() {
                    return false;
                }
            }
            if fresh {
                return true;
            }
        }
    }

    /// The memory of parameter `index`, internal ones left out.
    ///
    /// # Errors
    /// [`Error::NoSuchParam`].
    pub fn memory(&self, index: usize) -> Result<&Memory, Error> {
        let params = self.regions.params();
        let memory = params.get(index).and_then(|region| region.memory());
        memory.ok_or(Error::NoSuchParam { index, params: params.len() })
    }

    /// The address of the accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }
}
