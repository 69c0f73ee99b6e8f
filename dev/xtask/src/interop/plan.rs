//! What is run against what: machines to boot, and the steps in each.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Embedded,
    Verbs,
    RdmaCore,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Verbs => "verbs",
            Self::RdmaCore => "rdma-core",
        })
    }
}

use End::{Embedded, RdmaCore, Verbs};

/// Cases of the suite, as its program names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Bytes,
    Rest,
    Long,
}

impl Set {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Rest => "rest",
            Self::Long => "long",
        }
    }

    /// A time limit in seconds; emulated processors are slow.
    fn limit(self) -> u32 {
        match self {
            Self::Bytes => 300,
            Self::Rest => 600,
            Self::Long => 1200,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Suite {
        set: Set,
        netem: &'static str,
        only: &'static str,
    },
    Rping {
        size: u32,
        rounds: u32,
    },
    /// Events through a bridge, the far end: to workers, most of them of the near end's provider.
    Bridge {
        placing: &'static str,
        events: u32,
    },
}

/// One line of a guest's plan.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) near: End,
    pub(super) far: End,
    pub(super) family: u8,
    pub(super) what: What,
    /// What the machine is like, in words.
    machine: &'static str,
}

impl Step {
    /// How rows of the step are called. Unique within a run.
    pub(super) fn label(&self) -> String {
        let Self { near, far, family, .. } = self;
        let what = match &self.what {
            What::Suite { netem: "", only: "", set } => set.name().to_owned(),
            What::Suite { netem: "", only, .. } => (*only).to_owned(),
            What::Suite { netem, only: "", .. } => (*netem).to_owned(),
            What::Suite { netem, only, .. } => format!("{only} {netem}"),
            What::Rping { size, .. } => format!("rping {size} B"),
            What::Bridge { placing, events } => format!("bridge, {placing}, {events} events"),
        };
        format!("{near} -> {far}, IPv{family}, {}: {what}", self.machine)
    }

    /// Seconds, for what starts and ends it too.
    pub(super) fn limit(&self) -> u32 {
        match self.what {
            What::Suite { set, .. } => set.limit() + 60,
            What::Rping { .. } => 150,
            What::Bridge { events, .. } => bridge_limit(events) + 60,
        }
    }

    /// The expected duration in seconds, by which the steps are divided into parts. Two idle cores need about this time. For
    /// bridges it is the time on a slow machine, so that no part has two bridges.
    pub(super) fn seconds(&self) -> u32 {
        match self.what {
            What::Suite { netem, .. } if !netem.is_empty() => 45,
            What::Suite { set: Set::Bytes, .. } => 30,
            What::Suite { set: Set::Rest, .. } => 60,
            What::Suite { set: Set::Long, .. } => 120,
            What::Rping { .. } => 5,
            What::Bridge { events, .. } => 10 + events / 200,
        }
    }

    pub(super) fn line(&self) -> String {
        let Self { near, far, family, .. } = self;
        let label = self.label();
        match &self.what {
            What::Suite { set, netem, only } => {
                let limit = set.limit();
                format!("suite|{label}|{near}|{far}|{family}|{}|{limit}|{netem}|{only}", set.name())
            }
            What::Rping { size, rounds } => format!("rping|{label}|{near}|{far}|{family}|{size}|{rounds}"),
            What::Bridge { placing, events } => {
                let limit = bridge_limit(*events);
                format!("bridge|{label}|{near}|{far}|{family}|{placing}|{events}|{limit}")
            }
        }
    }

    /// The kernel's device must count neither errors nor retries.
    pub(super) fn counts_nothing(&self) -> bool {
        matches!(self.what, What::Suite { set: Set::Bytes | Set::Long, netem: "", .. })
            && (self.near == Verbs || self.far == Verbs)
    }
}

/// Seconds for a bridge's events on emulated processors.
fn bridge_limit(events: u32) -> u32 {
    180 + events / 100
}

/// A machine, or two, and what is run there.
#[derive(Debug, Clone)]
pub(super) struct Boot {
    pub(super) name: &'static str,
    pub(super) mtu: u32,
    pub(super) path_mtu: u32,
    pub(super) two: bool,
    /// Socket buffers of 8 MiB instead of the stock limits: the kernel must count no errors and retries.
    pub(super) buffers: bool,
    pub(super) capture: bool,
    pub(super) steps: Vec<Step>,
}

/// The impairments as arguments of tc-netem(8). Reordered packets overtake delayed packets.
pub(super) const IMPAIRMENTS: [&str; 5] = [
    "loss 1%",
    "duplicate 1%",
    "delay 2ms reorder 1%",
    "delay 2ms",
    "delay 2ms reorder 1% loss 1% duplicate 1%",
];

const PAIRS: [(End, End); 4] = [(Embedded, Embedded), (Embedded, Verbs), (Verbs, Embedded), (Verbs, Verbs)];
const MTUS: [(&str, u32, u32); 2] = [("path MTU 1024", 1500, 1024), ("path MTU 4096", 4200, 4096)];

fn suite(near: End, far: End, family: u8, set: Set, machine: &'static str) -> Step {
    Step { near, far, family, what: What::Suite { set, netem: "", only: "" }, machine }
}

fn rpings(family: u8, rounds: u32, sizes: &[u32], machine: &'static str) -> Vec<Step> {
    let pairs = [(RdmaCore, Embedded), (Embedded, RdmaCore), (RdmaCore, Verbs), (Verbs, RdmaCore)];
    let each = pairs.iter().flat_map(|pair| sizes.iter().map(move |size| (pair, *size)));
    each.map(|(&(near, far), size)| Step { near, far, family, what: What::Rping { size, rounds }, machine })
        .collect()
}

/// Both ways of placing, to and from the kernel's device.
fn bridges(family: u8, events: u32, machine: &'static str) -> impl Iterator<Item = Step> {
    let pairs = [(Verbs, Verbs), (Verbs, Embedded)];
    let each = pairs.into_iter().flat_map(|pair| ["store", "cut"].map(|placing| (pair, placing)));
    each.map(move |((near, far), placing)| Step {
        near,
        far,
        family,
        what: What::Bridge { placing, events },
        machine,
    })
}

fn impaired(words: &'static str, (near, far): (End, End), machine: &'static str) -> Step {
    Step { near, far, family: 4, what: What::Suite { set: Set::Bytes, netem: words, only: "" }, machine }
}

/// The cases of programs on tokio, without those of the set of bytes.
fn tokio_cases(words: &'static str, (near, far): (End, End), family: u8, machine: &'static str) -> Step {
    Step { near, far, family, what: What::Suite { set: Set::Rest, netem: words, only: "async:" }, machine }
}

/// Everything.
pub(super) fn whole() -> Vec<Boot> {
    let mut boots = Vec::new();
    for (name, mtu, path_mtu) in MTUS {
        let mut steps = Vec::new();
        for family in [4, 6] {
            for (near, far) in PAIRS {
                let sets = [Set::Bytes, Set::Rest].into_iter().chain((family == 4).then_some(Set::Long));
                steps.extend(sets.map(|set| suite(near, far, family, set, name)));
            }
            steps.extend(rpings(family, 50, &[64, 5000, 65_535], name));
        }
        // What a packet holds makes no difference to an event but its number of packets.
        if path_mtu == 4096 {
            steps.extend(bridges(4, 100_000, name));
        }
        boots.push(Boot { name, mtu, path_mtu, two: false, buffers: true, capture: false, steps });
    }
    boots.extend([stock(), impairments(), captured(), two_machines()]);
    boots
}

fn stock() -> Boot {
    let name = "stock buffers";
    let steps = PAIRS.into_iter().map(|(near, far)| suite(near, far, 4, Set::Bytes, name)).collect();
    Boot { name, mtu: 4200, path_mtu: 4096, two: false, buffers: false, capture: false, steps }
}

fn impairments() -> Boot {
    let name = "impaired";
    let pairs = IMPAIRMENTS.iter().flat_map(|words| PAIRS[..3].iter().map(move |pair| (*words, *pair)));
    let worst = IMPAIRMENTS[IMPAIRMENTS.len() - 1];
    let tokio_cases = PAIRS[..3].iter().map(|pair| tokio_cases(worst, *pair, 4, name));
    let steps = pairs.map(|(words, pair)| impaired(words, pair, name)).chain(tokio_cases).collect();
    Boot { name, mtu: 1500, path_mtu: 1024, two: false, buffers: true, capture: false, steps }
}

fn captured() -> Boot {
    let name = "captured";
    let mut steps = Vec::new();
    for (near, far) in [(Embedded, Verbs), (Verbs, Embedded)] {
        for family in [4, 6] {
            steps.push(suite(near, far, family, Set::Bytes, name));
            steps.push(suite(near, far, family, Set::Rest, name));
        }
    }
    Boot { name, mtu: 1500, path_mtu: 1024, two: false, buffers: true, capture: true, steps }
}

fn two_machines() -> Boot {
    let name = "two machines";
    let families = [4, 6].into_iter();
    let steps = families
        .flat_map(|family| [Set::Bytes, Set::Rest].map(|set| suite(Verbs, Verbs, family, set, name)))
        .collect();
    Boot { name, mtu: 4200, path_mtu: 4096, two: true, buffers: true, capture: false, steps }
}

/// A slice in one machine: each pairing with the kernel's device once, with a capture; one bad network.
pub(super) fn quick() -> Vec<Boot> {
    let name = "path MTU 1024";
    let mut steps = vec![
        suite(Embedded, Verbs, 4, Set::Bytes, name),
        suite(Verbs, Embedded, 6, Set::Bytes, name),
        suite(Verbs, Verbs, 6, Set::Bytes, name),
    ];
    for (near, far, family) in [(Embedded, Verbs, 6), (Verbs, Embedded, 4)] {
        for only in ["ends:", "refused"] {
            let what = What::Suite { set: Set::Rest, netem: "", only };
            steps.push(Step { near, far, family, what, machine: name });
        }
        steps.push(tokio_cases("", (near, far), family, name));
    }
    steps.extend(rpings(4, 10, &[5000], name));
    steps.extend(bridges(4, 1000, name));
    // Its wire is not the captured one.
    steps.push(impaired(IMPAIRMENTS[IMPAIRMENTS.len() - 1], PAIRS[0], name));
    vec![Boot { name, mtu: 1500, path_mtu: 1024, two: false, buffers: true, capture: true, steps }]
}
