//! The ICRC: all rules agree with each other and with the sender's computation.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use roce::{
    icrc::{Checked, Flow, IdRule, Mismatch, Solver, compute, renumber},
    wire::{Bth, ICRC_LEN},
};

use crate::program::Program;

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let v6 = program.rarely(4);
    let (src, dst) = (address(&mut program, v6), address(&mut program, v6));
    let flow = Flow::new(src, dst).expect("both ends are of one family");
    let (id, hint, right) = (program.u16(), program.u16(), program.flag());
    let mut datagram = program.bytes(usize::MAX).to_vec();
    if right && datagram.len() >= Bth::LEN + ICRC_LEN {
        let end = datagram.len() - ICRC_LEN;
        let icrc = icrc_of(&flow, id, &datagram);
        datagram[end..].copy_from_slice(&icrc);
    }
    let any = Solver::new().verify(&flow, &datagram, IdRule::Any, hint);
    if right && datagram.len() >= Bth::LEN + ICRC_LEN {
        assert_eq!(any, Ok(Checked { ip_id: (!v6).then_some(id) }));
        check_renumber(&flow, id, hint, &datagram);
    }
    check_rules(&flow, &datagram, hint, any);
}

fn address(program: &mut Program<'_>, v6: bool) -> SocketAddr {
    let (ip, port) = (program.u32(), program.u16());
    match v6 {
        true => (Ipv6Addr::from(u128::from(ip) << 96 | u128::from(ip)), port).into(),
        false => (Ipv4Addr::from(ip), port).into(),
    }
}

fn icrc_of(flow: &Flow, id: u16, datagram: &[u8]) -> [u8; ICRC_LEN] {
    let (header, rest) = datagram[..datagram.len() - ICRC_LEN].split_at(Bth::LEN);
    compute(flow, id, header, rest.chunks(7))
}

fn check_renumber(flow: &Flow, from: u16, to: u16, datagram: &[u8]) {
    if !flow.is_ipv4() {
        return;
    }
    let mut icrc = icrc_of(flow, from, datagram);
    renumber(&mut icrc, datagram.len(), from, to);
    assert_eq!(icrc, icrc_of(flow, to, datagram));
}

fn check_rules(flow: &Flow, datagram: &[u8], hint: u16, any: Result<Checked, Mismatch>) {
    let mut solver = Solver::new();
    // One solution at most, whatever the hint.
    assert_eq!(solver.verify(flow, datagram, IdRule::Any, 0), any);
    let low = solver.verify(flow, datagram, IdRule::Below128, hint);
    let exact = solver.verify(flow, datagram, IdRule::Exact(hint), 0);
    match any {
        Ok(checked @ Checked { ip_id: Some(id) }) => {
            assert_eq!(icrc_of(flow, id, datagram), datagram[datagram.len() - ICRC_LEN..]);
            assert_eq!(low, if id < 128 { any } else { Err(Mismatch::IpId(id)) });
            assert_eq!(exact, if id == hint { any } else { Err(Mismatch::IpId(id)) });
            assert_eq!(solver.verify(flow, datagram, IdRule::Exact(id), 0), Ok(checked));
        }
        Ok(Checked { ip_id: None }) => assert_eq!((low, exact), (any, any)),
        // A known identification also explains packets without DF.
        Err(_) => assert!(low.is_err()),
    }
}
