//! Peers that lie, flood and vanish: one suite, one table (`cargo xtask hostile`).
//!
//! A victim process serves, bystanders use it well all the time, and each case attacks it. A case passes when the
//! answer and the counters are those stated, every call of the bystanders is right and in time, and the victim's
//! memory stays bounded. EJFAT's workers are started anew for each of their cases, beside a sender whose events must all
//! come through. The cases of fairness start programs of their own, too, and compare what a bystander gets during an attack
//! with what it got before.
//!
//! Every case runs over IPv4 and over IPv6. For IPv6 the suite makes a network namespace in which each address has a /64 of
//! its own: a /64 is one peer, and `::1` would be everybody's.

mod attacker;
mod bare_qp_server;
mod bridge;
mod bridge_workers;
mod bystander;
mod case;
mod churn;
mod cm;
mod cm_flood;
mod control_attackers;
mod control_plane;
mod ejfat;
mod ejfat_events;
mod ejfat_floods;
mod ejfat_honest;
mod ejfat_memory;
mod ejfat_names;
mod ejfat_segments;
mod ejfat_worker;
mod environment;
mod fairness;
mod fairness_bystander;
mod fairness_program;
mod fairness_tables;
mod flood;
mod kills;
mod memory;
mod mrsp;
mod mrsp_calls;
mod mrsp_host;
mod mrsp_misbehaving;
mod mrsp_talk;
mod namespace;
mod opcodes;
mod packets;
mod raw;
mod replies;
mod report;
mod requests;
mod resources;
mod resources_process;
mod resources_sessions;
mod suite;
mod unpredictable;
mod unpredictable_statistics;
mod victim;
mod wire;

pub use attacker::{Kind, attack};
pub use case::{Attack, Case, Latency, Observation, Outcome, Own, Run};
pub use ejfat::EjfatEnvironment;
pub use environment::{Environment, Family};
pub use namespace::{INSIDE, enter, settle};
pub use raw::{Offer, RawPeer, blank, rej, rep};
pub use report::{json, table};
pub(crate) use resources_process::TempFolder;
pub use suite::{Ran, RunConfig, list, run};
pub use unpredictable::{draw_connections, draw_keys};
pub use victim::serve;
pub use wire::{Answer, Wire};

/// All cases by their groups, in the order of the table.
const CASES: &[(&str, &[Case])] = &[
    ("memory", memory::CASES),
    ("packets", packets::CASES),
    ("opcodes", opcodes::CASES),
    ("replies", replies::CASES),
    ("flood", flood::CASES),
    ("handshake", requests::CASES),
    ("handshake", cm::CASES),
    ("half-open flood", cm_flood::CASES),
    ("mrsp", mrsp::CASES),
    ("calls", mrsp_calls::CASES),
    ("lying accelerator", mrsp_host::CASES),
    ("resources", resources::CASES),
    ("holding on", resources_sessions::CASES),
    ("coming and going", churn::CASES),
    ("killed", kills::CASES),
    ("unpredictable", unpredictable::CASES),
    ("ejfat", ejfat_segments::CASES),
    ("ejfat", ejfat_events::CASES),
    ("ejfat", ejfat_names::CASES),
    ("ejfat", ejfat_memory::CASES),
    ("ejfat", ejfat_floods::CASES),
    ("bridge", bridge_workers::CASES),
    ("fairness", fairness::CASES),
    ("fairness", fairness_tables::CASES),
    ("control plane", control_plane::CASES),
];
