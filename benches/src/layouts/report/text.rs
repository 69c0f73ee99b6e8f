//! Figures and text as pages have them.

pub(crate) use naa_measure::{bytes as size, number};

/// How many times as fast: two decimals, where there are not two digits before them.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 9.995 { format!("{ratio:.1}") } else { format!("{ratio:.2}") }
}

pub(crate) fn parameters(count: u16) -> String {
    if count == 1 { "1 parameter".into() } else { format!("{count} parameters") }
}

/// A time in microseconds as text, in the unit that fits.
pub(crate) fn us(us: f64) -> String {
    match us {
        us if us >= 999_500.0 => format!("{} s", number(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", number(us / 1e3)),
        us => format!("{} µs", number(us)),
    }
}

/// "97 %"; what is not all is not 100 %.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    let shown = if share < 1.0 { rounded.min(99.0) } else { rounded };
    format!("{shown:.0} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_unit() {
        assert_eq!([us(0.5), us(12.34), us(999.9), us(2.5e6)], ["0.500 µs", "12.3 µs", "1.00 ms", "2.50 s"]);
        assert_eq!([times(1.234), times(12.34)], ["1.23", "12.3"]);
        assert_eq!([percent(0.999), percent(1.0), percent(0.5)], ["99 %", "100 %", "50 %"]);
    }
}
