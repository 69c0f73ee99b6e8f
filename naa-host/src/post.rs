//! A planned call as work requests, without allocating.

use mrsp::{CallPlan, Write};
use verbs::{Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::{
    Error,
    lease::Region,
    link::{CALL, Link},
};

/// Work requests posted at once.
const CHUNK: usize = 8;
/// Bytes copied into work requests of one chunk at most; what is beyond is gathered from the region.
const INLINE: usize = 512;

/// Posts the WRITEs of `plan` in order. Whatever fails, some of them may be on their way.
pub(crate) fn post(link: &mut Link, regions: &[Region], plan: &CallPlan) -> Result<(), Error> {
    let number = link.number(CALL);
    let max_inline = link.max_inline_data().min(INLINE);
    for writes in plan.writes().chunks(CHUNK) {
        let mut copies = [0; INLINE];
        let mut room = &mut copies[..];
        let mut sources = [Source::Inline(&[]); CHUNK];
        for (source, write) in sources.iter_mut().zip(writes) {
            *source = take(regions, write, max_inline, &mut room);
        }
        let mut wrs = [EMPTY; CHUNK];
        for ((wr, source), write) in wrs.iter_mut().zip(&sources).zip(writes) {
            *wr = request(number, write, source);
        }
        link.post(&wrs[..writes.len()])?;
    }
    Ok(())
}

const EMPTY: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Send,
    payload: Payload::Inline(&[]),
    flags: SendFlags { signaled: false, solicited: false, fence: false },
};

/// Where a WRITE takes its bytes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Inline(&'a [u8]),
    Region([Sge; 1]),
}

/// Copies short writes, as long as there is room.
fn take<'a>(regions: &[Region], write: &Write, max_inline: usize, room: &mut &'a mut [u8]) -> Source<'a> {
    let Some(region) = regions.get(write.param) else { return Source::Inline(&[]) };
    let length = write.length as usize;
    if length > max_inline || length > room.len() {
        return Source::Region([region.sge(write.offset, write.length)]);
    }
    let (copy, rest) = std::mem::take(room).split_at_mut(length);
    *room = rest;
    region.copy_to(write.offset, copy);
    Source::Inline(copy)
}

/// The last WRITE, with the immediate, is the one whose completion counts.
fn request<'a>(wr_id: u64, write: &Write, source: &'a Source<'_>) -> SendWr<'a> {
    let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
    let last = write.immediate.is_some();
    SendWr {
        wr_id,
        op: write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm)),
        payload: match source {
            Source::Inline(bytes) => Payload::Inline(bytes),
            Source::Region(sges) => Payload::Sges(sges),
        },
        flags: SendFlags { signaled: last, solicited: last, fence: false },
    }
}
