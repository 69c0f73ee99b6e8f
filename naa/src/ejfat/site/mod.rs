//! The control plane of an EJFAT site, on the command lines of all who use it.

mod ports;
mod sender;
mod worker;

use std::path::PathBuf;

use anyhow::anyhow;
use ejfat::uri::{EjfatUri, VARIABLE};
use ejfat_client::{ClientError, ClientTls, Connection, TlsError, TlsFailure, Trust};

use crate::Usage;
pub(crate) use sender::{LetIn, Way};
pub(crate) use worker::{Joined, OfIni, Wanted, Worker, bridge_state, state};

/// How the control plane is found.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "control_plane")]
pub(crate) struct ControlPlane {
    /// An EJFAT URI: where the control plane is, a reservation, and a token for it
    #[arg(short, long, env = VARIABLE, hide_env_values = true)]
    uri: Option<String>,
    /// Use no control plane, whatever the URI says
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_control_plane: Option<bool>,
    /// File of the CAs, as PEM, one of which must have signed the certificate of a control plane at ejfats://; the system's
    /// unless told
    #[arg(long, value_name = "FILE")]
    control_plane_ca: Option<PathBuf>,
}

impl ControlPlane {
    /// Whether a control plane is to be used, if there is one. `ini`: what a file says.
    pub(crate) fn is_wanted(&self, ini: Option<bool>) -> bool {
        self.no_control_plane.map(|without| !without).or(ini).unwrap_or(true)
    }

    /// The URI, if there is one.
    pub(crate) fn uri(&self) -> anyhow::Result<Option<EjfatUri>> {
        let text = self.uri.as_ref().filter(|uri| !uri.trim().is_empty());
        let parse =
            |text: &String| text.parse().map_err(|why| Usage::error(format!("--uri or {VARIABLE}: {why}")));
        text.map(parse).transpose()
    }

    pub(crate) fn connect(&self, uri: &EjfatUri) -> anyhow::Result<Connection> {
        let trust =
            Trust { tls: ClientTls { ca: self.control_plane_ca.clone(), identity: None }, token: None };
        Connection::open(uri, &trust).map_err(|error| told(error, "goes on"))
    }
}

/// The reservation of a URI, with what is wrong if it has none.
pub(crate) fn reservation(uri: &EjfatUri) -> anyhow::Result<String> {
    uri.lb_id.clone().ok_or_else(|| {
        Usage::error(format!(
            "the EJFAT URI (--uri or {VARIABLE}) names no reservation, as ejfat://TOKEN@host:port/lb/ID does; reserve a load \
             balancer, or give --no-control-plane"
        ))
    })
}

/// An error with the option that helps. `without`: what the command does without a control plane.
pub(crate) fn told(error: ClientError, without: &str) -> anyhow::Error {
    let by = match &error {
        ClientError::Tls { failure: TlsFailure::UnknownCa, .. }
        | ClientError::Files(TlsError::NoRoots { .. }) => ", by --control-plane-ca FILE",
        _ => "",
    };
    anyhow!("{error}{by}; --no-control-plane {without} without it")
}
