//! A session with one streaming call. After the response, the accelerator writes to outputs and sends immediates at any
//! time, and the host writes to inputs.

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mrsp::{
    FunctionCode, HostSession, RegionFlags, U24,
    host::ReceivedResponse,
    layout::{Layout, LayoutChoice},
};
use verbs::{Memory, WaitMode, Wake};

use crate::{
    CallOutcome, Device, Error, Param, Session, SessionConfig, Writer, clock,
    connection::{Extra, HostConnection, SessionEvent},
    regions::HostRegions,
    session::probe_target,
    setup::SessionSetup,
};

/// The limits of a [`StreamingCall`]: one limit for immediates, and another limit for WRITEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamingLimits {
    /// The maximum number of immediates that the accelerator may send before the program takes the first of them.
    pub immediates: u32,
    /// The maximum number of WRITEs of the program that may be unacknowledged; 0 is treated as 1.
    pub writes: u32,
}

/// A session with a streaming call, in which the accelerator continues to send after its response.
///
/// The regions belong to the device and the accelerator until the streaming call is dropped, so the program cannot
/// borrow the regions' bytes as slices. To read the regions' bytes, a program copies them out of
/// [`memory`](Self::memory). If a program knows which bytes the accelerator writes at which time, the program can make
/// slices of the memory with `unsafe`. If a program keeps a clone of a parameter's [`Memory`], the memory stays mapped
/// after the streaming call was dropped.
#[derive(Debug)]
pub struct StreamingCall {
    machine: HostSession,
    acknowledged: Arc<AtomicU64>,
    wait: WaitMode,
    config: SessionConfig,
    // This field is before `regions`, so that the queue pair is destroyed before the regions.
    connection: HostConnection,
    regions: HostRegions,
    // This field is the last, so that the device is dropped after all objects that belong to the device.
    _device: Device,
}

impl StreamingCall {
    /// Connects to `peer`, calls `function` and waits for the response. Each parameter has a region of its own, and the
    /// layout of `config` is ignored.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::connect`]. Fails with [`Error::AnswerTimedOut`] if the response does
    /// not arrive within `config.setup_timeout`. Fails with [`Error::Device`] if the device does not support as many
    /// work requests as `room` needs. Fails with [`Error::Function`] if the function fails; the detail of this error is
    /// the number in the first eight bytes of the first output.
    pub fn open(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
        function: FunctionCode,
        room: StreamingLimits,
    ) -> Result<(Self, Writer), Error> {
        let config = SessionConfig { layout: LayoutChoice::Fixed(Layout::Symmetric), ..config.clone() };
        let writes = room.writes.max(1);
        let extra = Extra { sends: writes, receives: room.immediates, late_acks: false };
        let setup = SessionSetup::with_extra(device, peer, params, &config, extra)?;
        let mut session = Session::complete(setup, params, None, &config)?;
        // In addition to the receive that is always posted, one receive is posted for the response and one for each
        // immediate. All receives are posted before the call, since immediates may follow the response at once.
        session.post_receives(room.immediates.saturating_add(1))?;
        session.invoke(function, U24::ZERO)?;
        let (machine, connection, regions, wait, device) = session.into_parts();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut stream = Self {
            machine,
            acknowledged: acknowledged.clone(),
            wait,
            config,
            connection,
            regions,
            _device: device,
        };
        let outcome = stream.answer(function)?;
        let _ = outcome.into_result().map_err(|error| stream.detailed(error))?;
        let regions = stream.machine.peer_regions().unwrap_or_default();
        let writer = Writer::new(&stream.connection, &stream.regions, regions, writes.into(), acknowledged);
        Ok((stream, writer))
    }

    /// Adds the detail of a function's failure to `error`. The detail is a little-endian number that explains the
    /// failure. A function that fails writes the detail to the first eight bytes of the first output.
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

    /// Waits for the response of the call. Completions that come after the response are left for
    /// [`try_next`](Self::try_next).
    fn answer(&mut self, function: FunctionCode) -> Result<CallOutcome, Error> {
        let limit = self.config.setup_timeout;
        let deadline = clock::after(limit);
        loop {
            while let Some(event) = self.connection.next()? {
                let SessionEvent::Response { immediate, bytes } = event else {
                    self.other(event)?;
                    continue;
                };
                let peer = self.connection.peer;
                let wrong = |source| Error::Peer { peer, source };
                let answered = self.machine.handle_response(immediate, bytes).map_err(wrong)?;
                self.connection.post_receive()?;
                let ReceivedResponse { function, answer, last_write_bytes } = answered;
                return Ok(CallOutcome { peer, function, answer, last_write_bytes });
            }
            if Instant::now() >= deadline {
                return Err(Error::AnswerTimedOut { peer: self.connection.peer, function, limit });
            }
            self.connection.wait(self.wait, Some(deadline))?;
        }
    }

    /// Takes the next immediate, if an immediate has arrived. The accelerator may send one more immediate for each
    /// immediate that is taken.
    ///
    /// # Errors
    /// Fails with [`Error::PeerGone`] if the connection has ended. Fails with [`Error::Peer`] if the accelerator breaks
    /// the protocol. Fails with [`Error::Device`] if the device fails. After an error, the streaming call is over.
    pub fn try_next(&mut self) -> Result<Option<u32>, Error> {
        while let Some(event) = self.connection.next()? {
            let SessionEvent::Response { immediate, .. } = event else {
                self.other(event)?;
                continue;
            };
            self.connection.post_receive()?;
            let now = self.connection.clock.now();
            self.connection.liveness.received(now);
            return Ok(Some(immediate));
        }
        Ok(None)
    }

    fn other(&mut self, event: SessionEvent) -> Result<(), Error> {
        match event {
            SessionEvent::Message { len } => {
                let (peer, message) = (self.connection.peer, self.connection.message(len));
                self.machine.handle_message(&message).map_err(|source| Error::Peer { peer, source })?;
                self.connection.post_receive()
            }
            SessionEvent::Streamed => {
                // The completion of a signaled WRITE also acknowledges all WRITEs that were posted before this WRITE.
                self.acknowledged.fetch_add(1, Ordering::Release);
                Ok(())
            }
            SessionEvent::Response { .. } | SessionEvent::Written | SessionEvent::Established => Ok(()),
        }
    }

    /// Waits for the next immediate, until `deadline` at the latest. Returns `None` if no immediate has arrived when
    /// the deadline passes. The method may also return `None` before the deadline, for example when a WRITE is
    /// acknowledged. The method also sends a liveness probe if a probe is due. A probe is due when the time
    /// `probe_interval` of the configuration has passed since the last immediate and since the last probe, unless a
    /// probe is still unacknowledged.
    ///
    /// # Errors
    /// Fails with the same errors as [`try_next`](Self::try_next).
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<u32>, Error> {
        if let Some(immediate) = self.try_next()? {
            return Ok(Some(immediate));
        }
        self.probe()?;
        let until = [deadline, self.connection.liveness.next()].into_iter().flatten().min();
        if self.connection.wait(self.wait, until)? == Wake::TimedOut {
            self.connection.clock.refresh();
            self.probe()?;
        }
        self.try_next()
    }

    /// Returns the next immediate as [`try_next`](Self::try_next) does. If no immediate has arrived, the method sends a
    /// liveness probe if a probe is due.
    ///
    /// # Errors
    /// Fails with the same errors as [`try_next`](Self::try_next).
    pub fn test(&mut self) -> Result<Option<u32>, Error> {
        loop {
            if let Some(immediate) = self.try_next()? {
                return Ok(Some(immediate));
            }
            self.connection.refresh_clock_if_armed();
            self.probe()?;
            if self.connection.arm(self.connection.liveness.next())? {
                return Ok(None);
            }
        }
    }

    /// Returns a file descriptor for event loops. After [`test`](Self::test) returned no immediate, the file descriptor
    /// becomes readable when the program must call `test` again. The program must not read from the file descriptor,
    /// which is valid as long as the streaming call exists.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the file descriptor cannot be created.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        self.connection.descriptor()
    }

    /// Sends a liveness probe if a probe is due.
    fn probe(&mut self) -> Result<(), Error> {
        let now = self.connection.clock.look();
        let Some(now) = now.filter(|&now| self.connection.liveness.is_probe_due(now)) else { return Ok(()) };
        self.connection.probe(probe_target(&self.machine), now)
    }

    /// Waits until all WRITEs of the program have arrived, at most for `limit`. A program should call this method
    /// before it drops a streaming call. Otherwise, WRITEs that have not arrived yet may be lost when the streaming
    /// call is dropped. The program loses the immediates that it has not taken yet, and the immediates that arrive
    /// while `settle` waits. Returns true if it is certain that all WRITEs arrived.
    pub fn settle(&mut self, limit: Duration) -> bool {
        let until = clock::after(limit);
        let to = probe_target(&self.machine);
        loop {
            // If an earlier probe is still unanswered, its answer proves nothing about WRITEs that were posted after
            // it. The loop then waits for this answer, and sends another probe afterwards.
            let fresh = !self.connection.is_probing();
            if self.connection.probe(to, Instant::now()).is_err() {
                return false;
            }
            loop {
                match self.try_next() {
                    Err(_) => return false,
                    Ok(None) if !self.connection.is_probing() => break,
                    Ok(_) if Instant::now() >= until => return false,
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                }
                if self.connection.wait(self.wait, Some(until)).is_err() {
                    return false;
                }
            }
            if fresh {
                return true;
            }
        }
    }

    /// Returns the memory of parameter `index`. Internal regions have no index.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no parameter `index`.
    pub fn memory(&self, index: usize) -> Result<&Memory, Error> {
        let params = self.regions.params();
        let memory = params.get(index).and_then(|region| region.memory());
        memory.ok_or(Error::NoSuchParam { index, params: params.len() })
    }

    /// Returns the address of the accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }
}
