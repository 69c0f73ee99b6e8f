//! The keys of the INI files of E2SAR 0.3.2, for segmenters and reassemblers.

use super::Role;

/// The effect of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Setting,
    /// The key belongs to the other role. It is no mistake, because one file may serve both roles.
    Elsewhere(&'static str),
    /// The key has no effect, because naa always does what it asks for.
    Needless(&'static str),
    /// naa does not support what the key asks for. A key with E2SAR's default asks for nothing.
    Missing {
        default: &'static str,
        why: &'static str,
    },
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    sender: Use,
    worker: Use,
}

impl Key {
    pub(super) fn used_by(&self, role: Role) -> Use {
        match role {
            Role::Sender => self.sender,
            Role::Worker => self.worker,
        }
    }
}

const OF_SENDERS: Use = Use::Elsewhere("it is a sender's");
const OF_WORKERS: Use = Use::Elsewhere("it is a worker's");
const AVERAGE: Use = Use::Needless("sync messages tell the exact rate of ticks, nothing is averaged");
const CONNECTED: Use = Use::Needless("sockets are always connected");
const SMOOTH: Use = Use::Needless("packets are always paced, in trains of half a millisecond at most");
const BOTH: Use = Use::Needless("segments are taken with the load balancer's header and without");
const ONE_PORT: Use = Use::Missing {
    default: "false",
    why: "all segments go to one port; a load balancer spreads events over ports by their entropy",
};

const COUNTED: Use = Use::Needless("a worker always reports its counters");
const ALL_TRIED: Use = Use::Needless("all addresses of the control plane's name are tried");
const CHECKED: Use = Use::Missing {
    default: "true",
    why: "certificates are always checked; name their CA by --control-plane-ca",
};

const fn controller(default: &'static str) -> Use {
    let why = "this worker reports its fill level, and the control plane decides its share from it";
    Use::Missing { default, why }
}

const fn key(section: &'static str, name: &'static str, sender: Use, worker: Use) -> Key {
    Key { section, name, sender, worker }
}

/// All keys; those of a section are next to each other.
pub(super) const KEYS: &[Key] = &[
    key("general", "useCP", Use::Setting, Use::Setting),
    key("control-plane", "warmUpMS", Use::Setting, OF_SENDERS),
    key("control-plane", "syncPeriods", AVERAGE, OF_SENDERS),
    key("control-plane", "syncPeriodMS", Use::Setting, OF_SENDERS),
    key("control-plane", "useHostAddress", OF_WORKERS, ALL_TRIED),
    key("control-plane", "validateCert", OF_WORKERS, CHECKED),
    key("control-plane", "reportStats", OF_WORKERS, COUNTED),
    key("data-plane", "dpV6", Use::Setting, OF_SENDERS),
    key("data-plane", "connectedSocket", CONNECTED, OF_SENDERS),
    key("data-plane", "ticksAsREEventNum", Use::Setting, OF_SENDERS),
    key("data-plane", "mtu", Use::Setting, OF_SENDERS),
    key("data-plane", "numSendSockets", Use::Setting, OF_SENDERS),
    key("data-plane", "sndSocketBufSize", Use::Setting, OF_SENDERS),
    key("data-plane", "rateGbps", Use::Setting, OF_SENDERS),
    key("data-plane", "smooth", SMOOTH, OF_SENDERS),
    key("data-plane", "multiPort", ONE_PORT, OF_SENDERS),
    key("data-plane", "lbHdrVersion", Use::Setting, OF_SENDERS),
    key("data-plane", "portRange", OF_WORKERS, Use::Setting),
    key("data-plane", "withLBHeader", OF_WORKERS, BOTH),
    key("data-plane", "eventTimeoutMS", OF_WORKERS, Use::Setting),
    key("data-plane", "rcvSocketBufSize", OF_WORKERS, Use::Setting),
    key("data-plane", "epochMS", OF_WORKERS, controller("1000")),
    key("data-plane", "periodMS", OF_WORKERS, Use::Setting),
    key("pid", "setPoint", OF_WORKERS, controller("0")),
    key("pid", "Ki", OF_WORKERS, controller("0")),
    key("pid", "Kp", OF_WORKERS, controller("0")),
    key("pid", "Kd", OF_WORKERS, controller("0")),
    key("pid", "weight", OF_WORKERS, Use::Setting),
    key("pid", "min_factor", OF_WORKERS, Use::Setting),
    key("pid", "max_factor", OF_WORKERS, Use::Setting),
];
