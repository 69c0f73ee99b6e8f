//! Numbers of bytes with units on the command line.

/// Reads a number of bytes: digits, and K, M or G behind them for the binary units. `None` if it is no such number.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in
            [("65536", 65536), ("64K", 65536), ("64k", 65536), ("1M", 1 << 20), ("3G", 3 << 30), ("0", 0)]
        {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for bad in ["", "K", "-1", "+1", "1.5M", "1T", "99999999999999999999", "99999999999999G", "1\u{e9}"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
