//! The completion queues of libibverbs. Each completion queue has its own completion channel, on which threads sleep.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::{Arc, atomic::AtomicBool, atomic::AtomicU32, atomic::Ordering},
};

use verbs::{Error, QpNum, Wc, WcOpcode, WcStatus};

use crate::memlock;

use super::{
    IbvDevice, bindings as c,
    bindings::{ibv_comp_channel, ibv_cq, ibv_wc},
    check_code, errno, poll,
};

/// The maximum number of completions that one call of libibverbs's `poll_cq` takes from the device.
const BATCH: usize = 16;

#[derive(Debug)]
pub(crate) struct RawCq {
    pub(super) cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    /// True if the device will announce the next completion by a CQ event, or if a CQ event of the device was not taken
    /// yet.
    armed: AtomicBool,
    /// The number of CQ events that were taken and not yet acknowledged. libibverbs requires that all taken CQ events
    /// are acknowledged before the completion queue is destroyed.
    unacked: AtomicU32,
    device: Arc<IbvDevice>,
}

// SAFETY: `cq` and `channel` point to objects that libibverbs allocated and that only `Drop` frees. libibverbs allows
// calls from any thread.
unsafe impl Send for RawCq {}
// SAFETY: `cq` and `channel` stay valid until `Drop`, and libibverbs allows concurrent calls from several threads.
unsafe impl Sync for RawCq {}

impl RawCq {
    pub(crate) fn new(device: &Arc<IbvDevice>, depth: u32) -> Result<Self, Error> {
        let failed =
            |error| memlock::refused(&format!("makes no completion queue of {depth} entries"), error);
        let context = device.context.as_ptr();
        let depth = i32::try_from(depth).map_err(|_| Error::Invalid("the completion queue is too deep"))?;
        // SAFETY: `context` points to a context that stays open until `device` is dropped.
        let channel = NonNull::new(unsafe { device.library.ibv_create_comp_channel(context) });
        let channel = channel.ok_or_else(|| failed(errno()))?;
        // SAFETY: `context` stays open until `device` is dropped, and `channel` was created above. Completion vector 0
        // exists on every device.
        let cq =
            unsafe { device.library.ibv_create_cq(context, depth, ptr::null_mut(), channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = errno();
            // SAFETY: this function created the channel, and no completion queue uses it.
            unsafe { device.library.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(failed(error));
        };
        let made = Self {
            cq,
            channel,
            armed: AtomicBool::new(false),
            unacked: AtomicU32::new(0),
            device: device.clone(),
        };
        poll::set_nonblocking(made.fd()).map_err(failed)?;
        Ok(made)
    }

    /// Takes up to `most` completions from the device, oldest first, and calls `each` with every completion. Returns
    /// the number of completions.
    pub(crate) fn poll(&self, most: usize, mut each: impl FnMut(Wc)) -> io::Result<usize> {
        // SAFETY: the context of the completion queue at `self.cq` outlives the queue, and the context's table of
        // operations does not change.
        let Some(poll) = (unsafe { (*self.cq.as_ref().context).ops.poll_cq }) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut total = 0;
        while total < most {
            let wanted = (most - total).min(BATCH);
            // The array is not initialised, because initialising it would cost time in each poll. Spinning threads poll
            // often, and most of their polls find an empty queue.
            let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: this `RawCq` owns the completion queue, and `batch` has room for `wanted` completions.
            let count =
                unsafe { poll(self.cq.as_ptr(), wanted as std::ffi::c_int, batch.as_mut_ptr().cast()) };
            // If the completion queue has failed, the function `poll` returns -1. It does not always set errno, so the
            // error that is made here does not contain errno.
            let count =
                usize::try_from(count).map_err(|_| io::Error::other("the completion queue failed"))?;
            for wc in batch.iter().take(count.min(wanted)) {
                // SAFETY: the function `poll` has written the first `count` entries of `batch`.
                each(unsafe { completion(wc.as_ptr()) });
            }
            total += count.min(wanted);
            if count < wanted {
                break;
            }
        }
        Ok(total)
    }

    /// Requests a CQ event for the next completion. The caller must poll once more before it sleeps, because a
    /// completion may have arrived before the CQ event was requested.
    pub(crate) fn arm(&self) -> io::Result<()> {
        if self.armed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the context of the completion queue at `self.cq` outlives the queue, and the context's table of
        // operations does not change. The argument 0 requests a CQ event for any completion, not only for a solicited
        // one. Threads also wait for the completions of this side's own sends, and a successful send makes no solicited
        // completion.
        let code = unsafe {
            match (*self.cq.as_ref().context).ops.req_notify_cq {
                Some(notify) => notify(self.cq.as_ptr(), 0),
                None => libc::ENOSYS,
            }
        };
        check_code(code).inspect_err(|_| self.armed.store(false, Ordering::Release))
    }

    /// Returns the file descriptor, which is readable while the completion channel has a CQ event that was not taken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `self.channel` points to a channel that only `Drop` frees, and the file descriptor stays open until
        // the channel is freed.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd.as_raw_fd()) }
    }

    /// Takes the CQ events that wait in the completion channel. The completion queue must be armed again before the
    /// device makes another CQ event.
    pub(crate) fn take_announcements(&self) -> io::Result<()> {
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: this `RawCq` owns the channel, and the call writes to the local variables `cq` and `context`.
            let code =
                unsafe { self.device.library.ibv_get_cq_event(self.channel.as_ptr(), &mut cq, &mut context) };
            if code != 0 {
                let error = errno();
                let none = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                return if none { Ok(()) } else { Err(error) };
            }
            self.unacked.fetch_add(1, Ordering::Relaxed);
            self.armed.store(false, Ordering::Release);
        }
    }
}

impl Drop for RawCq {
    fn drop(&mut self) {
        if !self.device.maker.is_this() {
            return;
        }
        let unacked = *self.unacked.get_mut();
        // SAFETY: this `RawCq` owns the completion queue and the channel. All queue pairs that used the completion
        // queue have been destroyed, because each of them had a reference to this `RawCq`. The CQ events that were
        // taken from the channel are acknowledged first, because `ibv_destroy_cq` waits until all of them are
        // acknowledged.
        unsafe {
            if unacked > 0 {
                self.device.library.ibv_ack_cq_events(self.cq.as_ptr(), unacked);
            }
            self.device.library.ibv_destroy_cq(self.cq.as_ptr());
            self.device.library.ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

/// Converts a completion of libibverbs to a completion of the driver interface.
///
/// # Safety
/// `wc` must point to a completion. If the work request failed, only `wr_id`, `status`, `qp_num` and `vendor_err` need
/// to be initialised (ibv_poll_cq(3)).
unsafe fn completion(wc: *const ibv_wc) -> Wc {
    // SAFETY: the caller guarantees that `wc` points to a completion, and libibverbs writes these three fields in every
    // completion.
    let (wr_id, code, qp) = unsafe { ((*wc).wr_id, (*wc).status, QpNum((*wc).qp_num)) };
    if code != c::IBV_WC_SUCCESS {
        return Wc { wr_id, qp, status: status(code), ..Wc::EMPTY };
    }
    // SAFETY: `wc` points to the completion of a successful work request, for which libibverbs also writes these three
    // fields.
    let (opcode, byte_len, flags) = unsafe { ((*wc).opcode, (*wc).byte_len, (*wc).wc_flags) };
    let with_imm = flags & c::IBV_WC_WITH_IMM != 0;
    Wc {
        wr_id,
        qp,
        status: WcStatus::Success,
        opcode: match opcode {
            c::IBV_WC_RDMA_WRITE => WcOpcode::Write,
            c::IBV_WC_RDMA_READ => WcOpcode::Read,
            c::IBV_WC_RECV => WcOpcode::Recv,
            c::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvWriteWithImm,
            _ => WcOpcode::Send,
        },
        byte_len,
        // SAFETY: the flag IBV_WC_WITH_IMM says that libibverbs has written the immediate, and both members of the
        // union are 32-bit numbers.
        imm: with_imm.then(|| u32::from_be(unsafe { (*wc).__bindgen_anon_1.imm_data })),
        // libibverbs does not report the solicited-event bit.
        solicited: false,
    }
}

fn status(code: std::ffi::c_uint) -> WcStatus {
    match code {
        c::IBV_WC_LOC_LEN_ERR => WcStatus::LocalLengthError,
        c::IBV_WC_LOC_QP_OP_ERR => WcStatus::LocalQpOperationError,
        c::IBV_WC_LOC_PROT_ERR => WcStatus::LocalProtectionError,
        c::IBV_WC_WR_FLUSH_ERR => WcStatus::WrFlushError,
        c::IBV_WC_BAD_RESP_ERR => WcStatus::BadResponse,
        c::IBV_WC_LOC_ACCESS_ERR => WcStatus::LocalAccessError,
        c::IBV_WC_REM_INV_REQ_ERR => WcStatus::RemoteInvalidRequest,
        c::IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccessError,
        c::IBV_WC_REM_OP_ERR => WcStatus::RemoteOperationError,
        c::IBV_WC_RETRY_EXC_ERR => WcStatus::RetryExceeded,
        c::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExceeded,
        _ => WcStatus::FatalError,
    }
}
