//! Percent-encoding (RFC 3986).

use super::UriError;

pub(super) fn decode(text: &str) -> Result<String, UriError> {
    let wrong = || UriError::Percent(text.to_owned());
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                (high << 4 | low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(out).map_err(|_| wrong())
}

/// Percent-encodes all bytes except letters, digits and `-._~`.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
