//! Memory that another process may write is never a plain reference, so slices of addresses are made in named files.

use super::{Finding, is_of};
use crate::source;

/// Where slices of addresses may be made, and whose memory it is.
const ALLOWED: &[(&str, &str)] = &[
    (
        "rdma/verbs/src/memory.rs",
        "pieces on the stack; the functions whose callers promise that no peer writes",
    ),
    ("naa-host/src/buffer.rs", "parameters that no accelerator can write now, and the opt-in for others"),
    ("naa-server/src/memory_budget.rs", "regions that no host can write now"),
    ("ejfat/events/src/memory.rs", "the opt-in of programs that trust the bridge"),
    ("rdma/udp/src/sys/batch_bytes.rs", "headers and copies of packets, which no peer reaches"),
    ("ejfat-bridge/src/buffers.rs", "datagrams as they were received, which no peer reaches"),
    ("ejfat/udp/src/event_memory.rs", "events while they are put together, which no peer reaches"),
    ("rdma/verbs-ibv/src/sys/cm.rs", "private data of rdma-core's events"),
    ("bindings/capi/src/", "arguments of C programs"),
    ("support/store/tests/common/disk.rs", "what SQLite has a file system read and write"),
];

/// How slices of addresses are made.
const MAKERS: &[&str] = &[
    "slice::from_raw_parts",
    "slice::from_raw_parts_mut",
    "ptr::slice_from_raw_parts",
    "memory.as_slice",
    "memory.as_mut_slice",
];

/// `code` is source without comments and literals.
pub(crate) fn check_code(path: &str, code: &str) -> Vec<Finding> {
    if ALLOWED.iter().any(|(allowed, _)| is_of(path, allowed)) {
        return Vec::new();
    }
    let made = MAKERS.iter().flat_map(|maker| source::words(code, maker).map(move |at| (at, maker)));
    made.map(|(at, maker)| {
        let remedy = "copy with `verbs::Memory::read` or `try_pieces`; where nobody else can write the memory, \
                      say so in ALLOWED of dev/xtask/src/tidy/slices.rs";
        Finding::new(path, source::line_of(code, at), format!("a slice of an address: `{maker}`"), remedy)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_addresses_are_found_outside_the_named_files() {
        let code = "let a = Memory::from_raw_parts(p, n);\nlet b = std::slice::from_raw_parts(p, n);\n\
                    let c = unsafe { region.memory.as_mut_slice() };\nlet d = vec.as_slice();";
        let lines: Vec<_> =
            check_code("rdma/roce-udp/src/sys/gather.rs", code).iter().map(|f| f.line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(check_code("bindings/capi/src/boundary.rs", code).is_empty());
        assert_eq!(check_code("rdma/verbs/src/memory.rs.rs", code).len(), 2);
    }
}
