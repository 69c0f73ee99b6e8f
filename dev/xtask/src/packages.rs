//! Debian packages that commands of the project use, and why: the one place that names them.

use crate::repo;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A command that needs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Fpga,
    Fuzz,
    RxeVm,
    RpingMatrix,
    Interop,
    Install,
    Fortran,
    Python,
    Capi,
    Docs,
}

#[derive(Debug)]
pub(crate) struct Needed {
    /// A program on the search path, or a file by its absolute path.
    probe: &'static str,
    package: &'static str,
    why: &'static str,
    users: &'static [User],
}

const VM: &[User] = &[User::RxeVm, User::RpingMatrix, User::Interop];

const INSTALL: &[User] = &[User::Install];

const BUILDS: &[User] = &[User::Install, User::Docs];

const C_PROGRAMS: &[User] = &[User::Install, User::Capi, User::Docs];

const PYTHON: &[User] = &[User::Python, User::Docs, User::Fpga];

const PACKAGES: &[Needed] = &[
    Needed { probe: "c++", package: "g++", why: "compiles libFuzzer", users: &[User::Fuzz] },
    Needed { probe: "c++", package: "g++", why: "compiles models of RTL", users: &[User::Fpga] },
    Needed {
        probe: "/usr/include/lz4.h",
        package: "liblz4-dev",
        why: "packs waveforms",
        users: &[User::Fpga],
    },
    Needed {
        probe: "/usr/include/zlib.h",
        package: "zlib1g-dev",
        why: "packs waveforms",
        users: &[User::Fpga],
    },
    Needed { probe: "perl", package: "perl", why: "starts Verilator", users: &[User::Fpga] },
    Needed { probe: "qemu-system-x86_64", package: "qemu-system-x86", why: "the machine", users: VM },
    Needed { probe: "busybox", package: "busybox-static", why: "its first program", users: VM },
    Needed { probe: "cpio", package: "cpio", why: "packs its first file system", users: VM },
    Needed { probe: "depmod", package: "kmod", why: "finds its kernel modules", users: VM },
    Needed { probe: "ip", package: "iproute2", why: "makes its network, and rxe0 with `rdma`", users: VM },
    Needed { probe: "tcpdump", package: "tcpdump", why: "captures", users: VM },
    Needed { probe: "ethtool", package: "ethtool", why: "turns segmentation off for captures", users: VM },
    Needed {
        probe: "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
        package: "ibverbs-providers",
        why: "programs of rdma-core on rxe0",
        users: VM,
    },
    Needed { probe: "rping", package: "rdmacm-utils", why: "rping and librdmacm", users: VM },
    Needed { probe: "ibv_devinfo", package: "ibverbs-utils", why: "shows devices", users: VM },
    Needed { probe: "ib_write_bw", package: "perftest", why: "measures the kernel's stack", users: VM },
    Needed {
        probe: "tshark",
        package: "tshark",
        why: "a second opinion on captures",
        users: &[User::Interop],
    },
    Needed {
        probe: "gfortran",
        package: "gfortran",
        why: "compiles the module of Fortran",
        users: &[User::Fortran],
    },
    Needed { probe: "make", package: "make", why: "builds its example", users: &[User::Fortran] },
    Needed { probe: "python3", package: "python3-venv", why: "Python with packages", users: PYTHON },
    Needed { probe: "cc", package: "gcc", why: "programs in C, and sanitizers", users: C_PROGRAMS },
    Needed { probe: "c++", package: "g++", why: "programs in C++", users: C_PROGRAMS },
    Needed { probe: "make", package: "make", why: "a project of make", users: INSTALL },
    Needed { probe: "pkg-config", package: "pkg-config", why: "finds the libraries for it", users: BUILDS },
    Needed {
        probe: "cmake",
        package: "cmake",
        why: "a project of CMake; naa itself builds without",
        users: INSTALL,
    },
    Needed { probe: "nm", package: "binutils", why: "lists symbols", users: C_PROGRAMS },
    Needed { probe: "man", package: "man-db", why: "renders manual pages", users: INSTALL },
    Needed { probe: "zsh", package: "zsh", why: "reads its completions", users: INSTALL },
    Needed { probe: "fish", package: "fish", why: "reads its completions", users: INSTALL },
    Needed { probe: "ip", package: "iproute2", why: "brings up a network for them", users: BUILDS },
    Needed { probe: "unshare", package: "util-linux", why: "sets a page apart", users: &[User::Docs] },
];

fn missing(user: User) -> Vec<&'static Needed> {
    let there = |probe: &str| {
        if probe.starts_with('/') { Path::new(probe).exists() } else { repo::has_program(probe) }
    };
    PACKAGES.iter().filter(|p| p.users.contains(&user) && !there(p.probe)).collect()
}

/// Sees to it that the packages are there: installs them when run as root.
///
/// # Errors
/// Names what is missing, what it is for, and how to get it.
pub(crate) fn ensure(user: User) -> Result<(), String> {
    let wanted = missing(user);
    if wanted.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = wanted.iter().map(|p| p.package).collect();
    if is_root() && repo::has_program("apt-get") {
        eprintln!("installing Debian packages: {}", names.join(" "));
        install(&names);
    }
    let wanted = missing(user);
    if wanted.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = wanted.iter().map(|p| p.package).collect();
    let why: Vec<_> = wanted.iter().map(|p| format!("{} ({})", p.package, p.why)).collect();
    Err(format!("missing Debian packages: {}; as root: apt-get install {}", why.join(", "), names.join(" ")))
}

/// Best effort: what is still missing afterwards is reported by the caller.
fn install(names: &[&str]) {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            eprintln!("apt-get {} failed", arguments.join(" "));
        }
    };
    apt(&["update", "-qq"]);
    apt(&[["install", "-y", "-qq", "--no-install-recommends"].as_slice(), names].concat());
}

pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
