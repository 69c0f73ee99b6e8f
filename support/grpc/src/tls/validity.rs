//! Until when a certificate is valid, and for which names.
//!
//! rustls tells this of the certificates of peers only, at a handshake.
//!
//! # Source
//! RFC 5280, 4.1 (certificates) and 4.1.2.5 (times); X.690, 8.1 (DER).

use std::time::{Duration, SystemTime};

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};

/// A certificate of a server is told to end soon when it ends within this time.
const SOON: Duration = Duration::from_secs(14 * 86_400);
/// DER's tags.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

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
        let ends = end(&der)?;
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

/// The tag and the content of the first element, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The second after which a certificate is not valid.
fn end(certificate: &[u8]) -> Option<u64> {
    let inside = |bytes| element(bytes).filter(|(tag, ..)| *tag == SEQUENCE).map(|(_, content, _)| content);
    let after = |bytes| element(bytes).map(|(.., rest)| rest);
    let fields = inside(inside(certificate)?)?;
    let fields = if element(fields)?.0 == VERSION { after(fields)? } else { fields };
    // The serial number, the algorithm of the signature, and the issuer come before the validity.
    let validity = inside(after(after(after(fields)?)?)?)?;
    let (tag, text, _) = element(after(validity)?)?;
    seconds(tag, text)
}

/// The UNIX time of a time of DER, which is in UTC and has seconds.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, at) = match tag {
        UTC_TIME => number(0, 2).map(|year| (if year < 50 { 2000 + year } else { 1900 + year }, 2))?,
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |n: usize| number(at + 2 * n, at + 2 * n + 2);
    let (month, day) = (part(0)?, part(1)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Some(0);
    }
    // Years begin in March here, so that a leap day is the last day of one.
    let (of_march, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * of_march + of_march / 4 - of_march / 100 + of_march / 400 + (153 * months + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_are_unix_times() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229000000Z", Some(951_782_400)),
            (UTC_TIME, "261124142742Z", Some(1_795_530_462)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "261124142742", None),
            (UTC_TIME, "26112414274", None),
            (4, "261124142742Z", None),
        ] {
            assert_eq!(seconds(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_end() {
        for bytes in
            [&[][..], &[0x30], &[0x30, 0x84, 255, 255, 255, 255, 0], &[0x30, 2, 0x30, 0], &[0x30, 0x80, 0, 0]]
        {
            assert_eq!(end(bytes), None, "{bytes:?}");
        }
    }
}
