//! Reports of calls: lines in the format of sha256sum, and JSON.

use std::{
    borrow::Cow,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use anyhow::Context as _;
use mrsp::{FunctionCode, builtin};

use super::offload::Times;
use crate::show;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    #[default]
    Done,
    /// The result existed already.
    Skipped,
    Failed,
    /// The accelerator was lost, or the user interrupted the program, before the call was tried.
    NotTried,
}

/// The report of a call. Its form in JSON is stable.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct Report {
    pub(super) function: String,
    pub(super) provider: &'static str,
    /// The provider, and why it was chosen.
    pub(super) why: String,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) status: Status,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// The time of connecting in seconds; 0 if a session was used again.
    pub(super) connect_s: f64,
    pub(super) offloaded_s: f64,
    /// The function's return code; 0 is success. `None` if something other than the function failed.
    pub(super) code: Option<u32>,
    /// Hexadecimal digits of a checksum.
    pub(super) result: Option<String>,
    /// The error, if the call failed.
    pub(super) error: Option<String>,
}

impl Report {
    pub(super) fn time(&mut self, times: Times) {
        self.connect_s = times.connect.as_secs_f64();
        self.offloaded_s = times.offloaded.as_secs_f64();
    }

    pub(super) fn conclude(&mut self, function: FunctionCode, results: &[Cow<'_, [u8]>]) {
        self.code = Some(0);
        self.result = checksum(function, results);
    }

    pub(super) fn fail(&mut self, status: Status, error: &anyhow::Error) {
        self.status = status;
        let code = error.downcast_ref::<naa_host::Error>().and_then(naa_host::Error::return_code);
        self.code = code.map(mrsp::ReturnCode::get);
        self.error = Some(verbs::told(error.as_ref()));
    }

    pub(super) fn print_json(&self, stdout_is_data: bool) -> anyhow::Result<()> {
        let text = serde_json::to_string(self)?;
        if stdout_is_data {
            writeln!(io::stderr(), "{text}").context("cannot write the report to standard error")?;
        } else {
            show::line(&text)?;
        }
        Ok(())
    }
}

/// The digits in which the checksum of a function is usually written.
fn checksum(function: FunctionCode, results: &[Cow<'_, [u8]>]) -> Option<String> {
    match (function, results) {
        (builtin::SHA256, [digest]) => Some(show::hex(digest)),
        (builtin::CRC32C, [checksum]) => {
            checksum.first_chunk().map(|bytes| format!("{:08x}", u32::from_le_bytes(*bytes)))
        }
        _ => None,
    }
}

/// A line as `sha256sum` prints and `sha256sum -c` reads it.
pub(super) fn print_checksum(digits: &str, path: &Path) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(&checksum_line(digits, path)).and_then(|()| out.flush());
    // The kind of the error stays, so that a closed pipe can be recognised, which is no failure.
    Ok(written
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write standard output: {error}")))?)
}

/// The line of a checksum. A name with a line break is escaped, and a backslash before the digits marks that.
fn checksum_line(digits: &str, path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_bytes();
    let escape = |byte: &u8| match byte {
        b'\\' => b"\\\\".to_vec(),
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        other => vec![*other],
    };
    let escaped: Vec<_> = name.iter().flat_map(escape).collect();
    let mark: &[u8] = if escaped == name { b"" } else { b"\\" };
    [mark, digits.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        assert_eq!(checksum_line("00ff", Path::new("a b")), b"00ff  a b\n");
        assert_eq!(checksum_line("00ff", Path::new("a\\\nb")), b"\\00ff  a\\\\\\nb\n");
    }
}
