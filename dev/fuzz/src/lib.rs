//! Bodies of the fuzz targets: each takes any bytes and panics on a fault. The programs in `targets` hand them to
//! libFuzzer; the test in `tests` runs them on the seeds and on random bytes.
//!
//! Decoders get the bytes as they are. Engines and session machines take them as a [`program`] of operations.
#![forbid(unsafe_code)]

mod cm_watch;
mod device;
mod mrsp_common;
mod mrsp_layout;
mod program;

pub mod ejfat_call;
pub mod ejfat_lb;
pub mod ejfat_reassembler;
pub mod ejfat_record;
pub mod ejfat_ring;
pub mod ejfat_uri;
pub mod ejfat_wire;
pub mod mrsp_builtin;
pub mod mrsp_catalogue;
pub mod mrsp_host;
pub mod mrsp_message;
pub mod mrsp_naa;
pub mod mrsp_pair;
pub mod naa_spec;
pub mod roce_cm;
pub mod roce_cm_pair;
pub mod roce_icrc;
pub mod roce_mad;
pub mod roce_packet;
pub mod roce_pair;
pub mod roce_qp;
pub mod store_record;

/// The body of a target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("ejfat_call", ejfat_call::run),
    ("ejfat_lb", ejfat_lb::run),
    ("ejfat_reassembler", ejfat_reassembler::run),
    ("ejfat_record", ejfat_record::run),
    ("ejfat_ring", ejfat_ring::run),
    ("ejfat_uri", ejfat_uri::run),
    ("ejfat_wire", ejfat_wire::run),
    ("mrsp_builtin", mrsp_builtin::run),
    ("mrsp_catalogue", mrsp_catalogue::run),
    ("mrsp_host", mrsp_host::run),
    ("mrsp_message", mrsp_message::run),
    ("mrsp_naa", mrsp_naa::run),
    ("mrsp_pair", mrsp_pair::run),
    ("naa_spec", naa_spec::run),
    ("roce_cm", roce_cm::run),
    ("roce_cm_pair", roce_cm_pair::run),
    ("roce_icrc", roce_icrc::run),
    ("roce_mad", roce_mad::run),
    ("roce_packet", roce_packet::run),
    ("roce_pair", roce_pair::run),
    ("roce_qp", roce_qp::run),
    ("store_record", store_record::run),
];
