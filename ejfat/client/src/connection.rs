//! A connection to a control plane, for programs that wait for answers.

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

use crate::{Call, Cause, ClientError};

/// Within this time a call has its answer, or is given up.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Connecting is given up before the call is, so that the error says which it was.
const CONNECT: Duration = Duration::from_secs(4);
/// A connection that nobody answers any more is noticed while no call is made.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Of an answer: a day of time series may be long.
const MOST_ANSWER: usize = 32 << 20;

pub(crate) type Client = LoadBalancerClient<Calls>;

/// What a client trusts and shows.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Counts for `ejfats` only.
    pub tls: ClientTls,
    /// In place of the URI's.
    pub token: Option<Token>,
}

/// A token whose text is in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// A connection to a control plane. It connects when a call is made, and again if it was lost. Clones use the same one.
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
    /// The thread ends with it.
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

/// Starts the thread on which everything of a connection runs.
fn start() -> Result<(Handle, oneshot::Sender<()>), ClientError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Runtime)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        // No message comes; the end of the channel ends it.
        let _ = runtime.block_on(stopped);
        // Looking up a name may take long and cannot be stopped.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("ejfat-client".into()).spawn(run);
    thread.map_err(ClientError::Runtime)?;
    Ok((handle, stop))
}

impl Connection {
    /// Prepares a connection to the control plane of a URI: over TLS if that is `ejfats`. All addresses of its host are tried
    /// in turn.
    ///
    /// # Errors
    /// If the host, the token or a file of certificates cannot be used, or there is no thread.
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
            patient(endpoint).connect_with_connector_lazy(connector)
        };
        let bearer = credentials.bearer();
        Ok(Self { shared: Arc::new(Shared { address, runtime, channel, failures, _stop: stop }), bearer })
    }

    /// The same connection with another token. No token if it is empty.
    ///
    /// # Errors
    /// If no header can carry the token.
    pub fn with_token(&self, token: &str) -> Result<Self, ClientError> {
        let token = (!token.is_empty()).then_some(token);
        let bearer = Credentials::without_tls(token)?.bearer();
        Ok(Self { shared: self.shared.clone(), bearer })
    }

    /// `HOST:PORT` of the control plane.
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

    /// Makes a call.
    pub(crate) async fn ask<T, A: Future<Output = Result<Response<T>, Status>>>(
        &self,
        call: Call,
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

    /// Makes a call. A token that is refused is looked at closer: any that is known may ask for the version.
    pub(crate) async fn ask_and_explain<T, A: Future<Output = Result<Response<T>, Status>>>(
        &self,
        call: Call,
        make: impl FnOnce(Client) -> A,
    ) -> Result<T, ClientError> {
        let error = match self.ask(call, DEADLINE, make).await {
            Err(error) if error.cause() == Some(Cause::NoRight) => error,
            answered => return answered,
        };
        let version = async move |mut client: Client| client.version(VersionRequest {}).await;
        let known = self.ask(Call::Version, DEADLINE, version).await;
        let is_unknown = known.is_err_and(|error| error.cause() == Some(Cause::NoRight));
        Err(if is_unknown { error.caused(Cause::UnknownToken) } else { error })
    }

    /// Waits for the answer of a call.
    pub(crate) fn answer<T, A>(
        &self,
        call: Call,
        make: impl FnOnce(Client) -> A + Send + 'static,
    ) -> Result<T, ClientError>
    where
        T: Send + 'static,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let (told, answer) = mpsc::sync_channel(1);
        let connection = self.clone();
        self.shared.runtime.spawn(async move {
            // Whoever asked waits.
            let _ = told.send(connection.ask_and_explain(call, make).await);
        });
        let gone = || ClientError::Runtime(std::io::Error::other("its thread ended"));
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn patient(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(DEADLINE)
        .keep_alive_while_idle(true)
}
