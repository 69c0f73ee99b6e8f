//! Calls to a control plane.

use std::net::{IpAddr, SocketAddr};

use proto::loadbalancer::{
    DeregisterRequest, RegisterReply, RegisterRequest, ReserveLoadBalancerReply, ReserveLoadBalancerRequest,
    SendStateRequest, load_balancer_client::LoadBalancerClient,
};
use tonic::{Request, metadata::AsciiMetadataValue, transport::Channel};

use crate::sides::grpc;

pub(super) type Client = LoadBalancerClient<Channel>;

pub(super) async fn connect(to: SocketAddr) -> anyhow::Result<Client> {
    Ok(LoadBalancerClient::new(grpc::connect(to).await?))
}

/// The value of the `authorization` header for a token.
pub(super) fn bearer(token: &str) -> anyhow::Result<AsciiMetadataValue> {
    Ok(format!("Bearer {token}").parse()?)
}

/// A request with an `authorization` header.
pub(super) fn with<M>(message: M, bearer: &AsciiMetadataValue) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", bearer.clone());
    request
}

pub(super) async fn reserve(
    client: &mut Client,
    bearer: &AsciiMetadataValue,
    senders: &[IpAddr],
) -> anyhow::Result<ReserveLoadBalancerReply> {
    let sender_addresses = senders.iter().map(ToString::to_string).collect();
    let request = ReserveLoadBalancerRequest { sender_addresses, ..ReserveLoadBalancerRequest::default() };
    Ok(client.reserve_load_balancer(with(request, bearer)).await?.into_inner())
}

pub(super) async fn register(
    client: &mut Client,
    bearer: &AsciiMetadataValue,
    lb_id: &str,
    at: SocketAddr,
) -> anyhow::Result<RegisterReply> {
    let request = RegisterRequest {
        lb_id: lb_id.to_owned(),
        name: format!("worker-{}", at.port()),
        weight: 1.0,
        ip_address: at.ip().to_string(),
        udp_port: at.port().into(),
        ..RegisterRequest::default()
    };
    Ok(client.register(with(request, bearer)).await?.into_inner())
}

pub(super) async fn deregister(
    client: &mut Client,
    bearer: &AsciiMetadataValue,
    lb_id: &str,
    session_id: &str,
) -> anyhow::Result<()> {
    let request = DeregisterRequest { lb_id: lb_id.to_owned(), session_id: session_id.to_owned() };
    client.deregister(with(request, bearer)).await?;
    Ok(())
}

/// A worker's state with the fields that E2SAR's workers fill in.
pub(super) fn state(session_id: &str, fill: f32) -> SendStateRequest {
    SendStateRequest {
        session_id: session_id.to_owned(),
        fill_percent: fill,
        is_ready: true,
        total_events_recv: 1000,
        total_events_reassembled: 990,
        total_bytes_recv: 1 << 30,
        total_packets_recv: 1 << 20,
        ..SendStateRequest::default()
    }
}
