//! Calls of built-in functions without a server, and the CPU time that they take.

#![allow(dead_code, reason = "each test binary takes some of it")]

pub(crate) mod calls;

use std::{sync::Arc, time::Duration};

use mrsp::FunctionCode;
use naa_server::{
    function::{Function, Handler},
    functions,
};
use rustix::time::{ClockId, clock_gettime};

pub(crate) fn function(code: FunctionCode) -> Arc<dyn Function> {
    let registry = functions::builtins().unwrap();
    let Some(Handler::Function(function)) = registry.get(code) else { panic!("no function {code}") };
    function.clone()
}

/// Returns the CPU time of this thread. A computation takes nearly the same CPU time on an idle and on a busy machine,
/// so tests measure CPU times.
pub(crate) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
