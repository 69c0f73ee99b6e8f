//! Service `sn_p4.v2.SmartnicP4`: what control planes program SmartNICs by. One device with one pipeline. `client` is the
//! other end.
//!
//! # Source
//! The P4 data plane's tables, actions and counters; the firmware's error codes; what udplbd2 calls.

mod attach;
mod client;
mod encode;
mod filter;
mod inert;
mod names;
mod rule;
mod stats;
mod tables;
mod values;

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use proto::sn_p4::v2::{
    BatchOperation, BatchRequest, BatchResponse, DeviceBuildInfo, DeviceInfo, DeviceInfoRequest,
    DeviceInfoResponse, DevicePciInfo, ErrorCode, PipelineStatsRequest, PipelineStatsResponse, ServerStatus,
    ServerStatusRequest, ServerStatusResponse, StatsRequest, StatsResponse, TableRequest, TableResponse,
    TableRuleRequest, TableRuleResponse, batch_request, batch_response, smartnic_p4_server::SmartnicP4,
};
use tokio_stream::{Iter, Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use verbs::log_limit::LogLimit;

pub use self::client::{
    RuleChange, SmartNicClient, SmartNicCounters, SmartNicError, SmartNicLb, SmartNicMember,
};
use self::{stats::Counting, tables::SmartNicTables};
use crate::SharedDataPlane;

/// One message.
type Single<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

type GrpcResult<T> = Result<Response<Single<T>>, Status>;

#[expect(clippy::unnecessary_wraps, reason = "as the methods of the service return it")]
fn single<T>(message: T) -> GrpcResult<T> {
    Ok(Response::new(tokio_stream::iter(vec![Ok(message)])))
}

/// All its changes are at once.
#[derive(Clone)]
pub(super) struct SmartNicService(Arc<Inner>);

struct Inner {
    tables: SmartNicTables,
    counting: Counting,
    started: (SystemTime, Instant),
    /// Lines of the log that control planes cause.
    log_limit: Mutex<LogLimit<()>>,
}

impl SmartNicService {
    pub(super) fn new(plane: Arc<SharedDataPlane>) -> Self {
        Self(Arc::new(Inner {
            tables: SmartNicTables::new(plane.clone()),
            counting: Counting::new(plane),
            started: (SystemTime::now(), Instant::now()),
            log_limit: Mutex::default(),
        }))
    }
}

/// -1 stands for all.
fn device(id: i32) -> Result<(), ErrorCode> {
    if (-1..1).contains(&id) { Ok(()) } else { Err(ErrorCode::EcInvalidDeviceId) }
}

fn pipeline(device_id: i32, id: i32) -> Result<(), ErrorCode> {
    device(device_id)?;
    if (-1..1).contains(&id) { Ok(()) } else { Err(ErrorCode::EcInvalidPipelineId) }
}

fn code(result: Result<(), ErrorCode>) -> i32 {
    result.err().unwrap_or(ErrorCode::EcOk).into()
}

impl Inner {
    fn logged(&self, what: &str, result: values::Result<()>) -> Result<(), ErrorCode> {
        result.map_err(|refusal| {
            let mut log_limit = self.log_limit.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(left_out) = log_limit.take((), Instant::now()) {
                tracing::warn!(left_out, "refused to {what}: {}", refusal.why);
            }
            refusal.code
        })
    }

    fn table(&self, request: &TableRequest) -> TableResponse {
        let clear = || self.logged("clear", self.tables.clear(&request.table_name));
        let result = pipeline(request.dev_id, request.pipeline_id).and_then(|()| clear());
        TableResponse { error_code: code(result), dev_id: 0, pipeline_id: 0 }
    }

    fn rules(&self, request: &TableRuleRequest, insert: bool) -> TableRuleResponse {
        let change = || match insert {
            true => self.logged("insert", self.tables.insert(&request.rules)),
            false => self.logged("delete", self.tables.delete(&request.rules)),
        };
        let result = pipeline(request.dev_id, request.pipeline_id).and_then(|()| change());
        TableRuleResponse { error_code: code(result), dev_id: 0, pipeline_id: 0 }
    }

    fn device_info(&self, request: DeviceInfoRequest) -> DeviceInfoResponse {
        let result = device(request.dev_id);
        let pci = DevicePciInfo { bus_id: "software".into(), ..Default::default() };
        let build = DeviceBuildInfo { dna: vec![0; 3], ..Default::default() };
        let info = DeviceInfo { pci: Some(pci), build: Some(build) };
        DeviceInfoResponse { error_code: code(result), dev_id: 0, info: result.is_ok().then_some(info) }
    }

    fn pipeline_stats(
        &self,
        request: &PipelineStatsRequest,
        clear: bool,
    ) -> Result<PipelineStatsResponse, Status> {
        let result = pipeline(request.dev_id, request.pipeline_id);
        let mut stats = None;
        if result.is_ok() && clear {
            self.counting.clear(request.filters.as_ref())?;
        } else if result.is_ok() {
            stats = Some(self.counting.read(request.filters.as_ref())?);
        }
        Ok(PipelineStatsResponse { error_code: code(result), dev_id: 0, pipeline_id: 0, stats })
    }

    fn stats(&self, request: &StatsRequest) -> Result<StatsResponse, Status> {
        let result = device(request.dev_id);
        let stats = result.is_ok().then(|| self.counting.read(request.filters.as_ref())).transpose()?;
        Ok(StatsResponse { error_code: code(result), dev_id: 0, stats })
    }

    fn server_status(&self) -> ServerStatusResponse {
        let (time, instant) = self.started;
        let status = ServerStatus {
            start_time: Some(time.into()),
            // None if it is longer than 292 thousand million years.
            up_time: instant.elapsed().try_into().ok(),
        };
        ServerStatusResponse { error_code: ErrorCode::EcOk.into(), status: Some(status) }
    }

    fn batch(&self, request: BatchRequest) -> Result<BatchResponse, Status> {
        use batch_request::Item as Ask;
        use batch_response::Item;
        let op = BatchOperation::try_from(request.op).unwrap_or(BatchOperation::BopUnknown);
        let item = match (request.item, op) {
            (None, _) => Err(ErrorCode::EcUnknownBatchRequest),
            (Some(Ask::TableRule(it)), BatchOperation::BopInsert) => {
                Ok(Item::TableRule(self.rules(&it, true)))
            }
            (Some(Ask::TableRule(it)), BatchOperation::BopDelete) => {
                Ok(Item::TableRule(self.rules(&it, false)))
            }
            (Some(Ask::Table(it)), BatchOperation::BopClear) => Ok(Item::Table(self.table(&it))),
            (Some(Ask::DeviceInfo(it)), BatchOperation::BopGet) => Ok(Item::DeviceInfo(self.device_info(it))),
            (Some(Ask::PipelineStats(it)), BatchOperation::BopGet) => {
                Ok(Item::PipelineStats(self.pipeline_stats(&it, false)?))
            }
            (Some(Ask::PipelineStats(it)), BatchOperation::BopClear) => {
                Ok(Item::PipelineStats(self.pipeline_stats(&it, true)?))
            }
            (Some(Ask::Stats(it)), BatchOperation::BopGet) => Ok(Item::Stats(self.stats(&it)?)),
            (Some(Ask::ServerStatus(_)), BatchOperation::BopGet) => {
                Ok(Item::ServerStatus(self.server_status()))
            }
            (Some(_), _) => Err(ErrorCode::EcUnknownBatchOp),
        };
        // What became of the item is told in it.
        let error_code = item.as_ref().err().copied().unwrap_or(ErrorCode::EcOk).into();
        Ok(BatchResponse { error_code, op: request.op, item: item.ok() })
    }
}

#[tonic::async_trait]
impl SmartnicP4 for SmartNicService {
    type BatchStream = Pin<Box<dyn Stream<Item = Result<BatchResponse, Status>> + Send>>;
    type GetDeviceInfoStream = Single<DeviceInfoResponse>;
    type GetPipelineStatsStream = Single<PipelineStatsResponse>;
    type ClearPipelineStatsStream = Single<PipelineStatsResponse>;
    type ClearTableStream = Single<TableResponse>;
    type InsertTableRuleStream = Single<TableRuleResponse>;
    type DeleteTableRuleStream = Single<TableRuleResponse>;
    type GetStatsStream = Single<StatsResponse>;
    type GetServerStatusStream = Single<ServerStatusResponse>;

    async fn batch(
        &self,
        request: Request<Streaming<BatchRequest>>,
    ) -> Result<Response<Self::BatchStream>, Status> {
        let inner = self.0.clone();
        let answers = request.into_inner().map(move |request| inner.batch(request?));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_device_info(&self, request: Request<DeviceInfoRequest>) -> GrpcResult<DeviceInfoResponse> {
        single(self.0.device_info(request.into_inner()))
    }

    async fn get_pipeline_stats(
        &self,
        request: Request<PipelineStatsRequest>,
    ) -> GrpcResult<PipelineStatsResponse> {
        single(self.0.pipeline_stats(&request.into_inner(), false)?)
    }

    async fn clear_pipeline_stats(
        &self,
        request: Request<PipelineStatsRequest>,
    ) -> GrpcResult<PipelineStatsResponse> {
        single(self.0.pipeline_stats(&request.into_inner(), true)?)
    }

    async fn clear_table(&self, request: Request<TableRequest>) -> GrpcResult<TableResponse> {
        single(self.0.table(&request.into_inner()))
    }

    async fn insert_table_rule(&self, request: Request<TableRuleRequest>) -> GrpcResult<TableRuleResponse> {
        single(self.0.rules(&request.into_inner(), true))
    }

    async fn delete_table_rule(&self, request: Request<TableRuleRequest>) -> GrpcResult<TableRuleResponse> {
        single(self.0.rules(&request.into_inner(), false))
    }

    async fn get_stats(&self, request: Request<StatsRequest>) -> GrpcResult<StatsResponse> {
        single(self.0.stats(&request.into_inner())?)
    }

    async fn get_server_status(&self, _: Request<ServerStatusRequest>) -> GrpcResult<ServerStatusResponse> {
        single(self.0.server_status())
    }
}
