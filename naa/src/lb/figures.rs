//! What a control plane counts and has, for people, programs and Prometheus.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use ejfat::lb::LbId;
use ejfat_control::{control::Control, session::liveness::Readiness};
use ejfat_cp::{Core, SyncCounters};
use ejfat_lb::{Plane, PortsInUse, message};
use serde_json::{Value, json};

use super::counts;

/// What there is of a reserved load balancer.
struct OfLb {
    lb: LbId,
    sessions: usize,
    ready: usize,
    senders: usize,
    epoch: u64,
    from: u64,
    slots: Vec<(u16, u32)>,
    fill: Vec<f32>,
}

fn of_lbs(core: &Core) -> Vec<OfLb> {
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
            OfLb {
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

/// For a live line.
pub(super) fn line(core: &Core) -> String {
    let all = of_lbs(core);
    let sum = |of: fn(&OfLb) -> usize| all.iter().map(of).sum::<usize>();
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

pub(super) fn json(core: &Core) -> Value {
    let of = |of: &OfLb| {
        json!({
            "lb": of.lb.get(), "workers": of.sessions, "ready": of.ready, "senders": of.senders,
            "epoch": of.epoch, "from_tick": of.from,
        })
    };
    let mut end =
        json!({ "event": "end", "load_balancers": of_lbs(core).iter().map(of).collect::<Vec<_>>() });
    for (name, _, value) in counters(core) {
        end[name] = value.load(Relaxed).into();
    }
    end
}

fn counters(core: &Core) -> [(&'static str, &'static str, &AtomicU64); 8] {
    let of = &core.counters;
    [
        ("requests", "Requests that were carried out.", &of.requests),
        ("refused", "Requests that were refused.", &of.refused),
        ("states", "States of workers.", &of.states),
        ("syncs", "Syncs of registered senders.", &of.syncs),
        ("epochs", "Epochs that began.", &of.epochs),
        ("may_split_ticks", "Ticks whose events may have been split over two workers.", &of.may_split),
        ("batches", "Batches of changes that went to the store.", &of.batches),
        ("store_failures", "Batches that the store did not take.", &of.store_failures),
    ]
}

/// OpenMetrics text, with that of the data plane of this process.
pub(super) fn text(core: &Core, syncs: &SyncCounters, local: Option<(&Plane, &PortsInUse)>) -> String {
    let mut text = String::new();
    let dropped = [
        ("syncs_malformed", "Datagrams to sync addresses that are no syncs.", &syncs.malformed),
        ("syncs_of_strangers", "Syncs whose senders are not registered.", &syncs.strangers),
        ("syncs_too_many", "Syncs of senders that send too many.", &syncs.too_many),
    ];
    for (name, help, value) in counters(core).into_iter().chain(dropped) {
        let value = value.load(Relaxed);
        let _ = writeln!(
            text,
            "# HELP naa_control_{name} {help}\n# TYPE naa_control_{name} counter\nnaa_control_{name}_total {value}"
        );
    }
    let all = of_lbs(core);
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&OfLb) -> f64| {
        let _ = writeln!(text, "# HELP naa_control_{name} {help}\n# TYPE naa_control_{name} gauge");
        for lb in &all {
            let _ = writeln!(text, "naa_control_{name}{{lb=\"{}\"}} {}", lb.lb.get(), of(lb));
        }
    };
    gauge("workers", "Worker sessions.", &|of| of.sessions as f64);
    gauge("workers_ready", "Workers that get events.", &|of| of.ready as f64);
    gauge("senders", "Registered senders.", &|of| of.senders as f64);
    gauge("epoch", "The number of the newest epoch.", &|of| of.epoch as f64);
    gauge("slots_least", "The fewest slots of a worker that has any.", &|of| {
        of.slots.iter().map(|(_, slots)| *slots).min().unwrap_or(0).into()
    });
    gauge("slots_most", "The most slots of a worker.", &|of| {
        of.slots.iter().map(|(_, slots)| *slots).max().unwrap_or(0).into()
    });
    gauge("fill_most", "The highest fill level of a worker, 0 to 1.", &|of| {
        of.fill.iter().copied().fold(0.0, f32::max).into()
    });
    let _ = writeln!(
        text,
        "# HELP naa_control_plane_in_use Whether a data plane can be called.\n# TYPE naa_control_plane_in_use gauge"
    );
    for (at, (name, _, why)) in core.planes().into_iter().enumerate() {
        let _ = writeln!(
            text,
            "naa_control_plane_in_use{{plane=\"{at}\",name=\"{name}\"}} {}",
            u8::from(why.is_none())
        );
    }
    match local {
        Some((plane, ports)) => {
            text + &counts::metrics(&message::of_counters(&plane.counters()), &ports.counters())
        }
        None => text + "# EOF\n",
    }
}
