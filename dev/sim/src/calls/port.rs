//! Work requests of either side.

use mrsp::{CallPlan, plan::WriteElement};
use verbs::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Wc, WcStatus};

use super::{super::node::Node, memory::RegionRange};

pub(super) const MESSAGE: u64 = 1;
/// The last WRITE of a call or an answer.
pub(super) const LAST: u64 = 2;
/// Shorter WRITEs may be copied into their work requests.
const INLINE: usize = 512;

/// Counts of one side.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) bytes: u64,
    pub(super) completions: u64,
}

impl Port {
    pub(super) fn receive(&self, node: &mut Node, into: RegionRange) -> Result<(), String> {
        let wr = RecvWr { wr_id: 0, sges: &[into.sge(node)] };
        node.endpoint.post_recv(node.qp, &wr).map_err(|e| format!("cannot post a receive: {e}"))
    }

    pub(super) fn send(&self, node: &mut Node, from: RegionRange, message: &[u8]) -> Result<(), String> {
        let from = from.part(0, message.len());
        from.set(node, message);
        let payload = [from.sge(node)];
        self.post(node, MESSAGE, SendOp::Send, Payload::Sges(&payload), SendFlags::SIGNALED_SOLICITED)
    }

    /// Posts the WRITEs of a plan, whose pieces lie where `location` says.
    pub(super) fn write(
        &mut self,
        node: &mut Node,
        plan: &CallPlan,
        inline: bool,
        location: impl Fn(&WriteElement) -> RegionRange,
    ) -> Result<(), String> {
        for write in plan.writes() {
            let all = [WriteElement { param: write.param, offset: write.offset, length: write.length }];
            let gathered = plan.gathered(write);
            let pieces = if gathered.is_empty() { &all[..] } else { gathered };
            let locations: Vec<_> = pieces.iter().filter(|piece| piece.length > 0).map(&location).collect();
            let remote = RemoteAddr { addr: write.remote_addr, rkey: write.rkey };
            let op = write.immediate.map_or(SendOp::Write(remote), |imm| SendOp::WriteWithImm(remote, imm));
            let last = write.immediate.is_some();
            let flags = SendFlags { signaled: last, solicited: last, fence: false };
            if inline && write.length as usize <= INLINE {
                let copy: Vec<u8> =
                    locations.iter().flat_map(|location| location.bytes(node)).copied().collect();
                self.post(node, LAST, op, Payload::Inline(&copy), flags)?;
            } else {
                let sges: Vec<_> = locations.iter().map(|location| location.sge(node)).collect();
                self.post(node, LAST, op, Payload::Sges(&sges), flags)?;
            }
            self.bytes += u64::from(write.length);
        }
        Ok(())
    }

    fn post(
        &self,
        node: &mut Node,
        wr_id: u64,
        op: SendOp,
        payload: Payload<'_>,
        flags: SendFlags,
    ) -> Result<(), String> {
        let wr = SendWr { wr_id, op, payload, flags };
        node.endpoint.post_send(node.qp, &wr).map_err(|e| format!("cannot post {op:?}: {e}"))
    }

    /// What has completed; all of it must be well.
    pub(super) fn completed(&mut self, node: &mut Node) -> Result<Vec<Wc>, String> {
        let (send_cq, recv_cq) = (node.send_cq, node.recv_cq);
        let mut all = node.poll(send_cq);
        all.extend(node.poll(recv_cq));
        self.completions += all.len() as u64;
        match all.iter().find(|wc| wc.status != WcStatus::Success) {
            Some(wc) => Err(format!("a request failed: {wc:?}")),
            None => Ok(all),
        }
    }
}
