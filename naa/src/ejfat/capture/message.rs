//! Recognises EJFAT's segments and sync datagrams.

use ejfat::wire::{LbHeader, Malformed, ReHeader, SyncHeader, Versions};

use super::Datagram;

/// The UDP port of RoCEv2, whose headers may look like those of a segment.
const ROCE: u16 = 4791;
/// The versions of RE headers that are supported.
const VERSIONS: [u8; 3] = [0, 1, 2];

/// A segment of an event.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CapturedSegment {
    pub(in super::super) lb: Option<LbHeader>,
    pub(in super::super) re_version: u8,
    pub(in super::super) re: ReHeader,
    /// The length of the payload on the wire, without the headers.
    pub(in super::super) payload: usize,
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Kind {
    Segment(CapturedSegment),
    Sync(SyncHeader),
    /// The datagram begins like a header of EJFAT but has no valid one.
    Malformed,
    /// The datagram belongs to another protocol.
    Other,
}

/// Decodes a datagram. If `any` is set, each datagram with an RE header is a segment. Otherwise the fields of a segment
/// without LB header must also be plausible, because the RE header has no magic number.
pub(in super::super) fn look(datagram: &Datagram<'_>, any: bool) -> Kind {
    let Datagram { bytes, len, .. } = *datagram;
    match SyncHeader::decode(bytes) {
        Ok(sync) if len == bytes.len() => return Kind::Sync(sync),
        Err(Malformed::Version(_)) => return Kind::Malformed,
        _ => {}
    }
    if LbHeader::leads(bytes) {
        let segment = LbHeader::decode(bytes).ok().and_then(|(lb, rest)| {
            (lb.protocol == LbHeader::REASSEMBLY).then(|| segment(Some(lb), rest, len - bytes.len()))?
        });
        return segment.map_or(Kind::Malformed, Kind::Segment);
    }
    let segment = segment(None, bytes, len - bytes.len());
    let sensible =
        |segment: &CapturedSegment| any || datagram.to.port() != ROCE && makes_sense(segment, bytes);
    segment.filter(sensible).map_or(Kind::Other, Kind::Segment)
}

/// Decodes the RE header. `missing` is the number of bytes that were not captured.
fn segment(lb: Option<LbHeader>, bytes: &[u8], missing: usize) -> Option<CapturedSegment> {
    let decode = |&version: &u8| Some((version, ReHeader::decode(bytes, Versions::of(&[version])).ok()?));
    let (re_version, (re, payload)) = VERSIONS.iter().find_map(decode)?;
    Some(CapturedSegment { lb, re_version, re, payload: payload.len() + missing })
}

/// Whether the reserved bits are zero and the payload is inside the event.
fn makes_sense(segment: &CapturedSegment, bytes: &[u8]) -> bool {
    let CapturedSegment { re, payload, .. } = segment;
    let zeros = bytes[0].trailing_zeros() >= 4 && bytes[1..ReHeader::LEN] == re.encode()[1..];
    zeros && *payload > 0 && u64::from(re.offset) + *payload as u64 <= re.length.into()
}

/// The datagrams as they were on the wire. The Linux kernel passes several segments as one super-packet, also to a
/// capture: before the sender's interface cuts it (GSO), or after the receiver's kernel merged it (GRO).
pub(in super::super) fn parts<'a>(
    datagram: &Datagram<'a>,
    any: bool,
) -> impl ExactSizeIterator<Item = Datagram<'a>> {
    let Datagram { bytes, .. } = *datagram;
    let stride = stride(datagram, any).unwrap_or(bytes.len());
    let whole = stride == bytes.len();
    let datagram = *datagram;
    // An empty datagram counts as one.
    let count = if whole { 1 } else { bytes.len().div_ceil(stride) };
    (0..count).map(move |n| {
        if whole {
            return datagram;
        }
        let bytes = &bytes[n * stride..bytes.len().min((n + 1) * stride)];
        Datagram { bytes, len: bytes.len(), ..datagram }
    })
}

/// The distance from the first header to the second one, if there is a second one.
fn stride(datagram: &Datagram<'_>, any: bool) -> Option<usize> {
    let Datagram { bytes, len, .. } = *datagram;
    // The whole super-packet is longer than its first segment can be, so the first segment is not checked for
    // plausibility yet.
    let Kind::Segment(first) = look(datagram, true) else { return None };
    if len != bytes.len() {
        return None;
    }
    let headers = bytes.len() - first.payload;
    let segment = |at: usize, end: usize| {
        let bytes = bytes.get(at..end)?;
        match look(&Datagram { bytes, len: bytes.len(), ..*datagram }, any) {
            Kind::Segment(segment) => Some(segment).filter(|found| found.lb.is_some() == first.lb.is_some()),
            _ => None,
        }
    };
    let second = |at: usize| segment(at, bytes.len().min(2 * at));
    let follows = |&at: &usize| {
        let offset = first.re.offset.checked_add((at - headers) as u32);
        let expected = offset.map(|offset| ReHeader { offset, ..first.re });
        let is_next = |found: CapturedSegment| found.lb == first.lb && Some(found.re) == expected;
        bytes[at..].starts_with(&bytes[..2]) && second(at).is_some_and(is_next)
    };
    // The super-packet may consist of several events with one segment each.
    let left = first.re.length.checked_sub(first.re.offset)? as usize;
    let last = headers + left;
    let other_event = || {
        let merged = left > 0 && left < first.payload && segment(0, last).is_some();
        (merged && second(last).is_some()).then_some(last)
    };
    (headers + 1..bytes.len().saturating_sub(headers)).find(follows).or_else(other_event)
}
