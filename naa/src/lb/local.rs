//! Where a control plane of this user keeps its files, by which the other commands find it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ejfat::uri::EjfatUri;
use ejfat_cp::Public;
use naa_files::Destination;
use serde::{Deserialize, Serialize};

/// In the state folder: where the control plane is, and which file has its admin token.
const FILE: &str = "control-plane.json";

#[derive(Debug, Serialize, Deserialize)]
struct Place {
    uri: String,
    token_file: PathBuf,
}

/// Where a user's programs keep what must outlive them, or systemd's folder of the service.
pub(super) fn state_folder(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = asked {
        return Ok(folder.to_owned());
    }
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = of("STATE_DIRECTORY").or_else(|| of("XDG_STATE_HOME").map(|home| home.join("naa/lb")));
    let folder = folder.or_else(|| of("HOME").map(|home| home.join(".local/state/naa/lb")));
    folder.context("no folder for what must not be lost: HOME is not set; give --state FOLDER")
}

/// Scheme, and host with port, of URIs.
pub(super) fn place(public: &Public) -> (&'static str, String) {
    let host = if public.host.contains(':') { format!("[{}]", public.host) } else { public.host.clone() };
    (if public.tls { "ejfats" } else { "ejfat" }, format!("{host}:{}", public.port))
}

/// Leaves word of where the control plane is. The token stays in its own file.
pub(super) fn put(state: &Path, public: &Public, token_file: &Path) -> anyhow::Result<()> {
    let (scheme, place) = place(public);
    let place = Place { uri: format!("{scheme}://{place}/"), token_file: std::path::absolute(token_file)? };
    Ok(Destination::new(&state.join(FILE))?.replace(serde_json::to_string(&place)?.as_bytes())?)
}

/// The URI of the control plane that this user started on this machine, with its admin token. `None`: there was none.
pub(super) fn find() -> Option<EjfatUri> {
    let text = std::fs::read(state_folder(None).ok()?.join(FILE)).ok()?;
    let place: Place = serde_json::from_slice(&text).ok()?;
    let token = std::fs::read_to_string(place.token_file).ok()?;
    let uri: EjfatUri = place.uri.parse().ok()?;
    Some(EjfatUri { token: Some(token.trim().to_owned()), ..uri })
}
