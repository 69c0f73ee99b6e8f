//! Posts the WRITEs of a call plan as work requests, without allocating memory.

use mrsp::{CallPlan, Write, plan::WriteElement};
use verbs::{Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::{
    Error,
    connection::{CALL, EMPTY, HostConnection},
    regions::HostRegions,
};

/// The maximum number of work requests that one call of `HostConnection::post` posts.
const CHUNK: usize = 8;
/// The maximum number of bytes of inline data in all work requests that one call of `HostConnection::post` posts.
const INLINE: usize = 512;

/// Posts the WRITEs of `plan` in order. After an error, some of the WRITEs may have been posted.
pub(crate) fn post(
    connection: &mut HostConnection,
    regions: &HostRegions,
    plan: &CallPlan,
    elements: &mut Vec<Sge>,
) -> Result<(), Error> {
    let is_gathered = |write: &Write| !plan.gathered(write).is_empty();
    for writes in plan.writes().chunk_by(|a, b| !is_gathered(a) && !is_gathered(b)) {
        match writes {
            [write] if is_gathered(write) => {
                gather(connection, regions, write, plan.gathered(write), elements)?;
            }
            writes => post_single(connection, regions, writes)?,
        }
    }
    Ok(())
}

/// Posts one WRITE that takes its bytes from several pieces of regions.
fn gather(
    connection: &mut HostConnection,
    regions: &HostRegions,
    write: &Write,
    pieces: &[WriteElement],
    elements: &mut Vec<Sge>,
) -> Result<(), Error> {
    let number = connection.number(CALL);
    let length = write.length as usize;
    if length <= connection.max_inline_data().min(INLINE) {
        let mut copies = [0; INLINE];
        let mut room = &mut copies[..length];
        for piece in pieces {
            let (copy, rest) = std::mem::take(&mut room).split_at_mut(piece.length as usize);
            room = rest;
            if let Some(region) = regions.source(piece.param) {
                region.copy_to(piece.offset, copy);
            }
        }
        return connection.post(&[request(number, write, Payload::Inline(&copies[..length]))]);
    }
    elements.clear();
    let element = |piece: &WriteElement| regions.source(piece.param)?.sge(piece.offset, piece.length);
    elements.extend(pieces.iter().filter_map(element));
    connection.post(&[request(number, write, Payload::Sges(elements))])
}

/// Posts WRITEs, each of which takes its bytes from one piece of a region.
fn post_single(
    connection: &mut HostConnection,
    regions: &HostRegions,
    writes: &[Write],
) -> Result<(), Error> {
    let number = connection.number(CALL);
    let max_inline = connection.max_inline_data().min(INLINE);
    for writes in writes.chunks(CHUNK) {
        let mut copies = [0; INLINE];
        let mut room = &mut copies[..];
        let mut sources = [PayloadSource::Inline(&[]); CHUNK];
        for (source, write) in sources.iter_mut().zip(writes) {
            *source = take(regions, write, max_inline, &mut room);
        }
        let mut wrs = [EMPTY; CHUNK];
        for ((wr, source), write) in wrs.iter_mut().zip(&sources).zip(writes) {
            *wr = request(number, write, source.payload());
        }
        connection.post(&wrs[..writes.len()])?;
    }
    Ok(())
}

/// The memory from which a WRITE takes its bytes.
#[derive(Clone, Copy)]
enum PayloadSource<'a> {
    Inline(&'a [u8]),
    Region([Sge; 1]),
}

impl PayloadSource<'_> {
    fn payload(&self) -> Payload<'_> {
        match self {
            PayloadSource::Inline(bytes) => Payload::Inline(bytes),
            PayloadSource::Region(sges) => Payload::Sges(sges),
        }
    }
}

/// Returns the memory from which a WRITE takes its bytes. If the WRITE has at most `max_inline` bytes and `room` is
/// long enough, the bytes are copied to `room` and become inline data. Otherwise the WRITE takes its bytes directly
/// from the region.
fn take<'a>(
    regions: &HostRegions,
    write: &Write,
    max_inline: usize,
    room: &mut &'a mut [u8],
) -> PayloadSource<'a> {
    let Some(region) = regions.source(write.param) else { return PayloadSource::Inline(&[]) };
    let length = write.length as usize;
    if length > max_inline || length > room.len() {
        return region
            .sge(write.offset, write.length)
            .map_or(PayloadSource::Inline(&[]), |sge| PayloadSource::Region([sge]));
    }
    let (copy, rest) = std::mem::take(room).split_at_mut(length);
    *room = rest;
    region.copy_to(write.offset, copy);
    PayloadSource::Inline(copy)
}

/// Makes the work request of `write`. Only the last WRITE of a call asks for a completion. This WRITE has the
/// immediate.
fn request<'a>(wr_id: u64, write: &Write, payload: Payload<'a>) -> SendWr<'a> {
    let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
    let last = write.immediate.is_some();
    SendWr {
        wr_id,
        op: write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm)),
        payload,
        flags: SendFlags { signaled: last, solicited: last, fence: false },
    }
}
