//! Percent-encoding (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::UriError;

/// The ASCII characters that are percent-encoded: all characters except letters, digits and `-._~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn decode(text: &str) -> Result<String, UriError> {
    let is_digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = percent_decode_str(text).decode_utf8().ok();
    // The crate `percent_encoding` accepts a `%` without two hexadecimal digits behind it, so this function refuses
    // such a `%`.
    let decoded = decoded.filter(|_| text.split('%').skip(1).all(is_digits));
    decoded.map(Into::into).ok_or_else(|| UriError::Percent(text.to_owned()))
}

pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
