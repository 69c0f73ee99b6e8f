//! The way to a connection, in the steps that rdma_cm has and programs may go one by one.
//!
//! | event | when | its handler |
//! |---|---|---|
//! | ADDR_RESOLVED | at once | takes what a connection needs, state READY |
//! | ROUTE_RESOLVED | then | asks the accelerator |
//! | ESTABLISHED | it agreed | state CONNECTED |
//! | REJECTED, UNREACHABLE, CONNECT_ERROR | it did not | state ERROR |
//! | DISCONNECTED | it went | state ERROR |

use std::time::{Duration, Instant};

use naa_host::SetupStage;

use super::{
    super::{context::State, error::Error, numbered::numbered},
    HostContext, Phase,
};

/// NAAICE's POLLING_TIMEOUT.
const EVENT_LIMIT: Duration = Duration::from_millis(500);

numbered! {
    /// An `enum rdma_cm_event_type`, as far as this side meets them.
    RdmaCmEventType, u32, text() -> &'static str;
    AddrResolved = 0: "no error",
    AddrError = 1: "the accelerator's address could not be resolved (ADDR_ERROR)",
    RouteResolved = 2: "no error",
    RouteError = 3: "no route to the accelerator was found (ROUTE_ERROR)",
    ConnectError = 6: "the connection could not be made (CONNECT_ERROR)",
    Unreachable = 7: "the accelerator cannot be reached (UNREACHABLE)",
    Rejected = 8: "the accelerator refused the connection (REJECTED)",
    Established = 9: "no error",
    Disconnected = 10: "the accelerator ended the connection (DISCONNECTED)",
    DeviceRemoval = 11: "the device is gone (DEVICE_REMOVAL)",
}

impl RdmaCmEventType {
    fn of(error: &Error) -> Self {
        match error {
            Error::Host(naa_host::Error::ConnectionRefused { .. }) => Self::Rejected,
            Error::Host(naa_host::Error::Unreachable { .. }) => Self::Unreachable,
            Error::Host(naa_host::Error::PeerGone { .. }) => Self::Disconnected,
            _ => Self::ConnectError,
        }
    }
}

impl HostContext {
    /// The next event, waited for if there is a connection in the making.
    pub(crate) fn next_event(&mut self) -> Result<RdmaCmEventType, Error> {
        let state = self.public.state();
        match &mut self.phase {
            Phase::Fresh => Ok(RdmaCmEventType::AddrResolved),
            Phase::Opening(opening) if opening.stage() == SetupStage::Idle => {
                Ok(RdmaCmEventType::RouteResolved)
            }
            Phase::Opening(opening)
                if opening.stage() <= SetupStage::Connected && state < Some(State::Connected) =>
            {
                let until = Instant::now() + EVENT_LIMIT;
                let deadline = self.give_up.unwrap_or(until);
                let reached = opening.reach(SetupStage::Connected, until.min(deadline));
                let late = opening.stage() < SetupStage::Connected && Instant::now() < deadline;
                match reached {
                    Ok(()) => Ok(RdmaCmEventType::Established),
                    Err(naa_host::Error::Unreachable { .. }) if late => Err(Error::NoEvent(EVENT_LIMIT)),
                    Err(error) => Ok(self.broken(error.into())),
                }
            }
            Phase::Opening(opening) if opening.stage() == SetupStage::Connected => match opening.step() {
                Ok(_) => Err(Error::NoEvent(Duration::ZERO)),
                Err(error) => Ok(self.broken(error.into())),
            },
            Phase::Opening(_) | Phase::Session(_) => {
                Err(self.not_now("a look at connection events", "until there is a connection"))
            }
            Phase::Over(why) => Err(Error::Over(why.clone())),
        }
    }

    /// The event that tells of `error`. What it means to the program is for the event's handler.
    fn broken(&mut self, error: Error) -> RdmaCmEventType {
        let event = RdmaCmEventType::of(&error);
        self.phase = Phase::Over(error.to_string());
        event
    }

    /// `naaice_handle_addr_resolved`, `naaice_init_rdma_resources`.
    pub(crate) fn address_resolved(&mut self) -> Result<(), Error> {
        if !matches!(self.phase, Phase::Fresh) {
            return Err(self.not_now("resolving the address", "once, in the beginning"));
        }
        match self.open() {
            Ok(opening) => self.phase = Phase::Opening(Box::new(opening)),
            Err(error) => return Err(self.fail(error)),
        }
        self.public.set_state(State::Ready);
        Ok(())
    }

    /// `naaice_handle_route_resolved`.
    pub(crate) fn route_resolved(&mut self) -> Result<(), Error> {
        match &mut self.phase {
            Phase::Opening(opening) if opening.stage() == SetupStage::Idle => {
                if let Err(error) = opening.connect() {
                    return Err(self.fail(error.into()));
                }
                let most = self.config().setup_timeout;
                let limit = self.timeout().map_or(most, |timeout| timeout.min(most));
                self.give_up = Instant::now().checked_add(limit);
                Ok(())
            }
            _ => Err(self.not_now("connecting", "once, when the address is resolved")),
        }
    }

    /// `naaice_handle_connection_established`.
    pub(crate) fn established(&mut self) -> Result<(), Error> {
        match &self.phase {
            Phase::Opening(opening) if opening.stage() == SetupStage::Connected => {
                self.public.set_state(State::Connected);
                Ok(())
            }
            _ => {
                Err(self.not_now("the state CONNECTED", "when the accelerator has agreed to the connection"))
            }
        }
    }

    /// `naaice_handle_error`: all that ends the connection.
    pub(crate) fn connection_error(&mut self, event: RdmaCmEventType) -> Result<(), Error> {
        match &self.phase {
            // The reason is known better.
            Phase::Over(why) => Err(self.fail_again(why.clone())),
            _ => Err(self.fail(Error::Refused(event.text()))),
        }
    }

    fn fail_again(&mut self, why: String) -> Error {
        self.public.set_state(State::Error);
        Error::Over(why)
    }

    /// Does what the event is for.
    pub(crate) fn handle_event(&mut self, event: RdmaCmEventType) -> Result<(), Error> {
        match event {
            RdmaCmEventType::AddrResolved => self.address_resolved(),
            RdmaCmEventType::RouteResolved => self.route_resolved(),
            RdmaCmEventType::Established => self.established(),
            error => self.connection_error(error),
        }
    }

    /// `naaice_setup_connection`: until there is a connection, or none will be.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        while self.public.state().is_none_or(|state| state < State::Connected) {
            match self.next_event() {
                Ok(event) => self.handle_event(event)?,
                Err(Error::NoEvent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match &self.phase {
            Phase::Opening(opening) if opening.stage() == SetupStage::Connected => Ok(()),
            _ => Err(self.not_now("a connection", "once, in the beginning")),
        }
    }
}
