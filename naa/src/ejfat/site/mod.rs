//! The options by which senders and workers use a control plane, and what they do with it.

mod ports;
mod sender;
mod worker;

use std::{path::PathBuf, sync::Once};

use anyhow::anyhow;
use ejfat::uri::{EjfatUri, VARIABLE};
use ejfat_client::{Cause, ClientError, ClientTls, Connection, TlsError, TlsFailure, Trust};

use crate::Usage;
pub(crate) use sender::{AdmissionConfig, AdmittedSender};
pub(crate) use worker::{Joined, OfIni, Wanted, WorkerArgs, bridge_state, state};

/// The options of every client of a control plane: its EJFAT URI, and the CAs that the client trusts.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct UriArgs {
    /// An EJFAT URI: where the control plane is, a reservation, and a token for it
    #[arg(short, long, env = VARIABLE, hide_env_values = true)]
    uri: Option<String>,
    /// PEM file of CAs, one of which must have signed the certificate of a control plane at ejfats:// [default: the CAs of the
    /// system]
    #[arg(long, value_name = "FILE")]
    control_plane_ca: Option<PathBuf>,
}

impl UriArgs {
    /// Returns the URI, or `None` if neither the command line nor the environment has one.
    ///
    /// # Errors
    /// If the text is no EJFAT URI.
    pub(crate) fn uri(&self) -> anyhow::Result<Option<EjfatUri>> {
        let text = self.uri.as_ref().filter(|uri| !uri.trim().is_empty());
        let parse =
            |text: &String| text.parse().map_err(|why| Usage::error(format!("--uri or {VARIABLE}: {why}")));
        let uri: Option<EjfatUri> = text.map(parse).transpose()?;
        if let Some((key, _)) = uri.as_ref().and_then(|uri| uri.other.first()) {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    "the EJFAT URI (--uri or {VARIABLE}) has the key {key:?}, which means nothing here; write data, sync or sessionid"
                );
            });
        }
        Ok(uri)
    }

    /// Prepares a connection to the control plane of a URI.
    ///
    /// # Errors
    /// The errors of [`Connection::open`].
    pub(crate) fn connect(&self, uri: &EjfatUri) -> Result<Connection, ClientError> {
        let tls = ClientTls { ca: self.control_plane_ca.clone(), identity: None };
        Connection::open(uri, &Trust { tls, token: None })
    }
}

/// The options of a sender or worker, which can do without a control plane.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "control_plane")]
pub(crate) struct ControlPlane {
    #[command(flatten)]
    of: UriArgs,
    /// Use no control plane, whatever the URI says
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_control_plane: Option<bool>,
}

impl ControlPlane {
    /// Returns whether to use a control plane if the URI names one. `ini` is what an INI file says.
    pub(crate) fn is_wanted(&self, ini: Option<bool>) -> bool {
        self.no_control_plane.map(|without| !without).or(ini).unwrap_or(true)
    }

    /// Returns the URI as [`UriArgs::uri`] does.
    pub(crate) fn uri(&self) -> anyhow::Result<Option<EjfatUri>> {
        self.of.uri()
    }

    /// Prepares a connection to the control plane of a URI.
    pub(crate) fn connect(&self, uri: &EjfatUri) -> anyhow::Result<Connection> {
        self.of.connect(uri).map_err(|error| explained(error, "goes on"))
    }
}

/// Returns the reservation of a URI, or an error with the remedy if the URI names none.
fn reservation(uri: &EjfatUri) -> anyhow::Result<String> {
    uri.lb_id.clone().ok_or_else(|| {
        Usage::error(format!(
            "the EJFAT URI (--uri or {VARIABLE}) names no reservation, as ejfat://TOKEN@host:port/lb/ID does; reserve a load \
             balancer, or give --no-control-plane"
        ))
    })
}

/// Adds to an error the option that names a CA, if that is the remedy.
pub(crate) fn with_ca_option(error: &ClientError) -> String {
    let by = match error {
        ClientError::Tls { failure: TlsFailure::UnknownCa, .. }
        | ClientError::Files(TlsError::NoRoots { .. }) => ", by --control-plane-ca FILE",
        _ => "",
    };
    format!("{error}{by}")
}

/// Adds to an error the options that help. `without` says what the command does without a control plane, which helps if that
/// cannot be reached or does not let this program in, and not if a value is wrong.
fn explained(error: ClientError, without: &str) -> anyhow::Error {
    match error.cause() {
        Some(Cause::Invalid | Cause::Taken) => error.into(),
        _ => anyhow!("{}; --no-control-plane {without} without it", with_ca_option(&error)),
    }
}
