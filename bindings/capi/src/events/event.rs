//! Events that a program has.

use std::{ffi::c_void, ptr};

use naa_events::{Descriptor, Event};

use crate::{
    handles::{HandleTable, WaitLimit},
    native::{
        naa_result,
        result::{Problem, guarded},
        session::give,
    },
};

/// An event. Its bytes are where the bridge put them; they are not to be written, and may be read until the event is
/// released.
///
/// The bridge can still write them. One that keeps to the protocol does not before the event is released; one that does not
/// can change a byte between two reads, and a compiler may read twice where a program does once. naa_event_copy() has
/// bytes that stay as they are. Read `data` in place where you trust the bridge, and whoever else can write the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_event {
    /// In the worker's ring, at the beginning of a slot. The bridge can write there: see above.
    pub data: *const c_void,
    /// Bytes of `data`.
    pub length: u64,
    /// The event's number, of those who sent it.
    pub event: u64,
    /// The tick of its segments, if they came with an LB header, as directly from a sender. A load balancer takes the header away.
    pub tick: u64,
    /// When its first segment came to the bridge, in nanoseconds since 1970 by the bridge's clock.
    pub first_segment_ns: u64,
    /// Nanoseconds from then until the last one came.
    pub assembly_ns: u64,
    /// What naa_event_release() needs.
    pub token: u64,
    /// Counts the events of a subscription from 1 on; a bridge that came back begins again.
    pub sequence: u32,
    /// The data id of the source that sent the event.
    pub data_id: u16,
    /// Whether `tick` is one.
    pub has_tick: bool,
}

static EVENTS: HandleTable<Event> = HandleTable::new("an event", 0x4e45);

impl naa_event {
    pub(super) const NONE: Self = Self {
        data: ptr::null(),
        length: 0,
        event: 0,
        tick: 0,
        first_segment_ns: 0,
        assembly_ns: 0,
        token: 0,
        sequence: 0,
        data_id: 0,
        has_tick: false,
    };

    /// For a program, which releases it.
    pub(super) fn hand_out(event: Event) -> Result<Self, Problem> {
        let &Descriptor { sequence, name, tick, first, assembly, .. } = event.descriptor();
        let (data, length) = (event.as_ptr().cast(), event.len() as u64);
        Ok(Self {
            data,
            length,
            event: name.event,
            tick: tick.unwrap_or(0),
            first_segment_ns: first,
            assembly_ns: assembly,
            token: EVENTS.insert(event)? as u64,
            sequence,
            data_id: name.data_id,
            has_tick: tick.is_some(),
        })
    }
}

/// Copies `length` bytes of an event, from `offset` on, to `to`. The event is named by its `token`. What the bridge writes
/// afterwards does not change the copy: check the copy, and use the same one.
///
/// From any thread, also after the worker was closed. Threads that copy from one event do so one after the other.
///
/// NAA_ERROR_ARGUMENT if `token` is none, or the event was released; if the event ends before `offset` + `length`; if `to` is
/// NULL and `length` is not 0.
///
/// # Safety
/// `to` points to `length` bytes that may be written, and that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_event_copy(token: u64, offset: u64, to: *mut c_void, length: u64) -> naa_result {
    guarded(|| {
        let handle = usize::try_from(token).unwrap_or(usize::MAX);
        let event = EVENTS.wait_for(handle)?;
        let all = event.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > all) {
            let what = format!("{length} bytes at {offset} do not lie inside the event, which has {all}");
            return Err(Problem::argument(what));
        }
        if length == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(Problem::argument("to is NULL"));
        }
        // Both numbers fit, since the bytes lie in the event.
        // SAFETY: by the caller's contract `to` points to so many bytes of the program, which nobody else uses meanwhile.
        let out = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length as usize) };
        event.read_at(offset as usize, out);
        Ok(())
    })
}

/// Sets `again` to whether another worker had the event with this `token` when that worker ended, and so may have used all of
/// it or a part. This is always false unless naa_worker_options.again asks for events of workers that ended.
///
/// NAA_ERROR_ARGUMENT if `token` names no event, or one that was released; if `again` is NULL.
///
/// # Safety
/// `again` points to a bool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_event_delivered_again(token: u64, again: *mut bool) -> naa_result {
    guarded(|| {
        let handle = usize::try_from(token).unwrap_or(usize::MAX);
        let is_again = EVENTS.wait_for(handle)?.delivered_again();
        // SAFETY: the caller's contract.
        unsafe { give(again, is_again, "again") }
    })
}

/// Gives an event back, by its `token`: its bytes are not to be read any more, and the bridge puts others there. In any
/// order, from any thread, also after the worker was closed.
///
/// NAA_ERROR_ARGUMENT if `token` is none, or the event was released before.
///
/// # Safety
/// None: `token` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_event_release(token: u64) -> naa_result {
    guarded(|| {
        let handle = usize::try_from(token).unwrap_or(usize::MAX);
        drop(EVENTS.remove(handle, WaitLimit::Unlimited)?);
        Ok(())
    })
}
