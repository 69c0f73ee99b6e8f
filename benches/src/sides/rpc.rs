//! What a user would take instead: the same call by gRPC, 64 bytes there and back.
//!
//! One thread on either side, as for ours, which is also faster than tokio's thread pool for one caller.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::ensure;
use http::uri::PathAndQuery;
use tokio::{runtime::Runtime, task::JoinSet};
use tonic::{Request, client, transport::Channel};
use tonic_prost::ProstCodec;

use super::{Running, call::BYTES, fill::latency, grpc};
use crate::side::{Effort, Measure, Work};

const METHOD: &str = "/naa.bench.Accelerator/Increment";

/// `message Region { bytes data = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Region {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

/// The method.
fn increment(mut region: Region) -> Region {
    naa_server::functions::naaice::increment(1, &mut region.data);
    region
}

pub(super) fn serve() -> anyhow::Result<(SocketAddr, Running)> {
    grpc::serve(grpc::runtime()?, increment)
}

pub(super) struct Caller {
    runtime: Runtime,
    client: client::Grpc<Channel>,
}

impl Caller {
    pub(super) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let runtime = grpc::runtime()?;
        let channel = runtime.block_on(grpc::connect(far))?;
        Ok(Self { runtime, client: client::Grpc::new(channel) })
    }
}

async fn call(client: &mut client::Grpc<Channel>, data: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    client.ready().await?;
    let path = PathAndQuery::from_static(METHOD);
    let request = Request::new(Region { data });
    let answer = client.unary(request, path, ProstCodec::<Region, Region>::default()).await?;
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

/// The calls of several tasks over one HTTP/2 connection.
pub(super) struct Tasks {
    runtime: Runtime,
    channel: Channel,
    count: u32,
}

impl Tasks {
    pub(super) fn connect(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        let runtime = grpc::runtime()?;
        let channel = runtime.block_on(grpc::connect(far))?;
        Ok(Self { runtime, channel, count })
    }
}

impl Measure for Tasks {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let time = Duration::from_secs_f64(effort.seconds);
        let start = Instant::now();
        let calls = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..self.count {
                let mut client = client::Grpc::new(self.channel.clone());
                tasks.spawn(async move {
                    let (mut data, mut calls) = (vec![0; BYTES], 0_u64);
                    while start.elapsed() < time {
                        data = call(&mut client, data).await?;
                        calls += 1;
                    }
                    ensure!(data == [(calls % 256) as u8; BYTES], "wrong result by gRPC");
                    Ok(calls)
                });
            }
            tasks.join_all().await.into_iter().sum::<anyhow::Result<u64>>()
        })?;
        Ok(Work { value: calls as f64 / start.elapsed().as_secs_f64(), amount: calls as f64 })
    }
}
