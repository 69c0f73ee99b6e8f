//! `unsafe` lives in named files; everywhere else the compiler refuses it.

use super::{Finding, is_of, purity::PURE};
use crate::{metadata::Package, source};

/// Where `unsafe` may be written.
const ALLOWED: &[&str] = &[
    "rdma/verbs/src/memory.rs",
    "rdma/region/src/",
    "rdma/udp/src/sys/",
    "rdma/udp/tests/",
    "rdma/roce-udp/src/sys/",
    "rdma/roce-udp/tests/",
    "rdma/verbs-ibv/src/sys/",
    "naa-host/src/asynchronous/readiness.rs",
    "naa-host/src/buffer.rs",
    "ejfat-bridge/src/buffers.rs",
    "ejfat-bridge/src/word.rs",
    "ejfat/events/src/memory.rs",
    "naa-server/src/memory_budget.rs",
    "naa-server/src/priority.rs",
    "naa-server/tests/allocations.rs",
    "ejfat/udp/src/event_memory.rs",
    "ejfat/lb/src/forward/pass.rs",
    "fpga/sim/src/model.rs",
    "kernels/src/child/",
    "bindings/capi/src/",
    "benches/src/sides/capi.rs",
    "support/store/tests/common/disk.rs",
];

/// `code` is source without comments and literals.
pub(crate) fn check_code(path: &str, code: &str) -> Vec<Finding> {
    if ALLOWED.iter().any(|allowed| is_of(path, allowed)) {
        return Vec::new();
    }
    let keyword = source::words(code, "unsafe").map(|at| (at, "`unsafe`"));
    let lint = source::words(code, "unsafe_code")
        .filter(|at| {
            let before = code[..*at].trim_end();
            before.ends_with("allow(") || before.ends_with("expect(") || before.ends_with("warn(")
        })
        .map(|at| (at, "a relaxed lint `unsafe_code`"));
    keyword
        .chain(lint)
        .map(|(at, what)| {
            let remedy = "use a safe wrapper of `verbs::memory`, `region` or `naa_udp`; \
                          the fence is ALLOWED of dev/xtask/src/tidy/unsafe_fence.rs";
            Finding::new(path, source::line_of(code, at), format!("{what} outside the fence"), remedy)
        })
        .collect()
}

/// Every package takes over the workspace's lints, which deny `unsafe_code`.
pub(crate) fn check_package(package: &Package) -> Vec<Finding> {
    let mut lines = package.manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    if lines.next() == Some("workspace = true") {
        return Vec::new();
    }
    let what = format!("crate `{}` does not take over the workspace's lints", package.name);
    vec![Finding::new(&package.manifest_path(), 1, what, "add `[lints]` with `workspace = true`")]
}

/// The root of a pure crate without a file inside the fence forbids `unsafe_code`.
pub(crate) fn check_root(path: &str, code: &str) -> Vec<Finding> {
    let Some(folder) = path.strip_suffix("/src/lib.rs").filter(|folder| PURE.contains(folder)) else {
        return Vec::new();
    };
    let fenced = ALLOWED.iter().any(|a| a.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')));
    if fenced || code.contains("#![forbid(unsafe_code)]") {
        return Vec::new();
    }
    let what = format!("pure crate `{folder}` does not forbid unsafe code");
    vec![Finding::new(path, 1, what, "add `#![forbid(unsafe_code)]`")]
}

#[cfg(test)]
mod tests {
    use super::{super::package, *};

    #[test]
    fn unsafe_is_found_outside_the_fence() {
        let code = source::strip("// unsafe\nfn f() { unsafe { g() } }\n#[allow(unsafe_code)]\nmod m;");
        let lines: Vec<_> = check_code("naa/src/main.rs", &code).iter().map(|f| f.line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(check_code("rdma/region/src/mapping.rs", &code).is_empty());
        assert!(check_code("rdma/verbs/src/memory.rs", &code).is_empty());
        assert_eq!(check_code("rdma/verbs/src/memory.rs.rs", &code).len(), 2);
    }

    #[test]
    fn forbidding_it_is_not_using_it() {
        let code = "#![forbid(unsafe_code)]\n#![deny(unsafe_code)]";
        assert!(check_code("rdma/roce/src/lib.rs", code).is_empty());
        assert!(check_root("rdma/roce/src/lib.rs", code).is_empty());
        assert_eq!(check_root("mrsp/src/lib.rs", "mod a;").len(), 1);
        assert!(check_root("rdma/verbs/src/lib.rs", "mod memory;").is_empty(), "has a fenced file");
        assert!(check_root("naa/src/lib.rs", "mod a;").is_empty(), "the workspace's lint is enough");
    }

    #[test]
    fn lints_are_taken_over() {
        let mut package = package("roce", &[]);
        assert!(check_package(&package).is_empty());
        package.manifest = "[lints.rust]\nunsafe_code = \"allow\"\n".to_owned();
        assert_eq!(check_package(&package).len(), 1);
    }
}
