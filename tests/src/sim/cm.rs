//! Connecting the two queue pairs.

use super::{node::Node, plan::Plan};

/// Connects by out-of-band agreement, as `ibv_modify_qp` does.
pub(super) fn connect(plan: &Plan, nodes: &mut [Node; 2]) -> Result<(), String> {
    let numbers = [nodes[0].qp, nodes[1].qp];
    for (n, node) in nodes.iter_mut().enumerate() {
        let attr = plan.attr(n, numbers[1 - n].0);
        node.endpoint.connect_qp(numbers[n], &attr).map_err(|e| format!("node {n} does not connect: {e}"))?;
    }
    Ok(())
}
