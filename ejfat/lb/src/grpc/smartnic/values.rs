//! Numbers as control planes write them, and rules that are refused.

use proto::sn_p4::v2::ErrorCode;

/// Why a rule is refused: what the peer is told, and what the log says.
#[derive(Debug)]
pub(super) struct RuleRefusal {
    pub(super) code: ErrorCode,
    pub(super) why: String,
}

impl RuleRefusal {
    pub(super) fn new(code: ErrorCode, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}

pub(super) type Result<T> = std::result::Result<T, RuleRefusal>;

/// What is said of a number that is none, and of one that is too big.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    malformed: ErrorCode,
    too_big: ErrorCode,
}

pub(super) const KEY: Codes = Codes {
    malformed: ErrorCode::EcTableRuleMatchInvalidKeyFormat,
    too_big: ErrorCode::EcTableRuleMatchKeyTooBig,
};
pub(super) const MASK: Codes = Codes {
    malformed: ErrorCode::EcTableRuleMatchInvalidMaskFormat,
    too_big: ErrorCode::EcTableRuleMatchMaskTooBig,
};
pub(super) const PARAMETER: Codes = Codes {
    malformed: ErrorCode::EcTableRuleInvalidActionParameterFormat,
    too_big: ErrorCode::EcTableRuleParamTooBig,
};

/// A number of at most so many bits: `0x1f`, `0X1F`, or `31`. One that starts with another 0 is refused: firmware reads
/// it as octal, most people do not.
pub(super) fn number(text: &str, bits: u32, codes: Codes) -> Result<u128> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    if !plain || (radix == 10 && digits.len() > 1 && digits.starts_with('0')) {
        let shown: String = text.chars().take(40).collect();
        return Err(RuleRefusal::new(codes.malformed, format!("{shown:?} is no number; give 0x1f or 31")));
    }
    let value = u128::from_str_radix(digits, radix).ok();
    let fits = |value: &u128| bits >= u128::BITS || value >> bits == 0;
    let too_big = || RuleRefusal::new(codes.too_big, format!("{text:.40} has more than {bits} bits"));
    value.filter(fits).ok_or_else(too_big)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, bits: u32) -> std::result::Result<u128, ErrorCode> {
        number(text, bits, KEY).map_err(|refusal| refusal.code)
    }

    #[test]
    fn numbers_are_hexadecimal_or_decimal() {
        for (text, value) in [("0x1F", 31), ("0X1f", 31), ("31", 31), (" 0x001f ", 31), ("0", 0), ("0x0", 0)]
        {
            assert_eq!(code(text, 5), Ok(value), "{text}");
        }
        assert_eq!(code(&format!("{:#x}", u128::MAX), 128), Ok(u128::MAX));
    }

    #[test]
    fn junk_is_told_from_what_is_too_big() {
        let junk = Err(ErrorCode::EcTableRuleMatchInvalidKeyFormat);
        for text in
            ["", " ", "0x", "-1", "+1", "0x-1", "1f", "0xg", "1_000", "010", "0x1 2", "\u{0663}", "0b1"]
        {
            assert_eq!(code(text, 128), junk, "{text}");
        }
        let too_big = Err(ErrorCode::EcTableRuleMatchKeyTooBig);
        assert_eq!(code("0x20", 5), too_big);
        assert_eq!(code(&format!("0x1{:032x}", 0), 128), too_big);
        assert_eq!(code(&"9".repeat(1000), 128), too_big);
    }
}
