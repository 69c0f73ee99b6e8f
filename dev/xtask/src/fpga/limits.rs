//! The limits of each module: how much of a device it may take, and how fast it must be.

/// A module that is synthesised, with the modules in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Design {
    pub(super) top: &'static str,
    /// The least frequency on an ECP5 in MHz. `None` for designs that are not placed there.
    pub(super) fmax: Option<f64>,
}

/// All designs, those that take long first. Each module is in one of them at least.
pub(super) const DESIGNS: &[Design] = &[
    Design { top: "lb_top", fmax: None },
    Design { top: "responder_check", fmax: Some(125.0) },
    Design { top: "icrc512", fmax: Some(150.0) },
    Design { top: "region_check", fmax: Some(125.0) },
];

/// What a module may take of an UltraScale+ device, with the modules in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) module: &'static str,
    /// The most look-up tables, with those that are used as memories.
    pub(super) luts: u64,
    /// The most block memories of 36 kbit.
    pub(super) brams: f64,
}

/// The limits of some modules. The others have none of their own.
pub(super) const AREAS: &[Area] = &[
    Area { module: "icrc512", luts: 5000, brams: 0.0 },
    Area { module: "region_check", luts: 1000, brams: 4.0 },
    Area { module: "responder_check", luts: 4000, brams: 12.0 },
    Area { module: "lb_lookup", luts: 5000, brams: 70.0 },
    Area { module: "lb_path", luts: 11_000, brams: 90.0 },
    Area { module: "lb_top", luts: 25_000, brams: 120.0 },
];

/// The least coverage of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor {
    /// The name of the file without `.sv`.
    pub(super) file: &'static str,
    /// The share of lines that the tests reach, in percent.
    pub(super) lines: f64,
    /// The share of toggles in percent: that each bit of each signal rises, and that it falls.
    pub(super) toggles: f64,
}

const fn floor(file: &'static str, lines: f64, toggles: f64) -> Floor {
    Floor { file, lines, toggles }
}

pub(super) const COVERAGE: &[Floor] = &[
    floor("counters", 100.0, 99.0),
    floor("eth_add", 100.0, 98.0),
    floor("eth_strip", 100.0, 98.0),
    floor("fifo", 100.0, 99.0),
    floor("icrc512", 84.0, 98.0),
    floor("lb_addresses", 100.0, 99.0),
    floor("lb_answers", 100.0, 98.0),
    floor("lb_begins", 100.0, 98.0),
    floor("lb_counters", 100.0, 97.0),
    floor("lb_lookup", 100.0, 98.0),
    floor("lb_parse", 100.0, 99.0),
    floor("lb_path", 100.0, 98.0),
    floor("lb_rewrite", 100.0, 98.0),
    floor("lb_sets", 100.0, 96.0),
    floor("lb_top", 100.0, 98.0),
    floor("region_check", 100.0, 99.0),
    floor("responder_check", 100.0, 94.0),
];
