//! The setup of a session in steps: first the connection, then the regions. The methods return at once, except that
//! [`SessionSetup::reach`] and [`SessionSetup::wait`] block the thread.

use std::{net::SocketAddr, time::Instant};

use mrsp::{
    CallPlan, HostSession,
    host::{HostConfig, SetupError},
    layout::{Layout, LayoutChoice, Placed},
};
use verbs::{DeviceAttr, RejectReason, Unreachable};

use crate::{
    Buffer, Device, Error, Param, Session, SessionConfig,
    arrange::arrange,
    connection::{Extra, HostConnection, Room, SessionEvent},
    overdue::CallTimes,
    regions::HostRegions,
};

/// The step that the setup of a session has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetupStage {
    /// No connection was requested yet.
    Idle,
    /// The host has requested a connection, and the accelerator has not accepted the connection yet.
    Connecting,
    /// The connection is set up, and no regions were requested yet.
    Connected,
    /// The host has requested regions, and the accelerator has not answered yet.
    Agreeing,
    /// The accelerator has granted the regions, so that the session is ready for calls.
    Agreed,
}

/// The regions that host and accelerator agree on, with their layout.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) machine: HostSession,
    pub(crate) regions: HostRegions,
    pub(crate) plan: CallPlan,
    /// The locations of the parameters in shared regions, or `None` if each parameter has a region of its own.
    pub(crate) placed: Option<Placed>,
    internals: Vec<u64>,
}

impl Terms {
    /// Changes the layout of the session to symmetric if the accelerator does not support the chosen layout.
    /// `slots` is the maximum number of layout entries that the accelerator supports in a layout block, and
    /// each parameter needs one layout entry.
    fn fit(&mut self, slots: u8, connection: &HostConnection, config: &HostConfig) -> Result<(), Error> {
        let Some(placed) = self.placed.take_if(|placed| placed.places.len() > usize::from(slots)) else {
            return Ok(());
        };
        let (peer, layout, params) = (connection.peer, placed.layout, placed.places.len());
        tracing::warn!(%peer, %layout, params, slots, "the accelerator does not take the layout; using symmetric");
        self.regions.make_symmetric(&connection.pd)?;
        self.machine = HostSession::new(config, &self.regions.announced(), &self.internals)?;
        Ok(())
    }
}

/// The setup of a session in steps. The table shows how each call changes the stage of the setup.
///
/// | call | from | to |
/// |---|---|---|
/// | [`connect`](Self::connect) | Idle | Connecting |
/// | [`step`](Self::step) | Connecting | Connected |
/// | [`agree`](Self::agree), after [`prepare`](Self::prepare) | Connected | Agreeing |
/// | [`step`](Self::step) | Agreeing | Agreed |
/// | [`into_session`](Self::into_session) | Agreed | |
///
/// If `connect`, `step` or `agree` fails, the setup has failed. If `prepare` fails, the program can call `prepare`
/// again with other parameters.
#[derive(Debug)]
pub struct SessionSetup {
    stage: SetupStage,
    /// The number of new queue pairs that the setup may still try. A new queue pair is tried if the accelerator rejects
    /// the connection because it still remembers an earlier connection with the same QPN.
    spare: usize,
    room: Room,
    config: SessionConfig,
    limits: CallTimes,
    // Fields are dropped in the order of their declaration. This field is before `terms`, so that the queue pair is
    // destroyed before the regions.
    connection: HostConnection,
    terms: Option<Terms>,
    // This field is the last, so that the objects in the other fields, which belong to the device, are dropped before
    // it.
    device: Device,
}

impl Room {
    fn of(params: &[Param<'_>], config: &SessionConfig, attr: &DeviceAttr) -> Self {
        let longest = attr.max_msg;
        let shared = params.iter().filter(|param| !param.is_internal());
        let further = shared.map(|param| (param.len as u64).saturating_sub(1) / longest).sum();
        let may_gather =
            !matches!(config.layout, LayoutChoice::Fixed(Layout::Symmetric | Layout::Asymmetric));
        // A WRITE needs one scatter-gather element for each parameter, and can need another element for each gap
        // between two parameters.
        let elements = u32::try_from(2 * params.len()).unwrap_or(u32::MAX).clamp(1, attr.max_sge.max(1));
        Self { regions: params.len(), further, elements: if may_gather { elements } else { 1 } }
    }
}

/// The maximum number of queue pairs with which a session setup tries to connect, one after another. A new queue pair
/// is tried if the accelerator rejects a QPN because the accelerator still remembers an earlier connection with this
/// QPN.
const QUEUE_PAIRS: usize = 4;

impl SessionSetup {
    /// Makes the objects that a session with the parameters `params` needs, except the connection and the regions. The
    /// method reads only the size of each parameter, and whether the parameter is internal.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the device fails, and with [`Error::Memory`] if memory cannot be allocated.
    /// Fails with [`Error::Environment`] if `config` takes the time limit of calls from `NAA_TIMEOUT`, and the value of
    /// `NAA_TIMEOUT` is not a valid time.
    pub fn new(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::with_extra(device, peer, params, config, Extra::NONE)
    }

    /// Makes the same objects as [`new`](Self::new), but with room for `extra.sends` additional sends and
    /// `extra.receives` additional receives. `extra.late_acks` says whether the device may delay acknowledgements.
    pub(crate) fn with_extra(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
        extra: Extra,
    ) -> Result<Self, Error> {
        let limits = config.limits()?;
        let room = Room::of(params, config, device.context().attr());
        let connection = HostConnection::new(device, peer, room, extra, config.probe_interval)?;
        Ok(Self {
            stage: SetupStage::Idle,
            terms: None,
            spare: QUEUE_PAIRS - 1,
            room,
            config: config.clone(),
            limits,
            connection,
            device: device.clone(),
        })
    }

    /// Returns the step that the session setup has reached, without handling new completions or CM events.
    pub fn stage(&self) -> SetupStage {
        self.stage
    }

    /// Returns the address of the accelerator.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    /// Requests a connection from the accelerator if the stage is Idle; in any other stage, the method does nothing.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the device fails.
    pub fn connect(&mut self) -> Result<(), Error> {
        if self.stage == SetupStage::Idle {
            self.request_connection()?;
            self.stage = SetupStage::Connecting;
        }
        Ok(())
    }

    fn request_connection(&mut self) -> Result<(), Error> {
        self.connection.post_receive()?;
        self.connection.connect(&self.config.connection(self.config.setup_timeout))
    }

    /// Registers the regions of `params`. The program must call this method before [`agree`](Self::agree), and again if
    /// `params` have changed. `buffers` has the memory of the parameters, as for [`Session::connect_with`]; if
    /// `buffers` is `None`, the memory is allocated.
    ///
    /// # Errors
    /// Fails with [`Error::Setup`] if `params` are not valid for a session, or if `params` need more regions than the
    /// parameters that were given to [`new`](Self::new). Fails with [`Error::OutOfBounds`] if the initial content of a
    /// parameter is longer than the parameter. Fails with [`Error::Buffers`] if the number of buffers is wrong, and
    /// with [`Error::Buffer`] if the length of a buffer is wrong. Fails with [`Error::Environment`] if the layout is
    /// chosen by the rule in `NAA_LAYOUT_RULE` and this rule is not valid. Fails with [`Error::Device`] if the device
    /// fails, or if `params` need more WRITEs than the parameters that were given to [`new`](Self::new). Fails with
    /// [`Error::Memory`] if memory cannot be allocated.
    pub fn prepare(&mut self, params: &[Param<'_>], buffers: Option<Vec<Buffer>>) -> Result<(), Error> {
        let attr = self.device.context().attr();
        let room = Room::of(params, &self.config, attr);
        if room.regions > self.room.regions {
            let limit = u8::try_from(self.room.regions).unwrap_or(u8::MAX);
            return Err(SetupError::TooManyRegions { asked: room.regions, limit }.into());
        }
        if room.further > self.room.further {
            let (what, limit) = ("WRITEs beyond one for each region", self.room.further);
            let remedy = "begin the setup with parameters of the sizes that are needed";
            return Err(verbs::Error::Exhausted { what, limit, remedy }.into());
        }
        let (internal, shared): (Vec<_>, Vec<_>) = params.iter().partition(|param| param.is_internal());
        let buffers = buffers.map(|buffers| fitting(buffers, &shared)).transpose()?;
        let (pd, placed) = (&self.connection.pd, arrange(&self.config, self.device.provider(), &shared)?);
        let internals: Vec<_> = internal.iter().map(|param| param.len as u64).collect();
        let config = self.config.host();
        let (regions, machine) = match &placed {
            Some(placed) => {
                let regions = HostRegions::arranged(pd, &shared, buffers, placed)?;
                let machine = HostSession::arranged(&config, &regions.announced(), &internals, placed)?;
                (regions, machine)
            }
            None => {
                let regions = HostRegions::symmetric(pd, &shared, buffers)?;
                let mut machine = HostSession::new(&config, &regions.announced(), &internals)?;
                let wire_order = shared.iter().chain(&internal);
                if let Some(addresses) = wire_order.map(|param| param.address).collect::<Option<Vec<_>>>() {
                    machine.place(&addresses)?;
                }
                (regions, machine)
            }
        };
        let plan = CallPlan::with_capacity(shared.len())
            .with_longest_write(attr.max_msg)
            .with_most_pieces(self.room.elements);
        self.terms = Some(Terms { machine, regions, plan, placed, internals });
        Ok(())
    }

    /// Fills the parameters with their initial content, after [`prepare`](Self::prepare) was called with parameters of
    /// the same sizes.
    #[cfg(feature = "tokio")]
    pub(crate) fn fill(&mut self, params: &[Param<'_>]) -> Result<(), Error> {
        let Some(terms) = &mut self.terms else { return Ok(()) };
        terms.regions.fill(params)
    }

    /// Returns the file descriptor with which an event loop waits for the setup. It stays the same in the session that
    /// [`into_session`](Self::into_session) returns.
    #[cfg(feature = "tokio")]
    pub(crate) fn descriptor(&mut self) -> Result<std::sync::Arc<std::os::fd::OwnedFd>, Error> {
        self.connection.shared_descriptor()
    }

    /// Returns `Some` if the setup has reached `stage`, else arms the file descriptor, which becomes readable at
    /// `deadline` at the latest.
    #[cfg(feature = "tokio")]
    pub(crate) fn test(&mut self, stage: SetupStage, deadline: Instant) -> Result<Option<()>, Error> {
        loop {
            if self.step()? >= stage {
                return Ok(Some(()));
            }
            if Instant::now() >= deadline {
                return Err(self.late());
            }
            if self.connection.arm(Some(deadline))? {
                return Ok(None);
            }
        }
    }

    /// Sends the accelerator a request for the regions that were prepared. If the accelerator does not support the
    /// chosen layout, one region for each parameter is requested. Returns true if the request was sent, that is, if the
    /// stage was Connected and regions were prepared.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the device fails, and with [`Error::PeerGone`] if the connection has ended.
    /// Fails with [`Error::Setup`] if each parameter needs a region of its own and the session would have more regions
    /// than are allowed.
    pub fn agree(&mut self) -> Result<bool, Error> {
        let (SetupStage::Connected, Some(terms)) = (self.stage, &mut self.terms) else { return Ok(false) };
        terms.fit(self.connection.abilities.slots, &self.connection, &self.config.host())?;
        let request = terms.machine.start()?;
        self.connection.send(&request)?;
        self.stage = SetupStage::Agreeing;
        Ok(true)
    }

    /// Handles completions and CM events that have arrived, without waiting.
    ///
    /// # Errors
    /// Fails with [`Error::ConnectionRefused`] or [`Error::Unreachable`] if the connection cannot be set up. Fails with
    /// [`Error::PeerGone`] if the connection has ended. Fails with [`Error::Peer`] if the accelerator refuses the
    /// regions or breaks the protocol. Fails with [`Error::Device`] if the device fails.
    pub fn step(&mut self) -> Result<SetupStage, Error> {
        while matches!(self.stage, SetupStage::Connecting | SetupStage::Agreeing) {
            match self.connection.next() {
                Ok(Some(event)) => self.handle(event)?,
                Ok(None) => break,
                Err(Error::ConnectionRefused { reason: RejectReason::STALE_CONNECTION, .. })
                    if self.stage == SetupStage::Connecting && self.spare > 0 =>
                {
                    self.spare -= 1;
                    self.connection.renew()?;
                    self.request_connection()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.stage)
    }

    fn handle(&mut self, event: SessionEvent) -> Result<(), Error> {
        let peer = self.connection.peer;
        let wrong = |source| Error::Peer { peer, source };
        match (event, &mut self.terms) {
            (SessionEvent::Established, _) if self.stage == SetupStage::Connecting => {
                self.stage = SetupStage::Connected;
            }
            (SessionEvent::Message { len }, Some(terms)) if self.stage == SetupStage::Agreeing => {
                terms.machine.handle_message(&self.connection.message(len)).map_err(wrong)?;
                // The receive that is posted here will be used by the response to the first call.
                self.connection.post_receive()?;
                self.stage = SetupStage::Agreed;
            }
            // A message that arrives in any other stage than Agreeing breaks the protocol, so `handle_message` returns
            // an error.
            (SessionEvent::Message { len }, Some(terms)) => {
                terms.machine.handle_message(&self.connection.message(len)).map_err(wrong)?;
            }
            (SessionEvent::Response { immediate, bytes }, Some(terms)) => {
                terms.machine.handle_response(immediate, bytes).map_err(wrong)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for a completion or a CM event, but at most until the time `until`. The program then calls
    /// [`step`](Self::step), which handles the completion or the CM event.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the device fails.
    pub fn wait(&self, until: Instant) -> Result<(), Error> {
        self.connection.wait(self.config.wait, Some(until)).map(drop)
    }

    /// Calls [`step`](Self::step) repeatedly and waits between the calls, until `stage` is reached or `deadline`
    /// passes.
    ///
    /// # Errors
    /// If the deadline passes, the error is [`Error::SetupTimedOut`] in the stage Agreeing, and [`Error::Unreachable`]
    /// in any earlier stage. The method also fails with the errors of [`step`](Self::step).
    pub fn reach(&mut self, stage: SetupStage, deadline: Instant) -> Result<(), Error> {
        while self.step()? < stage {
            if Instant::now() >= deadline {
                return Err(self.late());
            }
            self.wait(deadline)?;
        }
        Ok(())
    }

    /// Returns the error for a session setup that was not finished in time.
    pub fn late(&self) -> Error {
        match self.stage {
            SetupStage::Agreeing | SetupStage::Agreed => {
                Error::SetupTimedOut { peer: self.connection.peer, limit: self.config.setup_timeout }
            }
            _ => self.connection.unreachable(Unreachable::NoAnswer),
        }
    }

    /// Returns the session if the stage is Agreed, else `None`.
    pub fn into_session(self) -> Option<Session> {
        let Self {
            stage: SetupStage::Agreed, terms: Some(terms), connection, config, limits, device, ..
        } = self
        else {
            return None;
        };
        Some(Session::of(terms, connection, (&config, limits), device))
    }
}

/// Returns `buffers` if `buffers` and `params` agree in number and in sizes, else an error.
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
