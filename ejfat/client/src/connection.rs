//! A connection to a control plane, whose calls block until the answer comes.

use std::{
    fmt,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use ejfat::uri::EjfatUri;
use naa_grpc::{AtEnd, Bearer, Calls, ClientTls, Credentials, Failures, Reach};
use proto::loadbalancer::{VersionRequest, load_balancer_client::LoadBalancerClient};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tonic::{
    Response, Status,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};

use crate::{ApiCall, Cause, ClientError};

/// The time limit of a call, connecting included.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// The time limit of connecting. It is shorter than [`DEADLINE`], so that an error tells a failed connection from a slow answer.
const CONNECT: Duration = Duration::from_secs(4);
/// The period of HTTP/2 pings, by which a dead connection is noticed while no call is made.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The most bytes of an answer. A day of time series is the longest one.
const MOST_ANSWER: usize = 32 << 20;

pub(crate) type Client = LoadBalancerClient<Calls>;

/// Which certificates a client trusts, and which token it shows.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Applies to `ejfats` only.
    pub tls: ClientTls,
    /// A token that is used instead of the URI's.
    pub token: Option<Token>,
}

/// A token whose `Debug` text hides it, so that it gets into no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// A connection to a control plane. It connects at the first call, and again when the connection was lost. Clones share one
/// connection.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    bearer: Bearer,
}

struct Shared {
    /// `HOST:PORT`
    address: String,
    runtime: Handle,
    channel: Channel,
    failures: Failures,
    /// The thread of the connection ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

/// Starts the thread that does all work of a connection.
fn start() -> Result<(Handle, oneshot::Sender<()>), ClientError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Runtime)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        // No message is ever sent: the runtime runs until the sender is dropped.
        let _ = runtime.block_on(stopped);
        // A thread that looks up a host name may take long and cannot be stopped, so it is not waited for.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("ejfat-client".into()).spawn(run);
    thread.map_err(ClientError::Runtime)?;
    Ok((handle, stop))
}

impl Connection {
    /// Prepares a connection to the control plane of a URI. It uses TLS if the URI's scheme is `ejfats`. All addresses of the
    /// URI's host are tried in turn.
    ///
    /// # Errors
    /// If the host, the token or a file of certificates cannot be used, or no thread can be started.
    pub fn open(uri: &EjfatUri, trust: &Trust) -> Result<Self, ClientError> {
        let address = if uri.host.contains(':') {
            format!("[{}]:{}", uri.host, uri.port)
        } else {
            format!("{}:{}", uri.host, uri.port)
        };
        let token = trust.token.as_ref().map(|token| token.0.as_str()).or(uri.token.as_deref());
        let credentials = Credentials::new(token, uri.tls.then_some(&trust.tls))?;
        let reach = Reach::new(&address, &credentials, AtEnd::Closed);
        let Reach { endpoint, connector } = reach.ok_or_else(|| ClientError::Address(address.clone()))?;
        let (runtime, stop) = start()?;
        let failures = connector.failures.clone();
        let channel = {
            let _on_it = runtime.enter();
            with_time_limits(endpoint).connect_with_connector_lazy(connector)
        };
        let bearer = credentials.bearer();
        Ok(Self { shared: Arc::new(Shared { address, runtime, channel, failures, _stop: stop }), bearer })
    }

    /// Returns the same connection with another token, or without a token if the text is empty.
    ///
    /// # Errors
    /// If the token has characters that an HTTP header cannot carry.
    pub fn with_token(&self, token: &str) -> Result<Self, ClientError> {
        let token = (!token.is_empty()).then_some(token);
        let bearer = Credentials::without_tls(token)?.bearer();
        Ok(Self { shared: self.shared.clone(), bearer })
    }

    /// Returns `HOST:PORT` of the control plane.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    fn client(&self) -> Client {
        let calls = InterceptedService::new(self.shared.channel.clone(), self.bearer.clone());
        LoadBalancerClient::new(calls).max_decoding_message_size(MOST_ANSWER)
    }

    /// Makes a call, and gives it up after the time `within`.
    pub(crate) async fn ask<T, A: Future<Output = Result<Response<T>, Status>>>(
        &self,
        call: ApiCall,
        within: Duration,
        make: impl FnOnce(Client) -> A,
    ) -> Result<T, ClientError> {
        let Shared { address, failures, .. } = &*self.shared;
        failures.take();
        match tokio::time::timeout(within, make(self.client())).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(ClientError::of(address, call, &status, failures.take())),
            Err(_) => Err(ClientError::TooLate { address: address.clone(), call, within }),
        }
    }

    /// Makes a call. If the token is refused, it asks for the version, which every known token may do, to find out whether the
    /// control plane knows the token.
    pub(crate) async fn ask_and_explain<T, A: Future<Output = Result<Response<T>, Status>>>(
        &self,
        call: ApiCall,
        make: impl FnOnce(Client) -> A,
    ) -> Result<T, ClientError> {
        let error = match self.ask(call, DEADLINE, make).await {
            Err(error) if error.cause() == Some(Cause::NoRight) => error,
            answered => return answered,
        };
        let version = async move |mut client: Client| client.version(VersionRequest {}).await;
        let known = self.ask(ApiCall::Version, DEADLINE, version).await;
        let is_unknown = known.is_err_and(|error| error.cause() == Some(Cause::NoRight));
        Err(if is_unknown { error.caused(Cause::UnknownToken) } else { error })
    }

    /// Makes a call, and blocks until the answer comes.
    pub(crate) fn answer<T, A>(
        &self,
        call: ApiCall,
        make: impl FnOnce(Client) -> A + Send + 'static,
    ) -> Result<T, ClientError>
    where
        T: Send + 'static,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let (sender, answer) = mpsc::sync_channel(1);
        let connection = self.clone();
        self.shared.runtime.spawn(async move {
            // The receiver is there: it waits below.
            let _ = sender.send(connection.ask_and_explain(call, make).await);
        });
        let gone = || ClientError::Runtime(std::io::Error::other("its thread ended"));
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn with_time_limits(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(DEADLINE)
        .keep_alive_while_idle(true)
}
