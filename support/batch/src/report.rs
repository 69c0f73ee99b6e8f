//! Reports of calls.

use std::borrow::Cow;

use mrsp::{FunctionCode, builtin};

use crate::offload::Times;

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The result is there.
    #[default]
    Done,
    /// The result existed already.
    Skipped,
    /// The call failed.
    Failed,
    /// The accelerator was lost, or the user interrupted the program, before the call was tried.
    NotTried,
}

/// The report of a call. Its form in JSON is stable.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// The name of the function, or its number.
    pub function: String,
    /// The name of the provider.
    pub provider: &'static str,
    /// The provider, and why it was chosen.
    pub why: String,
    /// The paths of the inputs.
    pub inputs: Vec<String>,
    /// The paths of the results.
    pub outputs: Vec<String>,
    /// How the call ended.
    pub status: Status,
    /// The number of bytes of the inputs.
    pub bytes_in: u64,
    /// The number of bytes of the results.
    pub bytes_out: u64,
    /// The time of connecting in seconds; 0 if a session was used again.
    pub connect_s: f64,
    /// The time of the call in seconds, without connecting.
    pub offloaded_s: f64,
    /// The function's return code; 0 is success. `None` if something other than the function failed.
    pub code: Option<u32>,
    /// Hexadecimal digits of a checksum.
    pub result: Option<String>,
    /// The error, if the call failed.
    pub error: Option<String>,
}

impl Report {
    pub(crate) fn time(&mut self, times: Times) {
        self.connect_s = times.connect.as_secs_f64();
        self.offloaded_s = times.offloaded.as_secs_f64();
    }

    pub(crate) fn conclude(&mut self, function: FunctionCode, results: &[Cow<'_, [u8]>]) {
        self.code = Some(0);
        self.result = checksum(function, results);
    }

    /// Adds the error of a call that failed.
    pub fn fail(&mut self, error: &anyhow::Error) {
        self.status = Status::Failed;
        let code = error.downcast_ref::<naa_host::Error>().and_then(naa_host::Error::return_code);
        self.code = code.map(mrsp::ReturnCode::get);
        self.error = Some(verbs::error_text(error.as_ref()));
    }
}

/// The digits in which the checksum of a function is usually written.
fn checksum(function: FunctionCode, results: &[Cow<'_, [u8]>]) -> Option<String> {
    match (function, results) {
        (builtin::SHA256, [digest]) => Some(digest.iter().map(|byte| format!("{byte:02x}")).collect()),
        (builtin::CRC32C, [checksum]) => {
            checksum.first_chunk().map(|bytes| format!("{:08x}", u32::from_le_bytes(*bytes)))
        }
        _ => None,
    }
}
