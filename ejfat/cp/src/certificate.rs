//! Warns of a certificate that keeps clients away, or will do so soon.

use std::time::{Duration, Instant};

use naa_grpc::ServerTls;

/// How often the certificate is looked at. It may come to its end, and its files may be replaced.
const LOOK: Duration = Duration::from_secs(60);

/// Looks at the files of a server's certificate from time to time.
#[derive(Debug)]
pub(crate) struct Watch {
    tls: ServerTls,
    /// The host by which clients find the server.
    host: String,
    looked: Option<Instant>,
    warned: Option<String>,
    /// When the certificate that was seen last ends, in UNIX time.
    pub(crate) ends: Option<u64>,
}

impl Watch {
    pub(crate) fn new(tls: ServerTls, host: String) -> Self {
        Self { tls, host, looked: None, warned: None, ends: None }
    }

    /// Looks at the files if it is time. The log gets each warning once. Files that cannot be used are not reported here: the server
    /// reports them when it reads them.
    pub(crate) fn look(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        let Ok(certificate) = self.tls.load() else { return };
        self.ends = Some(certificate.ends);
        let warning = certificate.warning(&self.host);
        if let Some(warning) = warning.as_ref().filter(|warning| self.warned.as_ref() != Some(warning)) {
            tracing::warn!("the certificate of {} {warning}", self.tls.cert.display());
        }
        self.warned = warning;
    }
}
