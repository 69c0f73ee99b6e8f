//! Gives calls to their services. Whoever shows no known token is refused before a byte of the message is read.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ejfat_control::request::Caller;
use http_body_util::BodyExt as _;
use naa_grpc::{Answer, connections::Requests};
use proto::{
    health::v1::health_server::{self, HealthServer},
    loadbalancer::load_balancer_server::{self, LoadBalancerServer},
};
use tokio::sync::oneshot;
use tonic::{Code, Status, body::Body, codegen::BoxFuture};
use tower_service::Service;

use super::{Api, health::Health, status, token};
use crate::sources::{Held, Sources};

/// Bytes of a request at most; of one with slot demands of all sessions of a site.
const MOST: usize = 32 << 10;
const MOST_OF_LARGE: usize = 1 << 20;
/// A client that has not taken a long reply after this time loses its connection.
const TAKEN: Duration = Duration::from_secs(20);

/// Calls whose messages or replies may be long: of each source only so many are under way.
const LONG: [&str; 5] = ["Timeseries", "Overview", "LoadBalancerStatus", "ListChildTokens", "SetSlotDemands"];

#[derive(Clone)]
pub(super) struct Router {
    of: Api,
    api: LoadBalancerServer<Api>,
    large: LoadBalancerServer<Api>,
    health: HealthServer<Health>,
    sources: Arc<Sources>,
}

impl Router {
    pub(super) fn new(api: Api) -> Self {
        let server = LoadBalancerServer::new(api.clone());
        Self {
            health: HealthServer::new(Health(api.core.clone())).max_decoding_message_size(MOST),
            large: server.clone().max_decoding_message_size(MOST_OF_LARGE),
            api: server.max_decoding_message_size(MOST),
            of: api,
            sources: Arc::default(),
        }
    }

    /// Refuses whoever shows no known token.
    fn check(&self, request: &http::Request<Body>, connection: Option<&Requests>) -> Result<(), Status> {
        let peer = connection.and_then(Requests::peer);
        let known = |token| self.of.core.check_caller(Caller { token, peer }).map_err(status);
        token(request.headers()).and_then(known).inspect_err(|_| {
            if peer.is_some_and(|peer| !self.sources.may_be_refused(peer))
                && let Some(connection) = connection
            {
                connection.end_stranger();
            }
        })
    }

    fn serve(&mut self, request: http::Request<Body>) -> BoxFuture<Answer, Infallible> {
        let connection = request.extensions().get::<Requests>().cloned();
        if let Err(refused) = self.check(&request, connection.as_ref()) {
            return answer(refused);
        }
        let in_progress = connection.as_ref().map(Requests::begin);
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        if !LONG.contains(&method) {
            let served = self.api.call(request);
            return Box::pin(async move {
                let _in_progress = in_progress;
                served.await.map(told_apart)
            });
        }
        let Some(held) = self.sources.hold(connection.as_ref().and_then(Requests::peer)) else {
            return answer(Status::resource_exhausted(
                "too many long calls of your address are under way; take their replies, or try again",
            ));
        };
        let served = self.large.call(request);
        Box::pin(async move {
            let _in_progress = in_progress;
            let cut = connection.map(cut_later);
            Ok(told_apart(served.await?).map(|body| until_taken(body, held, cut)))
        })
    }
}

/// What is no message of the call is the caller's mistake. The library below calls it an error of the server's, which has no
/// others.
fn told_apart(answer: Answer) -> Answer {
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() == Code::Internal => {
            Status::invalid_argument(format!("this is no request of the call: {}", status.message()))
                .into_http()
        }
        _ => answer,
    }
}

fn answer(refused: Status) -> BoxFuture<Answer, Infallible> {
    Box::pin(std::future::ready(Ok(refused.into_http())))
}

/// Ends the connection in a while, unless what is returned is dropped before.
fn cut_later(connection: Requests) -> oneshot::Sender<()> {
    let (taken, is_taken) = oneshot::channel();
    tokio::spawn(async move {
        if tokio::time::timeout(TAKEN, is_taken).await.is_err() {
            tracing::debug!("a client takes its reply too slowly; its connection ends");
            connection.end();
        }
    });
    taken
}

fn until_taken(body: Body, held: Held, cut: Option<oneshot::Sender<()>>) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _kept = (&held, &cut);
        frame
    }))
}

impl Service<http::Request<Body>> for Router {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<Answer, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path().split('/').nth(1) {
            Some(load_balancer_server::SERVICE_NAME) => self.serve(request),
            Some(health_server::SERVICE_NAME) => self.health.call(request),
            _ => {
                let name = load_balancer_server::SERVICE_NAME;
                answer(Status::unimplemented(format!("no such service; there is {name}")))
            }
        }
    }
}
