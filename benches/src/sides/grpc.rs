//! What the measurements of gRPC share: a server with one method, and the way to it.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use prost::Message;
use roce_udp::free_loopback;
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Request, Response, Status,
    body::Body,
    server,
    transport::{Channel, Endpoint, Server},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{Running, spawn};

/// A method, and the service that calls it for each path.
#[derive(Clone)]
struct Unary<Q, A>(fn(Q) -> A);

impl<Q, A> Service<Request<Q>> for Unary<Q, A> {
    type Response = Response<A>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        std::future::ready(Ok(Response::new((self.0)(request.into_inner()))))
    }
}

impl<Q: Message + Default + 'static, A: Message + 'static> Service<http::Request<Body>> for Unary<Q, A> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Self(self.0);
        Box::pin(
            async move { Ok(server::Grpc::new(ProstCodec::<A, Q>::default()).unary(method, request).await) },
        )
    }
}

/// A runtime of one thread.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start tokio")
}

/// A server with this one method.
pub(super) fn serve<Q, A>(runtime: Runtime, method: fn(Q) -> A) -> anyhow::Result<(SocketAddr, Running)>
where
    Q: Message + Default + Clone + 'static,
    A: Message + Clone + 'static,
{
    // The listener is dropped at once: it only finds a free port.
    let address = TcpListener::bind((free_loopback()?, 0))?.local_addr()?;
    spawn("grpc", "the gRPC server", move || {
        runtime.block_on(Server::builder().tcp_nodelay(true).serve(address, Unary(method)))
    })?;
    Ok((address, Box::new(())))
}

/// Connects to a server, and tries again for two seconds, because it may not listen yet.
pub(super) async fn connect(to: SocketAddr) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{to}"))?.tcp_nodelay(true);
    for _ in 0..200 {
        if let Ok(channel) = endpoint.connect().await {
            return Ok(channel);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    endpoint.connect().await.context("cannot connect to the gRPC server")
}
