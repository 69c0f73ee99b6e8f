//! Values of records as JSON.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{AuditEntry, EpochRecord, Key, Record};
use crate::{
    calendar::Calendar,
    reservation::{IpFamily, Reservation, ReservationId, Strategy},
    session::{Worker, WorkerSession, check_factors, check_ports, slots::SlotRange},
    token::{Token, TokenHash, TokenId, TokenKind, TokenLimits},
    wall::WallTime,
};

/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

/// What is read of a value first.
#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

// A field that may be null has to be there all the same: `Option::deserialize` refuses a value without it.

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenValue {
    v: u32,
    parent: u32,
    kind: TokenKind,
    name: String,
    sha256: String,
    permissions: Vec<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    most_reservations: Option<u32>,
    #[serde(deserialize_with = "Option::deserialize")]
    longest_ms: Option<u64>,
    created_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationValue {
    v: u32,
    id: u64,
    name: String,
    owner: u32,
    #[serde(deserialize_with = "Option::deserialize")]
    token: Option<u32>,
    ip_family: IpFamily,
    strategy: String,
    #[serde(deserialize_with = "Option::deserialize")]
    until_ms: Option<u64>,
    created_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SenderValue {
    v: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionValue {
    v: u32,
    lb: u8,
    reservation: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    token: Option<u32>,
    member: u16,
    name: String,
    weight: f32,
    address: IpAddr,
    port: u16,
    port_bits: u8,
    min_factor: f32,
    max_factor: f32,
    keep_lb_header: bool,
    /// First slot and count of each range.
    slots: Vec<(u32, u32)>,
    registered_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpochValue {
    v: u32,
    number: u64,
    from: u64,
    /// The member of each slot; null where there is none.
    slots: Vec<Option<u16>>,
    /// Left out if no ticks are to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    untold: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NextValue {
    v: u32,
    next: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditValue {
    v: u32,
    at_ms: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    by: Option<u32>,
    call: String,
    what: String,
}

pub(super) fn encode(record: &Record) -> Vec<u8> {
    match record {
        Record::Token(token) => json(&TokenValue {
            v: VERSION,
            parent: token.parent.0,
            kind: token.kind,
            name: token.name.clone(),
            sha256: token.hash.to_string(),
            permissions: token.permissions.iter().map(ToString::to_string).collect(),
            most_reservations: token.limits.reservations,
            longest_ms: token.limits.longest.map(ms),
            created_ms: token.created.0,
        }),
        Record::Reservation(reservation) => json(&ReservationValue {
            v: VERSION,
            id: reservation.id.0,
            name: reservation.name.clone(),
            owner: reservation.owner.0,
            token: reservation.token.map(|token| token.0),
            ip_family: reservation.ip_family,
            strategy: reservation.strategy.name().to_owned(),
            until_ms: reservation.until.map(|until| until.0),
            created_ms: reservation.created.0,
        }),
        Record::Sender(_) => json(&SenderValue { v: VERSION }),
        Record::Session(session @ WorkerSession { worker, .. }) => json(&SessionValue {
            v: VERSION,
            lb: session.lb.get(),
            reservation: session.reservation.0,
            token: session.token.map(|token| token.0),
            member: session.member,
            name: worker.name.clone(),
            weight: worker.weight,
            address: worker.address,
            port: worker.port,
            port_bits: worker.port_bits,
            min_factor: worker.min_factor,
            max_factor: worker.max_factor,
            keep_lb_header: worker.keep_lb_header,
            slots: session.slots.iter().map(|range| (range.first, range.count)).collect(),
            registered_ms: session.registered.0,
        }),
        Record::Epoch(EpochRecord { number, from, slots, untold, .. }) => json(&EpochValue {
            v: VERSION,
            number: *number,
            from: *from,
            slots: slots.clone(),
            untold: *untold,
        }),
        Record::Next(_, next) => json(&NextValue { v: VERSION, next: *next }),
        Record::Audit(_, entry) => json(&AuditValue {
            v: VERSION,
            at_ms: entry.at.0,
            by: entry.by.map(|by| by.0),
            call: entry.call.clone(),
            what: entry.what.clone(),
        }),
    }
}

/// Reads the value under `key`. The error is the reason, as the end of a sentence.
pub(super) fn decode(key: Key, bytes: &[u8]) -> Result<Record, String> {
    let Versioned { v } = serde_json::from_slice(bytes).map_err(|why| format!("has no version: {why}"))?;
    if v != u64::from(VERSION) {
        return Err(format!(
            "is of version {v}, and this program knows version {VERSION} only; use the program that wrote it, or a newer one"
        ));
    }
    Ok(match key {
        Key::Token(id) => {
            let value: TokenValue = read(bytes)?;
            let permissions = value.permissions.iter().map(|text| text.parse()).collect::<Result<_, _>>();
            Record::Token(Token {
                id,
                parent: TokenId(value.parent),
                kind: value.kind,
                name: value.name,
                hash: hash(&value.sha256).ok_or("has a hash that is not 64 hexadecimal digits")?,
                permissions: permissions.map_err(|why| format!("is wrong: {why}"))?,
                limits: TokenLimits {
                    reservations: value.most_reservations,
                    longest: value.longest_ms.map(Duration::from_millis),
                },
                created: WallTime(value.created_ms),
            })
        }
        Key::Reservation(lb) => {
            let value: ReservationValue = read(bytes)?;
            Record::Reservation(Reservation {
                id: ReservationId(value.id),
                lb,
                name: value.name,
                owner: TokenId(value.owner),
                token: value.token.map(TokenId),
                ip_family: value.ip_family,
                strategy: Strategy::ALL
                    .into_iter()
                    .find(|known| known.name() == value.strategy)
                    .ok_or("has a strategy that is unknown")?,
                until: value.until_ms.map(WallTime),
                created: WallTime(value.created_ms),
            })
        }
        Key::Sender(sender) => {
            read::<SenderValue>(bytes)?;
            Record::Sender(sender)
        }
        Key::Session(id) => {
            let value: SessionValue = read(bytes)?;
            Record::Session(WorkerSession {
                id,
                reservation: ReservationId(value.reservation),
                lb: ejfat::lb::LbId::new(value.lb).map_err(|why| format!("is wrong: {why}"))?,
                token: value.token.map(TokenId),
                member: value.member,
                registered: WallTime(value.registered_ms),
                slots: value.slots.iter().map(|&(first, count)| SlotRange { first, count }).collect(),
                worker: value.worker()?,
            })
        }
        Key::Epoch(lb) => {
            let EpochValue { number, from, slots, untold, .. } = read(bytes)?;
            if Calendar::of(&slots).is_none() {
                return Err("has a number of slots that no calendar has".to_owned());
            }
            Record::Epoch(EpochRecord { lb, number, from, slots, untold })
        }
        Key::Next(counter) => Record::Next(counter, read::<NextValue>(bytes)?.next),
        Key::Audit(number) => {
            let AuditValue { at_ms, by, call, what, .. } = read(bytes)?;
            Record::Audit(number, AuditEntry { at: WallTime(at_ms), by: by.map(TokenId), call, what })
        }
    })
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("fields of numbers and texts under names")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|why| format!("is wrong: {why}"))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn hash(text: &str) -> Option<TokenHash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok().map(TokenHash)
}

impl SessionValue {
    fn worker(self) -> Result<Worker, String> {
        let wrong = |why| format!("is wrong: {why}");
        check_factors(self.weight, self.min_factor, self.max_factor).map_err(wrong)?;
        let (port, port_bits) = check_ports(self.port.into(), self.port_bits.into()).map_err(wrong)?;
        Ok(Worker {
            name: self.name,
            weight: self.weight,
            address: self.address,
            port,
            port_bits,
            min_factor: self.min_factor,
            max_factor: self.max_factor,
            keep_lb_header: self.keep_lb_header,
        })
    }
}
