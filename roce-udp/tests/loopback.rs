//! Two devices on one machine: connect, all operations, disconnect.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use roce_udp::{Options, open};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, Wake, Wc, WcOpcode, WcStatus,
};

struct Side {
    context: Context,
    pd: Pd,
    cq: Cq,
    channel: Channel,
    qp: Qp,
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(10))
}

impl Side {
    fn new(ip: IpAddr) -> Self {
        let context = open(ip, &Options { must_listen: true, ..Options::default() }).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let channel = context.create_channel().unwrap();
        let qp = pd.create_qp(&cq, &cq, QpCap::default()).unwrap();
        Self { context, pd, cq, channel, qp }
    }

    fn region(&self, len: usize) -> Mr {
        self.pd.reg_mr(&region::alloc(len).unwrap(), Access::ALL).unwrap()
    }

    fn event(&self) -> CmEvent {
        loop {
            if let Some(event) = self.channel.next_event().unwrap() {
                return event;
            }
            assert_ne!(self.channel.wait(WaitMode::Block, deadline()).unwrap(), Wake::TimedOut);
        }
    }

    fn completion(&self, mode: WaitMode) -> Wc {
        loop {
            if let Some(wc) = self.cq.poll_one().unwrap() {
                return wc;
            }
            assert_ne!(self.cq.wait(mode, deadline()).unwrap(), Wake::TimedOut);
        }
    }

    fn post(&self, op: SendOp, payload: Payload<'_>) {
        let wr = SendWr { wr_id: 7, op, payload, flags: SendFlags::SIGNALED_SOLICITED };
        self.qp.post_send(&[wr]).unwrap();
    }
}

fn connect(a: &Side, b: &Side, port: u16) -> (CmId, CmId) {
    let (_, port) = b.channel.listen(port, 8).unwrap();
    let remote = SocketAddr::new(b.context.attr().address, port);
    let param = ConnParam { private_data: b"hello".to_vec(), ..ConnParam::default() };
    let active = a.channel.connect(&a.qp, remote, &param).unwrap();
    let CmEvent::ConnectRequest { id: passive, param, .. } = b.event() else { panic!("no request") };
    assert_eq!(&param.private_data[..5], b"hello");
    b.channel.accept(passive, &b.qp, &ConnParam::default()).unwrap();
    assert!(matches!(a.event(), CmEvent::Established { .. }));
    assert!(matches!(b.event(), CmEvent::Established { .. }));
    (active, passive)
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

fn exchange(a: IpAddr, b: IpAddr, mode: WaitMode) {
    const LEN: usize = 3 << 20;
    let (a, b) = (Side::new(a), Side::new(b));
    let (source, target) = (a.region(LEN), b.region(LEN));
    let data = pattern(LEN, 5);
    source.memory().write(0, &data);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 2, sges: &[target.sge(0, 100)] }).unwrap();
    let (active, passive) = connect(&a, &b, 0);

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

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

#[test]
fn exchange_blocking() {
    exchange(ip("127.0.1.1"), ip("127.0.1.2"), WaitMode::Block);
}

#[test]
fn exchange_spinning() {
    exchange(ip("127.0.1.3"), ip("127.0.1.4"), WaitMode::Spin);
}

#[test]
fn exchange_adaptive() {
    exchange(ip("127.0.1.5"), ip("127.0.1.6"), WaitMode::Adaptive);
}

#[test]
fn nobody_listens() {
    let (a, b) = (Side::new(ip("127.0.1.7")), Side::new(ip("127.0.1.8")));
    let remote = SocketAddr::new(b.context.attr().address, 999);
    a.channel.connect(&a.qp, remote, &ConnParam::default()).unwrap();
    let CmEvent::Rejected { reason, .. } = a.event() else { panic!("not rejected") };
    assert_eq!(reason, verbs::RejectReason::INVALID_SERVICE_ID);
}
