//! A control plane on a real socket for tests. It keeps sessions and senders; a test can let it refuse calls, answer late, stop, and
//! start again with or without its sessions.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use ejfat_client::messages::{
    AddSendersReply, AddSendersRequest, ChainLoadBalancerReply, ChainLoadBalancerRequest, CreateTokenReply,
    CreateTokenRequest, DeregisterReply, DeregisterRequest, ExtendReservationReply, ExtendReservationRequest,
    FreeLoadBalancerReply, FreeLoadBalancerRequest, GetChainGraphReply, GetChainGraphRequest,
    GetLoadBalancerRequest, ListChildTokensReply, ListChildTokensRequest, ListTokenPermissionsReply,
    ListTokenPermissionsRequest, LoadBalancerStatusReply, LoadBalancerStatusRequest, OverviewReply,
    OverviewRequest, RegisterReply, RegisterRequest, RemoveSendersReply, RemoveSendersRequest,
    ReserveLoadBalancerReply, ReserveLoadBalancerRequest, ResetLoadBalancerReply, ResetLoadBalancerRequest,
    RevokeTokenReply, RevokeTokenRequest, SendStateReply, SendStateRequest, SetSlotDemandsReply,
    SetSlotDemandsRequest, TimeseriesRequest, TimeseriesResponse, TokenDetails, UnchainLoadBalancerReply,
    UnchainLoadBalancerRequest, VersionReply, VersionRequest, WorkerStatus,
    load_balancer_server::{LoadBalancer, LoadBalancerServer},
};
use naa_grpc::{GrpcServer, GrpcServerConfig, ServerTls};
use tonic::{Code, Request, Response, Status};

/// The token with all rights.
pub(crate) const TOKEN: &str = "the-token";

/// A worker session, with what the worker reported.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) registered: RegisterRequest,
    pub(crate) states: Vec<(Instant, SendStateRequest)>,
    pub(crate) ended: Option<Instant>,
    /// Since when the worker has been not ready, if it is.
    unready: Option<Instant>,
}

impl Session {
    pub(crate) fn newest(&self) -> &SendStateRequest {
        &self.states.last().expect("it told its state").1
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) senders: BTreeSet<String>,
    /// The names of all calls, in order.
    pub(crate) calls: Vec<&'static str>,
    /// The calls that are refused, with status and message.
    refusals: BTreeMap<&'static str, (Code, String)>,
    /// The calls that are answered late, with the delay of each.
    slow: BTreeMap<&'static str, Duration>,
    /// Tokens that are known, and have the right to `Version` only.
    weak: BTreeSet<String>,
    pub(crate) reservation: ReserveLoadBalancerReply,
    next: u64,
    /// How long a worker keeps its slots after it reported that it is not ready.
    pub(crate) look_ahead: Duration,
    /// Whether the status has no session ids, as that of older control planes.
    pub(crate) without_ids: bool,
}

impl State {
    pub(crate) fn live(&self) -> Vec<&Session> {
        self.sessions.values().filter(|session| session.ended.is_none()).collect()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|name| **name == call).count()
    }
}

/// The control plane of a test. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site(Arc<Mutex<State>>);

impl Site {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn refuse(&self, call: &'static str, code: Code, why: &str) {
        self.state().refusals.insert(call, (code, why.to_owned()));
    }

    pub(crate) fn accept(&self, call: &'static str) {
        self.state().refusals.remove(call);
    }

    pub(crate) fn slow(&self, call: &'static str, by: Duration) {
        self.state().slow.insert(call, by);
    }

    pub(crate) fn know_weak(&self, token: &str) {
        self.state().weak.insert(token.to_owned());
    }

    /// A new one, which is served without TLS.
    pub(crate) fn served() -> (Self, GrpcServer) {
        let site = Self::default();
        let server = site.serve(0, None);
        (site, server)
    }

    /// Serves it on a port of loopback; with port 0 the Linux kernel chooses one.
    pub(crate) fn serve(&self, port: u16, tls: Option<ServerTls>) -> GrpcServer {
        self.serve_at((Ipv4Addr::LOCALHOST, port).into(), tls)
    }

    pub(crate) fn serve_at(&self, at: SocketAddr, tls: Option<ServerTls>) -> GrpcServer {
        let begin = Instant::now();
        loop {
            let tls = tls.clone();
            let config = GrpcServerConfig { connections: 64, streams: 64, threads: 1, permits: None, tls };
            match naa_grpc::serve(config, at, LoadBalancerServer::new(self.clone())) {
                Ok(server) => return server,
                // A server that has just been dropped may still have the port.
                Err(error) if begin.elapsed() > Duration::from_secs(5) => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Returns the URI of a server, with a token and reservation 1.
    pub(crate) fn uri(server: &GrpcServer, token: &str) -> String {
        format!("ejfat://{token}@{}/lb/1", server.address())
    }

    /// Records a call, and returns its token, or refuses the call.
    async fn enter<T>(&self, call: &'static str, request: &Request<T>) -> Result<String, Status> {
        let token = request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let (refusal, slow) = {
            let mut state = self.state();
            state.calls.push(call);
            (state.refusals.get(call).cloned(), state.slow.get(call).copied())
        };
        if let Some(slow) = slow {
            tokio::time::sleep(slow).await;
        }
        if let Some((code, why)) = refusal {
            return Err(Status::new(code, why));
        }
        let token = token.ok_or_else(|| Status::unauthenticated("the call has no token"))?;
        let token = token.strip_prefix("Bearer ").ok_or_else(|| Status::invalid_argument("no Bearer"))?;
        let state = self.state();
        if state.weak.contains(token) && call != "Version" {
            return Err(Status::permission_denied("the token has no right to this"));
        }
        let session = token.strip_prefix("session-").and_then(|id| id.parse().ok());
        let is_live =
            session.and_then(|id| state.sessions.get(&id)).is_some_and(|session| session.ended.is_none());
        if token == TOKEN || is_live || state.weak.contains(token) {
            Ok(token.to_owned())
        } else {
            Err(Status::permission_denied("the token is unknown"))
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(reply: T) -> Answer<T> {
    Ok(Response::new(reply))
}

fn number(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| Status::invalid_argument(format!("{text:?} is no number")))
}

#[tonic::async_trait]
impl LoadBalancer for Site {
    async fn reserve_load_balancer(
        &self,
        request: Request<ReserveLoadBalancerRequest>,
    ) -> Answer<ReserveLoadBalancerReply> {
        self.enter("Reserve", &request).await?;
        answer(ReserveLoadBalancerReply {
            token: TOKEN.into(),
            lb_id: "1".into(),
            ..self.state().reservation.clone()
        })
    }

    async fn get_load_balancer(
        &self,
        request: Request<GetLoadBalancerRequest>,
    ) -> Answer<ReserveLoadBalancerReply> {
        self.enter("Get", &request).await?;
        answer(self.state().reservation.clone())
    }

    async fn load_balancer_status(
        &self,
        request: Request<LoadBalancerStatusRequest>,
    ) -> Answer<LoadBalancerStatusReply> {
        self.enter("Status", &request).await?;
        let state = self.state();
        let live = state.sessions.iter().filter(|(_, session)| session.ended.is_none());
        let workers = live.map(|(id, session)| {
            let over = session.unready.is_some_and(|at| at.elapsed() >= state.look_ahead);
            WorkerStatus {
                session_id: if state.without_ids { 0 } else { *id as i64 },
                ip_address: session.registered.ip_address.clone(),
                udp_port: session.registered.udp_port,
                slots_assigned: if over { 0 } else { 512 },
                ..Default::default()
            }
        });
        let sender_addresses = state.senders.iter().cloned().collect();
        answer(LoadBalancerStatusReply { workers: workers.collect(), sender_addresses, ..Default::default() })
    }

    async fn free_load_balancer(
        &self,
        request: Request<FreeLoadBalancerRequest>,
    ) -> Answer<FreeLoadBalancerReply> {
        self.enter("Free", &request).await?;
        answer(FreeLoadBalancerReply {})
    }

    async fn reset_load_balancer(
        &self,
        request: Request<ResetLoadBalancerRequest>,
    ) -> Answer<ResetLoadBalancerReply> {
        self.enter("Reset", &request).await?;
        let ResetLoadBalancerRequest { sync, epochs, senders, workers, .. } = request.into_inner();
        answer(ResetLoadBalancerReply { sync, epochs, senders, workers })
    }

    async fn extend_reservation(
        &self,
        request: Request<ExtendReservationRequest>,
    ) -> Answer<ExtendReservationReply> {
        self.enter("Extend", &request).await?;
        answer(ExtendReservationReply { until: request.into_inner().until })
    }

    async fn add_senders(&self, request: Request<AddSendersRequest>) -> Answer<AddSendersReply> {
        self.enter("AddSenders", &request).await?;
        self.state().senders.extend(request.into_inner().sender_addresses);
        answer(AddSendersReply {})
    }

    async fn remove_senders(&self, request: Request<RemoveSendersRequest>) -> Answer<RemoveSendersReply> {
        self.enter("RemoveSenders", &request).await?;
        for sender in request.into_inner().sender_addresses {
            self.state().senders.remove(&sender);
        }
        answer(RemoveSendersReply {})
    }

    async fn register(&self, request: Request<RegisterRequest>) -> Answer<RegisterReply> {
        self.enter("Register", &request).await?;
        let registered = request.into_inner();
        let mut state = self.state();
        let same = |of: &RegisterRequest| {
            (&of.ip_address, of.udp_port) == (&registered.ip_address, registered.udp_port)
        };
        if state.live().iter().any(|session| same(&session.registered)) {
            return Err(Status::already_exists("another session has ports of this worker"));
        }
        state.next += 1;
        let id = state.next;
        let session = Session { registered, states: Vec::new(), ended: None, unready: None };
        state.sessions.insert(id, session);
        answer(RegisterReply { token: format!("session-{id}"), session_id: id.to_string() })
    }

    async fn set_slot_demands(&self, request: Request<SetSlotDemandsRequest>) -> Answer<SetSlotDemandsReply> {
        self.enter("SetSlotDemands", &request).await?;
        answer(SetSlotDemandsReply {})
    }

    async fn deregister(&self, request: Request<DeregisterRequest>) -> Answer<DeregisterReply> {
        self.enter("Deregister", &request).await?;
        let id = number(&request.into_inner().session_id)?;
        let mut state = self.state();
        let session = state.sessions.get_mut(&id).ok_or_else(|| Status::not_found("no such session"))?;
        session.ended.get_or_insert(Instant::now());
        answer(DeregisterReply {})
    }

    async fn send_state(&self, request: Request<SendStateRequest>) -> Answer<SendStateReply> {
        let token = self.enter("SendState", &request).await?;
        let request = request.into_inner();
        assert_eq!(
            token,
            format!("session-{}", request.session_id),
            "a state comes with its session's token"
        );
        let mut state = self.state();
        let session = state.sessions.get_mut(&number(&request.session_id)?);
        let session = session.ok_or_else(|| Status::not_found("no such session"))?;
        if request.is_ready {
            session.unready = None;
        } else {
            session.unready.get_or_insert(Instant::now());
        }
        session.states.push((Instant::now(), request));
        answer(SendStateReply {})
    }

    async fn overview(&self, request: Request<OverviewRequest>) -> Answer<OverviewReply> {
        self.enter("Overview", &request).await?;
        answer(OverviewReply::default())
    }

    async fn timeseries(&self, request: Request<TimeseriesRequest>) -> Answer<TimeseriesResponse> {
        self.enter("Timeseries", &request).await?;
        answer(TimeseriesResponse { since: request.into_inner().since, ..Default::default() })
    }

    async fn version(&self, request: Request<VersionRequest>) -> Answer<VersionReply> {
        self.enter("Version", &request).await?;
        answer(VersionReply { compat_tag: "scripted".into(), ..Default::default() })
    }

    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Answer<CreateTokenReply> {
        self.enter("CreateToken", &request).await?;
        answer(CreateTokenReply { token: format!("for-{}", request.into_inner().name), ..Default::default() })
    }

    async fn list_token_permissions(
        &self,
        request: Request<ListTokenPermissionsRequest>,
    ) -> Answer<ListTokenPermissionsReply> {
        self.enter("ListTokenPermissions", &request).await?;
        answer(ListTokenPermissionsReply { token: Some(TokenDetails { id: 3, ..Default::default() }) })
    }

    async fn list_child_tokens(
        &self,
        request: Request<ListChildTokensRequest>,
    ) -> Answer<ListChildTokensReply> {
        self.enter("ListChildTokens", &request).await?;
        answer(ListChildTokensReply { tokens: vec![TokenDetails::default(); 2] })
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Answer<RevokeTokenReply> {
        self.enter("RevokeToken", &request).await?;
        answer(RevokeTokenReply {})
    }

    async fn chain_load_balancer(
        &self,
        _: Request<ChainLoadBalancerRequest>,
    ) -> Answer<ChainLoadBalancerReply> {
        Err(Status::unimplemented("no chains"))
    }

    async fn unchain_load_balancer(
        &self,
        _: Request<UnchainLoadBalancerRequest>,
    ) -> Answer<UnchainLoadBalancerReply> {
        Err(Status::unimplemented("no chains"))
    }

    async fn get_chain_graph(&self, _: Request<GetChainGraphRequest>) -> Answer<GetChainGraphReply> {
        answer(GetChainGraphReply::default())
    }
}

/// Waits until `is_so` returns true, and panics after 20 seconds.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}: not so after 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
