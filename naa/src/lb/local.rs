//! The state folder of a control plane, and the file in it by which the other commands of the same user find the control plane.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ejfat::uri::EjfatUri;
use ejfat_cp::Public;
use naa_files::Destination;
use serde::{Deserialize, Serialize};

/// The name of the file in the state folder that says where the control plane is, and which file has its admin token.
const FILE: &str = "control-plane.json";

/// The contents of that file.
#[derive(Debug, Serialize, Deserialize)]
struct ControlPlaneFile {
    uri: String,
    token_file: PathBuf,
}

/// Returns the state folder: the one of the option, else systemd's folder of the service, else the one of this user.
pub(super) fn state_folder(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = asked {
        return Ok(folder.to_owned());
    }
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = of("STATE_DIRECTORY").or_else(|| of("XDG_STATE_HOME").map(|home| home.join("naa/lb")));
    let folder = folder.or_else(|| of("HOME").map(|home| home.join(".local/state/naa/lb")));
    folder.context("no folder for the store and the admin token is known, because HOME is not set; set it, or XDG_STATE_HOME")
}

/// Returns the scheme and the `HOST:PORT` of the control plane's URIs.
pub(super) fn place(public: &Public) -> (&'static str, String) {
    let host = if public.host.contains(':') { format!("[{}]", public.host) } else { public.host.clone() };
    (if public.tls { "ejfats" } else { "ejfat" }, format!("{host}:{}", public.port))
}

/// Writes where the control plane is to the state folder, and which file has its token, but not the token itself.
pub(super) fn put(state: &Path, public: &Public, token_file: &Path) -> anyhow::Result<()> {
    let (scheme, place) = place(public);
    let (uri, token_file) = (format!("{scheme}://{place}/"), std::path::absolute(token_file)?);
    let contents = ControlPlaneFile { uri, token_file };
    Ok(Destination::new(&state.join(FILE))?.replace(serde_json::to_string(&contents)?.as_bytes())?)
}

/// Returns the URI of the control plane that this user started last on this machine, with its admin token. Returns `None` if the
/// user's state folder has none.
pub(super) fn find() -> Option<EjfatUri> {
    let text = std::fs::read(state_folder(None).ok()?.join(FILE)).ok()?;
    let contents: ControlPlaneFile = serde_json::from_slice(&text).ok()?;
    let token = std::fs::read_to_string(contents.token_file).ok()?;
    let uri: EjfatUri = contents.uri.parse().ok()?;
    Some(EjfatUri { token: Some(token.trim().to_owned()), ..uri })
}
