//! The far ends: the control plane, and the bare gRPC server.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::PathBuf, process};

use anyhow::Context as _;
use ejfat_cp::{Daemon, settings::Settings};
use proto::loadbalancer::{SendStateReply, SendStateRequest};
use roce_udp::free_loopback;
use tokio::runtime::Builder;

use super::{Server, TOKEN};
use crate::sides::{Running, grpc};

pub(in crate::sides) fn serve(of: Server) -> anyhow::Result<(SocketAddr, Running)> {
    match of {
        Server::ControlPlane => serve_control_plane(),
        Server::Echo => serve_echo(),
    }
}

/// A control plane and its folder, which is removed when this is dropped.
struct Site {
    daemon: Option<Daemon>,
    folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.daemon = None;
        // What is left in the folder for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve_control_plane() -> anyhow::Result<(SocketAddr, Running)> {
    let ip = free_loopback()?;
    let folder = std::env::temp_dir().join(format!("naa-bench-lb-{}", process::id()));
    // It must be new: a store that was left over in it would change what is measured.
    let made = fs::create_dir(&folder);
    made.with_context(|| format!("cannot make {}; remove it if it is left over", folder.display()))?;
    let token = folder.join("admin-token");
    fs::write(&token, TOKEN)?;
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600))?;
    let settings = format!("listen: ['{ip}:0']\nload_balancers: [{{ipv4: {ip}}}]");
    let settings = Settings::parse(&settings).map_err(anyhow::Error::msg)?;
    let daemon = Daemon::start(&settings, &folder, 1)?;
    let address = daemon.addresses()[0];
    Ok((address, Box::new(Site { daemon: Some(daemon), folder })))
}

/// The bare gRPC server, with as many threads as the control plane has. Its method replies with an empty message.
fn serve_echo() -> anyhow::Result<(SocketAddr, Running)> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    grpc::serve(runtime.context("cannot start tokio")?, |_: SendStateRequest| SendStateReply {})
}
