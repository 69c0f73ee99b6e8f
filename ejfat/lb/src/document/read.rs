//! A document to rules.

use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, RuleError, Rules, TickPrefix, prefixes},
    segment::IpVersion,
};

use super::{Document, DocumentError, Drop, EpochDocument, Ip, Lb, MemberDocument, calendar};

pub(super) fn rules(document: &Document) -> Result<Rules, DocumentError> {
    let mut rules = Rules::default();
    document.load_balancers.iter().try_for_each(|lb| add(lb, &mut rules))?;
    Ok(rules)
}

/// One by one: the tables' limits end what a short text may claim.
fn add(of: &Lb, rules: &mut Rules) -> Result<(), DocumentError> {
    let wrong = |source| DocumentError::Rule { lb: of.lb, source };
    let text = |problem| DocumentError::Text { lb: of.lb, problem };
    let lb = LbId::new(of.lb).map_err(wrong)?;
    let mut put = |rule| rules.insert(rule, false).map_err(wrong);
    of.addresses.iter().try_for_each(|&address| put(Rule::Destination { address, lb }))?;
    of.senders.iter().try_for_each(|&address| put(Rule::Source { lb, address }))?;
    for epoch in &of.epochs {
        let what = Epoch { id: epoch.id, slot_bits: epoch.slot_bits, xor: epoch.xor };
        for ticks in &epoch.ticks {
            let ticks = parse_ticks(ticks).map_err(text)?;
            ticks.into_iter().try_for_each(|ticks| put(Rule::Epoch { lb, ticks, epoch: what }))?;
        }
        slots(lb, epoch).map_err(text)?.into_iter().try_for_each(&mut put)?;
    }
    for member in &of.members {
        let (ip, what) = parse_member(member).map_err(text)?;
        put(Rule::Member { lb, ip, id: member.id, member: what })?;
    }
    Ok(())
}

fn slots(lb: LbId, epoch: &EpochDocument) -> Result<Vec<Rule>, String> {
    let members =
        calendar::parse(&epoch.calendar).map_err(|why| format!("calendar of epoch {}: {why}", epoch.id))?;
    let slots = (0..).zip(members).filter_map(|(slot, member)| Some((slot, member?)));
    Ok(slots.map(|(slot, member)| Rule::Slot { lb, epoch: epoch.id, slot, member }).collect())
}

fn parse_ticks(text: &str) -> Result<Vec<TickPrefix>, String> {
    let wrong =
        || format!("{text:?} are no ticks; write all, FIRST-LAST, or a prefix such as 0x4000000000000000/2");
    if text == "all" {
        return Ok(prefixes(..));
    }
    if let Some((value, length)) = text.split_once('/') {
        let length = length.parse().map_err(|_| wrong())?;
        let prefix = TickPrefix::new(number(value).ok_or_else(wrong)?, length);
        return prefix.map(|prefix| vec![prefix]).map_err(|error: RuleError| error.to_string());
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = number(first).ok_or_else(wrong)?;
    let last = if last.is_empty() { u64::MAX } else { number(last).ok_or_else(wrong)? };
    if first > last { Err(wrong()) } else { Ok(prefixes(first..=last)) }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_member(member: &MemberDocument) -> Result<(IpVersion, Member), String> {
    let id = member.id;
    let MemberDocument { port_bits, keep_lb_header, .. } = *member;
    match (member.address, member.drop) {
        (Some(address), None) => {
            let port = member
                .port
                .ok_or_else(|| format!("member {id} has no port; add port: and the first it listens on"))?;
            let mac = member.mac.as_deref().map(parse_mac).transpose()?;
            let ip = IpVersion::of(address);
            Ok((ip, Member::Forward(Forward { mac, address, port, port_bits, keep_lb_header })))
        }
        (None, Some(drop)) => {
            let ip = match member.ip {
                Some(Ip::V4) => IpVersion::V4,
                Some(Ip::V6) => IpVersion::V6,
                None => {
                    return Err(format!("member {id} drops packets of which IP version? Add ip: v4 or v6"));
                }
            };
            let member = match drop {
                Drop::SoftEvicted => Member::SoftEvicted,
                Drop::Deregistered => Member::Deregistered,
            };
            Ok((ip, member))
        }
        _ => Err(format!("member {id} needs an address and a port, or drop")),
    }
}

fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes = bytes.collect::<Result<Vec<_>, _>>().ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is no MAC address; write it as 02:00:00:00:00:01"))
}
