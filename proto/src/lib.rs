//! Messages and services of gRPC.
//!
//! The `.proto` files in the folder `proto/` are the source. `cargo xtask proto` generates the Rust code, which is
//! committed, so that a build needs neither protoc nor a build script.
//!
//! ```rust
//! use prost::Message;
//! use proto::lb::v1::{Destination, LoadRequest, Rule, rule};
//!
//! # fn main() -> Result<(), prost::DecodeError> {
//! let destination = Destination { address: vec![10, 0, 0, 1], lb: 0 };
//! let rule = Rule { rule: Some(rule::Rule::Destination(destination)) };
//! let request = LoadRequest { rules: vec![rule], ..LoadRequest::default() };
//! let bytes = request.encode_to_vec();
//! assert_eq!(LoadRequest::decode(bytes.as_slice())?, request);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The load balancer's tables and counters: service `naa.lb.v1.Tables`.
pub mod lb {
    /// Version 1 of the service, with the client and the server of [`Tables`](v1::tables_server::Tables).
    #[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/naa.lb.v1.rs");
    }
}

/// The control plane of EJFAT's load balancer: service `loadbalancer.LoadBalancer`, as EJFAT sites and E2SAR speak it.
#[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all)]
pub mod loadbalancer {
    include!("generated/loadbalancer.rs");
}

/// Whether a server answers: service `grpc.health.v1.Health`.
pub mod health {
    /// Version 1 of the service, with the client and the server of [`Health`](v1::health_server::Health).
    #[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/grpc.health.v1.rs");
    }
}

/// What reassembly has counted.
pub mod events {
    /// Version 1 of the messages.
    #[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/naa.events.v1.rs");
    }
}

/// ESnet's SmartNICs: service `sn_p4.v2.SmartnicP4`, as far as control planes of EJFAT's load balancer use it.
///
/// # Source
/// sn_p4_v2.proto of esnet-smartnic-fw.
pub mod sn_p4 {
    /// Version 2 of the service, with the client and the server of
    /// [`SmartnicP4`](v2::smartnic_p4_server::SmartnicP4).
    #[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v2 {
        include!("generated/sn_p4.v2.rs");
    }
}
