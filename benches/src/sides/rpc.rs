//! What a user would take instead: the same call by gRPC, 64 bytes there and back.
//!
//! One thread on either side, as for ours, which is also faster than tokio's thread pool for one caller.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    task::{Context, Poll},
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use http::uri::PathAndQuery;
use roce_udp::free_loopback;
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Request, Response, Status,
    body::Body,
    client, server,
    transport::{Channel, Endpoint, Server},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{Running, call::BYTES, fill::latency};
use crate::side::{Effort, Measure, Work};

const METHOD: &str = "/naa.bench.Accelerator/Increment";

/// `message Region { bytes data = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Region {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

type Codec = ProstCodec<Region, Region>;

type Answer<T, E> = std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The method.
#[derive(Clone, Debug)]
struct Increment;

impl Service<Request<Region>> for Increment {
    type Response = Response<Region>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Region>) -> Self::Future {
        let mut region = request.into_inner();
        naa_server::functions::naaice::increment(1, &mut region.data);
        std::future::ready(Ok(Response::new(region)))
    }
}

/// The service with this one method.
#[derive(Clone, Debug)]
struct Accelerator;

impl Service<http::Request<Body>> for Accelerator {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(server::Grpc::new(Codec::default()).unary(Increment, request).await) })
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start tokio")
}

pub(super) fn serve() -> anyhow::Result<(SocketAddr, Running)> {
    // Only to find a free port.
    let address = TcpListener::bind((free_loopback()?, 0))?.local_addr()?;
    let runtime = runtime()?;
    thread::Builder::new().name("grpc".into()).spawn(move || {
        let serving = Server::builder().tcp_nodelay(true).serve(address, Accelerator);
        if let Err(error) = runtime.block_on(serving) {
            eprintln!("naa: the gRPC server: {error}");
        }
    })?;
    Ok((address, Box::new(())))
}

pub(super) struct Caller {
    runtime: Runtime,
    client: client::Grpc<Channel>,
}

impl Caller {
    pub(super) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let endpoint = Endpoint::from_shared(format!("http://{far}"))?.tcp_nodelay(true);
        let connect = async {
            // The server may not listen yet.
            for _ in 0..200 {
                if let Ok(channel) = endpoint.connect().await {
                    return Ok(channel);
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            endpoint.connect().await
        };
        let channel = runtime.block_on(connect).context("cannot connect to the gRPC server")?;
        Ok(Self { runtime, client: client::Grpc::new(channel) })
    }
}

async fn call(client: &mut client::Grpc<Channel>, data: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    client.ready().await?;
    let path = PathAndQuery::from_static(METHOD);
    let request = Request::new(Region { data });
    let answer = client.unary(request, path, Codec::default()).await?;
    Ok(answer.into_inner().data)
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let Self { runtime, client } = self;
        let mut times = Vec::with_capacity(effort.calls as usize);
        runtime.block_on(async {
            let mut data = vec![0; BYTES];
            for _ in 0..effort.calls {
                let start = Instant::now();
                data = call(client, data).await?;
                times.push(start.elapsed().as_nanos() as u64);
            }
            ensure!(data == [(effort.calls % 256) as u8; BYTES], "wrong result by gRPC");
            Ok(())
        })?;
        Ok(latency(&mut times))
    }
}
