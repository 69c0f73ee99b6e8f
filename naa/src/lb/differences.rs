//! Differences between two sets of rules, as lines of text.

use ejfat::lb::{Forward, LbId, Member, Rule, RuleKey, Rules, Table, diff};
use ejfat_lb::document::calendar_text;

/// Changed slots share a line if their numbers differ by no more than this. The slots between them are printed as well.
const BETWEEN: u16 = 8;

/// A range of calendar slots: load balancer, epoch, the first slot and the last one.
type Span = (LbId, u32, u16, u16);

/// The differences: `-` before what `before` has, `+` before what `after` has. Empty if they are alike.
pub(super) fn lines(before: &Rules, after: &Rules) -> Vec<String> {
    let changes = diff(before, after);
    let line = |sign: &str, table: Table, text: &str| format!("{sign} {table}  {text}");
    let one = |sign: &str, rule: &Rule| line(sign, rule.key().table(), &text(rule));
    let mut lines: Vec<_> =
        changes.removed.iter().filter(|rule| !is_slot(rule)).map(|rule| one("-", rule)).collect();
    for (was, is) in changes.changed.iter().filter(|(was, _)| !is_slot(was)) {
        lines.extend([one("-", was), one("+", is)]);
    }
    let changed = changes.changed.iter().map(|(was, _)| was);
    let slots = changes.removed.iter().chain(changed).chain(&changes.inserted);
    for span in spans(slots) {
        let texts = [("-", before), ("+", after)].map(|(sign, rules)| (sign, slots_text(rules, span)));
        lines.extend(texts.into_iter().filter_map(|(sign, text)| Some(line(sign, Table::Calendar, &text?))));
    }
    lines.extend(changes.inserted.iter().filter(|rule| !is_slot(rule)).map(|rule| one("+", rule)));
    lines
}

fn is_slot(rule: &Rule) -> bool {
    matches!(rule, Rule::Slot { .. })
}

/// The ranges of calendar slots that these rules are about.
fn spans<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<Span> {
    let slot = |rule: &Rule| match *rule {
        Rule::Slot { lb, epoch, slot, .. } => Some((lb, epoch, slot)),
        _ => None,
    };
    let mut slots: Vec<_> = rules.filter_map(slot).collect();
    slots.sort_unstable();
    let near = |a: &(LbId, u32, u16), b: &(LbId, u32, u16)| (a.0, a.1) == (b.0, b.1) && b.2 - a.2 <= BETWEEN;
    slots.chunk_by(near).map(|run| (run[0].0, run[0].1, run[0].2, run[run.len() - 1].2)).collect()
}

/// The slots of a span as text; `None` if no slot of the span has a rule.
fn slots_text(rules: &Rules, (lb, epoch, first, last): Span) -> Option<String> {
    let member = |slot| match rules.get(&RuleKey::Slot { lb, epoch, slot }) {
        Some(Rule::Slot { member, .. }) => Some(member),
        _ => None,
    };
    let members: Vec<_> = (first..=last).map(member).collect();
    let some = members.iter().flatten().next()?;
    let whose = if members.iter().all(|member| *member == Some(*some)) {
        format!("member {some}")
    } else {
        format!("members {}", calendar_text(&members))
    };
    let slots = if first == last { format!("slot {first}") } else { format!("slots {first} to {last}") };
    Some(format!("load balancer {}, epoch {epoch}, {slots}: {whose}", lb.get()))
}

/// A rule in one line.
fn text(rule: &Rule) -> String {
    match rule {
        Rule::Destination { address, lb } => format!("{address} is load balancer {}", lb.get()),
        Rule::Source { lb, address } => format!("load balancer {} takes packets from {address}", lb.get()),
        Rule::Epoch { lb, ticks, epoch } => format!(
            "load balancer {}, ticks {:#x}/{}: epoch {}, {} slot bits, xor {}",
            lb.get(),
            ticks.first(),
            ticks.length(),
            epoch.id,
            epoch.slot_bits,
            epoch.xor
        ),
        Rule::Slot { lb, epoch, slot, member } => {
            format!("load balancer {}, epoch {epoch}, slot {slot}: member {member}", lb.get())
        }
        Rule::Member { lb, id, member, .. } => {
            let what = match member {
                Member::SoftEvicted => "dropped, soft-evicted".into(),
                Member::Deregistered => "dropped, deregistered".into(),
                Member::Forward(Forward { address, port, port_bits, keep_lb_header, mac }) => {
                    let at = std::net::SocketAddr::new(*address, *port);
                    let keep = if *keep_lb_header { ", keeps the LB header" } else { "" };
                    let mac = mac.map_or(String::new(), |mac| format!(", MAC {mac:02x?}"));
                    format!("{at}, {port_bits} port bits{keep}{mac}")
                }
            };
            format!("load balancer {}, member {id}: {what}", lb.get())
        }
    }
}
