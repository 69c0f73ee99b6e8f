//! The steps of `test`: what each runs, what it protects, how long it takes.

use super::Program::{self, Cargo, Naa, Xtask};
use crate::packages::User;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// What the step protects, for people.
    pub(super) protects: &'static str,
    /// How long the step takes, in seconds, on two cores when everything is built.
    pub(super) seconds: u32,
    pub(super) program: Program,
    /// The arguments, with spaces between them.
    pub(super) arguments: &'static str,
    /// The user, in the table of Debian packages, whose packages the step needs.
    pub(super) user: Option<User>,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// What is built for later steps while this one runs, in its order.
    pub(super) meanwhile: &'static [Ahead],
}

/// What a later step needs to be built: a command of xtask. It runs when the processors have nothing else to do, and ends with the step beside
/// which it runs. Then the later step builds what is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// The name of the later step.
    pub(super) step: &'static str,
    pub(super) user: User,
    /// The arguments, with spaces between them.
    pub(super) arguments: &'static str,
}

const fn step(
    name: &'static str,
    seconds: u32,
    program: Program,
    arguments: &'static str,
    protects: &'static str,
) -> Step {
    Step { name, protects, seconds, program, arguments, user: None, environment: &[], meanwhile: &[] }
}

/// A part of the whole matrix. How many there are is in the arguments of each.
const fn interop(name: &'static str, arguments: &'static str) -> Step {
    step(name, INTEROP_PART, Xtask, arguments, "each provider against the kernel's soft-RoCE")
        .needs(User::Interop)
}

const fn mutants(name: &'static str, arguments: &'static str) -> Step {
    step(name, 900, Xtask, arguments, "the tests of a pure crate find small faults in it")
}

/// Seconds of a part of the whole matrix, with a boot and a half.
pub(crate) const INTEROP_PART: u32 = 800;

impl Step {
    const fn needs(self, user: User) -> Self {
        Self { user: Some(user), ..self }
    }

    const fn meanwhile(self, meanwhile: &'static [Ahead]) -> Self {
        Self { meanwhile, ..self }
    }

    const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }
}

/// The time after which a step is ended. On a slow machine with two cores, a step that has to compile first takes 15
/// minutes.
pub(super) const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Steps of every run.
pub(super) const CHECKS: &[Step] = &[
    step("tidy", 5, Xtask, "tidy", "layers, purity, the fence around unsafe, leftovers, format"),
    step("header", 1, Xtask, "header --check", "naa.h is what its Rust says"),
    step("proto", 1, Xtask, "proto --check", "the Rust of gRPC is what its .proto files say"),
    // Release, as everything below, so that each crate is built once.
    step(
        "clippy",
        5,
        Cargo,
        "clippy --workspace --all-targets --release -- -D warnings",
        "mistakes that clippy knows",
    ),
    step("doc", 10, Cargo, "doc --workspace --no-deps --release", "links in the documentation")
        .with(&[("RUSTDOCFLAGS", "-D warnings")]),
    // This step is apart from `test`, because both together exceed the limit on a slow machine.
    step(
        "build tests",
        5,
        Cargo,
        "test --workspace --release --no-run",
        "the programs that the next step runs are built",
    )
    .needs(User::Capi),
    step("test", 225, Cargo, "test --workspace --release", "the behaviour of every crate")
        .needs(User::Capi)
        // The tests of RTL are skipped here, because the step `fpga` runs them.
        .with(&[("NAA_FPGA_TOOLS", "none")])
        .meanwhile(&[
            Ahead { step: "fpga", user: User::Fpga, arguments: "fpga --models" },
            Ahead { step: "fuzz", user: User::Fuzz, arguments: "fuzz --build" },
        ]),
    step("build", 2, Cargo, "build --workspace --release", "the programs that the next steps run"),
];

const PYTHON: Step = step(
    "python",
    45,
    Xtask,
    "bindings python",
    "the package of Python; requests to SmartNICs and answers of control planes, compared with Python's gRPC",
)
.needs(User::Python);

/// Steps of a run without `--long`. These are the steps that find the most faults for the time they take.
pub(super) const SHORT: &[Step] = &[
    step("sim", 15, Xtask, "sim --seeds 1000", "protocols on faulty networks, in virtual time"),
    step(
        "benches",
        5,
        Cargo,
        "test --workspace --release --bench roce --bench mrsp --bench ejfat --bench control",
        "each criterion bench runs once",
    ),
    step("compat", 1, Xtask, "compat", "wires of earlier versions"),
    step("demo", 30, Naa, "demo", "the first command of the README"),
    step("demo ejfat", 8, Naa, "demo ejfat", "events through the load balancer"),
    step("demo bridge", 11, Naa, "demo bridge", "events into memory of workers, one of which dies"),
    step("demo lb", 20, Naa, "demo lb", "events balanced over workers, one of which dies and one leaves"),
    step("docs", 95, Xtask, "docs", "the commands of the README and of docs/").needs(User::Docs),
    step("hostile", 125, Xtask, "hostile --quick", "hostile and unlucky peers, and who works beside them"),
    step("install-test", 15, Xtask, "install-test", "what is installed, and programs built against it")
        .needs(User::Install),
    step("capi", 65, Xtask, "capi", "the C libraries from outside, under sanitizers").needs(User::Capi),
    step("fortran", 2, Xtask, "bindings fortran", "the module of Fortran").needs(User::Fortran),
    PYTHON,
    step(
        "fpga",
        20,
        Xtask,
        "fpga --only sim --only pcap --packets 10000",
        "RTL beside the Rust that it equals",
    )
    .needs(User::Fpga),
    step("fuzz", 30, Xtask, "fuzz --seconds 2", "decoders against random bytes").needs(User::Fuzz),
    step("interop", 150, Xtask, "interop --quick", "each provider against the kernel's soft-RoCE")
        .needs(User::Interop),
];

/// Steps of a run with `--long`, which has the checks too.
pub(super) const LONG: &[Step] = &[
    step("deny", 30, Xtask, "deny", "licences, bans and sources of dependencies"),
    step(
        "package",
        400,
        Cargo,
        "package --workspace --allow-dirty",
        "each crate builds from what would be published",
    ),
    step("loom", 40, Xtask, "loom", "who drives a device, under every order of its steps"),
    // The fuzz step runs the seeds too; this does without libFuzzer.
    step(
        "fuzz-seeds",
        60,
        Cargo,
        "test --release --manifest-path dev/fuzz/Cargo.toml",
        "inputs that were found once",
    )
    .needs(User::Fuzz),
    step("sim", 200, Xtask, "sim --seeds 10000", "protocols on faulty networks, in virtual time"),
    step(
        "sim control",
        700,
        Xtask,
        "sim --kind control --from 10000 --seeds 90000",
        "a control plane with data planes, senders and workers, in virtual time",
    ),
    step("sim full site", 150, Xtask, "sim --full-site 60", "memory of a control plane with 1024 workers"),
    step("compat", 1, Xtask, "compat", "wires of earlier versions"),
    step("demo", 120, Naa, "demo --full", "every size of every function"),
    step("demo ejfat", 60, Naa, "demo ejfat --events 1000000", "a million events through the load balancer"),
    step("demo bridge", 60, Naa, "demo bridge --events 65000", "events into memory of workers"),
    step("demo bridge cut", 15, Naa, "demo bridge --placing cut", "the same, segment by segment"),
    step(
        "lb whole",
        50,
        Cargo,
        "test --release -p naa --test lb_whole",
        "100 000 events through a site whose workers, data plane and control plane are killed",
    )
    .with(&[("NAA_LONG", "1")]),
    step("docs", 95, Xtask, "docs", "the commands of the README and of docs/").needs(User::Docs),
    step(
        "bridge",
        160,
        Cargo,
        "test --release -p naa-tests --test bridge",
        "a bridge whose workers and which itself are killed at random",
    )
    .with(&[("NAA_LONG", "1")]),
    step("store", 200, Cargo, "test --release -p naa-store", "durable records, killed 1000 times")
        .with(&[("NAA_KILLS", "1000"), ("NAA_SEEDS", "1000")]),
    step(
        "control kills",
        300,
        Cargo,
        "test --release -p naa --test lb_kills",
        "a control plane, killed 1000 times",
    )
    .with(&[("NAA_KILLS", "1000")]),
    step(
        "lb full site",
        700,
        Cargo,
        "test --release -p naa --test lb_full_site -- --nocapture",
        "threads, files and memory of a control plane with 1024 workers, for ten minutes",
    )
    .with(&[("NAA_LONG", "1")]),
    step("hostile 4", 1000, Xtask, "hostile --ip 4", "hostile and unlucky peers over IPv4"),
    step("hostile 6", 1000, Xtask, "hostile --ip 6", "hostile and unlucky peers over IPv6"),
    step("install-test", 100, Xtask, "install-test", "what is installed, and programs built against it")
        .needs(User::Install),
    step("install-test verbs", 200, Xtask, "install-test --verbs", "the same on kernel soft-RoCE")
        .needs(User::Install),
    step("capi", 600, Xtask, "capi --long", "the C libraries from outside, with many kills and cycles")
        .needs(User::Capi),
    step("capi verbs", 900, Xtask, "capi --verbs", "the same over rdma-core").needs(User::Capi),
    step("fortran", 2, Xtask, "bindings fortran", "the module of Fortran").needs(User::Fortran),
    PYTHON,
    step(
        "fpga",
        600,
        Xtask,
        "fpga",
        "RTL: its format, what is proved of it, what it does beside the Rust, its area and frequency",
    )
    .needs(User::Fpga),
    step(
        "fpga engine",
        500,
        Xtask,
        "fpga --only engine --only coverage",
        "RTL as the load balancer's engine; what the tests reach of it",
    )
    .needs(User::Fpga),
    step(
        "fpga sim",
        600,
        Xtask,
        "fpga --only sim --packets 1000000",
        "RTL beside the Rust that it equals, a million packets for each module",
    )
    .needs(User::Fpga),
    step("fpga mutants", 900, Xtask, "fpga --mutate", "the tests of the RTL find small faults in it")
        .needs(User::Fpga),
    mutants("mutants roce", "mutants --package roce"),
    mutants("mutants mrsp", "mutants --package mrsp"),
    mutants("mutants ejfat", "mutants --package ejfat"),
    step("fuzz", 700, Xtask, "fuzz --seconds 60", "decoders against random bytes").needs(User::Fuzz),
    step("rping-matrix", 600, Xtask, "rping-matrix", "rdma-core's rping, both ways").needs(User::RpingMatrix),
    interop("interop 1", "interop --part 1/12"),
    interop("interop 2", "interop --part 2/12"),
    interop("interop 3", "interop --part 3/12"),
    interop("interop 4", "interop --part 4/12"),
    interop("interop 5", "interop --part 5/12"),
    interop("interop 6", "interop --part 6/12"),
    interop("interop 7", "interop --part 7/12"),
    interop("interop 8", "interop --part 8/12"),
    interop("interop 9", "interop --part 9/12"),
    interop("interop 10", "interop --part 10/12"),
    interop("interop 11", "interop --part 11/12"),
    interop("interop 12", "interop --part 12/12"),
];
