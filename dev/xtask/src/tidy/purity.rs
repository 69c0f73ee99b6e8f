//! Pure crates take bytes, time, memory and randomness as arguments: they name nothing that reaches outside.

use super::{Finding, manifest_line};
use crate::{metadata::Package, source};

/// Folders of crates without sockets, clocks and threads.
pub(crate) const PURE: &[&str] =
    &["rdma/verbs", "rdma/roce", "mrsp", "ejfat/ejfat", "ejfat/control", "dev/simnet"];

/// External crates that are themselves pure.
const EXTERNAL: &[&str] = &[
    "thiserror",
    "crc32fast",
    "foldhash",
    "rand_core",
    "rand_chacha",
    "smallvec",
    "arrayvec",
    "bitflags",
    "serde",
    "serde_json",
    "sha2",
    "etherparse",
    "hdrhistogram",
    "pcap-parser",
    "percent-encoding",
];

const SOCKET: &str = "take datagrams as arguments; sockets belong to `naa-udp`";
const CLOCK: &str = "take the time as an argument";
const THREAD: &str = "leave concurrency to the driver; state belongs to one owner";
const OUTSIDE: &str = "take what is needed as an argument; the edge reads files and environment";

/// Paths, or parts of paths, that reach outside.
const REFUSED: &[(&str, &str)] = &[
    ("UdpSocket", SOCKET),
    ("TcpStream", SOCKET),
    ("TcpListener", SOCKET),
    ("tokio", SOCKET),
    ("libc", SOCKET),
    ("Instant::now", CLOCK),
    ("SystemTime", CLOCK),
    ("std::thread", THREAD),
    ("Mutex", THREAD),
    ("RwLock", THREAD),
    ("Condvar", THREAD),
    ("std::fs", OUTSIDE),
    ("std::process", OUTSIDE),
    ("std::env", OUTSIDE),
];

pub(crate) fn check_dependencies(package: &Package) -> Vec<Finding> {
    if !PURE.contains(&package.folder.as_str()) {
        return Vec::new();
    }
    let external =
        package.dependencies.iter().filter(|d| d.path.is_none() && d.kind.as_deref() != Some("dev"));
    external
        .filter(|d| !EXTERNAL.contains(&d.name.as_str()))
        .map(|d| {
            let what = format!("pure crate `{}` depends on `{}`", package.name, d.name);
            let remedy =
                "do without, or add it to EXTERNAL of dev/xtask/src/tidy/purity.rs if it is pure itself";
            Finding::new(&package.manifest_path(), manifest_line(&package.manifest, &d.name), what, remedy)
        })
        .collect()
}

/// `code` is source without comments and literals. Tests are held to the same rules: they run in virtual time. Only
/// those in the folder `tests` may read files and their environment: golden vectors, a seed.
pub(crate) fn check_code(path: &str, code: &str) -> Vec<Finding> {
    let below = |folder: &str| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    let Some((folder, rest)) = PURE.iter().find_map(|folder| Some((folder, below(folder)?))) else {
        return Vec::new();
    };
    let reads = rest.starts_with("tests/");
    let refused: Vec<_> = REFUSED.iter().filter(|(_, remedy)| !(reads && *remedy == OUTSIDE)).collect();
    let mut findings = Vec::new();
    for (line, named) in source::paths(code) {
        if let Some((part, remedy)) = refused.iter().find(|(part, _)| contains(&named, part)) {
            let what = format!("pure crate `{folder}` names `{named}` (no `{part}` here)");
            findings.push(Finding::new(path, line, what, *remedy));
        }
    }
    findings
}

/// Whether the segments of `part` follow each other in `path`.
fn contains(path: &str, part: &str) -> bool {
    format!("::{path}::").contains(&format!("::{part}::"))
}

#[cfg(test)]
mod tests {
    use super::{super::package, *};

    fn lines(code: &str) -> Vec<usize> {
        check_code("rdma/roce/src/lib.rs", &source::strip(code)).iter().map(|f| f.line).collect()
    }

    #[test]
    fn names_that_reach_outside_are_found() {
        assert_eq!(lines("use std::{\n    net::UdpSocket,\n    time::Instant,\n};\n"), [2]);
        assert_eq!(lines("fn f() {\n let t = Instant::now();\n std::thread::sleep(d);\n}"), [2, 3]);
        assert_eq!(lines("use std::sync::{Arc, Mutex};"), [1]);
        assert_eq!(lines("let x = ::libc::getpid();"), [1]);
    }

    #[test]
    fn comments_strings_and_lookalikes_are_not() {
        assert!(lines("// Instant::now\n\"std::fs\" // std::thread").is_empty());
        assert!(
            lines("use std::net::SocketAddr; struct Instantaneous; env!(\"X\"); core::fmt::Debug").is_empty()
        );
        assert!(check_code("rdma/roce-udp/src/lib.rs", "use std::net::UdpSocket;").is_empty());
    }

    #[test]
    fn tests_may_read_files_but_no_clock() {
        let code = "std::fs::read(path); Instant::now();";
        let found = check_code("rdma/roce/tests/golden.rs", code);
        assert!(found.len() == 1 && found[0].what.contains("Instant"), "{found:?}");
        assert_eq!(check_code("rdma/roce/src/tests.rs", code).len(), 2);
    }

    #[test]
    fn external_crates_come_from_the_list() {
        let found = check_dependencies(&package(
            "rdma/roce",
            &[("thiserror", None, false), ("tokio", None, false), ("proptest", Some("dev"), false)],
        ));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("tokio"));
    }
}
