//! Passes each call to its service. A call without a known token is refused before its message is read.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ejfat_control::request::Caller;
use http_body_util::BodyExt as _;
use naa_grpc::{HttpResponse, connections::Requests};
use proto::{
    health::v1::health_server::{self, HealthServer},
    loadbalancer::load_balancer_server::{self, LoadBalancerServer},
};
use tokio::sync::oneshot;
use tonic::{Code, Status, body::Body, codegen::BoxFuture};
use tower_service::Service;

use super::{Api, health::Health, status, token};
use crate::sources::{Held, Sources};

/// The most bytes of a message.
const MOST: usize = 32 << 10;
/// The most bytes of a message of a long call. Slot demands of all worker sessions of a site fit into it.
const MOST_OF_LARGE: usize = 1 << 20;
/// The connection of a client ends if the client has not taken a long reply within this time.
const TAKEN: Duration = Duration::from_secs(20);

/// Calls whose messages or replies may be long. [`Sources`] limits how many of them one source network has in progress.
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

    /// Checks the token of a call. A source network that shows wrong tokens too often also loses its connection.
    ///
    /// # Errors
    /// The status with which the call is refused.
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

    fn serve(&mut self, request: http::Request<Body>) -> BoxFuture<HttpResponse, Infallible> {
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
                served.await.map(without_internal)
            });
        }
        let Some(held) = self.sources.hold(connection.as_ref().and_then(Requests::peer)) else {
            return answer(Status::resource_exhausted(
                "too many long calls of your address are in progress; take their replies, or try again",
            ));
        };
        let served = self.large.call(request);
        Box::pin(async move {
            let _in_progress = in_progress;
            let cut = connection.map(cut_later);
            Ok(without_internal(served.await?).map(|body| until_taken(body, held, cut)))
        })
    }
}

/// tonic answers a message that cannot be decoded with `INTERNAL`. It is the caller's mistake, so this turns the code into
/// `INVALID_ARGUMENT`. The service itself never uses `INTERNAL`.
fn without_internal(answer: HttpResponse) -> HttpResponse {
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() == Code::Internal => Status::invalid_argument(format!(
            "the message is not a request of this call: {}",
            status.message()
        ))
        .into_http(),
        _ => answer,
    }
}

fn answer(refused: Status) -> BoxFuture<HttpResponse, Infallible> {
    Box::pin(std::future::ready(Ok(refused.into_http())))
}

/// Ends the connection after [`TAKEN`], unless the returned value is dropped before.
fn cut_later(connection: Requests) -> oneshot::Sender<()> {
    let (taken, is_taken) = oneshot::channel();
    tokio::spawn(async move {
        if tokio::time::timeout(TAKEN, is_taken).await.is_err() {
            tracing::debug!("a client did not take a long reply in time; its connection ends");
            connection.end();
        }
    });
    taken
}

/// Keeps `held` and `cut` until the body is sent.
fn until_taken(body: Body, held: Held, cut: Option<oneshot::Sender<()>>) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _kept = (&held, &cut);
        frame
    }))
}

impl Service<http::Request<Body>> for Router {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = BoxFuture<HttpResponse, Infallible>;

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
