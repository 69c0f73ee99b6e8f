//! The service `loadbalancer.LoadBalancer`. It turns messages into requests, replies into messages, and refusals into gRPC
//! status codes.

mod health;
mod replies;
mod requests;
mod router;

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use ejfat_control::{
    request::{Caller, Refusal, Reply, Request as ControlRequest},
    wall::WallTime,
};
use http::HeaderMap;
use naa_grpc::{HttpResponse, SCHEME, connections::Requests};
use proto::loadbalancer::{self as pb, load_balancer_server::LoadBalancer};
use tokio::sync::Semaphore;
use tonic::{Code, Request, Response, Status, body::Body};
use tower_service::Service;

pub use requests::decode;

use crate::{
    core::{Core, Refused, wall},
    series::{SINCE, TooMuch},
};

/// The address at which clients find the control plane. It is written into the EJFAT URIs of replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Public {
    /// True if clients must use TLS, so that the scheme of URIs is `ejfats`.
    pub tls: bool,
    /// The host name or IP address of the control plane, as it is written into URIs.
    pub host: String,
    /// The TCP port of the control plane.
    pub port: u16,
}

/// Makes the service for [`naa_grpc::serve`]. Replies with an EJFAT URI wait until `public` is set.
pub fn service(
    core: &Arc<Core>,
    public: Arc<OnceLock<Public>>,
) -> impl Service<http::Request<Body>, Response = HttpResponse, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    router::Router::new(Api { core: core.clone(), public, reads_series: Arc::new(Semaphore::new(1)) })
}

#[derive(Clone)]
struct Api {
    core: Arc<Core>,
    public: Arc<OnceLock<Public>>,
    /// Lets only one call at a time read time series. It reads them on a thread of its own, so that other calls are not delayed.
    reads_series: Arc<Semaphore>,
}

type Result_<T> = Result<Response<T>, Status>;

impl Api {
    /// Carries out a request that was made from a message.
    async fn ask<M>(
        &self,
        request: &Request<M>,
        asked: Result<ControlRequest, Refusal>,
    ) -> Result<Reply, Status> {
        let connection = request.extensions().get::<Requests>();
        let token = token(request.metadata().as_ref())?;
        let caller = Caller { token, peer: connection.and_then(Requests::peer) };
        let asked = asked.map_err(|refusal| status(refusal.into()))?;
        self.core.request(caller, &asked).await.map_err(status)
    }

    /// Carries out a request whose reply has no content.
    async fn done<M, R: Default>(
        &self,
        request: &Request<M>,
        asked: Result<ControlRequest, Refusal>,
    ) -> Result_<R> {
        self.ask(request, asked).await.map(|_| Response::new(R::default()))
    }
}

/// Returns the token in the headers of a call, or `None` if the call has none.
fn token(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(value) = headers.get("authorization") else { return Ok(None) };
    let text = value
        .to_str()
        .ok()
        .and_then(|text| text.as_bytes().strip_prefix(SCHEME).map(|_| &text[SCHEME.len()..]));
    text.map(Some).ok_or_else(|| {
        Status::invalid_argument(
            "the metadata `authorization` is not `Bearer <token>`, with one space between them",
        )
    })
}

fn status(refused: Refused) -> Status {
    let why = refused.to_string();
    match refused {
        Refused::Refusal(refusal) => Status::new(Code::from_i32(refusal.kind.code()), why),
        Refused::Busy => Status::resource_exhausted(why),
        Refused::Store(_) | Refused::Ending | Refused::Replaced => Status::unavailable(why),
    }
}

/// The status when the control plane's reply is not of the kind that belongs to the request. That is a bug.
fn other() -> Status {
    // This must not be `INTERNAL`, because the router takes that code for a message that cannot be decoded.
    Status::unknown("the control plane made a reply of the wrong kind; please report this bug")
}

#[tonic::async_trait]
impl LoadBalancer for Api {
    async fn reserve_load_balancer(
        &self,
        request: Request<pb::ReserveLoadBalancerRequest>,
    ) -> Result_<pb::ReserveLoadBalancerReply> {
        let Reply::Reserved(reserved) = self.ask(&request, requests::reserve(request.get_ref())).await?
        else {
            return Err(other());
        };
        Ok(Response::new(replies::reserved(&reserved, Some(self.public.wait()))))
    }

    async fn get_load_balancer(
        &self,
        request: Request<pb::GetLoadBalancerRequest>,
    ) -> Result_<pb::ReserveLoadBalancerReply> {
        let asked = Ok(ControlRequest::Get(requests::name(&request.get_ref().lb_id)));
        let Reply::Reserved(reserved) = self.ask(&request, asked).await? else { return Err(other()) };
        Ok(Response::new(replies::reserved(&reserved, None)))
    }

    async fn load_balancer_status(
        &self,
        request: Request<pb::LoadBalancerStatusRequest>,
    ) -> Result_<pb::LoadBalancerStatusReply> {
        let id = &request.get_ref().lb_id;
        let Reply::Status(of) = self.ask(&request, Ok(ControlRequest::Status(requests::name(id)))).await?
        else {
            return Err(other());
        };
        let lb = self.core.look(|control, _| {
            let id = id.parse().ok()?;
            control.registry().durable().reservation(id).map(|reservation| reservation.lb)
        });
        Ok(Response::new(replies::status(&self.core, lb, &of)))
    }

    async fn free_load_balancer(
        &self,
        request: Request<pb::FreeLoadBalancerRequest>,
    ) -> Result_<pb::FreeLoadBalancerReply> {
        self.done(&request, Ok(ControlRequest::Free(requests::name(&request.get_ref().lb_id)))).await
    }

    async fn reset_load_balancer(
        &self,
        request: Request<pb::ResetLoadBalancerRequest>,
    ) -> Result_<pb::ResetLoadBalancerReply> {
        let asked = Ok(requests::reset(request.get_ref()));
        let Reply::Reset { sync, epochs, senders, workers } = self.ask(&request, asked).await? else {
            return Err(other());
        };
        Ok(Response::new(pb::ResetLoadBalancerReply { sync, epochs, senders, workers }))
    }

    async fn extend_reservation(
        &self,
        request: Request<pb::ExtendReservationRequest>,
    ) -> Result_<pb::ExtendReservationReply> {
        let Reply::Extended { until } = self.ask(&request, requests::extend(request.get_ref())).await? else {
            return Err(other());
        };
        // UNIX time 0 stands for a reservation without an end, as in requests.
        let until = Some(replies::timestamp(until.unwrap_or(WallTime(0))));
        Ok(Response::new(pb::ExtendReservationReply { until }))
    }

    async fn add_senders(&self, request: Request<pb::AddSendersRequest>) -> Result_<pb::AddSendersReply> {
        let pb::AddSendersRequest { lb_id, sender_addresses } = request.get_ref();
        self.done(&request, Ok(ControlRequest::AddSenders(requests::senders(lb_id, sender_addresses)))).await
    }

    async fn remove_senders(
        &self,
        request: Request<pb::RemoveSendersRequest>,
    ) -> Result_<pb::RemoveSendersReply> {
        let pb::RemoveSendersRequest { lb_id, sender_addresses } = request.get_ref();
        self.done(&request, Ok(ControlRequest::RemoveSenders(requests::senders(lb_id, sender_addresses))))
            .await
    }

    async fn register(&self, request: Request<pb::RegisterRequest>) -> Result_<pb::RegisterReply> {
        let Reply::Registered(worker) = self.ask(&request, requests::register(request.get_ref())).await?
        else {
            return Err(other());
        };
        let (token, session_id) = (worker.token.as_str().to_owned(), worker.session.to_string());
        Ok(Response::new(pb::RegisterReply { token, session_id }))
    }

    async fn set_slot_demands(
        &self,
        request: Request<pb::SetSlotDemandsRequest>,
    ) -> Result_<pb::SetSlotDemandsReply> {
        self.done(&request, Ok(requests::slot_demands(request.get_ref()))).await
    }

    async fn deregister(&self, request: Request<pb::DeregisterRequest>) -> Result_<pb::DeregisterReply> {
        self.done(&request, Ok(requests::deregister(request.get_ref()))).await
    }

    async fn send_state(&self, request: Request<pb::SendStateRequest>) -> Result_<pb::SendStateReply> {
        self.done(&request, Ok(requests::state(request.get_ref()))).await
    }

    async fn overview(&self, request: Request<pb::OverviewRequest>) -> Result_<pb::OverviewReply> {
        let Reply::Overview(all) = self.ask(&request, Ok(ControlRequest::Overview)).await? else {
            return Err(other());
        };
        let of = |of: &_| replies::overview(&self.core, of);
        Ok(Response::new(pb::OverviewReply { load_balancers: all.iter().map(of).collect() }))
    }

    async fn timeseries(&self, request: Request<pb::TimeseriesRequest>) -> Result_<pb::TimeseriesResponse> {
        let Reply::Readable { reservations, .. } = self.ask(&request, Ok(ControlRequest::Timeseries)).await?
        else {
            return Err(other());
        };
        let pb::TimeseriesRequest { series_selector, since } = request.get_ref();
        let since = match since {
            Some(since) => requests::wall_time(since).map_err(|refusal| status(refusal.into()))?,
            None => WallTime(wall().0.saturating_sub(SINCE.as_millis() as u64)),
        };
        let (core, selectors) = (self.core.clone(), series_selector.clone());
        let permit = self.reads_series.clone().acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let series = core.select(&selectors, since, |id| reservations.contains(&id));
            series.map(|all| all.into_iter().map(replies::series).collect())
        });
        let timeseries = read.await.map_err(|_| other())?.map_err(|why| match why {
            TooMuch::Selectors => Status::invalid_argument(why.to_string()),
            TooMuch::Samples => Status::resource_exhausted(why.to_string()),
        })?;
        Ok(Response::new(pb::TimeseriesResponse { timeseries, since: Some(replies::timestamp(since)) }))
    }

    async fn version(&self, request: Request<pb::VersionRequest>) -> Result_<pb::VersionReply> {
        self.ask(&request, Ok(ControlRequest::Version)).await?;
        Ok(Response::new(replies::version()))
    }

    async fn create_token(&self, request: Request<pb::CreateTokenRequest>) -> Result_<pb::CreateTokenReply> {
        let asked = requests::create_token(request.get_ref());
        let Reply::Token(created) = self.ask(&request, asked).await? else { return Err(other()) };
        Ok(Response::new(replies::token(&created, self.public.wait())))
    }

    async fn list_token_permissions(
        &self,
        request: Request<pb::ListTokenPermissionsRequest>,
    ) -> Result_<pb::ListTokenPermissionsReply> {
        let target =
            requests::selector(request.get_ref().target.as_ref()).map(ControlRequest::ListTokenPermissions);
        let Reply::TokenDetails(of) = self.ask(&request, target).await? else { return Err(other()) };
        Ok(Response::new(pb::ListTokenPermissionsReply { token: Some(replies::details(&of)) }))
    }

    async fn list_child_tokens(
        &self,
        request: Request<pb::ListChildTokensRequest>,
    ) -> Result_<pb::ListChildTokensReply> {
        let target =
            requests::selector(request.get_ref().target.as_ref()).map(ControlRequest::ListChildTokens);
        let Reply::ChildTokens(all) = self.ask(&request, target).await? else { return Err(other()) };
        Ok(Response::new(pb::ListChildTokensReply { tokens: all.iter().map(replies::details).collect() }))
    }

    async fn revoke_token(&self, request: Request<pb::RevokeTokenRequest>) -> Result_<pb::RevokeTokenReply> {
        let target = requests::selector(request.get_ref().target.as_ref()).map(ControlRequest::RevokeToken);
        self.done(&request, target).await
    }

    async fn chain_load_balancer(
        &self,
        request: Request<pb::ChainLoadBalancerRequest>,
    ) -> Result_<pb::ChainLoadBalancerReply> {
        self.ask(&request, Ok(ControlRequest::Chain(requests::name(&request.get_ref().lb_id)))).await?;
        Err(no_chains())
    }

    async fn unchain_load_balancer(
        &self,
        request: Request<pb::UnchainLoadBalancerRequest>,
    ) -> Result_<pb::UnchainLoadBalancerReply> {
        self.ask(&request, Ok(ControlRequest::Unchain(requests::name(&request.get_ref().lb_id)))).await?;
        Err(no_chains())
    }

    async fn get_chain_graph(
        &self,
        request: Request<pb::GetChainGraphRequest>,
    ) -> Result_<pb::GetChainGraphReply> {
        self.done(&request, Ok(ControlRequest::GetChainGraph(requests::name(&request.get_ref().lb_id)))).await
    }
}

fn no_chains() -> Status {
    Status::unimplemented("this control plane has no chains of load balancers; register workers with each")
}
