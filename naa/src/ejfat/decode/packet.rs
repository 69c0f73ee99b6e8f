//! Prints a line per datagram.

use ejfat::wire::{LbHeader, SyncHeader};
use naa_measure::{Column, TextTable};
use serde_json::{Value, json};

use crate::ejfat::capture::{CapturedSegment, Datagram, Kind};

const COLUMNS: [&str; 12] = [
    "TIME",
    "FROM",
    "TO",
    "LB",
    "TICK",
    "SLOT SELECT",
    "PORT SELECT",
    "DATA ID",
    "EVENT",
    "OFFSET",
    "LENGTH",
    "PAYLOAD",
];
/// The rows of datagrams: a table, or lines of JSON.
pub(super) struct Rows {
    table: Option<TextTable>,
    begun: bool,
}

impl Rows {
    pub(super) fn new(json: bool) -> Self {
        use Column::{Left, Right};
        // These widths have room for an IPv4 address with its port, and for a tick of today.
        let mut columns = vec![Right(11), Left(21), Left(21), Left(2), Right(16)];
        columns.extend(COLUMNS[5..].iter().map(|name| Right(name.len() as u16)));
        Self { table: (!json).then(|| TextTable::new(columns)), begun: false }
    }

    /// The line of a datagram, if it is one of EJFAT's. The names of the columns come before the first line.
    pub(super) fn lines(&mut self, first: u64, datagram: &Datagram<'_>, kind: &Kind) -> Option<String> {
        let Some(table) = &mut self.table else {
            return object(datagram, kind).map(|object| object.to_string());
        };
        let mut cells: [String; COLUMNS.len()] = std::array::from_fn(|_| "-".into());
        cells[0] = seconds(first, datagram.time);
        cells[1] = datagram.from.to_string();
        cells[2] = datagram.to.to_string();
        let behind = match kind {
            Kind::Segment(segment) => {
                segment_cells(segment, &mut cells);
                String::new()
            }
            Kind::Sync(sync) => {
                (cells[3], cells[4]) = ("sync".into(), sync.tick.to_string());
                format!("  source {}, {} ticks per second", sync.source, sync.ticks_per_second)
            }
            Kind::Malformed | Kind::Other => return None,
        };
        let shown = if matches!(kind, Kind::Sync(_)) { 5 } else { COLUMNS.len() };
        let head = if self.begun { String::new() } else { table.format(COLUMNS) + "\n" };
        self.begun = true;
        Some(head + &table.format(&cells[..shown]) + &behind)
    }
}

fn segment_cells(segment: &CapturedSegment, cells: &mut [String; COLUMNS.len()]) {
    if let Some(lb) = &segment.lb {
        cells[3] = format!("v{}", lb.version());
        cells[4] = lb.tick.to_string();
        cells[5] = lb.slot_select().to_string();
        cells[6] = lb.port_select().to_string();
    }
    let re = &segment.re;
    cells[7] = re.data_id.to_string();
    cells[8] = re.event.to_string();
    cells[9] = re.offset.to_string();
    cells[10] = re.length.to_string();
    cells[11] = segment.payload.to_string();
}

/// The seconds from the first datagram's time to `time`, as text with six decimals; both times are in nanoseconds.
pub(super) fn seconds(first: u64, time: u64) -> String {
    let sign = if time < first { "-" } else { "" };
    let nanos = time.abs_diff(first);
    format!("{sign}{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000)
}

fn object(datagram: &Datagram<'_>, kind: &Kind) -> Option<Value> {
    let Datagram { time, from, to, .. } = datagram;
    match kind {
        Kind::Segment(CapturedSegment { lb, re_version, re, payload }) => Some(json!({
            "kind": "segment",
            "unix_ns": time,
            "from": from,
            "to": to,
            "lb": lb.as_ref().map(lb_object),
            "re_version": re_version,
            "data_id": re.data_id,
            "event": re.event,
            "offset": re.offset,
            "length": re.length,
            "payload": payload,
        })),
        Kind::Sync(SyncHeader { source, tick, ticks_per_second, unix_nanos }) => Some(json!({
            "kind": "sync",
            "unix_ns": time,
            "from": from,
            "to": to,
            "source": source,
            "tick": tick,
            "ticks_per_second": ticks_per_second,
            "sent_unix_ns": unix_nanos,
        })),
        Kind::Malformed | Kind::Other => None,
    }
}

fn lb_object(lb: &LbHeader) -> Value {
    json!({
        "version": lb.version(),
        "tick": lb.tick,
        "slot_select": lb.slot_select(),
        "port_select": lb.port_select(),
    })
}
