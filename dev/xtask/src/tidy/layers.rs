//! Which crate may use which: dependencies point down only.

use super::{Finding, manifest_line};
use crate::metadata::{Dependency, Package};

/// The layers of ARCHITECTURE.md. Everything else in the workspace is for developers and may use anything.
const MAY_USE: &[(&str, &[&str])] = &[
    ("naa-udp", &[]),
    ("naa-verbs", &[]),
    ("mrsp", &[]),
    ("ejfat", &[]),
    ("ejfat-control", &["ejfat"]),
    ("simnet", &[]),
    ("naa-fpga", &["naa-verbs", "roce", "ejfat", "simnet"]),
    ("naa-files", &[]),
    ("naa-measure", &["naa-files"]),
    ("naa-store", &["naa-files"]),
    ("naa-grpc", &["naa-verbs"]),
    ("sim", &["naa-verbs", "roce", "mrsp", "ejfat", "ejfat-control", "simnet"]),
    ("roce", &["naa-verbs"]),
    ("naa-region", &["naa-verbs"]),
    ("roce-udp", &["naa-udp", "naa-verbs", "roce", "naa-region"]),
    ("verbs-ibv", &["naa-verbs"]),
    ("ejfat-udp", &["naa-udp", "ejfat"]),
    ("naa-proto", &[]),
    ("ejfat-lb", &["naa-udp", "naa-verbs", "ejfat", "ejfat-udp", "naa-proto", "naa-grpc"]),
    ("ejfat-cp", &["naa-verbs", "ejfat", "ejfat-control", "ejfat-lb", "naa-grpc", "naa-proto", "naa-store"]),
    ("ejfat-client", &["ejfat", "ejfat-control", "ejfat-udp", "naa-proto", "naa-grpc"]),
    ("naa-provider", &["naa-verbs", "naa-region", "roce", "roce-udp", "verbs-ibv"]),
    ("naa-host", &["naa-verbs", "mrsp", "roce", "naa-region", "roce-udp", "naa-provider"]),
    (
        "naa-events",
        &["naa-verbs", "mrsp", "ejfat", "roce", "naa-region", "roce-udp", "naa-provider", "naa-host"],
    ),
    ("naa-kernels", &["mrsp"]),
    ("naa-server", &["naa-verbs", "mrsp", "roce", "naa-region", "roce-udp", "naa-provider", "naa-kernels"]),
    ("naa-batch", &["naa-verbs", "mrsp", "naa-host", "naa-files", "naa-measure"]),
    (
        "naa-doctor",
        &[
            "naa-udp",
            "naa-verbs",
            "mrsp",
            "roce-udp",
            "verbs-ibv",
            "naa-provider",
            "naa-host",
            "naa-server",
            "naa-measure",
        ],
    ),
    ("ejfat-bridge", &["naa-verbs", "mrsp", "ejfat", "naa-region", "ejfat-udp", "naa-server"]),
    (
        "naa-services",
        &[
            "mrsp",
            "ejfat",
            "roce-udp",
            "ejfat-udp",
            "ejfat-lb",
            "ejfat-bridge",
            "naa-proto",
            "naa-host",
            "naa-server",
        ],
    ),
    (
        "naa-capi",
        &[
            "naa-udp",
            "naa-verbs",
            "mrsp",
            "ejfat",
            "naa-region",
            "roce-udp",
            "naa-provider",
            "naa-host",
            "naa-events",
            "naa-kernels",
            "naa-server",
        ],
    ),
    ("naa-hot-paths", &["naa-verbs", "roce", "ejfat"]),
    (
        "naa-benches",
        &[
            "naa-store",
            "sim",
            "naa-udp",
            "naa-hot-paths",
            "naa-verbs",
            "roce",
            "mrsp",
            "ejfat",
            "ejfat-udp",
            "ejfat-cp",
            "naa-proto",
            "ejfat-lb",
            "ejfat-bridge",
            "naa-files",
            "naa-measure",
            "naa-region",
            "roce-udp",
            "naa-provider",
            "naa-host",
            "naa-events",
            "naa-kernels",
            "naa-server",
            "naa-capi",
        ],
    ),
    (
        "naa",
        &[
            "naa-verbs",
            "roce",
            "mrsp",
            "ejfat",
            "ejfat-udp",
            "ejfat-control",
            "ejfat-lb",
            "ejfat-bridge",
            "ejfat-client",
            "naa-grpc",
            "ejfat-cp",
            "naa-store",
            "naa-batch",
            "naa-doctor",
            "naa-proto",
            "naa-services",
            "simnet",
            "naa-files",
            "naa-measure",
            "naa-region",
            "roce-udp",
            "verbs-ibv",
            "naa-provider",
            "naa-host",
            "naa-events",
            "naa-kernels",
            "naa-server",
            "naa-fpga",
        ],
    ),
];

const DEVELOPERS: &[&str] = &["naa-tests", "naa-examples", "naa-fuzz", "xtask"];

/// What the tests of any crate may use besides.
const TESTS_MAY_USE: &[&str] = &["simnet"];

/// What the tests of a crate may use besides. Only the programs above see both the control plane, which makes batches of changes,
/// and the store, which takes them, so a test says that they agree on the largest. The tests of the load balancer run on its RTL, too.
/// The example of `naa-batch` calls a server. Benches of the control plane run it at a simulated site.
const TESTS_OF_MAY_USE: &[(&str, &str)] = &[
    ("ejfat-control", "naa-store"),
    ("ejfat-cp", "ejfat-udp"),
    ("ejfat-cp", "ejfat-client"),
    ("ejfat-lb", "naa-fpga"),
    ("naa-batch", "naa-provider"),
    ("naa-batch", "naa-server"),
    ("naa-hot-paths", "mrsp"),
    ("naa-hot-paths", "sim"),
];

pub(crate) fn check(package: &Package, workspace: &[Package]) -> Vec<Finding> {
    if DEVELOPERS.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
        let what = format!("crate `{}` has no layer", package.name);
        let remedy = "give it one in ARCHITECTURE.md and in MAY_USE of dev/xtask/src/tidy/layers.rs";
        return vec![Finding::new(&package.manifest_path(), 1, what, remedy)];
    };
    let refused = |d: &&Dependency| {
        let inside = workspace.iter().any(|p| p.name == d.name);
        let name = d.name.as_str();
        let test = d.kind.as_deref() == Some("dev")
            && (TESTS_MAY_USE.contains(&name)
                || TESTS_OF_MAY_USE.contains(&(&package.name, name))
                || name == package.name);
        inside && !may_use.contains(&name) && !test
    };
    package.dependencies.iter().filter(refused).map(|d| finding(package, d, may_use)).collect()
}

fn finding(package: &Package, dependency: &Dependency, may_use: &[&str]) -> Finding {
    let line = manifest_line(&package.manifest, &dependency.name);
    let what = format!("`{}` may not depend on `{}`: it is not below", package.name, dependency.name);
    let allowed =
        if may_use.is_empty() { "no crate of the workspace".to_owned() } else { may_use.join(", ") };
    let remedy = format!("`{}` may use {allowed}; move the shared part down", package.name);
    Finding::new(&package.manifest_path(), line, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::{super::package, *};

    fn refused(name: &str, dependency: &str, kind: Option<&str>) -> bool {
        let user = package(name, &[(dependency, kind, true)]);
        let workspace = [package(dependency, &[])];
        !check(&user, &workspace).is_empty()
    }

    #[test]
    fn dependencies_point_down() {
        assert!(!refused("roce", "naa-verbs", None));
        assert!(!refused("naa", "simnet", None));
        assert!(!refused("naa-tests", "naa-server", None));
        assert!(refused("naa-verbs", "roce", None), "upward");
        assert!(refused("roce", "mrsp", None), "sideways");
        assert!(refused("naa-host", "naa-server", Some("dev")), "sideways, in tests");
        assert!(refused("mrsp", "simnet", Some("build")));
        assert!(!refused("roce", "simnet", Some("dev")));
        assert!(!refused("ejfat-control", "naa-store", Some("dev")));
        assert!(refused("ejfat-control", "naa-store", None), "outside of tests");
    }

    #[test]
    fn a_new_crate_needs_a_layer() {
        assert_eq!(check(&package("extra", &[]), &[]).len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Crates are taken off once all that they may use is: in a cycle none ever is.
        let mut left: Vec<_> = MAY_USE.iter().collect();
        loop {
            let names: Vec<_> = left.iter().map(|(name, _)| *name).collect();
            let before = left.len();
            left.retain(|(_, may_use)| may_use.iter().any(|used| names.contains(used)));
            if left.len() == before {
                break;
            }
        }
        assert!(left.is_empty(), "{left:?}");
    }
}
