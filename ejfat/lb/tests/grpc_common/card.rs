//! A SmartNIC's agent that writes down what it is told, and does as the firmware's does: the rules of a request one by one, up
//! to the first that it refuses.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    pin::Pin,
    sync::{Arc, Mutex},
    thread,
};

use prost::Message as _;
use proto::sn_p4::v2::{
    BatchRequest, BatchResponse, DeviceInfoRequest, DeviceInfoResponse, ErrorCode, PipelineStatsRequest,
    PipelineStatsResponse, ServerStatusRequest, ServerStatusResponse, Stats, StatsRequest, StatsResponse,
    TableRequest, TableResponse, TableRule, TableRuleRequest, TableRuleResponse, batch_request,
    batch_response,
    smartnic_p4_server::{SmartnicP4, SmartnicP4Server},
};
use tokio::sync::oneshot;
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport};

type GrpcStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type GrpcResult<T> = Result<Response<GrpcStream<T>>, Status>;

/// What it says to a rule that is inserted or deleted. `None`: nothing, for ever.
pub(crate) type Verdict = dyn Fn(&TableRule) -> Option<ErrorCode> + Send + Sync;

#[derive(Default)]
pub(crate) struct AgentLog {
    /// Requests, as bytes.
    pub(crate) requests: Vec<Vec<u8>>,
    /// What calls had in the header `grpc-timeout`.
    pub(crate) timeouts: Vec<String>,
    /// Rules that were inserted or deleted.
    pub(crate) made: usize,
}

#[derive(Clone)]
struct Agent {
    log: Arc<Mutex<AgentLog>>,
    verdict: Arc<Verdict>,
    stats: Stats,
}

pub(crate) struct Card {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<AgentLog>>,
    /// Ends it when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Card {
    pub(crate) fn start(stats: Stats, verdict: Arc<Verdict>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::default();
        let agent = Agent { log: Arc::clone(&log), verdict, stats };
        let (stop, stopped) = oneshot::channel::<()>();
        thread::spawn(move || {
            crate::grpc_common::runtime().block_on(async {
                let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
                let agent = SmartnicP4Server::new(agent);
                let serving = transport::Server::builder().serve_with_incoming(agent, incoming);
                let serving = tokio::spawn(serving);
                // No message comes; the end of the channel tells that the test is over.
                let _ = stopped.await;
                serving.abort();
            });
        });
        Self { address, log, _stop: stop }
    }
}

fn one<T: Send + 'static>(answer: T) -> GrpcResult<T> {
    Ok(Response::new(Box::pin(tokio_stream::iter([Ok(answer)]))))
}

impl Agent {
    fn note<T>(&self, request: &Request<T>) {
        let timeout = request.metadata().get("grpc-timeout").map(|timeout| timeout.to_str().unwrap().into());
        self.log.lock().unwrap().timeouts.extend(timeout);
    }

    fn rules(&self, request: &BatchRequest) -> Option<ErrorCode> {
        let mut log = self.log.lock().unwrap();
        log.requests.push(request.encode_to_vec());
        let Some(batch_request::Item::TableRule(request)) = &request.item else {
            return Some(ErrorCode::EcUnknownBatchRequest);
        };
        for rule in &request.rules {
            match (self.verdict)(rule)? {
                ErrorCode::EcOk => log.made += 1,
                code => return Some(code),
            }
        }
        Some(ErrorCode::EcOk)
    }
}

#[tonic::async_trait]
impl SmartnicP4 for Agent {
    type BatchStream = GrpcStream<BatchResponse>;
    type GetDeviceInfoStream = GrpcStream<DeviceInfoResponse>;
    type GetPipelineStatsStream = GrpcStream<PipelineStatsResponse>;
    type ClearPipelineStatsStream = GrpcStream<PipelineStatsResponse>;
    type ClearTableStream = GrpcStream<TableResponse>;
    type InsertTableRuleStream = GrpcStream<TableRuleResponse>;
    type DeleteTableRuleStream = GrpcStream<TableRuleResponse>;
    type GetStatsStream = GrpcStream<StatsResponse>;
    type GetServerStatusStream = GrpcStream<ServerStatusResponse>;

    /// Answers nothing at all before it has the first request, as the firmware's.
    async fn batch(&self, request: Request<Streaming<BatchRequest>>) -> GrpcResult<BatchResponse> {
        self.note(&request);
        let agent = self.clone();
        let mut requests = request.into_inner();
        let first = requests.message().await?;
        let requests = tokio_stream::iter(first.map(Ok)).chain(requests);
        let answers = requests.then(move |request| {
            let agent = agent.clone();
            async move {
                let request: BatchRequest = request?;
                let Some(code) = agent.rules(&request) else { return std::future::pending().await };
                let item = TableRuleResponse { error_code: code.into(), ..Default::default() };
                Ok(BatchResponse {
                    error_code: ErrorCode::EcOk.into(),
                    op: request.op,
                    item: Some(batch_response::Item::TableRule(item)),
                })
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn clear_table(&self, request: Request<TableRequest>) -> GrpcResult<TableResponse> {
        self.note(&request);
        self.log.lock().unwrap().requests.push(request.into_inner().encode_to_vec());
        one(TableResponse { error_code: ErrorCode::EcOk.into(), ..Default::default() })
    }

    async fn get_pipeline_stats(
        &self,
        request: Request<PipelineStatsRequest>,
    ) -> GrpcResult<PipelineStatsResponse> {
        self.note(&request);
        self.log.lock().unwrap().requests.push(request.into_inner().encode_to_vec());
        let stats = Some(self.stats.clone());
        one(PipelineStatsResponse { error_code: ErrorCode::EcOk.into(), stats, ..Default::default() })
    }

    async fn clear_pipeline_stats(
        &self,
        _: Request<PipelineStatsRequest>,
    ) -> GrpcResult<PipelineStatsResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_device_info(&self, _: Request<DeviceInfoRequest>) -> GrpcResult<DeviceInfoResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn insert_table_rule(&self, _: Request<TableRuleRequest>) -> GrpcResult<TableRuleResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn delete_table_rule(&self, _: Request<TableRuleRequest>) -> GrpcResult<TableRuleResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_stats(&self, _: Request<StatsRequest>) -> GrpcResult<StatsResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_server_status(&self, _: Request<ServerStatusRequest>) -> GrpcResult<ServerStatusResponse> {
        Err(Status::unimplemented("not here"))
    }
}
