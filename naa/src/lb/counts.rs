//! Counters of a load balancer, as text, JSON and OpenMetrics, and `naa lb counters`, which prints them.

use std::{collections::BTreeMap, fmt::Write as _};

use ejfat_lb::PortCounters;
use naa_measure::TextTable;
use proto::lb::v1::{GetCountersReply as Counters, LbCounters, MemberCounters};
use serde_json::{Value, json};

use super::location::{TableCredentials, TableLocation};
use crate::{ejfat::losses::total, show};

/// Print what a load balancer has counted
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa lb counters grpc://10.9.0.1:18010
  naa lb counters grpcs://lb.example.org:18010 --tls-ca ca.pem
  naa lb counters mrsp://10.9.0.1 --json

Causes of drops have the names of the P4 data plane's counters.")]
pub(super) struct Args {
    /// grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]
    place: TableLocation,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: TableCredentials,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let counters = args.access.counters(&args.place)?;
    let text = if args.json { json(&counters).to_string() } else { table(&counters) };
    Ok(show::line(&text)?)
}

fn sent<'a>(counters: &'a Counters, lb: &'a LbCounters) -> impl Iterator<Item = &'a MemberCounters> {
    counters.members.iter().filter(move |member| member.lb == lb.lb)
}

/// Packets and bytes that a load balancer sent to members. A server of an older version does not tell its sum, and the
/// counters of members that are gone are missing from theirs, so it is the greater one of both.
fn sent_by(counters: &Counters, lb: &LbCounters) -> (u64, u64) {
    let of_members = |of: fn(&MemberCounters) -> u64| total(sent(counters, lb).map(of));
    (
        lb.lb_tx_pkt.max(of_members(|member| member.mbr_tx_pkt)),
        lb.lb_tx_byte.max(of_members(|member| member.mbr_tx_byte)),
    )
}

/// The counters of all load balancers that received a packet.
fn active(counters: &Counters) -> impl Iterator<Item = &LbCounters> {
    counters.lbs.iter().filter(|lb| lb.lb_rx_pkt > 0)
}

pub(super) fn json(counters: &Counters) -> Value {
    let lbs = active(counters).map(|lb| {
        let (packets, bytes) = sent_by(counters, lb);
        json!({
            "lb": lb.lb, "received_packets": lb.lb_rx_pkt, "received_bytes": lb.lb_rx_byte,
            "v2": lb.lb_rx_v2, "v3": lb.lb_rx_v3,
            "sent_packets": packets, "sent_bytes": bytes,
            "dropped": lb.drops,
        })
    });
    let members = counters.members.iter().map(
        |of| json!({ "lb": of.lb, "member": of.member, "packets": of.mbr_tx_pkt, "bytes": of.mbr_tx_byte }),
    );
    json!({
        "load_balancers": lbs.collect::<Vec<_>>(),
        "members": members.collect::<Vec<_>>(),
        "unaddressed": counters.unaddressed,
        "newest_tick": counters.newest_tick,
        "overflows": counters.overflows,
        "refused": counters.refused,
    })
}

pub(super) fn table(counters: &Counters) -> String {
    let mut rows = Vec::<[String; 4]>::new();
    // A load balancer with members has a row even if it got nothing, since JSON and metrics have its members.
    let has_packets = |lb: &&LbCounters| lb.lb_rx_pkt > 0 || sent(counters, lb).next().is_some();
    for lb in counters.lbs.iter().filter(has_packets) {
        let name = format!("load balancer {}", lb.lb);
        rows.push([name, lb.lb_rx_pkt.to_string(), show::bytes(lb.lb_rx_byte), causes(&lb.drops)]);
        rows.extend(sent(counters, lb).map(|of| {
            let name = format!("  to member {}", of.member);
            [name, of.mbr_tx_pkt.to_string(), show::bytes(of.mbr_tx_byte), String::new()]
        }));
    }
    let nobody = total(counters.unaddressed.values().copied());
    if nobody > 0 {
        let name = "to no load balancer".to_owned();
        rows.push([name, nobody.to_string(), String::new(), causes(&counters.unaddressed)]);
    }
    for (what, n) in [("overflowed", counters.overflows), ("refused by the system", counters.refused)] {
        if n > 0 {
            rows.push([what.into(), n.to_string(), String::new(), String::new()]);
        }
    }
    TextTable::of(["", "packets", "bytes", "dropped"], rows)
}

fn causes(drops: &BTreeMap<String, u64>) -> String {
    let some = drops.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{n} {name}"));
    let some = some.collect::<Vec<_>>().join(", ");
    if some.is_empty() { "0".into() } else { some }
}

/// The counters as one line, which is updated while the program runs.
pub(super) fn line(counters: &Counters) -> String {
    let received = total(counters.lbs.iter().map(|lb| lb.lb_rx_pkt));
    let sent = total(counters.lbs.iter().map(|lb| sent_by(counters, lb).0));
    let dropped = total(counters.lbs.iter().flat_map(|lb| lb.drops.values().copied()));
    let Counters { overflows, refused, .. } = counters;
    format!(
        "{received} packets, {sent} to members, {dropped} dropped, {overflows} overflowed, {refused} refused"
    )
}

/// The counters as OpenMetrics text.
pub(super) fn metrics(counters: &Counters, ports: &[PortCounters]) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, samples: Vec<(String, u64)>| {
        let _ = writeln!(text, "# HELP naa_lb_{name} {help}\n# TYPE naa_lb_{name} counter");
        for (labels, value) in samples {
            let _ = writeln!(text, "naa_lb_{name}_total{labels} {value}");
        }
    };
    let by_lb = |of: fn(&LbCounters) -> u64| {
        active(counters).map(|lb| (format!("{{lb=\"{}\"}}", lb.lb), of(lb))).collect()
    };
    metric("received_packets", "Packets to load balancers.", by_lb(|lb| lb.lb_rx_pkt));
    metric("received_bytes", "Their bytes.", by_lb(|lb| lb.lb_rx_byte));
    let of_lb = |lb: &LbCounters| {
        let label = |cause: &String| format!("{{lb=\"{}\",cause=\"{cause}\"}}", lb.lb);
        lb.drops.iter().map(|(cause, n)| (label(cause), *n)).collect::<Vec<_>>()
    };
    metric("dropped_packets", "Packets dropped, by cause.", active(counters).flat_map(of_lb).collect());
    let by_member = |of: fn(&MemberCounters) -> u64| {
        let label = |to: &MemberCounters| format!("{{lb=\"{}\",member=\"{}\"}}", to.lb, to.member);
        counters.members.iter().map(|to| (label(to), of(to))).collect()
    };
    metric(
        "sent_packets",
        "Packets sent, by member; a member that the tables lost is left out a minute after its last packet.",
        by_member(|member| member.mbr_tx_pkt),
    );
    metric("sent_bytes", "Their bytes.", by_member(|member| member.mbr_tx_byte));
    let nobody = counters.unaddressed.iter().map(|(cause, n)| (format!("{{cause=\"{cause}\"}}"), *n));
    metric("unaddressed_packets", "Packets to no load balancer.", nobody.collect());
    let by_port = ports.iter().map(|of| (format!("{{address=\"{}\"}}", of.at), of.packets));
    metric("port_packets", "Packets received, by address.", by_port.collect());
    let one = |n| vec![(String::new(), n)];
    metric("overflowed_packets", "Packets that found a receive buffer full.", one(counters.overflows));
    metric("refused_packets", "Packets that the system did not send.", one(counters.refused));
    text + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_json_and_metrics_tell_the_same_members_and_sums() {
        let lb =
            |lb, packets| LbCounters { lb, lb_rx_pkt: packets, lb_tx_pkt: packets, ..Default::default() };
        let member = |lb, member, packets| MemberCounters { lb, member, mbr_tx_pkt: packets, mbr_tx_byte: 0 };
        // Three packets went to a member that is gone, and load balancer 4 got none yet.
        let members = vec![member(3, 7, 9), member(4, 8, 0)];
        let counters = Counters { lbs: vec![lb(3, 12), lb(4, 0), lb(5, 0)], members, ..Default::default() };
        let (text, json, metrics) = (table(&counters), json(&counters), metrics(&counters, &[]));
        for (id, packets) in [(7, 9), (8, 0)] {
            let row = text.lines().find(|row| row.contains(&format!("to member {id}"))).expect(&text);
            assert!(row.split_whitespace().any(|word| word == packets.to_string()), "{text}");
            let members = json["members"].as_array().unwrap();
            assert!(members.iter().any(|of| of["member"] == id && of["packets"] == packets), "{json}");
            let sample = format!("member=\"{id}\"}} {packets}\n");
            assert!(
                metrics.contains(&format!("naa_lb_sent_packets_total{{lb=\"{}\",{sample}", id - 4)),
                "{metrics}"
            );
        }
        assert_eq!(json["load_balancers"][0]["sent_packets"], 12);
        assert!(line(&counters).contains("12 to members") && !text.contains("load balancer 5"), "{text}");
    }

    #[test]
    fn a_server_that_counts_members_only_has_sent_what_they_got() {
        let lbs = vec![LbCounters { lb: 3, lb_rx_pkt: 12, ..Default::default() }];
        let member = |member| MemberCounters { lb: 3, member, mbr_tx_pkt: 5, mbr_tx_byte: 50 };
        let counters = Counters { lbs, members: vec![member(7), member(8)], ..Default::default() };
        let of = &json(&counters)["load_balancers"][0];
        assert_eq!((&of["sent_packets"], &of["sent_bytes"]), (&10.into(), &100.into()));
        assert!(line(&counters).contains("10 to members"), "{}", line(&counters));
    }

    #[test]
    fn counters_of_a_peer_may_be_as_large_as_they_like() {
        let drops: BTreeMap<_, _> = ["a", "b"].map(|cause| (cause.to_owned(), u64::MAX)).into();
        let lb = |lb| LbCounters {
            lb,
            lb_rx_pkt: u64::MAX,
            lb_tx_pkt: 1,
            drops: drops.clone(),
            ..Default::default()
        };
        let member = |member| MemberCounters { lb: 3, member, mbr_tx_pkt: u64::MAX, mbr_tx_byte: u64::MAX };
        let members = vec![member(7), member(8)];
        let counters =
            Counters { lbs: vec![lb(3), lb(4)], members, unaddressed: drops.clone(), ..Default::default() };
        assert_eq!(json(&counters)["load_balancers"][0]["sent_packets"], u64::MAX);
        assert!(line(&counters).contains(&format!("{} to members", u64::MAX)));
        assert!(table(&counters).contains(&u64::MAX.to_string()));
    }
}
