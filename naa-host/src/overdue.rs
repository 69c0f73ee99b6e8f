//! Decides when a call that takes long is reported and given up, and writes the report.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use mrsp::{FunctionCode, Liveness};

use crate::error::function_name;

/// The maximum time for which the report of an overdue call waits for the answer to a probe.
const GRACE: Duration = Duration::from_secs(1);

/// The time after which a warning reports a running call, and the time after which the call is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    pub(crate) report_after: Option<Duration>,
    pub(crate) call_timeout: Option<Duration>,
}

/// The time at which a warning reports that a call takes long, and the time at which the call is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    since: Instant,
    report_at: Option<Instant>,
    limit: Option<(Instant, Duration)>,
}

/// The action that the session must take for a call that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The session must probe the accelerator, so that the report of the overdue call can say whether the accelerator
    /// answers.
    Probe,
    /// The session must log a warning about the call.
    Report,
    /// The session must give up the call, because the call has reached this time limit.
    GiveUp(Duration),
}

impl Overdue {
    /// Returns the times at which a call that is posted at `now` must be reported and given up.
    pub(crate) fn new(limits: CallTimes, now: Instant) -> Self {
        let at = |time| now.checked_add(time);
        Self {
            since: now,
            report_at: limits.report_after.and_then(at),
            limit: limits.call_timeout.and_then(|limit| Some((at(limit)?, limit))),
        }
    }

    /// Changes the time limit of the call. The time limit is counted from the beginning of the call.
    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit.and_then(|limit| Some((self.since.checked_add(limit)?, limit)));
    }

    /// Returns the next time at which the call is to be reported or given up.
    pub(crate) fn next(&self, liveness: &Liveness) -> Option<Instant> {
        [self.report_time(liveness), self.limit.map(|(at, _)| at)].into_iter().flatten().min()
    }

    /// Returns the time at which the call is to be reported. While a probe is unanswered, the report is delayed until
    /// the time `GRACE` has passed since the probe was sent.
    fn report_time(&self, liveness: &Liveness) -> Option<Instant> {
        let settled = liveness.probing_since().and_then(|probe| probe.checked_add(GRACE));
        self.report_at.map(|at| settled.map_or(at, |settled| at.max(settled)))
    }

    /// Returns what the session must do about the call at the time `now`. A call is reported at most once.
    pub(crate) fn due(&mut self, now: Instant, liveness: &Liveness) -> Due {
        if let Some((at, limit)) = self.limit
            && now >= at
        {
            return Due::GiveUp(limit);
        }
        if self.report_time(liveness).is_none_or(|at| now < at) {
            return Due::Nothing;
        }
        // The report says whether the accelerator still answers. `liveness.since()` is the time of the accelerator's
        // last sign of life or of the last probe, whichever is later. If this time is not later than the beginning of
        // the call, the session knows nothing new about the accelerator. The session must then send a probe before the
        // report, if it may send a probe now.
        if liveness.may_probe() && liveness.since() <= self.since {
            return Due::Probe;
        }
        self.report_at = None;
        Due::Report
    }

    /// Returns the text of the warning with which the session reports the call at the time `now`.
    pub(crate) fn report(
        &self,
        now: Instant,
        (peer, function): (SocketAddr, FunctionCode),
        call: &OverdueCall<'_>,
    ) -> String {
        let waited = now.saturating_duration_since(self.since).as_secs_f64();
        let seconds = |since| now.saturating_duration_since(since).as_secs_f64();
        let alive = match call.liveness.probing_since() {
            Some(probe) => {
                format!("it has not answered the probe of {:.1} s ago; see whether it runs", seconds(probe))
            }
            None if !call.is_written => {
                "it has not acknowledged all inputs yet; see its load and the network".to_owned()
            }
            None if call.liveness.may_probe() => {
                "it still answers probes, so it can be reached; see its log".to_owned()
            }
            None => "whether it is alive is not known, because probes are off".to_owned(),
        };
        let known = if call.has_outputs {
            ""
        } else {
            " (servers of the NAAICE library never answer a call without outputs)"
        };
        let remedy = match self.limit {
            Some((_, limit)) => format!("the call is given up after {limit:?}"),
            None => "NAA_TIMEOUT=SECONDS ends calls that take longer".to_owned(),
        };
        let function = function_name(function);
        format!("{peer} has not answered the call of {function} for {waited:.0} s{known}: {alive}; {remedy}")
    }
}

/// The state of a call that takes too long, for the text of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverdueCall<'a> {
    pub(crate) liveness: &'a Liveness,
    /// True if the accelerator's device has acknowledged the WRITEs of all inputs.
    pub(crate) is_written: bool,
    pub(crate) has_outputs: bool,
}
