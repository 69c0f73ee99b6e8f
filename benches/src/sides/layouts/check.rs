//! Whether all bytes arrive, each where it belongs: both ends know what there is to be in each parameter.

use std::sync::Arc;

use mrsp::{FunctionCode, U24, catalogue::Direction};
use naa_host::Session;
use naa_server::{
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
};

/// The function that checks bytes, besides the functions that every server has.
const CHECK: FunctionCode = FunctionCode::constant(103);
/// Bytes after which the pattern repeats: no divisor of sizes, so bytes that move from one place to another show.
const PERIOD: usize = 1021;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    There,
    Back,
}

/// Bytes of parameter `index` in check number `salt`.
fn pattern(index: usize, salt: u32, leg: Leg) -> [u8; PERIOD] {
    let leg = if leg == Leg::There { 1 } else { 2 };
    let mut state =
        (index as u32 + 1).wrapping_mul(0x9e37_79b9) ^ salt.wrapping_mul(0x85eb_ca6b) ^ (leg << 30);
    std::array::from_fn(|_| {
        // The constants of Numerical Recipes; the upper bits are the random ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

pub(super) fn fill(bytes: &mut [u8], index: usize, salt: u32, leg: Leg) {
    let pattern = pattern(index, salt, leg);
    for chunk in bytes.chunks_mut(PERIOD) {
        chunk.copy_from_slice(&pattern[..chunk.len()]);
    }
}

/// Where the first byte is that is not as [`fill`] makes it.
pub(super) fn first_wrong(bytes: &[u8], index: usize, salt: u32, leg: Leg) -> Option<usize> {
    let pattern = pattern(index, salt, leg);
    let mut chunks = bytes.chunks(PERIOD).enumerate();
    let (chunk, part) = chunks.find(|(_, part)| **part != pattern[..part.len()])?;
    let within = part.iter().zip(&pattern).position(|(found, expected)| found != expected)?;
    Some(chunk * PERIOD + within)
}

/// Fails if inputs are not as [`fill`] makes them with the number that the host passes along; fills outputs.
#[derive(Debug)]
struct Check(FunctionInfo);

pub(super) fn function() -> Arc<dyn Function> {
    let (name, description) = ("bench-check".into(), "sees whether bytes are as they were sent".into());
    Arc::new(Check(FunctionInfo { code: CHECK, name, description, pooled: false, parameters: Vec::new() }))
}

impl Function for Check {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let salt = call.user().get();
        for (index, region) in call.regions().iter_mut().enumerate() {
            let direction = region.direction;
            if matches!(direction, Direction::Input | Direction::InOut)
                && let Some(byte) = first_wrong(region.bytes, index, salt, Leg::There)
            {
                let why = format!("parameter {index} is wrong from byte {byte} on");
                // The host is told a number only.
                eprintln!("naa: {why}");
                return Err(CallFailure::Input(why.into()));
            }
            if matches!(direction, Direction::Output | Direction::InOut) {
                fill(region.bytes, index, salt, Leg::Back);
            }
        }
        Ok(())
    }
}

/// Calls the function, with the number of the check.
pub(super) fn call(session: &mut Session, salt: u32) -> anyhow::Result<()> {
    let user = U24::new(salt).ok_or_else(|| anyhow::anyhow!("too many checks"))?;
    session.invoke(CHECK, user)?;
    Ok(session.wait()?.into_result().map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_wrong_places_are_found() {
        let mut bytes = vec![0; 10_000];
        fill(&mut bytes, 3, 1, Leg::There);
        assert_eq!(first_wrong(&bytes, 3, 1, Leg::There), None);
        for (index, salt, leg) in [(4, 1, Leg::There), (3, 2, Leg::There), (3, 1, Leg::Back)] {
            assert!(first_wrong(&bytes, index, salt, leg).is_some_and(|byte| byte < 8), "{index} {salt}");
        }
        bytes[7777] ^= 1;
        assert_eq!(first_wrong(&bytes, 3, 1, Leg::There), Some(7777));
        bytes[7777] ^= 1;
        bytes.copy_within(4096..8192, 0);
        assert!(first_wrong(&bytes, 3, 1, Leg::There).is_some());
        assert_eq!(first_wrong(&[], 0, 0, Leg::There), None);
    }
}
