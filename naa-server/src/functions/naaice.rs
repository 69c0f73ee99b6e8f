//! The functions of the NAAICE test programs. The functions of this module take any regions and no arguments.

use mrsp::{builtin, catalogue::Direction};

use super::{bounds, info, pieces::each};
use crate::{
    call::{Call, CallFailure},
    function::{Execution, Function, FunctionInfo, Handler},
};

/// Adds `amount` to every byte, modulo 256.
pub fn increment(amount: u8, bytes: &mut [u8]) {
    for byte in bytes {
        *byte = byte.wrapping_add(amount);
    }
}

/// A function that adds the same amount to every byte of every region that is not internal.
#[derive(Debug)]
struct Increment {
    info: FunctionInfo,
    amount: u8,
}

impl Function for Increment {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn execution(&self, bytes: u64) -> Execution {
        bounds::execution(self.info.code, bytes)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let stop = call.stop();
        for region in call.regions() {
            if region.direction != Direction::Internal {
                each(region.bytes, stop, |bytes| increment(self.amount, bytes))?;
            }
        }
        Ok(())
    }
}

/// A function that leaves every region unchanged, for tests of the transport.
#[derive(Debug)]
struct Nothing {
    info: FunctionInfo,
}

impl Function for Nothing {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn run(&self, _: &mut Call<'_>) -> Result<(), CallFailure> {
        Ok(())
    }
}

pub(super) fn functions() -> [Handler; 3] {
    let one = info(builtin::INCREMENT, "adds 1 to every byte of every parameter", true, Vec::new());
    let two = info(builtin::INCREMENT_BY_TWO, "adds 2 to every byte of every parameter", true, Vec::new());
    let nothing = info(builtin::NOTHING, "changes nothing", false, Vec::new());
    [
        Increment { info: one, amount: 1 }.into(),
        Increment { info: two, amount: 2 }.into(),
        Nothing { info: nothing }.into(),
    ]
}
