//! The programs, and a process for each of their rows.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{
    process::Process,
    row::Row,
    run::{Environment, RunConfig},
};

/// What a program says of one of its rows: `FUNCTION|WHAT|SECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) program: PathBuf,
    pub(super) index: usize,
    pub(super) function: String,
    pub(super) what: String,
    pub(super) limit: Duration,
    pub(super) only_long: bool,
}

/// The programs of a folder, in order: files that can be run, named `NAME-c` or `NAME-cpp`.
pub(super) fn programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| is_program(&name.to_string_lossy())))
        .collect();
    found.sort();
    Ok(found)
}

fn is_program(name: &str) -> bool {
    name.ends_with("-c") || name.ends_with("-cpp")
}

pub(super) fn label(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, "cpp")) => format!("{name}, C++"),
        Some((name, _)) => format!("{name}, C"),
        None => name.into_owned(),
    }
}

/// The rows of a program, as it lists them.
pub(super) fn list(program: &Path) -> Result<Vec<Listed>, String> {
    let output = Command::new(program).arg("--list").output();
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let row = |(index, line): (usize, &str)| {
        let mut cells = line.split('|');
        let (function, what) = (cells.next()?.to_owned(), cells.next()?.to_owned());
        let limit = Duration::from_secs(cells.next()?.parse().ok()?);
        let only_long = cells.next() == Some("long");
        Some(Listed { program: program.to_owned(), index, function, what, limit, only_long })
    };
    let rows: Option<Vec<_>> = text.lines().enumerate().map(row).collect();
    let rows = rows.filter(|rows| output.status.success() && !rows.is_empty());
    rows.ok_or_else(|| format!("{} lists no rows: {text}", program.display()))
}

/// Addresses of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowAddresses {
    /// Where the suite's accelerator is.
    pub(super) server: IpAddr,
    /// For the program itself, and for servers it starts.
    pub(super) local: IpAddr,
    pub(super) spare: IpAddr,
    pub(super) spare_port: u16,
}

/// The environment of a program's processes.
pub(super) fn command(program: &Path, options: &RunConfig, addresses: &RowAddresses) -> Command {
    let mut command = Command::new(program);
    command
        .env("CAPI_SERVER", addresses.server.to_string())
        .env("CAPI_PORT", options.port.to_string())
        .env("CAPI_LOCAL", addresses.local.to_string())
        .env("CAPI_SPARE", addresses.spare.to_string())
        .env("CAPI_SPARE_PORT", addresses.spare_port.to_string())
        .env("CAPI_SLOWNESS", options.slowness.to_string())
        .env("NAA_PROVIDER", options.provider_name())
        .env("ASAN_OPTIONS", "detect_stack_use_after_return=1:check_initialization_order=1:abort_on_error=0")
        .env("UBSAN_OPTIONS", "print_stacktrace=1")
        .env_remove("NAA_SPEC")
        .env_remove("NAA_LOCAL_IP");
    command
}

/// Carries out a row in a process of its own.
pub(super) fn perform(row: &Listed, env: &Environment<'_>) -> Row {
    let start = Instant::now();
    let addresses = env.addresses();
    let limit = row.limit * env.options.slowness;
    let mut command = command(&row.program, env.options, &addresses);
    command.arg(row.index.to_string());
    let ended = Process::start(&mut command, &env.folder.0).and_then(|mut process| process.succeed(limit));
    let result = match ended {
        Ok(output) => {
            let last = output.lines().rev().find(|line| line.starts_with("note: ")).unwrap_or("note: ");
            Ok(last["note: ".len()..].to_owned())
        }
        Err(why) => Err(format!("{why} // the accelerator: {}", env.server_output())),
    };
    Row::new(&label(&row.program), &format!("{}: {}", row.function, row.what), start.elapsed(), result)
}
