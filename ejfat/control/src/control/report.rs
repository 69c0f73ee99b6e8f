//! What a control plane reports to people.

use std::net::IpAddr;

use ejfat::lb::LbId;

use super::Action;
use crate::{capacity::Alarm, plane::PlaneId};

/// What a person may want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A new epoch of a load balancer, from this tick on.
    Epoch {
        /// The load balancer for which the epoch began.
        lb: LbId,
        /// The number of the epoch. The first epoch of a reservation has the number 1.
        number: u64,
        /// The first tick of the epoch. The value is 0 if the epoch applies to all ticks.
        from: u64,
    },
    /// Events of these ticks may be split over two workers: the first tick, and the first one behind.
    MaySplit {
        /// The load balancer whose events may be split.
        lb: LbId,
        /// The first tick whose events may be split.
        from: u64,
        /// The first tick behind the range, which is not in the range. The value `u64::MAX` means that the end is not
        /// known.
        to: u64,
    },
    /// Something is wrong with the workers of a load balancer. The report is made again in each period of 1 s in which
    /// the alarm holds.
    Alarm {
        /// The load balancer whose workers the alarm is about.
        lb: LbId,
        /// The alarm of the controller that decides workers' shares.
        alarm: Alarm,
    },
    /// A plane is programmed from now on.
    PlaneInUse(PlaneId),
    /// A plane is programmed no more until it is back.
    PlaneLost {
        /// The data plane that is not programmed any more.
        plane: PlaneId,
        /// The reason why the data plane is not programmed any more, as text for people.
        why: String,
    },
    /// A plane refused tables.
    Refused {
        /// The data plane that refused the tables.
        plane: PlaneId,
        /// The load balancer whose tables the data plane refused.
        lb: LbId,
        /// The reason that the data plane gave, as text for people.
        why: String,
    },
    /// A control plane with a higher term has taken over: this one must stop.
    Replaced {
        /// The data plane that was called with a higher term by another control plane.
        plane: PlaneId,
    },
    /// A sender's clock was set, or its counter began again.
    Followed {
        /// The load balancer whose sync address received the sender's sync datagrams.
        lb: LbId,
        /// The IP address from which the sync datagrams came.
        sender: IpAddr,
        /// The tick in the sync datagram after which the sender's new ticks were accepted.
        tick: u64,
    },
}

/// The report of ticks that may be split, the first one and the first one behind; nothing if there are none.
pub(super) fn split_report(lb: LbId, (from, to): (u64, u64)) -> Option<Action> {
    (from < to).then_some(Action::Report(Report::MaySplit { lb, from, to }))
}
