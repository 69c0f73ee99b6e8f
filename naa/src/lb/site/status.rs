//! `naa lb status`.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _, stdout},
    time::{Duration, Instant},
};

use ejfat_client::messages as pb;
use naa_measure::TextTable;
use serde_json::{Value, json};

use super::{
    Of,
    when::{age, text, unix_ms},
};
use crate::show;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb status
  naa lb status --watch            once a second, until Ctrl-C
  naa lb status --json | jq '.workers[] | {name, slots, fill}'

The column `session` has the number by which `naa lb workers` and `naa lb timeseries` name a worker. \
The slots of a worker are its share of all events: 128 of 512 are a quarter. They follow from the \
states that it reports, and stay within its --min-factor and --max-factor; its first share follows its weight.";

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Args {
    /// Show it again every second, with rates
    #[arg(short, long)]
    watch: bool,
    /// Seconds from one table of --watch to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, requires = "watch")]
    every: f64,
    #[command(flatten)]
    of: Of,
}

/// The time, the events and the bytes of each session, by its id.
type Counted = BTreeMap<i64, (Instant, i64, i64)>;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (lb, connection) = args.of.connect()?;
    let every = Duration::try_from_secs_f64(args.every.clamp(0.1, 3600.0))?;
    let mut before = Counted::new();
    loop {
        let status = connection.status(&lb)?;
        let (now, mut counted) = (Instant::now(), Counted::new());
        for of in &status.workers {
            counted.insert(
                of.session_id,
                (now, of.total_events_recv.max(of.total_events_reassembled), of.total_bytes_recv),
            );
        }
        if args.of.at.json {
            show::line(&object(&lb, &status).to_string())?;
        } else {
            let text = text_of(&lb, &status, &before, &counted);
            // A terminal shows only the newest table.
            let clear = if args.watch && stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
            write!(stdout(), "{clear}")?;
            show::line(&text)?;
        }
        if !args.watch {
            return Ok(());
        }
        before = counted;
        std::thread::sleep(every);
    }
}

/// Returns the events that a worker lost.
fn lost(of: &pb::WorkerStatus) -> i64 {
    of.total_events_reassembly_err.saturating_add(of.total_event_enqueue_err)
}

pub(super) fn object(lb: &str, status: &pb::LoadBalancerStatusReply) -> Value {
    let issue =
        |of: &pb::HealthIssue| json!({ "type": of.r#type, "severity": of.severity, "message": of.message });
    let worker = |of: &pb::WorkerStatus| {
        json!({
            "session": of.session_id, "name": of.name, "address": of.ip_address, "port": of.udp_port,
            "ports": 1_u32.checked_shl(of.port_range.try_into().unwrap_or(0)),
            "slots": of.slots_assigned, "fill": of.fill_percent, "control_signal": of.control_signal,
            "min_factor": of.min_factor, "max_factor": of.max_factor, "keep_lb_header": of.keep_lb_header,
            "last_state": of.last_updated.as_ref().map(ToString::to_string),
            "events_received": of.total_events_recv, "events_reassembled": of.total_events_reassembled,
            "reassembly_errors": of.total_events_reassembly_err, "events_dequeued": of.total_events_dequeued,
            "enqueue_errors": of.total_event_enqueue_err, "bytes_received": of.total_bytes_recv,
            "packets_received": of.total_packets_recv,
            "issues": of.health_issues.iter().map(issue).collect::<Vec<_>>(),
        })
    };
    let lacks: Vec<_> =
        [("senders", status.sender_addresses.is_empty()), ("workers", status.workers.is_empty())]
            .into_iter()
            .filter_map(|(what, is_lacking)| is_lacking.then_some(what))
            .collect();
    json!({
        "unix_ms": unix_ms(), "lacks": lacks,
        "lb": lb, "epoch": status.current_epoch, "tick": status.current_predicted_event_number,
        "slots": status.slot_resolution, "expires": text(status.expires_at.as_ref()),
        "senders": status.sender_addresses,
        "workers": status.workers.iter().map(worker).collect::<Vec<_>>(),
        "issues": status.health_issues.iter().map(issue).collect::<Vec<_>>(),
    })
}

/// Returns the status as text, with rates since the status before.
fn text_of(lb: &str, status: &pb::LoadBalancerStatusReply, before: &Counted, now: &Counted) -> String {
    let slots = status.slot_resolution.max(1);
    let senders = match &status.sender_addresses[..] {
        [] => "no senders: all segments are dropped; `naa lb senders add ADDRESS`, or `naa ejfat send` with this URI".to_owned(),
        some => format!("segments from {}", some.join(", ")),
    };
    let mut text = format!(
        "reservation {lb}, epoch {}, {} slots, ends: {}\n{senders}\n",
        status.current_epoch,
        slots,
        text(status.expires_at.as_ref())
    );
    if status.workers.is_empty() {
        text.push_str("no workers: all events are dropped; `naa ejfat recv` with this URI is one");
    } else {
        text.push_str(&workers(status, before, now));
    }
    for issue in &status.health_issues {
        text.push_str(&format!("\n{}", issue_line(issue)));
    }
    text.trim_end().to_owned()
}

/// Returns what is wrong as a line for people.
pub(super) fn issue_line(of: &pb::HealthIssue) -> String {
    format!("{}: {}", of.severity, of.message)
}

/// Returns the table of workers, with rates since the status before.
fn workers(status: &pb::LoadBalancerStatusReply, before: &Counted, now: &Counted) -> String {
    let slots = status.slot_resolution.max(1);
    let header = [
        "session", "worker", "address", "slots", "share", "fill", "events/s", "Gbit/s", "lost", "state",
        "why",
    ];
    let rows = status.workers.iter().map(|of| {
        let rate = |of_counted: fn(&(Instant, i64, i64)) -> i64| {
            let (new, old) = (now.get(&of.session_id)?, before.get(&of.session_id)?);
            let time = new.0.duration_since(old.0).as_secs_f64();
            (time > 0.0).then(|| of_counted(new).saturating_sub(of_counted(old)) as f64 / time)
        };
        let shown = |rate: Option<f64>, scale: f64, digits: usize| {
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.digits$}", rate * scale))
        };
        [
            of.session_id.to_string(),
            of.name.clone(),
            format!("{}:{}", of.ip_address, of.udp_port),
            of.slots_assigned.to_string(),
            format!("{:.1} %", f64::from(of.slots_assigned) * 100.0 / f64::from(slots)),
            format!("{:.0} %", of.fill_percent * 100.0),
            shown(rate(|counted| counted.1), 1.0, 0),
            shown(rate(|counted| counted.2), 8e-9, 3),
            lost(of).to_string(),
            of.last_updated
                .as_ref()
                .map_or_else(|| "none yet".to_owned(), |at| format!("{:.1} s ago", age(at))),
            why(of),
        ]
    });
    TextTable::of(header, rows)
}

/// Returns why a worker has its share, or what is wrong with it.
fn why(of: &pb::WorkerStatus) -> String {
    if let [first, ..] = &of.health_issues[..] {
        return first.message.clone();
    }
    if !of.slot_demands.is_empty() {
        return "it demands slots".to_owned();
    }
    if of.control_signal != 0.0 {
        return format!("its control signal is {:+.3}", of.control_signal);
    }
    if of.last_updated.is_none() && of.slots_assigned > 0 {
        return "it has sent no state yet: it keeps the slots that it had".to_owned();
    }
    if of.slots_assigned == 0 {
        return "its first slots have not begun yet".to_owned();
    }
    match of.fill_percent {
        full if full > 0.9 => "it is nearly full: its share falls to its capacity".to_owned(),
        some if some > 0.02 => "it has a backlog: its share follows its capacity".to_owned(),
        _ => "it keeps up with what it gets".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_a_reservation_lacks_and_when() {
        let mut status = pb::LoadBalancerStatusReply::default();
        let empty = object("1", &status);
        assert_eq!(empty["lacks"], json!(["senders", "workers"]));
        assert!(empty["unix_ms"].as_u64() > Some(1 << 40), "{empty}");
        status.sender_addresses.push("10.9.0.5".to_owned());
        assert_eq!(object("1", &status)["lacks"], json!(["workers"]));
        status.workers.push(pb::WorkerStatus::default());
        assert_eq!(object("1", &status)["lacks"], json!([]));
    }
}
