//! The gRPC server of a data plane: `naa.lb.v1` and `sn_p4.v2` on one port.

use std::{
    convert::Infallible,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};

use naa_grpc::{GrpcServer, GrpcServerConfig, HttpResponse, ServerTls, Token};
use proto::{
    lb::v1::tables_server::{self, TablesServer},
    sn_p4::v2::smartnic_p4_server::{self, SmartnicP4Server},
};
use tonic::{Status, body::Body};
use tower_service::Service;

use super::{MOST_OF_TABLES, ServeError, smartnic::SmartNicService, tables::TablesService};
use crate::SharedDataPlane;

/// The most bytes of a message to the SmartNIC service: rules of all tables, each with the names of its table and
/// action.
const MOST_OF_SMARTNIC: usize = 3 << 20;
/// The most streams of one connection. With the most connections, requests take 400 MB, and all of them are from peers
/// with the token.
const MOST_STREAMS: u32 = 4;

/// The most connections at a time, of all source networks together.
const MOST_CONNECTIONS: usize = 32;

/// Decides which callers may make requests.
#[derive(Default)]
pub struct Callers {
    /// What requests must have in the header `authorization: Bearer TOKEN`, if anything.
    pub token: Option<String>,
    /// Connections from other addresses are ended at once. `None`: they may come from anywhere.
    pub permits: Option<Box<dyn Fn(IpAddr) -> bool + Send>>,
    /// If set, callers must use TLS, and the server shows them this certificate. `None`: nothing is encrypted.
    pub tls: Option<ServerTls>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, permits) = (self.token.is_some(), self.permits.is_some());
        let mut shown = f.debug_struct("Callers");
        shown.field("token", &token).field("permits", &permits).field("tls", &self.tls).finish()
    }
}

/// Serves a data plane's tables to callers that have the token, or to all callers if there is no token.
///
/// # Errors
/// Fails for the reasons for which [`serve_to`] fails.
pub fn serve(
    address: SocketAddr,
    plane: Arc<SharedDataPlane>,
    token: Option<String>,
) -> Result<GrpcServer, ServeError> {
    serve_to(Callers { token, ..Callers::default() }, address, plane)
}

/// Serves a data plane's tables to some callers. Port 0 stands for any that is free. Files of certificates are read again
/// when they change, for new connections. A changed file that cannot be used has no effect, and the log says so once. A request
/// that is in progress when the server ends is cut off. Its change of the tables is then made as a whole or not at all.
///
/// # Errors
/// Fails if the address cannot be bound, no thread can be started, the token is not valid, or a file of certificates
/// cannot be used.
pub fn serve_to(
    callers: Callers,
    address: SocketAddr,
    plane: Arc<SharedDataPlane>,
) -> Result<GrpcServer, ServeError> {
    let Callers { token, permits, tls } = callers;
    let services = GrpcServices::new(plane, Token::new(token)?);
    let (connections, streams, threads) = (MOST_CONNECTIONS, MOST_STREAMS, 1);
    let config = GrpcServerConfig { connections, streams, threads, permits, tls };
    naa_grpc::serve(config, address, services)
}

/// The service that a request is for.
#[derive(Clone)]
struct GrpcServices {
    token: Token,
    tables: TablesServer<TablesService>,
    smartnic: SmartnicP4Server<SmartNicService>,
}

impl GrpcServices {
    fn new(plane: Arc<SharedDataPlane>, token: Token) -> Self {
        let tables = TablesServer::new(TablesService::new(plane.clone()));
        let smartnic = SmartnicP4Server::new(SmartNicService::new(plane));
        Self {
            token,
            tables: tables.max_decoding_message_size(MOST_OF_TABLES),
            smartnic: smartnic.max_decoding_message_size(MOST_OF_SMARTNIC),
        }
    }
}

impl Service<http::Request<Body>> for GrpcServices {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = tonic::codegen::BoxFuture<HttpResponse, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if let Err(refused) = self.token.check(request.headers()) {
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        }
        // The connection counts as busy until the answer is sent.
        let in_progress = naa_grpc::begin(&request);
        let answer = self.answer(request);
        Box::pin(async { Ok(answer.await?.map(|body| naa_grpc::until_sent(body, in_progress))) })
    }
}

impl GrpcServices {
    fn answer(
        &mut self,
        request: http::Request<Body>,
    ) -> tonic::codegen::BoxFuture<HttpResponse, Infallible> {
        let mut path = request.uri().path().split('/').skip(1);
        match path.next() {
            Some(tables_server::SERVICE_NAME) => self.tables.call(request),
            Some(smartnic_p4_server::SERVICE_NAME) => self.smartnic.call(request),
            _ => {
                let unknown = Status::unimplemented(format!(
                    "no such service; there are {} and {}",
                    tables_server::SERVICE_NAME,
                    smartnic_p4_server::SERVICE_NAME
                ));
                Box::pin(std::future::ready(Ok(unknown.into_http())))
            }
        }
    }
}
