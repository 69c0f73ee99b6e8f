//! `struct rdma_cm_event` of rdma-core, filled for programs that go the way to a connection step by step.

use std::{ffi::c_int, mem::offset_of};

use super::{error::Error, host::RdmaCmEventType, layout::Opaque};

/// `param.conn` of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RdmaConnParam {
    pub private_data: Opaque,
    pub private_data_len: u8,
    pub numbers: [u8; 6],
    pub qp_num: u32,
}

/// The part of the struct that is filled. What programs pass is larger, and not a bit of the rest is touched.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RdmaCmEvent {
    pub id: Opaque,
    pub listen_id: Opaque,
    pub event: u32,
    pub status: c_int,
    pub conn: RdmaConnParam,
}

const _: () = {
    assert!(offset_of!(RdmaCmEvent, event) == 16 && offset_of!(RdmaCmEvent, status) == 20);
    assert!(offset_of!(RdmaCmEvent, conn) == 24 && offset_of!(RdmaConnParam, qp_num) == 16);
    assert!(size_of::<RdmaCmEvent>() == 48);
};

impl RdmaCmEvent {
    /// Makes a `struct rdma_cm_event`. Its connection IDs are null, because this library has none.
    pub(crate) fn of(event: RdmaCmEventType) -> Self {
        let none = std::ptr::null_mut();
        let conn = RdmaConnParam { private_data: none, private_data_len: 0, numbers: [0; 6], qp_num: 0 };
        Self { id: none, listen_id: none, event: event as u32, status: 0, conn }
    }
}

/// The event that a program passes; `None` for one that this side does not know.
///
/// # Safety
/// If `event` is not null and is aligned, it points to a `struct rdma_cm_event`.
pub(crate) unsafe fn read(event: *const RdmaCmEvent) -> Result<Option<RdmaCmEventType>, Error> {
    if event.is_null() || !event.is_aligned() {
        return Err(Error::Pointer { what: "the event" });
    }
    // SAFETY: the caller's contract; only the number is read.
    Ok(RdmaCmEventType::from_number(unsafe { (&raw const (*event).event).read() }))
}
