//! The functions of the NAAICE test programs. The functions of this module accept any number of regions of any sizes.
//! The calls of these functions have no argument block.

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

/// A function that adds the same amount to every byte of every region that is not internal. If the amount is 0, the
/// function does not access the regions. The function with the amount 0 is for tests of the transport.
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
        if self.amount == 0 {
            return Ok(());
        }
        let stop = call.stop();
        for region in call.regions() {
            if region.direction != Direction::Internal {
                each(region.bytes, stop, |bytes| increment(self.amount, bytes))?;
            }
        }
        Ok(())
    }
}

pub(super) fn functions() -> [Handler; 3] {
    [
        (builtin::INCREMENT, "adds 1 to every byte of every parameter", 1),
        (builtin::INCREMENT_BY_TWO, "adds 2 to every byte of every parameter", 2),
        (builtin::NOTHING, "changes nothing", 0),
    ]
    .map(|(code, description, amount)| {
        Increment { info: info(code, description, amount > 0, Vec::new()), amount }.into()
    })
}
