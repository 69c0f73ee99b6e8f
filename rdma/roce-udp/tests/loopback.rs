//! Two devices on one machine connect, execute all operations, and disconnect.

mod side;

use std::net::SocketAddr;

use side::{Side, connect, pattern};
use verbs::{
    CmEvent, ConnParam, Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, WaitMode, WcOpcode, WcStatus,
};

fn exchange(mode: WaitMode) {
    const LEN: usize = 3 << 20;
    let (a, b) = (Side::new(), Side::new());
    let (source, target) = (a.region(LEN), b.region(LEN));
    let data = pattern(LEN, 5);
    source.memory().write(0, &data);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 2, sges: &[target.sge(0, 100)] }).unwrap();
    let (active, passive) = connect(&a, &b);

    let remote = RemoteAddr { addr: target.addr(), rkey: target.rkey() };
    a.post(SendOp::WriteWithImm(remote, 0xabcd), Payload::Sges(&[source.sge(0, LEN as u32)]));
    let wc = b.completion(mode);
    assert_eq!((wc.status, wc.opcode, wc.imm), (WcStatus::Success, WcOpcode::RecvWriteWithImm, Some(0xabcd)));
    assert_eq!((wc.wr_id, wc.byte_len, wc.solicited), (1, LEN as u32, true));
    assert_eq!(a.completion(mode).status, WcStatus::Success);
    assert_eq!(target.memory().to_vec(0, LEN), data);

    a.post(SendOp::Send, Payload::Inline(b"ping"));
    let wc = b.completion(mode);
    assert_eq!((wc.wr_id, wc.byte_len, wc.opcode), (2, 4, WcOpcode::Recv));
    assert_eq!(target.memory().to_vec(0, 4), b"ping");
    assert_eq!(a.completion(mode).status, WcStatus::Success);

    let back = a.region(LEN);
    a.post(SendOp::Read(remote), Payload::Sges(&[back.sge(0, LEN as u32)]));
    assert_eq!(a.completion(mode).status, WcStatus::Success);
    assert_eq!(back.memory().to_vec(4, LEN - 4), &data[4..]);

    a.channel.disconnect(active).unwrap();
    assert!(matches!(a.event(), CmEvent::Disconnected { .. }));
    assert!(matches!(b.event(), CmEvent::Disconnected { .. }));
    a.channel.destroy_id(active).unwrap();
    b.channel.destroy_id(passive).unwrap();
    a.qp.post_send(&[SendWr {
        wr_id: 9,
        op: SendOp::Send,
        payload: Payload::Inline(b"late"),
        flags: SendFlags::default(),
    }])
    .unwrap();
    assert_eq!(a.completion(mode).status, WcStatus::WrFlushError);
}

#[test]
fn exchange_blocking() {
    exchange(WaitMode::Block);
}

#[test]
fn exchange_spinning() {
    exchange(WaitMode::Spin);
}

#[test]
fn exchange_adaptive() {
    exchange(WaitMode::Adaptive);
}

#[test]
fn nobody_listens() {
    let (a, b) = (Side::new(), Side::new());
    let remote = SocketAddr::new(b.context.attr().address, 999);
    a.channel.connect(&a.qp, remote, &ConnParam::default()).unwrap();
    let CmEvent::Rejected { reason, .. } = a.event() else { panic!("not rejected") };
    assert_eq!(reason, verbs::RejectReason::INVALID_SERVICE_ID);
}
