//! The far ends: the control plane, and the bare gRPC server.

use std::{
    convert::Infallible,
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process,
    task::{Context, Poll},
    thread,
};

use anyhow::Context as _;
use ejfat_cp::{Daemon, settings::Settings};
use proto::loadbalancer::{SendStateReply, SendStateRequest};
use roce_udp::free_loopback;
use tokio::runtime::Builder;
use tonic::{Request, Response, Status, body::Body, server, transport};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{Server, TOKEN};
use crate::sides::Running;

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

type Codec = ProstCodec<SendStateReply, SendStateRequest>;
type Answer<T, E> = std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The method `SendState`, which replies with an empty message.
#[derive(Clone, Debug)]
struct Nothing;

impl Service<Request<SendStateRequest>> for Nothing {
    type Response = Response<SendStateReply>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<SendStateRequest>) -> Self::Future {
        std::future::ready(Ok(Response::new(SendStateReply {})))
    }
}

/// A service that calls [`Nothing`] for each path.
#[derive(Clone, Debug)]
struct Echo;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(server::Grpc::new(Codec::default()).unary(Nothing, request).await) })
    }
}

/// The bare gRPC server, with as many threads as the control plane has.
fn serve_echo() -> anyhow::Result<(SocketAddr, Running)> {
    // The listener is dropped at once: it only finds a free port.
    let address = TcpListener::bind((free_loopback()?, 0))?.local_addr()?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start tokio")?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        let serving = transport::Server::builder().tcp_nodelay(true).serve(address, Echo);
        if let Err(error) = runtime.block_on(serving) {
            eprintln!("naa: the gRPC server: {error}");
        }
    })?;
    Ok((address, Box::new(())))
}
