//! An accelerator whose function runs as a task: it answers after a while, as a front for another service does.

use std::time::Duration;

use mrsp::FunctionCode;
use naa_server::{
    call::CallFailure,
    function::FunctionInfo,
    tasks::{AsyncCall, AsyncFunction, Reply},
};
use tokio::runtime::Handle;

/// The function that answers after as many milliseconds as the user bits say. Each byte of its output is the byte of its
/// input plus one.
pub const LATER: FunctionCode = FunctionCode::constant(105);

/// Makes the function, of which at most `most` calls run at a time.
pub fn later(runtime: &Handle, most: usize) -> AsyncFunction {
    let info = FunctionInfo {
        code: LATER,
        name: "later".into(),
        description: "answers after a while".into(),
        pooled: true,
        parameters: Vec::new(),
    };
    AsyncFunction::on_tokio(info, most, runtime.clone(), |mut call: AsyncCall| async move {
        let time = Duration::from_millis(call.user().get().into());
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        let missing = || CallFailure::Arguments("there is no input; map one".into());
        let mut bytes = call.take_input(0).ok_or_else(missing)?;
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        Ok(Reply::default().output(bytes))
    })
}
