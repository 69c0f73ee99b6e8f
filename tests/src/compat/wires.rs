//! The wires that are recorded.

use super::server::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Call,
    Catalogue,
    Subscribe,
    /// `naa.lb.v1`
    Tables,
    /// `sn_p4.v2`
    Smartnic,
}

impl Wire {
    pub(super) const ALL: [Self; 5] =
        [Self::Call, Self::Catalogue, Self::Subscribe, Self::Tables, Self::Smartnic];

    /// Also the beginning of the names of its recordings.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Catalogue => "catalogue",
            Self::Subscribe => "subscribe",
            Self::Tables => "naa.lb.v1",
            Self::Smartnic => "sn_p4.v2",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Call => {
                "a host calls sha256 on 6001 bytes, with regions for arguments, data, status and digest"
            }
            Self::Catalogue => "a host asks for the catalogue",
            Self::Subscribe => {
                "a worker subscribes by version 2 with a ring of two slots, gets three events that fill it, and gives each back"
            }
            Self::Tables => {
                "a control plane loads and edits tables, reads them and the counters, and is refused"
            }
            Self::Smartnic => {
                "a control plane of a SmartNIC programs the tables rule by rule, and reads statistics"
            }
        }
    }

    pub(super) fn server(self) -> Kind {
        match self {
            Self::Call | Self::Catalogue => Kind::Accelerator,
            Self::Subscribe => Kind::Bridge,
            Self::Tables | Self::Smartnic => Kind::LoadBalancer,
        }
    }

    /// A capture of packets with a description beside it; the others are requests of gRPC in one text file.
    pub(super) fn is_packets(self) -> bool {
        matches!(self, Self::Call | Self::Catalogue | Self::Subscribe)
    }
}
