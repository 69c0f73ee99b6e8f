//! Reports of calls: lines in the format of sha256sum, and JSON.

use std::{
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use anyhow::Context as _;
use naa_batch::Report;

use crate::show;

pub(super) fn print_json(report: &Report, stdout_is_data: bool) -> anyhow::Result<()> {
    let text = serde_json::to_string(report)?;
    if stdout_is_data {
        writeln!(io::stderr(), "{text}").context("cannot write the report to standard error")?;
    } else {
        show::line(&text)?;
    }
    Ok(())
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
