//! Numbers as text with three digits.

use std::time::Duration;

/// Three digits.
pub fn number(value: f64) -> String {
    // The bounds are those of what is shown: 9.996 has the digits of 10.
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.09995 => 3,
        v if v >= 0.009995 => 4,
        _ => 5,
    };
    format!("{value:.decimals$}")
}

/// A number of bytes in binary units. It is exact if it is a multiple of a unit.
pub fn bytes(n: u64) -> String {
    in_units(n as f64, &["B", "KiB", "MiB", "GiB"])
}

/// Bytes per second in binary units.
pub fn rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 {
        return "-".into();
    }
    in_units(bytes as f64 / seconds, &["B/s", "KiB/s", "MiB/s", "GiB/s"])
}

fn in_units(value: f64, units: &[&str; 4]) -> String {
    let step = [1.0, 1024.0, 1_048_576.0, 1_073_741_824.0];
    let unit = step.iter().rposition(|&step| value >= step).unwrap_or(0);
    let value = value / step[unit];
    let value = if value.fract() == 0.0 { format!("{value:.0}") } else { number(value) };
    format!("{value} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 1234.5, 99.96, 12.345, 9.996, 1.2345, 0.12345, 0.012345].map(number);
        assert_eq!(texts, ["0", "1234", "100", "12.3", "10.0", "1.23", "0.123", "0.0123"]);
    }

    #[test]
    fn bytes_have_their_unit() {
        let texts = [0, 63, 1984, 4096, 256 << 20, 1_234_567, 3 << 30, 5 << 40].map(bytes);
        assert_eq!(texts, ["0 B", "63 B", "1.94 KiB", "4 KiB", "256 MiB", "1.18 MiB", "3 GiB", "5120 GiB"]);
        assert_eq!(rate(1 << 30, Duration::from_secs(2)), "512 MiB/s");
        assert_eq!(rate(1, Duration::from_secs(2)), "0.500 B/s");
    }
}
