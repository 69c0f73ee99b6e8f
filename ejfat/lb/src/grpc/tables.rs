//! Service `naa.lb.v1.Tables`.

use std::sync::Arc;

use ejfat::lb::{RuleError, StageError};
use proto::lb::v1::{self, tables_server};
use tonic::{Request, Response, Status};

use crate::{
    Plane,
    message::{self, Cause, MessageError},
    requests::{self, RequestError},
};

type Answer<T> = Result<Response<T>, Status>;

pub(super) struct Tables {
    plane: Arc<Plane>,
}

impl Tables {
    pub(super) fn new(plane: Arc<Plane>) -> Self {
        Self { plane }
    }
}

#[tonic::async_trait]
impl tables_server::Tables for Tables {
    async fn load(&self, request: Request<v1::LoadRequest>) -> Answer<v1::LoadReply> {
        requests::load(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn edit(&self, request: Request<v1::EditRequest>) -> Answer<v1::EditReply> {
        requests::edit(&self.plane, request.get_ref()).map(Response::new).map_err(refused)
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetReply> {
        Ok(Response::new(message::of_sets(&self.plane.sets())))
    }

    async fn get_counters(&self, _: Request<v1::GetCountersRequest>) -> Answer<v1::GetCountersReply> {
        Ok(Response::new(message::of_counters(&self.plane.counters())))
    }
}

fn refused(error: RequestError) -> Status {
    let why = error.to_string();
    match error {
        RequestError::Message(MessageError { cause, .. }) => match cause {
            Cause::Absent => Status::not_found(why),
            Cause::Rule(RuleError::Exists(_)) => Status::already_exists(why),
            Cause::Rule(RuleError::Full(_)) => Status::resource_exhausted(why),
            _ => Status::invalid_argument(why),
        },
        RequestError::Stage(StageError::Full) => Status::resource_exhausted(why),
        RequestError::Stage(_) => Status::failed_precondition(why),
    }
}
