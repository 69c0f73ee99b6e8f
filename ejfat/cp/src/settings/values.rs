//! Types of values that the configuration has as text.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// Reads a value from its text. `what` is the end of the error's text: what the value should be.
fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Option<T>,
    what: &str,
) -> Result<T, D::Error> {
    from.deserialize_any(Scalar { parse, what })
}

/// Takes a text. A value without quotes that has only digits is a number in YAML, not a text. The errors are made while the reader is
/// at the value, so they have its line.
struct Scalar<'a, F> {
    parse: F,
    what: &'a str,
}

impl<T, F: Fn(&str) -> Option<T>> Visitor<'_> for Scalar<'_, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text.trim()).ok_or_else(|| E::custom(format!("{text:?} is not a {}", self.what)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

/// The address of /metrics. A port alone is one of loopback.
struct Metrics(SocketAddr);

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let of_loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let parse = |text: &str| text.parse().ok().or_else(|| text.parse().ok().map(of_loopback));
        read(from, parse, "address with a port; write 127.0.0.1:9100, or 9100 for a port of 127.0.0.1")
            .map(Self)
    }
}

pub(super) fn metrics<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Ok(Option::<Metrics>::deserialize(from)?.map(|of| of.0))
}

/// A length of time: a whole number followed by ms, s, m, h or d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct Length(#[schemars(with = "String")] pub Duration);

/// Reads a length of time: a whole number followed by ms, s, m, h or d. Returns `None` if `text` has another form, or if the
/// time is longer than two thousand years. So the time of day after any length of time from now can be computed.
pub fn length(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3600)?),
        "d" => Duration::from_secs(number.checked_mul(86_400)?),
        _ => return None,
    };
    (time.as_secs() < 1 << 36).then_some(time)
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from, length, "length of time; write a number followed by ms, s, m, h or d").map(Self)
    }
}

/// A length of time, or `never`, which is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct Stay(#[schemars(with = "String")] pub Option<Duration>);

impl<'de> Deserialize<'de> for Stay {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parse = |text: &str| if text == "never" { Some(None) } else { length(text).map(Some) };
        read(from, parse, "length of time; write never, or a number followed by ms, s, m, h or d").map(Self)
    }
}

/// A port such as 19522, or a range of ports such as 16384-32767.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct PortRange(#[schemars(with = "String")] pub RangeInclusive<u16>);

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parse = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            (first > 0 && first <= last).then_some(first..=last)
        };
        read(from, parse, "port or range of ports; write 19522 or 16384-32767").map(Self)
    }
}

/// A MAC address: six octets in hexadecimal with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct MacAddress(#[schemars(with = "String")] pub [u8; 6]);

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let octet = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
        let parse = |text: &str| text.split(':').map(octet).collect::<Option<Vec<_>>>()?.try_into().ok();
        read(from, parse, "MAC address; write 02:00:00:00:00:01").map(Self)
    }
}
