//! Service `naa.lb.v1.Tables`.

use std::sync::Arc;

use ejfat::lb::{EngineError, RuleError, StageError};
use proto::lb::v1::{self, tables_server};
use tonic::{Request, Response, Status};

use crate::{
    SharedDataPlane, WriteError,
    message::{FieldError, MessageError},
    requests::{self, RequestError},
};

type GrpcResult<T> = Result<Response<T>, Status>;

pub(super) struct TablesService {
    plane: Arc<SharedDataPlane>,
}

impl TablesService {
    pub(super) fn new(plane: Arc<SharedDataPlane>) -> Self {
        Self { plane }
    }
}

#[tonic::async_trait]
impl tables_server::Tables for TablesService {
    async fn load(&self, request: Request<v1::LoadRequest>) -> GrpcResult<v1::LoadReply> {
        requests::load(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn edit(&self, request: Request<v1::EditRequest>) -> GrpcResult<v1::EditReply> {
        requests::edit(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> GrpcResult<v1::GetReply> {
        requests::get(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn get_counters(
        &self,
        request: Request<v1::GetCountersRequest>,
    ) -> GrpcResult<v1::GetCountersReply> {
        Ok(Response::new(requests::counters(&self.plane, request.get_ref())))
    }

    async fn stage(&self, request: Request<v1::StageRequest>) -> GrpcResult<v1::StageReply> {
        requests::stage(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn withdraw(&self, request: Request<v1::WithdrawRequest>) -> GrpcResult<v1::WithdrawReply> {
        requests::withdraw(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn get_ticks(&self, _: Request<v1::GetTicksRequest>) -> GrpcResult<v1::GetTicksReply> {
        Ok(Response::new(requests::ticks(&self.plane)))
    }
}

fn refused(error: RequestError) -> Status {
    let why = error.to_string();
    match error {
        RequestError::Message(MessageError { cause, .. }) => match cause {
            FieldError::Absent => Status::not_found(why),
            FieldError::Rule(RuleError::Exists(_)) => Status::already_exists(why),
            FieldError::Rule(RuleError::Full { .. }) => Status::resource_exhausted(why),
            _ => Status::invalid_argument(why),
        },
        RequestError::Write(
            WriteError::Stage(StageError::Full)
            | WriteError::Limit { .. }
            | WriteError::Engine(EngineError::Image(_)),
        ) => Status::resource_exhausted(why),
        RequestError::Write(WriteError::Moved | WriteError::Engine(EngineError::Late { .. })) => {
            Status::aborted(why)
        }
        RequestError::Write(WriteError::LbId { .. }) => Status::invalid_argument(why),
        RequestError::Write(_) => Status::failed_precondition(why),
        RequestError::ManySets => Status::resource_exhausted(why),
    }
}
