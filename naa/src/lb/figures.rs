//! The counters and the load balancers of a control plane, as text, JSON and OpenMetrics.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use ejfat::lb::LbId;
use ejfat_control::{control::Control, session::liveness::Readiness};
use ejfat_cp::{Core, SyncCounters};
use ejfat_lb::{PortsInUse, SharedDataPlane, message};
use serde_json::{Value, json};

use super::counts;

/// The figures of a reserved load balancer.
struct LbFigures {
    lb: LbId,
    sessions: usize,
    /// How many of the sessions are ready.
    ready: usize,
    senders: usize,
    /// The number of the newest epoch, and its first tick.
    epoch: u64,
    from: u64,
    /// The slots of each member in this epoch.
    slots: Vec<(u16, u32)>,
    /// The fill levels of workers that have reported a state.
    fill: Vec<f32>,
}

/// Returns the figures of all reserved load balancers.
fn figures(core: &Core) -> Vec<LbFigures> {
    core.look(|control: &Control, now| {
        let registry = control.registry();
        let durable = registry.durable();
        let of = |lb: LbId| {
            let published = control.published(now, lb).unwrap_or_default();
            let sessions: Vec<_> = durable.sessions_of(lb).collect();
            let is_ready = |of: &&&_| {
                let of: &ejfat_control::session::WorkerSession = of;
                registry.readiness(of.id, now) == Some(Readiness::Ready)
            };
            let fill = |of: &&ejfat_control::session::WorkerSession| {
                registry.liveness(of.id)?.state().map(|(state, _)| state.fill_level)
            };
            LbFigures {
                lb,
                sessions: sessions.len(),
                ready: sessions.iter().filter(is_ready).count(),
                senders: durable.senders_of(lb).count(),
                epoch: published.epoch,
                from: published.from,
                slots: published.slots,
                fill: sessions.iter().filter_map(fill).collect(),
            }
        };
        durable.reservations().map(|reservation| of(reservation.lb)).collect()
    })
}

/// Returns a line that sums up all load balancers.
pub(super) fn line(core: &Core) -> String {
    let all = figures(core);
    let sum = |of: fn(&LbFigures) -> usize| all.iter().map(of).sum::<usize>();
    format!(
        "{} reserved, {} of {} workers ready, {} senders, {} epochs, {} requests",
        all.len(),
        sum(|of| of.ready),
        sum(|of| of.sessions),
        sum(|of| of.senders),
        core.counters.epochs.load(Relaxed),
        core.counters.requests.load(Relaxed)
    )
}

/// Returns the object that a control plane prints at its end.
pub(super) fn json(core: &Core) -> Value {
    let of = |of: &LbFigures| {
        json!({
            "lb": of.lb.get(), "workers": of.sessions, "ready": of.ready, "senders": of.senders,
            "epoch": of.epoch, "from_tick": of.from,
        })
    };
    let mut end =
        json!({ "event": "end", "load_balancers": figures(core).iter().map(of).collect::<Vec<_>>() });
    for (name, _, value) in counters(core) {
        end[name] = value.load(Relaxed).into();
    }
    end
}

/// Returns the counters with their names and help texts.
fn counters(core: &Core) -> [(&'static str, &'static str, &AtomicU64); 8] {
    let of = &core.counters;
    [
        ("requests", "Requests that were carried out.", &of.requests),
        ("refused", "Requests that were refused.", &of.refused),
        ("states", "States that workers reported.", &of.states),
        ("syncs", "Sync datagrams of registered senders.", &of.syncs),
        ("epochs", "Epochs that began.", &of.epochs),
        (
            "may_split_ticks",
            "Ticks whose events may have been split over two workers. A range without a known end counts as one tick.",
            &of.may_split,
        ),
        ("batches", "Batches of changes that were given to the store.", &of.batches),
        ("store_failures", "Batches that the store could not write.", &of.store_failures),
    ]
}

/// Returns OpenMetrics text, with the counters of the data plane of this process if there is one. `certificate_ends` is the UNIX time.
pub(super) fn text(
    core: &Core,
    syncs: &SyncCounters,
    certificate_ends: Option<u64>,
    local: Option<(&SharedDataPlane, &PortsInUse)>,
) -> String {
    let mut text = String::new();
    let dropped = [
        ("syncs_malformed", "Datagrams to sync addresses that are no sync datagrams.", &syncs.malformed),
        (
            "syncs_of_strangers",
            "Sync datagrams of addresses that are not registered as senders.",
            &syncs.strangers,
        ),
        (
            "syncs_too_many",
            "Sync datagrams that were dropped because their sender sends too many.",
            &syncs.too_many,
        ),
    ];
    for (name, help, value) in counters(core).into_iter().chain(dropped) {
        let value = value.load(Relaxed);
        let _ = writeln!(
            text,
            "# HELP naa_control_{name} {help}\n# TYPE naa_control_{name} counter\nnaa_control_{name}_total {value}"
        );
    }
    let all = figures(core);
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&LbFigures) -> f64| {
        let _ = writeln!(text, "# HELP naa_control_{name} {help}\n# TYPE naa_control_{name} gauge");
        for lb in &all {
            let _ = writeln!(text, "naa_control_{name}{{lb=\"{}\"}} {}", lb.lb.get(), of(lb));
        }
    };
    gauge("workers", "Worker sessions.", &|of| of.sessions as f64);
    gauge("workers_ready", "Worker sessions that are ready.", &|of| of.ready as f64);
    gauge("senders", "Registered senders.", &|of| of.senders as f64);
    gauge("epoch", "The number of the newest epoch.", &|of| of.epoch as f64);
    gauge("slots_least", "The smallest number of slots of a worker that has slots.", &|of| {
        of.slots.iter().map(|(_, slots)| *slots).min().unwrap_or(0).into()
    });
    gauge("slots_most", "The largest number of slots of a worker.", &|of| {
        of.slots.iter().map(|(_, slots)| *slots).max().unwrap_or(0).into()
    });
    gauge("fill_most", "The highest fill level of a worker, 0 to 1.", &|of| {
        of.fill.iter().copied().fold(0.0, f32::max).into()
    });
    let _ = writeln!(
        text,
        "# HELP naa_control_plane_in_use Whether the control plane can program this data plane.\n# TYPE naa_control_plane_in_use gauge"
    );
    for (at, (name, _, why)) in core.planes().into_iter().enumerate() {
        let _ = writeln!(
            text,
            "naa_control_plane_in_use{{plane=\"{at}\",name=\"{name}\"}} {}",
            u8::from(why.is_none())
        );
    }
    if let Some(ends) = certificate_ends {
        let _ = writeln!(
            text,
            "# HELP naa_control_certificate_ends UNIX time in seconds at which the certificate of gRPC ends.\n\
             # TYPE naa_control_certificate_ends gauge\nnaa_control_certificate_ends {ends}"
        );
    }
    match local {
        Some((plane, ports)) => {
            text + &counts::metrics(&message::of_counters(&plane.counters()), &ports.counters())
        }
        None => text + "# EOF\n",
    }
}
