//! What a server shows, and the handshakes of its connections.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::{ServerConfig, server::WebPkiClientVerifier};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::Connected;

use super::{
    InForce, PROTOCOL, VERSIONS,
    files::{self, TlsError},
    provider,
    validity::Certificate,
};
use crate::{
    connections::{Requests, TcpConnection},
    stream::write_to,
};

/// How long a peer whose handshake failed may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// The files of a server's certificate. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// The server's certificate and those between it and its CA, as PEM.
    pub cert: PathBuf,
    /// The private key of the certificate, as PEM.
    pub key: PathBuf,
    /// CAs of clients, as PEM: clients without a certificate of one of these are refused. `None`: they show none.
    pub client_ca: Option<PathBuf>,
}

/// What the files of a [`ServerTls`] hold.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl ServerTls {
    /// Reads the files as a server does that starts. Returns the certificate that it shows.
    ///
    /// # Errors
    /// Fails if a file cannot be used, or if the private key does not belong to the certificate.
    pub fn load(&self) -> Result<Certificate, TlsError> {
        let contents = self.read()?;
        self.config(&contents)?;
        let first = files::chain(&self.cert, &contents.cert)?.into_iter().next();
        first.and_then(Certificate::new).ok_or_else(|| TlsError::Certificates {
            path: self.cert.clone(),
            why: "its first certificate has no end".into(),
        })
    }

    pub(super) fn read(&self) -> Result<Contents, TlsError> {
        Ok(Contents {
            cert: files::read(&self.cert)?,
            key: files::read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(files::read).transpose()?,
        })
    }

    pub(super) fn config(&self, contents: &Contents) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = files::chain(&self.cert, &contents.cert)?;
        let key = files::key(&self.key, &contents.key)?;
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(VERSIONS).expect("ring has TLS 1.3");
        let builder = match self.client_ca.as_deref().zip(contents.client_ca.as_deref()) {
            None => builder.with_no_client_auth(),
            Some((path, bytes)) => {
                let roots = files::roots(path, bytes)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider()).build();
                let unusable = |error: rustls::server::VerifierBuilderError| TlsError::Certificates {
                    path: path.into(),
                    why: error.to_string(),
                };
                builder.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| files::refused(&self.cert, &self.key, &error))?;
        config.alpn_protocols = vec![PROTOCOL.into()];
        // Each handshake is a whole one, so that it is judged by the files as they are then.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// Makes each connection's handshake beside the others', so that a silent peer holds up nobody. Connections end by their own
/// limits meanwhile: of number, and of time without a request.
pub(crate) async fn handshakes(
    mut taken: mpsc::Receiver<io::Result<TcpConnection>>,
    in_force: InForce,
    secured: mpsc::Sender<io::Result<Secured>>,
) {
    while let Some(Ok(connection)) = taken.recv().await {
        let (config, secured) = (in_force.config(), secured.clone());
        tokio::spawn(async move {
            match TlsAcceptor::from(config).accept(connection).into_fallible().await {
                // Nobody takes it if the server has ended.
                Ok(stream) => drop(secured.send(Ok(Secured(Box::new(stream)))).await),
                Err((why, connection)) => {
                    tracing::debug!("{} failed to begin TLS: {why}", connection.peer());
                    // However it ends, the connection is over.
                    let _ = timeout(LINGER, explain(connection)).await;
                }
            }
        });
    }
}

/// Lets a peer read why its handshake failed: if the connection ended with bytes that were not read, the alert could be lost.
async fn explain(mut connection: TcpConnection) -> io::Result<()> {
    connection.shutdown().await?;
    let mut ignored = [0; 1024];
    while connection.read(&mut ignored).await? > 0 {}
    Ok(())
}

/// A connection after its handshake.
pub(crate) struct Secured(Box<TlsStream<TcpConnection>>);

impl Connected for Secured {
    type ConnectInfo = Requests;

    fn connect_info(&self) -> Requests {
        self.0.get_ref().0.requests()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Secured {
    write_to!(0);
}
