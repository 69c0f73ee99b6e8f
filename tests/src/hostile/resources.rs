//! Too little of everything: each shortage ends in a clear error of whoever met it, and of nobody else.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use mrsp::{ErrorCode, builtin::INCREMENT, host::PeerError};
use naa_host::{Device, Error, Param, Session, SessionConfig};

use super::{
    case::{Case, Observation},
    environment::Environment,
    resources_process::{ServeProcess, TempFolder, after, complaint, run, sibling},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "64 KiB of locked memory",
        "`ulimit -l 64` for naa serve and naa call, 16 MiB",
        "served",
        &[],
        |env| {
            let limit = "ulimit -l 64";
            let server = ServeProcess::start(limit, &["--bind", &env.address().to_string()])?;
            let folder = TempFolder::new("memlock")?;
            let input = zeros(&folder, 16 << 20)?;
            let output = run(after(limit, &sibling("naa")?, call(&server, &input, None)))?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // SHA-256 of 16 MiB of zeros.
            let right = said.contains("080acf35a507ac9849cfcba47dc2ad83e01b75663a516279c8b9d243b719643e");
            if output.status.success() && right { Ok("served".into()) } else { Err(format!("{output:?}")) }
        },
    ),
    Case::new("no descriptors for a server", "`ulimit -n` 4 to 8 for naa serve", "ulimit -n", &[], |env| {
        let (naa, address) = (sibling("naa")?, env.address().to_string());
        shortage((4..=8).map(|files| {
            let args = ["serve", "--bind", &address, "--port", "0", "--until-eof"];
            after(&format!("ulimit -n {files}"), &naa, args)
        }))
    }),
    Case::new("no descriptors for a host", "`ulimit -n` 4 to 9 for naa call", "ulimit -n", &[], |env| {
        let server = ServeProcess::start("true", &["--bind", &env.address().to_string()])?;
        let folder = TempFolder::new("descriptors")?;
        let (naa, input) = (sibling("naa")?, zeros(&folder, 4096)?);
        shortage((4..=9).map(|files| {
            let args = call(&server, &input, Some(&folder.0.join("out")));
            after(&format!("ulimit -n {files}"), &naa, args)
        }))
    }),
    Case::new(
        "full disk",
        "naa call --out to a file system of 64 KiB",
        "No space left on device",
        &[],
        full_disk,
    ),
    Case::new(
        "output that takes no more",
        "naa call --out to /dev/full, and under `ulimit -f 64`",
        "No space left on device, File too large",
        &[],
        |env| {
            let server = ServeProcess::start("true", &["--bind", &env.address().to_string()])?;
            let folder = TempFolder::new("no-more")?;
            let (naa, input) = (sibling("naa")?, zeros(&folder, 1 << 20)?);
            let full = run(after("true", &naa, call(&server, &input, Some(Path::new("/dev/full")))))?;
            let out = folder.0.join("out");
            let large = run(after("trap '' XFSZ; ulimit -f 64", &naa, call(&server, &input, Some(&out))))?;
            if folder.names() != ["zeros"] {
                return Err(format!("files were left: {:?}", folder.names()));
            }
            let said = complaint(&large)?;
            Ok(Observation::noted(
                format!("{}, {}", shortage_of_room(&complaint(&full)?), shortage_of_room(&said)),
                said,
            ))
        },
    ),
    Case::new(
        "no memory for a server's regions",
        "`ulimit -v` 2 GiB, hosts that ask for 1 GiB until refused, then for less and less",
        "ERR 1",
        &[],
        |env| no_room(env, &[]),
    ),
    Case::new(
        "more promised to sessions than there is",
        "the same with `--memory` of 1 TiB: the kernel refuses, not the server's own limit",
        "ERR 1",
        &[],
        |env| no_room(env, &["--memory", "1048576", "--session-memory", "1048576"]),
    ),
    Case::new(
        "no memory for a host's regions",
        "`ulimit -v` 1 GiB for naa call with a file of 1.5 GiB",
        "ulimit -v",
        &[],
        |env| {
            let server = ServeProcess::start("true", &["--bind", &env.address().to_string()])?;
            let folder = TempFolder::new("address-space")?;
            let input = folder.0.join("zeros");
            let file = fs::File::create(&input).map_err(|e| e.to_string())?;
            file.set_len(3 << 29).map_err(|e| e.to_string())?;
            let args = call(&server, &input, None);
            shortage([after("ulimit -v 1048576", &sibling("naa")?, args)])
        },
    ),
    Case::new(
        "no threads",
        "`ulimit -u 1` for naa serve and naa call, as nobody",
        "ulimit -u",
        &[],
        no_threads,
    ),
];

fn zeros(folder: &TempFolder, len: usize) -> Result<std::path::PathBuf, String> {
    let path = folder.0.join("zeros");
    fs::write(&path, vec![0; len]).map_err(|e| e.to_string())?;
    Ok(path)
}

fn call(server: &ServeProcess, input: &Path, output: Option<&Path>) -> Vec<String> {
    let function = if output.is_some() { "increment" } else { "sha256" };
    let mut args = vec!["call".to_owned(), function.into(), "--server".into(), server.address.to_string()];
    args.extend(["--in".into(), input.display().to_string()]);
    args.extend(output.into_iter().flat_map(|path| ["--out".into(), path.display().to_string()]));
    args
}

/// All fail, and say which limit is to be raised.
fn shortage(commands: impl IntoIterator<Item = Command>) -> Result<Observation, String> {
    let mut said = Vec::new();
    for command in commands {
        let text = format!("{command:?}");
        let output = run(command)?;
        if output.status.success() {
            // That much was enough.
            continue;
        }
        said.push(complaint(&output).map_err(|why| format!("{text}: {why}"))?);
    }
    let remedy = ["ulimit -n", "ulimit -v", "ulimit -u"];
    let Some(remedy) = remedy.iter().find(|remedy| said.iter().all(|text| text.contains(*remedy))) else {
        return Err(format!("no remedy in all of {said:?}"));
    };
    let last = said.last().ok_or("nothing failed")?;
    Ok(Observation::noted(*remedy, format!("{} times, such as: {last}", said.len())))
}

/// What of it the operating system said.
fn shortage_of_room(complaint: &str) -> &str {
    let kinds = ["No space left on device", "File too large"];
    kinds.into_iter().find(|kind| complaint.contains(kind)).unwrap_or(complaint)
}

fn full_disk(env: &mut Environment) -> Result<Observation, String> {
    let folder = TempFolder::new("full-disk")?;
    let mount = format!("mount -t tmpfs -o size=64k none {}", folder.0.display());
    let tried = run(in_own_mounts(&mount))?;
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
        return Ok(Observation::skipped(format!("no mount without rights: {why}")));
    }
    let server = ServeProcess::start("true", &["--bind", &env.address().to_string()])?;
    let inputs = TempFolder::new("full-disk-input")?;
    let input = zeros(&inputs, 1 << 20)?;
    let args = call(&server, &input, Some(&folder.0.join("out"))).join(" ");
    // The mount goes with its namespace, and so must the listing.
    let list = format!("ls -A {} >&2", folder.0.display());
    let naa = sibling("naa")?;
    let output =
        run(in_own_mounts(&format!("{mount} && {} {args}; code=$?; {list}; exit $code", naa.display())))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.lines().any(|line| !line.starts_with("naa: ")) {
        return Err(format!("a file was left: {said:?}"));
    }
    let said = complaint(&output)?;
    Ok(Observation::noted(shortage_of_room(&said), said.clone()))
}

/// A line of shell that may mount what nobody else sees.
fn in_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-m", "-r", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Sessions of all sizes until the server has no address space left; it serves on.
fn no_room(env: &mut Environment, args: &[&str]) -> Result<Observation, String> {
    let address = env.address().to_string();
    let mut server = ServeProcess::start("ulimit -v 2097152", &[&["--bind", &address], args].concat())?;
    let mut before =
        host(env, &server).map_err(|why| format!("before the server's memory was used: {why}"))?;
    let device = Device::open(env.address()).map_err(|e| e.to_string())?;
    let (mut sessions, mut refusals) = (Vec::new(), Vec::new());
    for size in [30, 28, 24, 20, 16, 12].map(|log| 1usize << log) {
        for _ in 0..64 {
            // The host needs no memory for what is the accelerator's alone.
            let params = [Param::in_out(64), Param::internal(size)];
            match Session::connect(&device, server.address, &params, &SessionConfig::default()) {
                Ok(session) => sessions.push(session),
                Err(error) => {
                    refusals.push(in_mrsp(&error)?);
                    break;
                }
            }
        }
    }
    if !server.is_running() {
        return Err(format!("the server died: {}", server.end()?));
    }
    before.call(INCREMENT).map_err(|e| format!("a session from before: {e}"))?;
    for session in &mut sessions {
        session.call(INCREMENT).map_err(|e| format!("a session that was granted: {e}"))?;
    }
    let count = sessions.len();
    drop(sessions);
    host(env, &server).map_err(|why| format!("after memory was free again: {why}"))?;
    let log = server.end()?;
    let told = |remedy| log.lines().any(|line| line.contains("session fails") && line.contains(remedy));
    if !told("ulimit -v") && !told("memory limit") {
        return Err(format!("the server's log does not say what to do: {log}"));
    }
    // When hardly a page is left, the connection itself may be what is refused.
    let all = refusals.join(", ");
    refusals.retain(|refusal| refusal != "REJ 28");
    refusals.dedup();
    Ok(Observation::noted(refusals.join(", "), format!("{all} after {count} sessions")))
}

fn in_mrsp(error: &Error) -> Result<String, String> {
    match error {
        Error::Peer { source: PeerError::Refused(ErrorCode::Memory), .. } => Ok("ERR 1".into()),
        Error::ConnectionRefused { reason, said: Some(_), .. } => Ok(format!("REJ {}", reason.0)),
        other => Err(other.to_string()),
    }
}

fn host(env: &mut Environment, server: &ServeProcess) -> Result<Session, String> {
    let device = Device::open(env.address()).map_err(|e| e.to_string())?;
    let mut session =
        Session::connect(&device, server.address, &[Param::in_out(4096)], &SessionConfig::default())
            .map_err(|e| e.to_string())?;
    session.call(INCREMENT).map_err(|e| e.to_string())?;
    Ok(session)
}

fn no_threads(env: &mut Environment) -> Result<Observation, String> {
    let server = ServeProcess::start("true", &["--bind", &env.address().to_string()])?;
    let folder = TempFolder::new("threads")?;
    let input = zeros(&folder, 4096)?;
    // Root is above this limit; a user of its own has one process, this one. Root of a user namespace may become nobody else,
    // and is below it.
    let as_nobody = "set -- \"$0\" \"$@\"; nobody='setpriv --reuid 64999 --regid 64999 --clear-groups'; \
                     if [ $(id -u) = 0 ] && $nobody true 2>/dev/null; then set -- $nobody \"$@\"; fi; \
                     ulimit -u 1; exec \"$@\"";
    let naa = sibling("naa")?;
    let bind = env.address().to_string();
    let serve = ["serve", "--bind", &bind, "--port", "0"].map(str::to_owned).to_vec();
    let copy = folder.0.join("naa");
    // Where this user can read it.
    fs::copy(&naa, &copy).map_err(|e| e.to_string())?;
    shortage([after(as_nobody, &copy, serve), after(as_nobody, &copy, call(&server, &input, None))])
}
