//! What must hold, checked at every completion and once more over all memory at the end.

use simnet::LinkCounters;
use verbs::{Wc, WcOpcode, WcStatus};

use super::{
    node::Node,
    plan::{Plan, Refused, Revoked, Scenario},
    traffic::{Images, Kind, LOCAL, Operation, REGIONS, SHELF, SOURCE, Span, TARGET, Traffic},
};

/// Completions of one queue so far.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    posted: usize,
    /// Everything before was reported, or was not to be.
    next: usize,
    failed: Option<(usize, WcStatus)>,
}

#[derive(Debug, Default)]
pub(super) struct Checker {
    /// Memory as it was, but for the source buffers that were given back and scribbled over.
    initial: [Images; 2],
    sends: [Progress; 2],
    receives: [Progress; 2],
    pub(super) completions: u64,
    /// A region's bytes when it was withdrawn: node, region, bytes.
    frozen: Option<(usize, usize, Vec<u8>)>,
}

impl Checker {
    pub(super) fn new(initial: [Images; 2]) -> Self {
        Self { initial, ..Self::default() }
    }

    pub(super) fn sends_posted(&mut self, n: usize, posted: usize) {
        self.sends[n].posted = posted;
    }

    pub(super) fn receives_posted(&mut self, n: usize, posted: usize) {
        self.receives[n].posted = posted;
    }

    pub(super) fn region_revoked(&mut self, nodes: &[Node; 2], node: usize, region: usize) {
        // Source buffers are scribbled over by the application itself.
        if region != SOURCE {
            self.frozen = Some((node, region, nodes[node].bytes(region).to_vec()));
        }
    }

    /// No completion of a posted send is missing.
    pub(super) fn sends_done(&self, n: usize, traffic: &Traffic) -> bool {
        let p = &self.sends[n];
        let mut rest = traffic.operations[p.next..p.posted].iter();
        if p.failed.is_some() { rest.len() == 0 } else { !rest.any(|op| op.flags.signaled) }
    }

    pub(super) fn progress(&self, n: usize) -> String {
        format!("sends {:?}, receives {:?}", self.sends[n], self.receives[n])
    }

    pub(super) fn send_completed(
        &mut self,
        plan: &Plan,
        nodes: &mut [Node; 2],
        n: usize,
        wc: &Wc,
        traffic: &Traffic,
    ) -> Result<(), String> {
        self.completions += 1;
        let wrong = |why: &str| Err(format!("node {n}: {why}: {wc:?}, {:?}", self.sends[n]));
        let Progress { posted, next, failed } = self.sends[n];
        let k = wc.wr_id as usize;
        if k >= posted || k < next || wc.qp != nodes[n].qp {
            return wrong("a completion that nothing was posted for, or a second one");
        }
        let op = &traffic.operations[k];
        let skipped = &traffic.operations[next..k];
        if skipped.iter().any(|op| op.flags.signaled) || failed.is_some() && !skipped.is_empty() {
            return wrong("completions are missing before");
        }
        match (wc.status, failed) {
            (WcStatus::Success, None) => {
                if !op.flags.signaled {
                    return wrong("a completion that was not asked for");
                }
                if wc.opcode != opcode(op) || wc.byte_len as usize != op.data.len() {
                    return wrong("a completion with a wrong opcode or length");
                }
                for executed in &traffic.operations[next..=k] {
                    self.executed(plan, nodes, n, executed).map_err(|e| format!("node {n} send {k}: {e}"))?;
                }
            }
            (WcStatus::Success, Some(_)) => return wrong("success after a failure"),
            (status, None) => {
                if !may_fail(plan, n, op, status) {
                    return wrong("an unexpected failure");
                }
                self.sends[n].failed = Some((k, status));
            }
            (WcStatus::WrFlushError, Some(_)) => {}
            (_, Some(_)) => return wrong("a second failure"),
        }
        self.sends[n].next = k + 1;
        Ok(())
    }

    /// Compares what a successful operation did; then its buffers are the application's again.
    fn executed(
        &mut self,
        plan: &Plan,
        nodes: &mut [Node; 2],
        n: usize,
        op: &Operation,
    ) -> Result<(), String> {
        let hostile = plan.scenario == Scenario::Hostile;
        if op.poison.is_some() && !hostile {
            return Err("success of a request that had to be refused".to_owned());
        }
        if !hostile {
            match (op.kind, op.remote) {
                (Kind::Write, Some(remote)) if op.is_final() => {
                    compare(&nodes[1 - n], &[remote], &op.data).map_err(|e| format!("WRITE: {e}"))?;
                }
                (Kind::Read, _) => {
                    compare(&nodes[n], &op.local, &op.data).map_err(|e| format!("READ: {e}"))?
                }
                _ => {}
            }
        }
        for span in op.local.iter().filter(|span| span.region == SOURCE) {
            for bytes in [nodes[n].bytes_mut(SOURCE), &mut self.initial[n][SOURCE][..]] {
                range_mut(bytes, span).fill(0xee);
            }
        }
        Ok(())
    }

    /// `traffic` is the peer's.
    pub(super) fn receive_completed(
        &mut self,
        plan: &Plan,
        nodes: &[Node; 2],
        n: usize,
        wc: &Wc,
        traffic: &Traffic,
    ) -> Result<(), String> {
        self.completions += 1;
        let wrong = |why: &str| Err(format!("node {n}: {why}: {wc:?}, {:?}", self.receives[n]));
        let Progress { posted, next, failed } = self.receives[n];
        if wc.wr_id as usize != next || next >= posted || wc.qp != nodes[n].qp {
            return wrong("a receive completion out of order, or that nothing was posted for");
        }
        let receive = &traffic.receives[next];
        let op = &traffic.operations[receive.operation];
        let hostile = plan.scenario == Scenario::Hostile;
        match (wc.status, failed) {
            (WcStatus::Success, None) if hostile => {}
            (WcStatus::Success, None) => {
                let opcode = if op.kind == Kind::Send { WcOpcode::Recv } else { WcOpcode::RecvWriteWithImm };
                let want = (opcode, op.data.len() as u32, op.imm, op.flags.solicited);
                if op.poison.is_some() || (wc.opcode, wc.byte_len, wc.imm, wc.solicited) != want {
                    return wrong(&format!("a receive completion other than {want:?}"));
                }
                let compared = match op.remote {
                    None => compare(&nodes[n], &receive.local, &op.data),
                    Some(remote) if op.is_final() => compare(&nodes[n], &[remote], &op.data),
                    Some(_) => Ok(()),
                };
                compared.map_err(|e| format!("node {n} receive {next}: {e}"))?;
            }
            (WcStatus::Success, Some(_)) => return wrong("success after a failure"),
            (status, None) => {
                let flushed = status == WcStatus::WrFlushError && fails(plan);
                let too_long = status == WcStatus::LocalLengthError && op.poison == Some(Refused::TooLong);
                if !(flushed || too_long || hostile) {
                    return wrong("an unexpected failure");
                }
                self.receives[n].failed = Some((next, status));
            }
            (WcStatus::WrFlushError, Some(_)) => {}
            (_, Some(_)) => return wrong("a second failure"),
        }
        self.receives[n].next += 1;
        Ok(())
    }

    pub(super) fn finish(
        &mut self,
        plan: &Plan,
        nodes: &[Node; 2],
        traffic: &[Traffic; 2],
        stats: [&LinkCounters; 2],
    ) -> Result<(), String> {
        if let Some((node, region, bytes)) = &self.frozen
            && nodes[*node].bytes(*region) != bytes
        {
            return Err(format!("region {region} of node {node} changed after it was withdrawn"));
        }
        let healthy = nodes.each_ref().map(|node| node.endpoint.qp_state(node.qp) == Some("connected"));
        for n in 0..2 {
            self.settled(plan, n, healthy[n])?;
            let counters = nodes[n].endpoint.counters();
            if counters.cq_overrun > 0 || counters.sent_pkts != nodes[n].sent {
                return Err(format!("node {n} sent {} packets but counts {counters:?}", nodes[n].sent));
            }
        }
        // What named a withdrawn region could not be posted.
        let complete = (0..2).all(|n| self.sends[n].posted == traffic[n].operations.len());
        if healthy == [true; 2] && complete && plan.scenario != Scenario::Hostile {
            self.all_succeeded(nodes, traffic)?;
            return (0..2).try_for_each(|n| counters_fit(plan, n, &nodes[n], stats[1 - n]));
        }
        self.nothing_else_changed(plan, nodes, traffic)
    }

    fn settled(&self, plan: &Plan, n: usize, healthy: bool) -> Result<(), String> {
        let (sends, receives) = (&self.sends[n], &self.receives[n]);
        let must_fail = matches!(plan.scenario, Scenario::Refused(_) | Scenario::RnrExhausted) && n == 0;
        if healthy && (must_fail || sends.failed.or(receives.failed).is_some()) {
            return Err(format!("node {n} should be in the error state: {}", self.progress(n)));
        }
        if !healthy && (!fails(plan) || sends.next != sends.posted || receives.next != receives.posted) {
            return Err(format!("node {n} failed and did not flush everything: {}", self.progress(n)));
        }
        Ok(())
    }

    fn all_succeeded(&self, nodes: &[Node; 2], traffic: &[Traffic; 2]) -> Result<(), String> {
        let mut expected = self.initial.clone();
        for (from, traffic) in traffic.iter().enumerate() {
            let mut receives = traffic.receives.iter();
            for op in &traffic.operations {
                let receive = if op.takes_receive() { receives.next() } else { None };
                match (op.kind, op.remote, receive) {
                    (Kind::Write, Some(remote), _) => apply(&mut expected[1 - from], &[remote], &op.data),
                    (Kind::Read, ..) => apply(&mut expected[from], &op.local, &op.data),
                    (_, _, Some(receive)) => apply(&mut expected[1 - from], &receive.local, &op.data),
                    _ => {}
                }
            }
            if self.receives[1 - from].next != traffic.receives.len() {
                return Err(format!(
                    "node {} lacks receive completions: {}",
                    1 - from,
                    self.progress(1 - from)
                ));
            }
        }
        for (n, (node, images)) in nodes.iter().zip(&expected).enumerate() {
            for (region, image) in images.iter().enumerate() {
                same(node.bytes(region), image).map_err(|e| format!("node {n} region {region}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Checks, after a failure, that bytes which no operation was to write are unchanged.
    fn nothing_else_changed(
        &self,
        plan: &Plan,
        nodes: &[Node; 2],
        traffic: &[Traffic; 2],
    ) -> Result<(), String> {
        for (n, node) in nodes.iter().enumerate() {
            for region in 0..REGIONS {
                if plan.scenario == Scenario::Hostile && region == TARGET {
                    continue;
                }
                let (mut image, bytes) = (self.initial[n][region].clone(), node.bytes(region));
                for span in writable(n, traffic).filter(|span| span.region == region) {
                    range_mut(&mut image, span).copy_from_slice(range(bytes, span));
                }
                same(bytes, &image).map_err(|e| format!("node {n} region {region}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// Where the traffic may write in the memory of node `n`.
fn writable(n: usize, traffic: &[Traffic; 2]) -> impl Iterator<Item = &Span> {
    // A READ goes out in parts, of which the first may be within bounds.
    let allowed = |op: &&Operation| op.poison.is_none() || op.kind == Kind::Read;
    let own = traffic[n].operations.iter().filter(allowed).flat_map(|op| &op.local);
    let peers = traffic[1 - n].operations.iter().filter(allowed);
    let written = peers.filter(|op| op.kind == Kind::Write).filter_map(|op| op.remote.as_ref());
    let received = traffic[1 - n].receives.iter().flat_map(|receive| &receive.local);
    own.filter(|span| span.region == LOCAL).chain(written).chain(received)
}

/// The queue pairs may fail in this scenario.
fn fails(plan: &Plan) -> bool {
    !matches!(plan.scenario, Scenario::Plain | Scenario::ShortBlackout)
}

/// `op` of node `n` may be the first to fail, with `status`.
fn may_fail(plan: &Plan, n: usize, op: &Operation, status: WcStatus) -> bool {
    // A refusal may be lost if the network has faults; the requester then finds that the peer is silent. If READ
    // responses were lost, the READ fails.
    let exact = plan.clean();
    let refusal = |want: WcStatus, fits: bool| {
        let lost = !exact && status == WcStatus::RetryExceeded;
        status == want && (fits || !exact) || lost
    };
    let at = |region| op.remote.is_some_and(|remote| remote.region == region);
    match (plan.scenario, n) {
        (Scenario::Plain | Scenario::ShortBlackout, _) => false,
        (Scenario::Hostile, _) => true,
        (Scenario::LongBlackout, _) => status == WcStatus::RetryExceeded,
        (Scenario::RnrExhausted, 0) => status == WcStatus::RnrRetryExceeded && (op.takes_receive() || !exact),
        (Scenario::Refused(Refused::TooLong), 0) => {
            refusal(WcStatus::RemoteInvalidRequest, op.poison.is_some())
        }
        (Scenario::Refused(_), 0) => refusal(WcStatus::RemoteAccessError, op.poison.is_some()),
        (Scenario::Revoked { what: Revoked::Target, .. }, 0) => {
            refusal(WcStatus::RemoteAccessError, at(TARGET))
        }
        (Scenario::Revoked { what: Revoked::Shelf, .. }, 0) => {
            refusal(WcStatus::RemoteAccessError, at(SHELF))
        }
        (Scenario::Revoked { what: Revoked::Source, .. }, 0) => {
            status == WcStatus::LocalProtectionError && op.local.iter().any(|span| span.region == SOURCE)
        }
        // Node 0 is silent once it has failed by itself.
        (Scenario::RnrExhausted | Scenario::Revoked { what: Revoked::Source, .. }, _) => {
            status == WcStatus::RetryExceeded
        }
        (Scenario::Refused(_) | Scenario::Revoked { .. }, _) => status == WcStatus::WrFlushError,
    }
}

fn counters_fit(plan: &Plan, n: usize, node: &Node, stats: &LinkCounters) -> Result<(), String> {
    let c = node.endpoint.counters();
    let dropped = c.rx_icrc_encapsulated + c.rx_malformed + c.rx_unknown_qp;
    let order = c.out_of_seq_request + c.implied_nak_seq_err;
    // If the round trip grows suddenly, a tail that is only slow is probed for.
    let probes = c.local_ack_timeout_err * 8 <= c.sent_pkts + 128;
    let fit = dropped <= stats.corrupted
        && c.rx_wrong_source + c.retry_exceeded_err + c.retry_rnr_exceeded_err == 0
        && c.rcvd_pkts + dropped == stats.delivered
        // Packets of a burst that follow an RNR NAK are out of sequence.
        && (!plan.clean() || c.send_rnr_err > 0 || order == 0 && probes);
    if fit { Ok(()) } else { Err(format!("the counters of node {n} do not fit {stats:?}: {c:?}")) }
}

fn opcode(op: &Operation) -> WcOpcode {
    match op.kind {
        Kind::Send => WcOpcode::Send,
        Kind::Write => WcOpcode::Write,
        Kind::Read => WcOpcode::Read,
    }
}

fn range<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    &bytes[span.offset as usize..][..span.len as usize]
}

fn range_mut<'a>(bytes: &'a mut [u8], span: &Span) -> &'a mut [u8] {
    &mut bytes[span.offset as usize..][..span.len as usize]
}

/// Compares a message with the memory it went to.
fn compare(node: &Node, spans: &[Span], data: &[u8]) -> Result<(), String> {
    let mut rest = data;
    for span in spans {
        let n = rest.len().min(span.len as usize);
        let (head, tail) = rest.split_at(n);
        same(&range(node.bytes(span.region), span)[..n], head)?;
        rest = tail;
    }
    Ok(())
}

fn apply(images: &mut Images, spans: &[Span], data: &[u8]) {
    let mut rest = data;
    for span in spans {
        let (head, tail) = rest.split_at(rest.len().min(span.len as usize));
        range_mut(&mut images[span.region], span)[..head.len()].copy_from_slice(head);
        rest = tail;
    }
}

fn same(got: &[u8], want: &[u8]) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(a, b)| a != b);
    Err(format!("wrong bytes from offset {at:?} of {} on", want.len()))
}
