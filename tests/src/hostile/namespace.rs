//! A network namespace of this run's own, for addresses of IPv6: of those every machine has `::1` alone, and a peer is
//! a /64.

use std::{
    io::Write as _,
    net::Ipv6Addr,
    process::{Command, ExitStatus, Stdio},
};

/// The argument that tells a program that it is in such a namespace.
pub const INSIDE: &str = "--inside";

/// Options by which `unshare` makes one. Root needs no user namespace; others have the rights in one only.
const OPTIONS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.map_err(|e| format!("cannot run `{program}`: {e}; install util-linux and iproute2"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("`{program} {}`: {said}", arguments.join(" "))) }
}

/// The first options that this machine permits.
fn options() -> Result<&'static [&'static str], String> {
    let tried = OPTIONS.map(|options| {
        let probe = [options, &["ip", "link", "set", "lo", "up"]].concat();
        run("unshare", &probe).map(|()| options)
    });
    let mut why = Vec::new();
    for result in tried {
        match result {
            Ok(options) => return Ok(options),
            Err(problem) => why.push(problem),
        }
    }
    Err(format!("no network namespace can be made here: {}", why.join("; ")))
}

/// Runs this program with the same arguments in a network namespace of its own.
///
/// # Errors
/// If this machine does not permit that; the text says why.
pub fn enter() -> Result<ExitStatus, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
    let mut command = Command::new("unshare");
    command.args(options()?).arg(program).args(std::env::args_os().skip(1)).arg(INSIDE);
    command.status().map_err(|e| format!("cannot run `unshare`: {e}"))
}

/// Brings the namespace's loopback interface up.
///
/// # Errors
/// If `ip` fails.
pub fn settle() -> Result<(), String> {
    run("ip", &["link", "set", "lo", "up"])
}

/// Gives these addresses to the loopback interface, each with a network of its own.
pub(super) fn add(addresses: impl IntoIterator<Item = Ipv6Addr>) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot run `ip`: {e}");
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut ip = ip.spawn().map_err(failed)?;
    if let Some(mut to) = ip.stdin.take() {
        for address in addresses {
            writeln!(to, "addr add {address}/64 dev lo nodad").map_err(failed)?;
        }
    }
    let output = ip.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("`ip addr add`: {said}")) }
}
