//! What each module may take.

/// A module that is synthesised by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Look-up tables of UltraScale+, also those that are memories.
    pub(super) luts: u64,
    /// Block memories of 36 kbit.
    pub(super) brams: f64,
    /// MHz on an ECP5, at least. `None`: it is too large for one, or not looked at.
    pub(super) fmax: Option<f64>,
}

pub(super) const MODULES: &[Module] = &[
    Module { name: "icrc512", luts: 5000, brams: 0.0, fmax: Some(150.0) },
    Module { name: "region_check", luts: 1000, brams: 4.0, fmax: Some(125.0) },
    Module { name: "responder_check", luts: 4000, brams: 12.0, fmax: Some(125.0) },
    Module { name: "lb_lookup", luts: 5000, brams: 70.0, fmax: None },
    Module { name: "lb_path", luts: 10_000, brams: 90.0, fmax: None },
];
