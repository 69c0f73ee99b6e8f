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

const fn needed(
    probe: &'static str,
    package: &'static str,
    why: &'static str,
    users: &'static [User],
) -> Needed {
    Needed { probe, package, why, users }
}

const PACKAGES: &[Needed] = &[
    needed("c++", "g++", "compiles libFuzzer", &[User::Fuzz]),
    needed("c++", "g++", "compiles models of RTL", &[User::Fpga]),
    needed("/usr/include/lz4.h", "liblz4-dev", "packs waveforms", &[User::Fpga]),
    needed("/usr/include/zlib.h", "zlib1g-dev", "packs waveforms", &[User::Fpga]),
    needed("perl", "perl", "starts Verilator", &[User::Fpga]),
    needed("qemu-system-x86_64", "qemu-system-x86", "the machine", VM),
    needed("busybox", "busybox-static", "its first program", VM),
    needed("cpio", "cpio", "packs its first file system", VM),
    needed("depmod", "kmod", "finds its kernel modules", VM),
    needed("ip", "iproute2", "makes its network, and rxe0 with `rdma`", VM),
    needed("tcpdump", "tcpdump", "captures", VM),
    needed("ethtool", "ethtool", "turns segmentation off for captures", VM),
    needed(
        "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
        "ibverbs-providers",
        "programs of rdma-core on rxe0",
        VM,
    ),
    needed("rping", "rdmacm-utils", "rping and librdmacm", VM),
    needed("ibv_devinfo", "ibverbs-utils", "shows devices", VM),
    needed("ib_write_bw", "perftest", "measures the kernel's stack", VM),
    needed("tshark", "tshark", "a second opinion on captures", &[User::Interop]),
    needed("gfortran", "gfortran", "compiles the module of Fortran", &[User::Fortran]),
    needed("make", "make", "builds its example", &[User::Fortran]),
    needed("python3", "python3-venv", "Python with packages", PYTHON),
    needed("cc", "gcc", "programs in C, and sanitizers", C_PROGRAMS),
    needed("c++", "g++", "programs in C++", C_PROGRAMS),
    needed("make", "make", "a project of make", INSTALL),
    needed("pkg-config", "pkg-config", "finds the libraries for it", BUILDS),
    needed("cmake", "cmake", "a project of CMake; naa itself builds without", INSTALL),
    needed("nm", "binutils", "lists symbols", C_PROGRAMS),
    needed("man", "man-db", "renders manual pages", INSTALL),
    needed("zsh", "zsh", "reads its completions", INSTALL),
    needed("fish", "fish", "reads its completions", INSTALL),
    needed("ip", "iproute2", "brings up a network for them", BUILDS),
    needed("unshare", "util-linux", "sets a page apart", &[User::Docs]),
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
    let names = |wanted: &[&'static Needed]| wanted.iter().map(|p| p.package).collect::<Vec<_>>();
    let mut wanted = missing(user);
    if !wanted.is_empty() && is_root() && repo::has_program("apt-get") {
        let names = names(&wanted);
        eprintln!("installing Debian packages: {}", names.join(" "));
        install(&names);
        wanted = missing(user);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let why: Vec<_> = wanted.iter().map(|p| format!("{} ({})", p.package, p.why)).collect();
    let names = names(&wanted).join(" ");
    Err(format!("missing Debian packages: {}; as root: apt-get install {names}", why.join(", ")))
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
