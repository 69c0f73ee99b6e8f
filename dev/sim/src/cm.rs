//! Connecting the two queue pairs: out of band, or by the connection manager under faults.

use roce::Time;
use verbs::{CmEvent, ConnParam};

use super::{node::Node, plan::Plan};

/// Where node 1 listens.
const PORT: u16 = 4000;

/// Connects at once, or begins to; true when connected.
pub(super) fn connect(plan: &Plan, nodes: &mut [Node; 2]) -> Result<bool, String> {
    if plan.by_cm {
        return dial(nodes, &param(plan)).map(|()| false).map_err(|e| format!("cannot dial: {e}"));
    }
    let numbers = [nodes[0].qp, nodes[1].qp];
    for (n, node) in nodes.iter_mut().enumerate() {
        // Connects the queue pair directly, like `ibv_modify_qp`.
        let attr = plan.attr(n, numbers[1 - n].0);
        node.endpoint.connect_qp(numbers[n], &attr).map_err(|e| format!("node {n} does not connect: {e}"))?;
    }
    Ok(true)
}

/// Begins to connect node 0 with node 1, which listens.
pub(super) fn dial([active, passive]: &mut [Node; 2], param: &ConnParam) -> Result<(), verbs::Error> {
    passive.endpoint.listen(passive.channel, PORT, 1)?;
    let mut remote = passive.addr;
    remote.set_port(PORT);
    let local = active.addr.ip();
    active.endpoint.connect(Time(0), active.channel, active.qp, local, remote, param).map(drop)
}

pub(super) fn param(plan: &Plan) -> ConnParam {
    ConnParam {
        private_data: plan.seed.to_be_bytes().to_vec(),
        responder_resources: plan.depth,
        initiator_depth: plan.depth,
        retry_count: plan.retry,
        rnr_retry_count: plan.rnr_retry,
        ack_timeout: Some(plan.ack_timeout),
        connect_timeout: None,
    }
}

/// Answers the events of a node; true when its connection was established.
pub(super) fn events(plan: &Plan, node: &mut Node, now: u64) -> Result<bool, String> {
    let mut established = false;
    while let Some(event) = node.endpoint.next_event(node.channel).map_err(|e| e.to_string())? {
        match event {
            CmEvent::ConnectRequest { id, param: offered, .. } => {
                if !offered.private_data.starts_with(&plan.seed.to_be_bytes()) {
                    return Err(format!("private data changed: {offered:?}"));
                }
                let accepted = node.endpoint.accept(Time(now), id, node.qp, &param(plan));
                accepted.map_err(|e| format!("cannot accept: {e}"))?;
            }
            CmEvent::Established { param, .. } if !established && param.path_mtu == plan.mtu => {
                established = true;
            }
            other => return Err(format!("an unexpected event: {other:?}")),
        }
    }
    Ok(established)
}
