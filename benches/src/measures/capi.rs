//! `naa bench capi`: the C libraries beside the Rust API.

use naa_measure::row::Target::{AtMost, Report};

use super::{Builder, CALL_CPU, Measure};
use crate::sides::{Far, Near, Wait, call, capi::Calls};

/// The highest ratio for a library that only passes calls on.
const PASSING_ON: f64 = 1.05;
/// The highest ratio for a loop that reads the state after each look for the response.
const POLLING: f64 = 1.2;
/// The most CPU time of a blocked process, in per cent of a core.
const MOST_CPU: f64 = 1.0;

/// All measures, in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![adaptive(), spinning(), blocked(), python()]
}

/// A session of the Rust API, with what it is compared with calling the same function of a server of its own.
fn rust(b: &mut Builder, wait: Wait) -> usize {
    b.contender(Far::Call(wait), Near::Call(call::Calls { wait, pooled: false }))
}

fn c(b: &mut Builder, wait: Wait, calls: Calls) -> usize {
    b.contender(Far::Call(wait), Near::C(calls))
}

/// Calls with the default wait mode. NAAICE's headers have no setting for the wait mode.
fn adaptive() -> Measure {
    let mut b = Builder::default();
    let wait = Wait::Adaptive;
    let rust = rust(&mut b, wait);
    let middleware = c(&mut b, wait, Calls::Middleware);
    let native = c(&mut b, wait, Calls::Native(wait));
    let polling = c(&mut b, wait, Calls::Polling);
    let target = AtMost(PASSING_ON);
    b.row("64-byte call, naa_invoke + naa_wait, p50, vs Rust API", middleware, rust, target, None);
    b.row("64-byte call, naa_call_start + naa_call_wait, p50, vs Rust API", native, rust, target, None);
    let name = "64-byte call, naaice_poll_cq_nonblocking, p50, vs naa_wait";
    b.row(name, polling, middleware, AtMost(POLLING), None);
    b.measure("us", CALL_CPU)
}

fn spinning() -> Measure {
    let mut b = Builder::default();
    let wait = Wait::Spin;
    let rust = rust(&mut b, wait);
    let busy = c(&mut b, wait, Calls::Busy);
    let native = c(&mut b, wait, Calls::Native(wait));
    let target = AtMost(PASSING_ON);
    b.row("64-byte call, naaice_poll_cq_busy, p50, vs Rust API, spinning", busy, rust, Report, None);
    b.row("64-byte call, naa.h, spinning, p50, vs Rust API, spinning", native, rust, target, None);
    b.measure("us", CALL_CPU)
}

fn blocked() -> Measure {
    let mut b = Builder::default();
    let blocked = b.contender(Far::Call(Wait::Adaptive), Near::Blocked);
    b.row("blocked in naa_wait: CPU of the process", blocked, None, AtMost(MOST_CPU), None);
    b.measure("%", None)
}

fn python() -> Measure {
    let mut b = Builder::default();
    let rust = rust(&mut b, Wait::Adaptive);
    let python = b.contender(Far::Call(Wait::Adaptive), Near::Python);
    b.row("64-byte call, Python, p50, vs Rust API", python, rust, Report, None);
    b.measure("us", None)
}
