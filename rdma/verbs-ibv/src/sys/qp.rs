//! Reliable-connected queue pairs.

use std::{
    io,
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::Arc,
};

use verbs::{Payload, QpNum, RecvWr, SendOp, SendWr, Sge};

use super::{
    RawCq, RawPd, bindings as c,
    bindings::{ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge},
    check_code,
    cm::RawCmId,
    device::mtu_bytes,
    errno,
};

/// The code 12 of the minimum RNR timer means 0.64 ms. librdmacm leaves the timer at code 0, which means 655 ms. With
/// code 0, a single receive that is posted too late would make a call 655 ms longer.
const MIN_RNR_TIMER: u8 = 12;
/// The maximum number of retries after a time-out or a sequence error. rxe interprets 7 as "no limit" (rxe_completer),
/// so with 7 retries a queue pair would never detect that its peer has crashed.
const MOST_RETRIES: u8 = 6;
/// The maximum number of work requests in one chain. [`RawQp::post_chain`] passes one chain to the device.
const CHUNK: usize = 8;
/// The maximum number of scatter-gather elements that all work requests of a chain have together. A receive work
/// request also has at most this number of elements.
const SGES: usize = 64;

/// The capacities of a queue pair and of its work requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
}

/// Values that limit or replace the queue pair attributes that librdmacm supplies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    /// The maximum numbers of outstanding READs. `reads.0` applies to the READs that the peer sends to this side.
    /// `reads.1` applies to the READs that this side sends to the peer.
    pub(crate) reads: (u8, u8),
    /// The exponent n of the local ACK timeout, which is 4.096 us * 2^n. `None` keeps librdmacm's timeout.
    pub(crate) ack_timeout: Option<u8>,
}

/// The limits of a connection, as [`RawQp::to_ready`] has set them in the attributes of the queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgreedLimits {
    /// The path MTU in bytes.
    pub(crate) path_mtu: u32,
    /// The maximum numbers of outstanding READs. `reads.0` applies to the READs that the peer sends to this side.
    /// `reads.1` applies to the READs that this side sends to the peer.
    pub(crate) reads: (u8, u8),
}

#[derive(Debug)]
pub(crate) struct RawQp {
    qp: NonNull<ibv_qp>,
    caps: Caps,
    pd: Arc<RawPd>,
    _cqs: [Arc<RawCq>; 2],
}

// SAFETY: `qp` points to a queue pair that `ibv_create_qp` allocated and that only `Drop` frees. libibverbs allows
// calls from any thread.
unsafe impl Send for RawQp {}
// SAFETY: `qp` stays valid until `Drop`, and libibverbs allows concurrent calls from several threads.
unsafe impl Sync for RawQp {}

impl RawQp {
    pub(crate) fn new(
        pd: &Arc<RawPd>,
        send_cq: &Arc<RawCq>,
        recv_cq: &Arc<RawCq>,
        caps: Caps,
    ) -> io::Result<Self> {
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: send_cq.cq.as_ptr(),
            recv_cq: recv_cq.cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: caps.max_sge,
                max_recv_sge: caps.max_sge,
                max_inline_data: caps.max_inline,
            },
            qp_type: c::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: `pd`, `send_cq` and `recv_cq` own valid objects of libibverbs, and the new `RawQp` keeps references
        // to all three. The local variable `init` outlives the call.
        let qp = unsafe { pd.device.library.ibv_create_qp(pd.pd.as_ptr(), &mut init) };
        let qp = NonNull::new(qp).ok_or_else(errno)?;
        let caps = Caps { max_inline: init.cap.max_inline_data, ..caps };
        Ok(Self { qp, caps, pd: pd.clone(), _cqs: [send_cq.clone(), recv_cq.clone()] })
    }

    pub(crate) fn caps(&self) -> Caps {
        self.caps
    }

    pub(crate) fn num(&self) -> QpNum {
        // SAFETY: `self.qp` points to a queue pair that only `Drop` frees, and nobody changes its number.
        QpNum(unsafe { self.qp.as_ref().qp_num })
    }

    /// Moves the queue pair to the state INIT, in which receives may be posted. The queue pair permits remote WRITEs
    /// and READs, so that only the memory regions limit the access of a peer.
    pub(crate) fn to_init(&self) -> io::Result<()> {
        let mut attr = zeroed_attr();
        attr.qp_state = c::IBV_QPS_INIT;
        attr.port_num = self.pd.device.port;
        attr.qp_access_flags = c::IBV_ACCESS_REMOTE_WRITE | c::IBV_ACCESS_REMOTE_READ;
        let mask = c::IBV_QP_STATE | c::IBV_QP_PKEY_INDEX | c::IBV_QP_PORT | c::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)
    }

    /// Moves the queue pair to the state RTR and then to RTS, with the attributes that librdmacm supplies for `id`.
    /// `retries` and this module's constants limit or replace some of these attributes.
    pub(crate) fn to_ready(&self, id: &RawCmId, retries: Retries) -> io::Result<AgreedLimits> {
        let (mut attr, mask) = id.qp_attr(c::IBV_QPS_RTR)?;
        attr.min_rnr_timer = MIN_RNR_TIMER;
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(retries.reads.0);
        let towards_us = attr.max_dest_rd_atomic;
        let path_mtu = mtu_bytes(attr.path_mtu).unwrap_or(0);
        self.modify(&mut attr, mask | c::IBV_QP_MIN_RNR_TIMER | c::IBV_QP_MAX_DEST_RD_ATOMIC)?;
        let (mut attr, mask) = id.qp_attr(c::IBV_QPS_RTS)?;
        attr.max_rd_atomic = attr.max_rd_atomic.min(retries.reads.1);
        attr.timeout = retries.ack_timeout.unwrap_or(attr.timeout);
        attr.retry_cnt = attr.retry_cnt.min(MOST_RETRIES);
        self.modify(&mut attr, mask | c::IBV_QP_MAX_QP_RD_ATOMIC | c::IBV_QP_TIMEOUT)?;
        Ok(AgreedLimits { path_mtu, reads: (towards_us, attr.max_rd_atomic) })
    }

    /// Moves the queue pair to the error state, which flushes all work requests.
    pub(crate) fn to_error(&self) -> io::Result<()> {
        let mut attr = zeroed_attr();
        attr.qp_state = c::IBV_QPS_ERR;
        self.modify(&mut attr, c::IBV_QP_STATE)
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: c::ibv_qp_attr_mask) -> io::Result<()> {
        let library = self.pd.device.library;
        // SAFETY: this `RawQp` owns the queue pair at `self.qp`, and `attr` is initialised.
        check_code(unsafe { library.ibv_modify_qp(self.qp.as_ptr(), attr, mask as std::ffi::c_int) })
    }

    /// Posts the work requests `wrs` in order, without allocating memory. If an error is returned, the work requests
    /// before the returned index were posted.
    pub(crate) fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        while done < wrs.len() {
            let mut room = ROOM;
            let mut sges = &mut room[..];
            let mut chunk = [const { MaybeUninit::<ibv_send_wr>::uninit() }; CHUNK];
            let first = chunk.as_mut_ptr().cast::<ibv_send_wr>();
            let mut count = 0;
            for wr in wrs[done..].iter().take(CHUNK) {
                let Some(taken) = elements(&wr.payload, sges) else { break };
                let (own, rest) = std::mem::take(&mut sges).split_at_mut(taken);
                sges = rest;
                // SAFETY: `count` is less than `CHUNK`, so `at` points into the local array `chunk`, which nobody else
                // writes. The field `next` of the last work request may point behind the end of the array. A line after
                // the loop sets this field to null.
                unsafe {
                    let at = first.add(count);
                    at.write(request(wr, own));
                    (*at).next = at.wrapping_add(1);
                }
                count += 1;
            }
            if count == 0 {
                return Err((done, io::Error::from_raw_os_error(libc::EINVAL)));
            }
            // SAFETY: the loop above has written entry `count - 1` of `chunk`.
            unsafe { (*first.add(count - 1)).next = ptr::null_mut() };
            // SAFETY: `first` points to `count` chained work requests. Their scatter-gather elements lie in `room`,
            // which outlives the call. The caller must keep to the contract of `verbs::Payload`: the payload is
            // registered, and nobody changes it until the completion.
            unsafe { self.post_chain(first) }.map_err(|(index, error)| (done + index, error))?;
            done += count;
        }
        Ok(())
    }

    /// Passes a chain of work requests to the device in one call of its function `post_send`.
    ///
    /// # Safety
    /// `first` must point to a chain of initialised work requests that are consecutive in memory.
    unsafe fn post_chain(&self, first: *mut ibv_send_wr) -> Result<(), (usize, io::Error)> {
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: the context of the queue pair at `self.qp` outlives the queue pair, and the context's table of
        // operations does not change. The caller guarantees that `first` points to a chain of initialised work
        // requests.
        let code = unsafe {
            match (*self.qp.as_ref().context).ops.post_send {
                Some(post) => post(self.qp.as_ptr(), first, &mut bad),
                None => libc::ENOSYS,
            }
        };
        check_code(code).map_err(|error| {
            let offset = (bad as usize).saturating_sub(first as usize);
            let index = if bad.is_null() { 0 } else { offset / size_of::<ibv_send_wr>() };
            (index, error)
        })
    }

    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> io::Result<()> {
        let mut room = ROOM;
        let Some(count) = elements(&Payload::Sges(wr.sges), &mut room) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let (sg_list, num_sge) = list(&mut room[..count]);
        let mut recv = ibv_recv_wr { wr_id: wr.wr_id, next: ptr::null_mut(), sg_list, num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the context of the queue pair at `self.qp` outlives the queue pair, and the context's table of
        // operations does not change. The local variables `recv` and `room` outlive the call.
        check_code(unsafe {
            match (*self.qp.as_ref().context).ops.post_recv {
                Some(post) => post(self.qp.as_ptr(), &mut recv, &mut bad),
                None => libc::ENOSYS,
            }
        })
    }
}

impl Drop for RawQp {
    fn drop(&mut self) {
        if !self.pd.device.maker.is_this() {
            return;
        }
        // SAFETY: this `RawQp` owns the queue pair, and nobody uses it after `Drop`. `ibv_destroy_qp` waits until all
        // asynchronous events of the queue pair that were read are acknowledged. This crate reads no asynchronous event
        // of a queue pair, so the call does not wait for an acknowledgement.
        unsafe { self.pd.device.library.ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

pub(super) fn zeroed_attr() -> ibv_qp_attr {
    // SAFETY: `ibv_qp_attr` has only numbers as fields, and zero is a valid value of every number.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// An array for the scatter-gather elements that the function [`elements`] writes. The array is not initialised,
/// because most posts need only one element, and initialising all elements would cost time in each post.
const ROOM: [MaybeUninit<ibv_sge>; SGES] = [const { MaybeUninit::uninit() }; SGES];

/// Writes the scatter-gather elements of a payload to `room`, and returns the number of elements. Returns `None` if
/// `room` has too little space.
fn elements(payload: &Payload<'_>, room: &mut [MaybeUninit<ibv_sge>]) -> Option<usize> {
    match payload {
        Payload::Inline([]) => Some(0),
        Payload::Inline(bytes) => {
            let place = room.first_mut()?;
            let length = u32::try_from(bytes.len()).ok()?;
            place.write(ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 });
            Some(1)
        }
        Payload::Sges(sges) => {
            let mut count = 0;
            // Elements of 0 bytes are omitted, because some devices interpret the length 0 as 2 GiB.
            for &Sge { addr, length, lkey } in sges.iter().filter(|sge| sge.length > 0) {
                room.get_mut(count)?.write(ibv_sge { addr, length, lkey });
                count += 1;
            }
            Some(count)
        }
    }
}

/// Returns the list of scatter-gather elements `sges` as libibverbs needs it: a pointer to the first element, and the
/// number of elements. The pointer of an empty list is null, because some of rdma-core's NIC drivers read the first
/// element even if the length is 0.
fn list(sges: &mut [MaybeUninit<ibv_sge>]) -> (*mut ibv_sge, std::ffi::c_int) {
    let start = if sges.is_empty() { ptr::null_mut() } else { sges.as_mut_ptr().cast() };
    (start, sges.len() as std::ffi::c_int)
}

/// Converts the work request `wr` to the form that libibverbs needs. The result points to `sges`, which must contain
/// the scatter-gather elements of the payload.
fn request(wr: &SendWr<'_>, sges: &mut [MaybeUninit<ibv_sge>]) -> ibv_send_wr {
    let (opcode, remote, imm) = match wr.op {
        SendOp::Send => (c::IBV_WR_SEND, None, None),
        SendOp::SendWithImm(imm) => (c::IBV_WR_SEND_WITH_IMM, None, Some(imm)),
        SendOp::Write(to) => (c::IBV_WR_RDMA_WRITE, Some(to), None),
        SendOp::WriteWithImm(to, imm) => (c::IBV_WR_RDMA_WRITE_WITH_IMM, Some(to), Some(imm)),
        SendOp::Read(from) => (c::IBV_WR_RDMA_READ, Some(from), None),
    };
    let flags = [
        (wr.flags.signaled, c::IBV_SEND_SIGNALED),
        (wr.flags.solicited, c::IBV_SEND_SOLICITED),
        (wr.flags.fence, c::IBV_SEND_FENCE),
        (matches!(wr.payload, Payload::Inline(bytes) if !bytes.is_empty()), c::IBV_SEND_INLINE),
    ];
    // SAFETY: `ibv_send_wr` has only numbers and raw pointers as fields, and zero is a valid value of both.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.wr_id = wr.wr_id;
    (request.sg_list, request.num_sge) = list(sges);
    request.opcode = opcode;
    request.send_flags = flags.iter().filter(|(set, _)| *set).fold(0, |sum, (_, flag)| sum | flag);
    request.__bindgen_anon_1.imm_data = imm.unwrap_or(0).to_be();
    if let Some(remote) = remote {
        request.wr.rdma =
            c::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote.addr, rkey: remote.rkey };
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{RemoteAddr, SendFlags};

    #[test]
    fn a_write_with_immediate_is_built_as_the_headers_say() {
        let op = SendOp::WriteWithImm(RemoteAddr { addr: 0x1122, rkey: 0x33 }, 0x0102_0304);
        let wr =
            SendWr { wr_id: 9, op, payload: Payload::Inline(b"abc"), flags: SendFlags::SIGNALED_SOLICITED };
        let mut sges = ROOM;
        let count = elements(&wr.payload, &mut sges).unwrap();
        let built = request(&wr, &mut sges[..count]);
        assert!(request(&wr, &mut []).sg_list.is_null());
        // SAFETY: `elements` has written the first element of `sges`.
        let length = unsafe { sges[0].assume_init() }.length;
        assert_eq!((built.wr_id, built.num_sge, length), (9, 1, 3));
        assert_eq!(built.opcode, c::IBV_WR_RDMA_WRITE_WITH_IMM);
        let flags = c::IBV_SEND_SIGNALED | c::IBV_SEND_SOLICITED | c::IBV_SEND_INLINE;
        assert_eq!(built.send_flags, flags);
        // SAFETY: the function `request` has written the fields `imm_data` and `rdma` of the unions.
        let (imm, rdma) = unsafe { (built.__bindgen_anon_1.imm_data, built.wr.rdma) };
        assert_eq!(imm.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!((rdma.remote_addr, rdma.rkey), (0x1122, 0x33));
    }

    #[test]
    fn a_payload_of_nothing_has_no_element() {
        assert_eq!(elements(&Payload::Inline(&[]), &mut []), Some(0));
        assert_eq!(elements(&Payload::Sges(&[]), &mut []), Some(0));
        let sge = Sge { addr: 1, length: 2, lkey: 3 };
        assert_eq!(elements(&Payload::Sges(&[Sge { length: 0, ..sge }]), &mut []), Some(0));
        let mut room = ROOM;
        assert_eq!(elements(&Payload::Sges(&[sge, sge]), &mut room[..1]), None);
    }
}
