//! The limits of each module: how much of a device it may take, and how fast it must be.

/// A module that is synthesised by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Module {
    pub(super) name: &'static str,
    /// The most look-up tables of UltraScale+, with those that are used as memories.
    pub(super) luts: u64,
    /// The most block memories of 36 kbit.
    pub(super) brams: f64,
    /// The least frequency on an ECP5 in MHz. `None` for modules that are not placed there.
    pub(super) fmax: Option<f64>,
}

pub(super) const MODULES: &[Module] = &[
    Module { name: "icrc512", luts: 5000, brams: 0.0, fmax: Some(150.0) },
    Module { name: "region_check", luts: 1000, brams: 4.0, fmax: Some(125.0) },
    Module { name: "responder_check", luts: 4000, brams: 12.0, fmax: Some(125.0) },
    Module { name: "lb_lookup", luts: 5000, brams: 70.0, fmax: None },
    Module { name: "lb_top", luts: 25_000, brams: 120.0, fmax: None },
    Module { name: "lb_path", luts: 10_000, brams: 90.0, fmax: None },
];
