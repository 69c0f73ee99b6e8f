//! Clients that each send a state as soon as the one before is answered.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use proto::loadbalancer::SendStateRequest;
use tokio::{runtime::Runtime, task::JoinSet};
use tonic::metadata::AsciiMetadataValue;

use super::{
    Server, TOKEN,
    calls::{self, Client},
};
use crate::{
    side::{Effort, Measure, Work},
    sides::grpc,
};

/// A connection, the token of its worker, and the state that it sends again and again.
#[derive(Clone)]
struct Sender {
    client: Client,
    bearer: AsciiMetadataValue,
    state: SendStateRequest,
}

pub(in crate::sides) struct Clients {
    runtime: Runtime,
    senders: Vec<Sender>,
}

impl Clients {
    pub(in crate::sides) fn connect(server: Server, clients: u32, to: SocketAddr) -> anyhow::Result<Self> {
        let runtime = grpc::runtime()?;
        let senders = runtime.block_on(async {
            let admin = calls::bearer(TOKEN)?;
            let mut first = calls::connect(to).await?;
            let lb = match server {
                Server::ControlPlane => Some(calls::reserve(&mut first, &admin, &[]).await?.lb_id),
                Server::Echo => None,
            };
            let mut senders = Vec::new();
            for n in 0..clients {
                let mut client = calls::connect(to).await?;
                let (token, session) = match &lb {
                    None => ("0123456789abcdef0123456789abcdef".to_owned(), n.to_string()),
                    Some(lb) => {
                        let at = SocketAddr::new(to.ip(), 20_000 + n as u16);
                        let worker = calls::register(&mut client, &admin, lb, at).await?;
                        (worker.token, worker.session_id)
                    }
                };
                senders.push(Sender {
                    client,
                    bearer: calls::bearer(&token)?,
                    state: calls::state(&session, 0.5),
                });
            }
            anyhow::Ok(senders)
        })?;
        Ok(Self { runtime, senders })
    }
}

async fn send(mut of: Sender, until: Instant) -> Result<u64, tonic::Status> {
    let mut sent = 0;
    while Instant::now() < until {
        of.client.send_state(calls::with(of.state.clone(), &of.bearer)).await?;
        sent += 1;
    }
    Ok(sent)
}

impl Measure for Clients {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let begin = Instant::now();
        let until = begin + Duration::from_secs_f64(effort.seconds);
        let sent = self.runtime.block_on(async {
            let mut all: JoinSet<_> = self.senders.iter().map(|of| send(of.clone(), until)).collect();
            let mut sum = 0;
            while let Some(sent) = all.join_next().await {
                sum += sent??;
            }
            anyhow::Ok(sum)
        })?;
        Ok(Work { value: sent as f64 / begin.elapsed().as_secs_f64(), amount: sent as f64 })
    }
}
