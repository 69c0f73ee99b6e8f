//! What a case works with: the far side, and sessions with the server there.

use std::net::{IpAddr, SocketAddr};

use naa_host::{Device, Error, Param, ProviderChoice, Session, SessionConfig};

use super::{
    case::{Case, Set},
    control::{Control, ServerConfig},
};

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Where `suite serve` takes requests.
    pub control: SocketAddr,
    /// Our address.
    pub local: IpAddr,
    /// Our provider.
    pub choice: ProviderChoice,
    /// What connections must come to.
    pub path_mtu: Option<u32>,
    /// Cases whose name contains this.
    pub only: Option<String>,
    pub sets: Vec<Set>,
    /// The exponent of [`SessionConfig::ack_timeout`]. The timer of soft-RoCE expires this long after it was set,
    /// whatever was acknowledged meanwhile, and packets are sent again then. A long time-out shows that packets are
    /// sent again for no other reason.
    pub ack_timeout: u8,
}

impl RunConfig {
    pub(super) fn wants(&self, case: &Case) -> bool {
        let named = self.only.as_deref().is_none_or(|text| case.name.contains(text));
        named && self.sets.contains(&case.set)
    }
}

#[derive(Debug)]
pub(super) struct Environment {
    pub(super) options: RunConfig,
    pub(super) control: Control,
    /// The server there, and how it differs from the usual one.
    server: Option<(SocketAddr, ServerConfig)>,
    device: Option<Device>,
}

impl Environment {
    pub(super) fn new(options: &RunConfig) -> Result<Self, String> {
        let control = Control::connect(options.control)?;
        Ok(Self { options: options.clone(), control, server: None, device: None })
    }

    /// The usual server.
    pub(super) fn server(&mut self) -> Result<SocketAddr, String> {
        self.server_with(&ServerConfig::default())
    }

    pub(super) fn server_with(&mut self, settings: &ServerConfig) -> Result<SocketAddr, String> {
        if let Some((address, running)) = &self.server
            && running == settings
        {
            return Ok(*address);
        }
        let address = self.control.serve(settings)?;
        self.server = Some((address, settings.clone()));
        Ok(address)
    }

    /// Ends the server; its sessions are told.
    pub(super) fn stop_server(&mut self) -> Result<(), String> {
        self.server = None;
        self.control.stop()
    }

    pub(super) fn device(&mut self) -> Result<Device, String> {
        if let Some(device) = &self.device {
            return Ok(device.clone());
        }
        let device = Device::open_with(self.options.local, self.options.choice).map_err(|e| e.to_string())?;
        self.device = Some(device.clone());
        Ok(device)
    }

    /// Closes our device, so that another can be opened on the address; ends what runs over there too.
    pub(super) fn reset(&mut self) -> Result<(), String> {
        self.device = None;
        self.stop_server()
    }

    /// A session with the usual server.
    pub(super) fn session(&mut self, params: &[Param<'_>]) -> Result<Session, String> {
        let config = self.config();
        self.session_with(params, &config)
    }

    pub(super) fn config(&self) -> SessionConfig {
        SessionConfig { ack_timeout: self.options.ack_timeout, ..SessionConfig::default() }
    }

    pub(super) fn session_with(
        &mut self,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Session, String> {
        let server = self.server()?;
        self.connect(server, params, config)?.map_err(|e| format!("no session: {e}"))
    }

    /// The outer error is ours, the inner one may be what is wanted.
    pub(super) fn connect(
        &mut self,
        server: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Result<Session, Error>, String> {
        let device = self.device()?;
        Ok(Session::connect(&device, server, params, config))
    }
}
