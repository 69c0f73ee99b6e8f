//! `NAA_SPEC` of this process: both interfaces share one list, so that neither takes an accelerator that the other one
//! uses.

use std::{
    ffi::OsString,
    sync::{Mutex, PoisonError},
};

use naa_host::{Claim, FunctionCode, SPEC_VARIABLE, Spec, SpecError};

/// The specification, with the text it was read from, since a program may change the variable while it runs.
static SPEC: Mutex<Option<(OsString, Spec)>> = Mutex::new(None);

pub(crate) fn claim(function: FunctionCode, inputs: usize) -> Result<Claim, SpecError> {
    let mut spec = SPEC.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::env::var_os(SPEC_VARIABLE).unwrap_or_default();
    let current = match spec.take() {
        Some((known, current)) if known == text => current,
        _ => Spec::from_env()?,
    };
    let (_, current) = spec.insert((text, current));
    current.claim(function, inputs)
}
