//! A connection that is reset when it is given up, so that nothing that was written on it arrives later.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper_util::rt::TokioIo;
use proto::sn_p4::v2::smartnic_p4_client::SmartnicP4Client;
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
};
use tonic::{
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tower_service::Service;

use super::SmartNicError;
use crate::grpc::client::{Bearer, innermost};

pub(super) type Smartnic = SmartnicP4Client<InterceptedService<Channel, Bearer>>;

/// A connection that was not used for longer is made anew: nothing answers its pings while no call is made.
const IDLE: Duration = Duration::from_secs(10);

/// Our data plane can tell two counters of each of 65536 members.
const MOST_ANSWER: usize = 8 << 20;

/// Where a SmartNIC is, and how one connects to it.
pub(super) struct Place {
    /// As it was given, for errors.
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) bearer: Bearer,
}

/// What reaches a place. Nothing is encrypted.
pub(super) fn endpoint(address: &str) -> Result<Endpoint, SmartNicError> {
    let wrong = || SmartNicError::Address(address.to_owned());
    let authority: http::uri::Authority = address.parse().map_err(|_| wrong())?;
    authority.port_u16().ok_or_else(wrong)?;
    Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())
}

pub(super) struct Connection {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    smartnic: Smartnic,
    used: Instant,
}

impl Connection {
    pub(super) fn new(place: &Place, within: Duration) -> Result<Self, SmartNicError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(SmartNicError::Runtime)?;
        let connecting = place.endpoint.connect_with_connector(Reset);
        let connected = runtime.block_on(async { tokio::time::timeout(within, connecting).await });
        let why = match connected {
            Ok(Ok(channel)) => {
                let smartnic = SmartnicP4Client::with_interceptor(channel, place.bearer.clone());
                let smartnic = smartnic.max_decoding_message_size(MOST_ANSWER);
                return Ok(Self { runtime: Some(runtime), smartnic, used: Instant::now() });
            }
            Ok(Err(error)) => innermost(&error),
            Err(_) => format!("no answer within {within:?}"),
        };
        runtime.shutdown_background();
        Err(SmartNicError::Connect { plane: place.name.clone(), why })
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.used.elapsed() < IDLE
    }

    /// What a call gives, or `None` if it takes too long.
    pub(super) fn run<T>(
        &mut self,
        within: Duration,
        call: impl AsyncFnOnce(&mut Smartnic) -> T,
    ) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let smartnic = &mut self.smartnic;
        let result = runtime.block_on(async { tokio::time::timeout(within, call(smartnic)).await });
        self.used = Instant::now();
        result.ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Looking up a name may take long and cannot be stopped.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("used", &self.used).finish_non_exhaustive()
    }
}

/// Makes sockets that are reset when they are closed: the system forgets what it has not sent yet.
#[derive(Clone, Copy, Debug)]
struct Reset;

impl Service<http::Uri> for Reset {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or_default())).await?;
            stream.set_nodelay(true)?;
            stream.set_zero_linger()?;
            Ok(TokioIo::new(stream))
        })
    }
}
