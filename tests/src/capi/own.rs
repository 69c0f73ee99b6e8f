//! Functions that the programs call, beside those of `naa serve`: 100 sleep, 101 fail, 102 sum, 103 count. The tests
//! in `bindings/capi/tests` use this file too.
#![allow(unreachable_pub, reason = "a module of test programs")]

use std::{sync::Arc, thread, time::Duration};

use mrsp::{FunctionCode, catalogue::Direction, return_code::ReturnCode};
use naa_server::{
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
};

type Body = fn(&mut Call<'_>) -> Result<(), CallFailure>;

#[derive(Debug)]
struct Plain(FunctionInfo, Body);

impl Function for Plain {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        self.1(call)
    }
}

fn function(code: u8, name: &str, description: &str, body: Body) -> Arc<dyn Function> {
    let (code, name, description) = (FunctionCode::constant(code), name.into(), description.into());
    Arc::new(Plain(FunctionInfo { code, name, description, pooled: true, parameters: Vec::new() }, body))
}

pub fn all() -> [Arc<dyn Function>; 4] {
    [
        function(100, "sleep", "sleeps as many milliseconds as the user bits say", sleep),
        function(101, "fail", "fails with the user bits as return code", fail),
        function(102, "sum", "fills outputs with the sum of all input bytes and the user bytes", sum),
        function(103, "count", "fills outputs with the number of calls, kept in internal regions", count),
    ]
}

fn sleep(call: &mut Call<'_>) -> Result<(), CallFailure> {
    thread::sleep(Duration::from_millis(call.user().get().into()));
    Ok(())
}

fn fail(call: &mut Call<'_>) -> Result<(), CallFailure> {
    match ReturnCode::new(call.user()) {
        Some(code) => Err(CallFailure::Returned { code, text: String::new() }),
        None => Ok(()),
    }
}

fn sum(call: &mut Call<'_>) -> Result<(), CallFailure> {
    let mut sum = call.user().to_le_bytes().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    for region in call.regions() {
        if matches!(region.direction, Direction::Input | Direction::InOut) {
            sum = region.bytes.iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
        }
    }
    for region in call.regions() {
        if matches!(region.direction, Direction::Output | Direction::InOut) {
            region.bytes.fill(sum);
        }
    }
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), CallFailure> {
    let mut calls = 0;
    for region in call.regions() {
        if let (Direction::Internal, Some(first)) = (region.direction, region.bytes.first_mut()) {
            *first = first.wrapping_add(1);
            calls = *first;
        }
    }
    for region in call.regions() {
        if region.direction == Direction::Output {
            region.bytes.fill(calls);
        }
    }
    Ok(())
}
