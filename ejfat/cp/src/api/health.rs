//! gRPC's health checking service. Callers need no token.

use std::{pin::Pin, sync::Arc, time::Duration};

use proto::{
    health::v1::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
    },
    loadbalancer::load_balancer_server,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use crate::core::Core;

/// How often the task of a `Watch` call reads the status.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct Health(pub(super) Arc<Core>);

impl Health {
    fn status(&self, service: &str) -> Option<ServingStatus> {
        let is_known = service.is_empty() || service == load_balancer_server::SERVICE_NAME;
        let is_ready = || self.0.ready().is_ok();
        is_known.then(|| if is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing })
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.status(&request.get_ref().service);
        status.map(|status| Response::new(response(status))).ok_or_else(|| {
            Status::not_found(format!(
                "no such service; give no name, or {}",
                load_balancer_server::SERVICE_NAME
            ))
        })
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (of, service) = (self.clone(), request.into_inner().service);
        let (changes, watched) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut sent = None;
            loop {
                let status = of.status(&service).unwrap_or(ServingStatus::ServiceUnknown);
                // Sending fails when the call has ended.
                if sent != Some(status) && changes.send(Ok(response(status))).await.is_err() {
                    return;
                }
                sent = Some(status);
                tokio::select! {
                    () = changes.closed() => return,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(watched))))
    }
}
