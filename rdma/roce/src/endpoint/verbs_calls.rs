//! The verbs calls that a driver passes on to the endpoint.

use smallvec::SmallVec;
use verbs::{Access, CqId, Error, MrKeys, Payload, PdId, QpInit, QpNum, RecvWr, SendOp, SendWr, Sge, Wc};

use super::Endpoint;
use crate::{
    cq::CqEntry,
    memory::RegionId,
    mr_table::Want,
    qp::{QpEntry, RecvWqe, SendWqe, SgeList, SgeRef, WqePayload, queue_full},
};

fn exhausted(what: &'static str, limit: u32) -> Error {
    Error::Exhausted { what, limit: limit.into(), remedy: "release some or raise the device's limit" }
}

impl Endpoint {
    /// Creates a protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        let id = self.next_pd;
        self.next_pd = self.next_pd.wrapping_add(1);
        self.pds.insert(id, ());
        PdId(id)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] while regions or queue pairs use the protection domain, and with [`Error::NotFound`]
    /// if there is no protection domain `pd`.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), Error> {
        if self.shared.mrs.uses_pd(pd) || self.qps.values().any(|qp| qp.pd == pd) {
            return Err(Error::Busy("memory regions or queue pairs use the protection domain"));
        }
        self.pds.remove(&pd.0).ok_or(no_pd(pd))
    }

    /// Registers a region of `len` bytes. In requests of peers, the first byte of the region has the address `va`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no protection domain `pd`. Fails with [`Error::Exhausted`] if the
    /// device has `Config::max_mr` regions or no RKey is free. Fails with [`Error::Invalid`] if the region goes beyond
    /// the highest address.
    pub fn reg_mr(
        &mut self,
        pd: PdId,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<(MrKeys, RegionId), Error> {
        self.pds.get(&pd.0).ok_or(no_pd(pd))?;
        if self.shared.mrs.len() >= self.shared.config.max_mr as usize {
            return Err(exhausted("memory regions", self.shared.config.max_mr));
        }
        if va.checked_add(len).is_none() {
            return Err(Error::Invalid("the memory region wraps around the address space"));
        }
        self.shared.mrs.insert(pd, va, len, access, &mut *self.entropy)
    }

    /// Changes the access rights of a region. The new rights must be among the rights with which the region was
    /// registered.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no region has this LKey, and with [`Error::Invalid`] if `access` has a right
    /// with which the region was not registered.
    pub fn set_mr_access(&mut self, lkey: u32, access: Access) -> Result<(), Error> {
        self.shared.mrs.set_access(lkey, access)
    }

    /// Checks `lkey` and `access` as [`Self::set_mr_access`] does, but changes no access rights.
    ///
    /// # Errors
    /// Fails with the error with which [`Self::set_mr_access`] would fail.
    pub fn check_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error> {
        self.shared.mrs.check_access(lkey, access).map(drop)
    }

    /// Deregisters the region with this LKey, and returns the region's number. After the call, no packet reads or
    /// writes the region, except the packet that the caller has built and not sent.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no region has this LKey.
    pub fn dereg_mr(&mut self, lkey: u32) -> Result<RegionId, Error> {
        let region = self.shared.mrs.remove(lkey).ok_or(Error::NotFound { what: "LKey", id: lkey.into() })?;
        self.shared.deregistered = self.shared.deregistered.wrapping_add(1);
        Ok(region)
    }

    /// Creates a completion queue with room for `depth` completions.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the device has `Config::max_cq` completion queues, and with
    /// [`Error::Invalid`] if `depth` is 0 or more than `Config::max_cq_depth`.
    pub fn create_cq(&mut self, depth: u32) -> Result<CqId, Error> {
        let config = &self.shared.config;
        if self.shared.cqs.len() >= config.max_cq as usize {
            return Err(exhausted("completion queues", config.max_cq));
        }
        if depth == 0 || depth > config.max_cq_depth {
            return Err(Error::Invalid("the completion queue's depth is zero or beyond the device's limit"));
        }
        let id = self.next_cq;
        self.next_cq = self.next_cq.wrapping_add(1);
        self.shared.cqs.insert(id, CqEntry::new(depth));
        Ok(CqId(id))
    }

    /// Destroys a completion queue and the completions in it.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] while queue pairs use the completion queue, and with [`Error::NotFound`] if there is
    /// no completion queue `cq`.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), Error> {
        if self.qps.values().any(|qp| qp.send_cq == cq || qp.recv_cq == cq) {
            return Err(Error::Busy("queue pairs use the completion queue"));
        }
        self.shared.cqs.remove(&cq.0).map(drop).ok_or(no_cq(cq))
    }

    /// Moves completions to `out`, the oldest first, and returns the number of completions that were moved.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no completion queue `cq`.
    pub fn poll_cq(&mut self, cq: CqId, out: &mut [Wc]) -> Result<usize, Error> {
        self.shared.cqs.get_mut(&cq.0).map(|queue| queue.poll(out)).ok_or(no_cq(cq))
    }

    /// Returns true if the completion queue has completions to poll.
    pub fn cq_ready(&self, cq: CqId) -> bool {
        self.shared.cqs.get(&cq.0).is_some_and(|queue| !queue.is_empty())
    }

    /// Creates a queue pair with a random QPN. The new queue pair is not connected yet.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the protection domain or a completion queue does not exist. Fails with
    /// [`Error::Exhausted`] if the device has `Config::max_qp` queue pairs. Fails with [`Error::Invalid`] if a size in
    /// `init` is more than the device's limit.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, Error> {
        self.pds.get(&init.pd.0).ok_or(no_pd(init.pd))?;
        for cq in [init.send_cq, init.recv_cq] {
            self.shared.cqs.get(&cq.0).ok_or(no_cq(cq))?;
        }
        let config = &self.shared.config;
        if self.qps.len() >= config.max_qp as usize {
            return Err(exhausted("queue pairs", config.max_qp));
        }
        let cap = &init.cap;
        if cap.max_send_wr > config.max_wr || cap.max_recv_wr > config.max_wr || cap.max_sge > config.max_sge
        {
            return Err(Error::Invalid("the queue pair's sizes exceed the device's limits"));
        }
        let num = QpNum(self.draw_qpn());
        self.qps.insert(num.0, QpEntry::new(num, init));
        Ok(num)
    }

    /// Destroys a queue pair. The work requests in the queues of a destroyed queue pair get no completion.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no queue pair `qp`.
    pub fn destroy_qp(&mut self, qp: QpNum) -> Result<(), Error> {
        self.deadlines.clear(qp.0);
        self.qps.remove(&qp.0).map(drop).ok_or(no_qp(qp))
    }

    /// Posts a work request for sending. If the queue pair has failed, the work request completes immediately with the
    /// status `WrFlushError`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no queue pair `qp`, and with [`Error::QpState`] if it is not
    /// connected. Fails with [`Error::Exhausted`] if the send queue is full. Fails with [`Error::LocalProtection`] if
    /// no region of the protection domain has an element's LKey. Fails with the same error if the region with the LKey
    /// does not cover the element, or does not permit the access. Fails with [`Error::Invalid`] if the work request
    /// exceeds a limit.
    pub fn post_send(&mut self, qp: QpNum, wr: &SendWr<'_>) -> Result<(), Error> {
        let found = self.qps.get(&qp.0).ok_or(no_qp(qp))?;
        if found.send_queue_full() {
            return Err(queue_full("send queue entries", found.cap.max_send_wr));
        }
        let wqe = self.send_wqe(found, wr)?;
        let found = self.qps.get_mut(&qp.0).ok_or(no_qp(qp))?;
        found.post_send(wqe, &mut self.shared)?;
        self.touch(qp.0);
        Ok(())
    }

    fn send_wqe(&self, qp: &QpEntry, wr: &SendWr<'_>) -> Result<SendWqe, Error> {
        let read = matches!(wr.op, SendOp::Read(_));
        let (payload, len) = match wr.payload {
            Payload::Inline(_) if read => return Err(Error::Invalid("a READ cannot be inline")),
            Payload::Inline(bytes) if bytes.len() > self.shared.config.max_inline_data as usize => {
                return Err(Error::Invalid("inline data longer than the device's max_inline_data"));
            }
            Payload::Inline(bytes) => (WqePayload::Inline(SmallVec::from_slice(bytes)), bytes.len() as u64),
            Payload::Sges(sges) => {
                let want = if read { Want::LocalWrite } else { Want::LocalRead };
                let (list, len) = self.sge_list(qp, sges, want)?;
                (WqePayload::Sges(list), len)
            }
        };
        let mtu = qp.mtu().unwrap_or(self.max_path_mtu);
        let packets = len.div_ceil(mtu.into()).max(1);
        if len > 1 << 31 || read && packets > 1 << 22 {
            return Err(Error::Invalid(
                "the message is longer than 2 GiB, or a READ of more than 2^22 packets",
            ));
        }
        let (len, packets) = (len as u32, packets as u32);
        let SendWr { wr_id, op, flags, .. } = *wr;
        Ok(SendWqe { wr_id, op, flags, payload, len, packets, first: None, broken: false })
    }

    fn sge_list(&self, qp: &QpEntry, sges: &[Sge], want: Want) -> Result<(SgeList, u64), Error> {
        if sges.len() > qp.cap.max_sge as usize {
            return Err(Error::Invalid("more scatter/gather elements than the queue pair was created for"));
        }
        let mut list = SgeList::new();
        let mut total = 0;
        for sge in sges {
            let found = self.shared.mrs.local(sge.lkey, qp.pd, sge.addr, sge.length.into(), want);
            let (mr, offset) = found.ok_or(Error::LocalProtection {
                lkey: sge.lkey,
                addr: sge.addr,
                length: sge.length.into(),
            })?;
            list.push(SgeRef { mr, offset, len: sge.length });
            total += u64::from(sge.length);
        }
        Ok((list, total))
    }

    /// Posts a receive. If the queue pair has failed, the receive completes immediately with the status `WrFlushError`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no queue pair `qp`, and with [`Error::Exhausted`] if the receive
    /// queue is full. Fails with [`Error::LocalProtection`] if no region of the protection domain has an element's
    /// LKey. Fails with the same error if the region with the LKey does not cover the element, or does not permit the
    /// access. Fails with [`Error::Invalid`] if the receive has too many elements.
    pub fn post_recv(&mut self, qp: QpNum, wr: &RecvWr<'_>) -> Result<(), Error> {
        let found = self.qps.get(&qp.0).ok_or(no_qp(qp))?;
        let (sges, len) = self.sge_list(found, wr.sges, Want::LocalWrite)?;
        let found = self.qps.get_mut(&qp.0).ok_or(no_qp(qp))?;
        found.post_recv(RecvWqe { wr_id: wr.wr_id, sges, len }, &mut self.shared)
    }

    /// Returns the name of the state of the queue pair `qp`; `None` if there is no queue pair `qp`.
    pub fn qp_state(&self, qp: QpNum) -> Option<&'static str> {
        self.qps.get(&qp.0).map(QpEntry::state_name)
    }
}

fn no_pd(pd: PdId) -> Error {
    Error::NotFound { what: "protection domain", id: pd.0.into() }
}

fn no_cq(cq: CqId) -> Error {
    Error::NotFound { what: "completion queue", id: cq.0.into() }
}

pub(super) fn no_qp(qp: QpNum) -> Error {
    Error::NotFound { what: "queue pair", id: qp.0.into() }
}
