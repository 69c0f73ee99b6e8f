//! `naa bench ejfat`: EJFAT's data path beside copies of the same bytes.

use super::{Builder, Measure};
use crate::{
    row::Target::{AtMost, Report},
    sides::{Near, engine::What},
};

const EVENT: usize = 1 << 20;
const SMALL: usize = 8192;

/// All there are, in the order of the table.
pub(crate) fn all() -> Vec<Measure> {
    vec![reassembling(), forwarding()]
}

fn engine(b: &mut Builder, what: What) -> usize {
    b.contender(None, Near::Engine(what))
}

/// Half as fast as a copy is twice its time; 0.7 of its speed are 1.43 times.
fn reassembling() -> Measure {
    let mut b = Builder::default();
    let copy = engine(&mut b, What::Copy(EVENT));
    for mtu in [9000, 1500] {
        for (shuffled, order) in [(false, "in order"), (true, "shuffled")] {
            let ours = engine(&mut b, What::Reassemble { bytes: EVENT, mtu, shuffled });
            let name = format!("reassembler, 1 MiB event, MTU {mtu}, {order}, vs memcpy");
            b.row(name, ours, copy, AtMost(2.0), AtMost(1.43));
        }
    }
    let small = engine(&mut b, What::Reassemble { bytes: SMALL, mtu: 9000, shuffled: false });
    let copy = engine(&mut b, What::Copy(SMALL));
    b.row("reassembler, 8 KiB event, one segment, vs memcpy", small, copy, Report, None);
    b.measure("ns", None)
}

fn forwarding() -> Measure {
    let mut b = Builder::default();
    for bytes in [1500, 9000, 100] {
        let ours = engine(&mut b, What::Forward(bytes));
        let array = engine(&mut b, What::Pick(bytes));
        let name = format!("LB tables 8 x 4 x 512 and rewrite, {bytes} B packet, vs array lookup and copy");
        let target = if bytes == 1500 { AtMost(3.33) } else { Report };
        b.row(name, ours, array, target, None);
    }
    b.measure("ns", None)
}
