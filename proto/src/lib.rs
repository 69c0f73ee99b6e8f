//! Messages and services of gRPC.
//!
//! The `.proto` files in `proto/` are the source; `cargo xtask proto` makes the Rust of them, which is committed, so that
//! building needs neither protoc nor a build script.
#![forbid(unsafe_code)]

/// The load balancer's tables and counters: service `naa.lb.v1.Tables`.
pub mod lb {
    #[allow(missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/naa.lb.v1.rs");
    }
}

/// The control plane of EJFAT's load balancer: service `loadbalancer.LoadBalancer`, as EJFAT sites and E2SAR speak it.
#[allow(missing_debug_implementations, unused_qualifications, clippy::all)]
pub mod loadbalancer {
    include!("generated/loadbalancer.rs");
}

/// Whether a server answers: service `grpc.health.v1.Health`.
pub mod health {
    #[allow(missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/grpc.health.v1.rs");
    }
}

/// What reassembly has counted.
pub mod events {
    #[allow(missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v1 {
        include!("generated/naa.events.v1.rs");
    }
}

/// ESnet's SmartNICs: service `sn_p4.v2.SmartnicP4`, as far as control planes of EJFAT's load balancer use it.
///
/// # Source
/// sn_p4_v2.proto of esnet-smartnic-fw.
pub mod sn_p4 {
    #[allow(missing_debug_implementations, unused_qualifications, clippy::all)]
    pub mod v2 {
        include!("generated/sn_p4.v2.rs");
    }
}
