//! A function that takes as many milliseconds as the host says, for tests of time limits.

use std::{sync::Arc, thread, time::Duration};

use mrsp::FunctionCode;
use naa_server::{
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
};

/// The number it is registered under.
pub const SLOW: FunctionCode = FunctionCode::constant(100);

#[derive(Debug)]
struct Slow(FunctionInfo);

impl Function for Slow {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        thread::sleep(Duration::from_millis(call.user().get().into()));
        Ok(())
    }
}

pub fn function() -> Arc<dyn Function> {
    Arc::new(Slow(FunctionInfo {
        code: SLOW,
        name: "slow".into(),
        description: "sleeps as many milliseconds as the user bits say".into(),
        pooled: true,
        parameters: Vec::new(),
    }))
}
