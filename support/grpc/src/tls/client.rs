//! What a client trusts and shows, and what is said if TLS fails.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    PROTOCOL, VERSIONS,
    files::{self, TlsError},
    provider,
};
use crate::stream::write_to;

/// How many names of a certificate an error names.
const MOST_NAMES: usize = 4;

/// What a client trusts, and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// CAs of servers, as PEM. `None`: those that the operating system trusts, or the files that `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` name.
    pub ca: Option<PathBuf>,
    /// Certificate and private key of the client, as PEM, for servers that want one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

pub(crate) fn config(tls: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &tls.ca {
        Some(path) => files::roots(path, &files::read(path)?)?,
        None => roots_of_system()?,
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(VERSIONS).expect("ring has TLS 1.3");
    let builder = builder.with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = files::chain(cert, &files::read(cert)?)?;
            let secret = files::key(key, &files::read(key)?)?;
            let config = builder.with_client_auth_cert(chain, secret);
            config.map_err(|error| files::refused(cert, key, &error))?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.into()];
    Ok(Arc::new(config))
}

/// Systems have certificates that are not understood; these are left out.
fn roots_of_system() -> Result<RootCertStore, TlsError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    Err(TlsError::NoRoots { why })
}

/// Why client and server do not come together by TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The server requires TLS, and the client connected without TLS.
    #[error("it speaks TLS on this port, and was spoken to without; connect over TLS")]
    Wanted,
    /// The client connected over TLS, and the server does not use TLS on this port.
    #[error("it does not speak TLS on this port; connect without")]
    NotSpoken,
    /// The server's certificate is signed by a CA that the client does not trust.
    #[error("its certificate is signed by no CA that is trusted here; trust the CA that signed it")]
    UnknownCa,
    /// The server's certificate is for other names than the one to which the client connected.
    #[error(
        "its certificate is for {presented}, not for {expected}; connect by a name that it is for, or give it a certificate \
         for this one"
    )]
    WrongName {
        /// The name to which the client connected.
        expected: String,
        /// The names in the certificate, as text for people.
        presented: String,
    },
    /// The server's certificate has expired.
    #[error("its certificate has expired; renew it, or correct the clock of this machine")]
    Expired,
    /// The server's certificate is not valid yet.
    #[error("its certificate is not valid yet; correct the clock of this machine")]
    NotYetValid,
    /// The server shows the certificate of a CA, which no server may show.
    #[error(
        "its certificate is that of a CA, which servers cannot show; give it one without the basic constraint CA, signed by \
         this one"
    )]
    OfCa,
    /// The server requires a certificate of the client, and the client showed none.
    #[error("it wants a certificate of the client; show one")]
    WantsCertificate,
    /// The server refused the certificate of the client. The text is the reason that the server gave.
    #[error(
        "it does not take the certificate of the client: {0}; show one that its CA signed, and that has not expired"
    )]
    CertificateRefused(String),
    /// The TLS connection failed for another reason, which the text describes.
    #[error("{0}; does it serve gRPC over TLS 1.3 on this port?")]
    Other(String),
}

impl TlsFailure {
    /// `None` if it does not stem from TLS.
    fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Error>().map(|error| match error {
            Error::InvalidMessage(_) => Self::NotSpoken,
            Error::InvalidCertificate(why) => Self::of_certificate(why),
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            other => Self::Other(other.to_string()),
        })
    }

    fn of_certificate(why: &CertificateError) -> Self {
        match why {
            CertificateError::UnknownIssuer => Self::UnknownCa,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForNameContext { expected, presented } => {
                Self::WrongName { expected: expected.to_str().into_owned(), presented: names(presented) }
            }
            // The library has no case for this one.
            other if other.to_string().contains("CaUsedAsEndEntity") => Self::OfCa,
            other => Self::Other(other.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired => Self::WantsCertificate,
            AlertDescription::UnknownCA => Self::CertificateRefused("its CA is unknown there".into()),
            AlertDescription::CertificateExpired => Self::CertificateRefused("it has expired".into()),
            AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnsupportedCertificate => Self::CertificateRefused(format!("{alert:?}")),
            other => Self::Other(format!("it ended the handshake with the alert {other:?}")),
        }
    }
}

/// Some names of a certificate, as people write them.
fn names(presented: &[String]) -> String {
    // The library shows them with their kinds: DnsName("lb.example.org"), IpAddress(192.0.2.1).
    let bare = |shown: &String| {
        let inner = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(shown);
        inner.trim_matches('"').escape_debug().to_string()
    };
    let mut names: Vec<_> = presented.iter().take(MOST_NAMES).map(bare).collect();
    if presented.len() > MOST_NAMES {
        names.push(format!("{} more", presented.len() - MOST_NAMES));
    }
    if names.is_empty() { "no name".into() } else { names.join(", ") }
}

/// What went wrong with TLS lately. gRPC's own errors do not tell: a server judges the client's certificate when the client
/// has begun its first request already.
#[derive(Clone, Debug, Default)]
pub struct Failures(Arc<Mutex<Option<TlsFailure>>>);

impl Failures {
    /// Returns the latest failure, if there is one, and forgets it.
    pub fn take(&self) -> Option<TlsFailure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps why TLS failed, if it is what failed.
    pub fn note(&self, error: &io::Error) {
        if let Some(failure) = TlsFailure::of(error) {
            self.put(failure);
        }
    }

    /// A handshake failed.
    pub fn note_handshake(&self, error: &io::Error) {
        self.put(
            TlsFailure::of(error).unwrap_or_else(|| {
                TlsFailure::Other(format!("the connection ended while TLS began: {error}"))
            }),
        );
    }

    fn put(&self, failure: TlsFailure) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

/// A connection of a client, with or without TLS, that keeps why TLS failed.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    failures: Failures,
    /// Without TLS, and nothing was read yet.
    is_plain: bool,
}

impl<S> Watched<S> {
    /// Makes a connection that records in `failures` why TLS failed. `is_plain` is true for a connection without TLS.
    pub fn new(stream: S, failures: Failures, is_plain: bool) -> Self {
        Self { stream, failures, is_plain }
    }
}

/// The first byte of what a TLS server says to who does not speak TLS (RFC 8446, 5.1: an alert). In HTTP/2 it would belong to
/// the length of the first frame, which would be above a million.
const ALERT: u8 = 21;

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if let Poll::Ready(Err(error)) = &read {
            self.failures.note(error);
        }
        if let (true, Some(&first)) = (self.is_plain, into.filled().get(before)) {
            self.is_plain = false;
            if first == ALERT {
                self.failures.put(TlsFailure::Wanted);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    write_to!(stream);
}
