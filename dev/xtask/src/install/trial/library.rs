//! What the shared library is to the linker.

use super::{Ground, output};
use anyhow::{Context, Result, ensure};
use std::{fs, path::PathBuf, process::Command};

/// Libraries that every glibc system with a compiler's run-time has; rdma-core is loaded when it is asked for.
const MAY_NEED: [&str; 4] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];

const PREFIXES: [&str; 3] = ["naa_", "naaice_", "ulog_"];
/// Without a prefix, as NAAICE's library has them.
const NAMES: [&str; 5] = [
    "worker_procedure",
    "get_ibv_wc_opcode_str",
    "get_state_str",
    "alarm_handler",
    "get_sequential_naa_addresses",
];
/// One symbol of each part of the interface; the library must define all of them.
const PARTS: [&str; 4] =
    ["naaice_setup_connection", "naa_invoke", "naaice_swnaa_init_master", "naa_session_connect"];

fn shared(ground: &Ground) -> PathBuf {
    ground.prefix.join("lib/libnaa.so.0")
}

pub(super) fn name_and_needs(ground: &Ground) -> Result<String> {
    let dynamic = output(Command::new("readelf").args(["-d", "-W"]).arg(shared(ground)))?;
    let values = |tag: &str| -> Vec<String> {
        let lines = dynamic.lines().filter(|line| line.contains(&format!("({tag})")));
        lines.filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned())).collect()
    };
    let name = values("SONAME");
    ensure!(name == ["libnaa.so.0"], "its name is {name:?}");
    let needs = values("NEEDED");
    let more: Vec<_> = needs.iter().filter(|lib| !MAY_NEED.contains(&lib.as_str())).collect();
    ensure!(more.is_empty(), "it needs {more:?}");
    ensure!(dynamic.contains("NODELETE"), "it can be unloaded while its threads run");
    Ok(needs.join(" "))
}

pub(super) fn symbols(ground: &Ground) -> Result<String> {
    let defined = names(ground, "--defined-only")?;
    let foreign: Vec<_> = defined
        .iter()
        .filter(|(_, name)| {
            !NAMES.contains(&name.as_str()) && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    ensure!(foreign.is_empty(), "it defines other names: {foreign:?}");
    let missing: Vec<_> =
        PARTS.iter().filter(|part| !defined.iter().any(|(_, name)| name == *part)).collect();
    ensure!(missing.is_empty(), "it lacks {missing:?}");
    // Names of system libraries have versions. Weak ones, such as match_function_code, may be missing.
    let wanted: Vec<_> = names(ground, "--undefined-only")?
        .into_iter()
        .filter(|(kind, name)| kind == "U" && !name.contains('@'))
        .collect();
    ensure!(wanted.is_empty(), "programs would have to define {wanted:?}");
    Ok(format!("{} defined", defined.len()))
}

/// Kind and name of dynamic symbols.
fn names(ground: &Ground, which: &str) -> Result<Vec<(String, String)>> {
    let listed = output(Command::new("nm").args(["-D", "-P", which]).arg(shared(ground)))?;
    let name = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        words.next().zip(words.next()).map(|(name, kind)| (kind, name))
    };
    listed.lines().map(|line| name(line).with_context(|| format!("nm: {line}"))).collect()
}

/// Both C libraries are built without the feature `tokio` of the host library.
pub(super) fn no_runtime(ground: &Ground) -> Result<String> {
    let mut sizes = Vec::new();
    for library in [&ground.built.shared, &ground.built.archive] {
        let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
        // The texts of a panic name the file in which it is.
        ensure!(!bytes.windows(7).any(|window| window == b"/tokio-"), "{} contains tokio", library.display());
        sizes.push(format!("{} KiB", bytes.len() >> 10));
    }
    Ok(sizes.join(", "))
}
