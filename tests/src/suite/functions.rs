//! Functions whose results are easily told apart from what the host sent.

use std::sync::Arc;

use mrsp::{FunctionCode, catalogue::Direction};
use naa_server::{
    call::{Call, CallFailure},
    function::{Execution, Function, FunctionInfo},
};

use crate::slow;

/// Byte `i` of output `j` is byte `i + j` of all inputs strung together, again and again, plus the low eight user
/// bits; without inputs it is those bits.
pub(super) const COPY: FunctionCode = FunctionCode::constant(101);
/// Fails as the user bits say.
pub(super) const FAIL: FunctionCode = FunctionCode::constant(102);
/// Counts its calls in the last byte of every internal region, and puts the counts into output 0.
pub(super) const COUNT: FunctionCode = FunctionCode::constant(103);
/// Fills output 0 with 7 and sends as many bytes of it as the user bits say.
pub(super) const PRODUCE: FunctionCode = FunctionCode::constant(104);

pub(super) const FAIL_ARGUMENTS: u32 = 1;
pub(super) const FAIL_INPUT: u32 = 2;

type Run = fn(&mut Call<'_>) -> Result<(), CallFailure>;

#[derive(Debug)]
struct Plain {
    info: FunctionInfo,
    run: Run,
}

impl Function for Plain {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    /// Both ways of running are met: by size.
    fn execution(&self, bytes: u64) -> Execution {
        if bytes <= 16 << 10 { Execution::Inline } else { Execution::Pooled }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        (self.run)(call)
    }
}

fn is_input(direction: Direction) -> bool {
    matches!(direction, Direction::Input | Direction::InOut)
}

fn is_output(direction: Direction) -> bool {
    matches!(direction, Direction::Output | Direction::InOut)
}

fn copy(call: &mut Call<'_>) -> Result<(), CallFailure> {
    let more = call.user().get() as u8;
    let inputs = call.regions().iter().filter(|region| is_input(region.direction));
    let all: Vec<u8> = inputs.flat_map(|region| region.bytes.iter().copied()).collect();
    let outputs = call.regions().iter_mut().filter(|region| is_output(region.direction));
    for (skipped, region) in outputs.enumerate() {
        let mut source = all.iter().cycle().skip(skipped).copied();
        for byte in region.bytes.iter_mut() {
            *byte = source.next().unwrap_or(0).wrapping_add(more);
        }
    }
    Ok(())
}

fn fail(call: &mut Call<'_>) -> Result<(), CallFailure> {
    match call.user().get() {
        FAIL_ARGUMENTS => Err(CallFailure::Arguments("as asked".into())),
        FAIL_INPUT => Err(CallFailure::Input("as asked".into())),
        _ => Err(CallFailure::OutputTooSmall { output: 0, needed: Some(99) }),
    }
}

fn count(call: &mut Call<'_>) -> Result<(), CallFailure> {
    let mut counts = Vec::new();
    for region in call.regions().iter_mut().filter(|region| region.direction == Direction::Internal) {
        if let Some(last) = region.bytes.last_mut() {
            *last += 1;
            counts.push(*last);
        }
    }
    let mut parts = call.parts();
    let output = parts.take_output(0).filter(|bytes| bytes.len() >= counts.len());
    let output = output.ok_or(CallFailure::Arguments("no room for the counts".into()))?;
    output[..counts.len()].copy_from_slice(&counts);
    Ok(())
}

fn produce(call: &mut Call<'_>) -> Result<(), CallFailure> {
    let wanted = call.user().get() as usize;
    let mut parts = call.parts();
    let output = parts.take_output(0).filter(|bytes| bytes.len() >= wanted);
    output.ok_or(CallFailure::Arguments("the output is shorter".into()))?.fill(7);
    call.set_produced(0, wanted);
    Ok(())
}

/// All of them.
pub(super) fn all() -> Vec<Arc<dyn Function>> {
    let plain = |code, name: &str, description: &str, run| {
        let info = FunctionInfo {
            code,
            name: name.into(),
            description: description.into(),
            pooled: false,
            parameters: Vec::new(),
        };
        Arc::new(Plain { info, run }) as Arc<dyn Function>
    };
    vec![
        slow::function(),
        plain(COPY, "copy", "copies inputs to outputs, adding the user bits", copy),
        plain(FAIL, "fail", "fails as the user bits say", fail),
        plain(COUNT, "count", "counts calls in internal regions", count),
        plain(PRODUCE, "produce", "sends as many bytes as the user bits say", produce),
    ]
}
