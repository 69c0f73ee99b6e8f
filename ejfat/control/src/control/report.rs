//! What a control plane reports to people.

use std::net::IpAddr;

use ejfat::lb::LbId;

use super::Action;
use crate::{capacity::Alarm, plane::PlaneId};

/// Something that the control plane reports to the operators of the site.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A new epoch of a load balancer began.
    Epoch {
        /// The load balancer for which the epoch began.
        lb: LbId,
        /// The number of the epoch. The first epoch of a reservation has the number 1.
        number: u64,
        /// The first tick of the epoch. The value is 0 if the epoch applies to all ticks.
        from: u64,
    },
    /// Events in a range of ticks may be split over two workers: some segments of an event go to one worker, and the
    /// others to another worker.
    MaySplit {
        /// The load balancer whose events may be split over two workers.
        lb: LbId,
        /// The first tick of the range whose events may be split.
        from: u64,
        /// The first tick after the range whose events may be split. The value `u64::MAX` means that the end of the
        /// range is not known.
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
    /// The control plane programs this data plane from now on.
    PlaneInUse(PlaneId),
    /// The control plane does not program a data plane any more, until [`Self::PlaneInUse`] reports this data plane
    /// again.
    PlaneLost {
        /// The data plane that is not programmed any more.
        plane: PlaneId,
        /// The reason why the data plane is not programmed any more, as text for people.
        why: String,
    },
    /// A data plane refused the tables of a load balancer.
    Refused {
        /// The data plane that refused the tables.
        plane: PlaneId,
        /// The load balancer whose tables the data plane refused.
        lb: LbId,
        /// The reason that the data plane gave, as text for people.
        why: String,
    },
    /// Another control plane with a higher term programs a data plane, so this control plane must stop.
    Replaced {
        /// The data plane that was called with a higher term by another control plane.
        plane: PlaneId,
    },
    /// The ticks in a sender's sync datagrams jumped, and the control plane accepted the new ticks. For example, the
    /// sender's clock was set, or its counter began again.
    Followed {
        /// The load balancer whose sync address received the sender's sync datagrams.
        lb: LbId,
        /// The IP address from which the sync datagrams came.
        sender: IpAddr,
        /// The tick in the sync datagram after which the sender's new ticks were accepted.
        tick: u64,
    },
}

/// Returns the report that events of the ticks from `from` up to `to`, without `to`, may be split over two workers.
/// Returns `None` if the range is empty.
pub(super) fn split_report(lb: LbId, (from, to): (u64, u64)) -> Option<Action> {
    (from < to).then_some(Action::Report(Report::MaySplit { lb, from, to }))
}
