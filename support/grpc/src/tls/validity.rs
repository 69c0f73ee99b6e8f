//! Until when a certificate is valid, and for which names. rustls tells this of the certificates of peers only, at a handshake.

use std::time::{Duration, SystemTime};

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};

/// A certificate of a server is told to end soon when it ends within this time.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// A server's certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// The second after which it is not valid any more, in UNIX time.
    pub ends: u64,
}

impl Certificate {
    /// `None` if the bytes are no certificate.
    pub(super) fn new(der: CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
        let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        Some(Self { der, ends })
    }

    /// Whether a client that connects to `host`, a name or an address, takes it for the host's.
    pub fn covers(&self, host: &str) -> bool {
        let certificate = ParsedCertificate::try_from(&self.der);
        let name = ServerName::try_from(host);
        certificate.is_ok_and(|of| name.is_ok_and(|name| verify_server_name(&of, &name).is_ok()))
    }

    /// What keeps clients that connect to `host` away, now or soon. It is the end of "the certificate ...".
    pub fn warning(&self, host: &str) -> Option<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = self.ends.saturating_sub(now.as_secs());
        if left == 0 {
            return Some("has expired, so clients refuse it; renew it".into());
        }
        if !self.covers(host) {
            return Some(format!(
                "is not for {host}, the name by which clients find this server, so they refuse it; make one with this name as a \
                 subjectAltName"
            ));
        }
        (left < SOON.as_secs()).then(|| format!("expires within {} days; renew it", left.div_ceil(86_400)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_certificate_have_no_end() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 255, 255, 255, 255, 0], &[0x30, 2, 0x30, 0]] {
            assert!(Certificate::new(bytes.to_vec().into()).is_none(), "{bytes:?}");
        }
    }
}
