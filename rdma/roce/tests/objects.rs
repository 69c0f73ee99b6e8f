//! Tests of the objects of a device: their limits, and the order in which they can be released.

mod pair;

use std::{net::SocketAddr, time::Duration};

use pair::{A, B, DELAY, HALF, MTU, PORT, Pair, Setup, failed, ok};
use roce::{Config, QpAttr, RKeys};
use verbs::{
    Access, CmEvent, CmId, ConnParam, CqId, Error, Payload, PdId, QpCap, QpInit, QpNum, RecvWr, SendFlags,
    SendOp, SendWr, Sge, WcStatus,
};

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
}

#[track_caller]
fn not_found<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}");
}

#[track_caller]
fn busy<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Busy(_))), "{result:?}");
}

#[track_caller]
fn exhausted<T: std::fmt::Debug>(result: Result<T, Error>, at: u64) {
    assert!(matches!(result, Err(Error::Exhausted { limit, .. }) if limit == at), "{result:?}");
}

fn limited(change: impl Fn(&mut Config)) -> Pair {
    Pair::with(|setup| change(&mut setup.config))
}

#[test]
fn a_protection_domain_is_busy_while_regions_or_queue_pairs_use_it() {
    let mut pair = Pair::new();
    let a = &mut pair.a.endpoint;
    busy(a.dealloc_pd(pair.a.pd));
    a.destroy_qp(pair.a.qp).unwrap();
    busy(a.dealloc_pd(pair.a.pd));
    a.dereg_mr(pair.a.keys.lkey).unwrap();
    a.dealloc_pd(pair.a.pd).unwrap();
    not_found(a.dealloc_pd(pair.a.pd));
    not_found(a.reg_mr(pair.a.pd, 0, 1, Access::ALL));
    assert_ne!(a.alloc_pd(), a.alloc_pd());
}

#[test]
fn a_protection_domain_of_a_queue_pair_alone_is_busy() {
    let mut pair = Pair::new();
    let a = &mut pair.a.endpoint;
    a.dereg_mr(pair.a.keys.lkey).unwrap();
    busy(a.dealloc_pd(pair.a.pd));
    not_found(a.dereg_mr(pair.a.keys.lkey));
}

#[test]
fn a_completion_queue_is_busy_while_queue_pairs_use_it() {
    let mut pair = Pair::new();
    let a = &mut pair.a.endpoint;
    busy(a.destroy_cq(pair.a.send_cq));
    busy(a.destroy_cq(pair.a.recv_cq));
    a.destroy_qp(pair.a.qp).unwrap();
    a.destroy_cq(pair.a.send_cq).unwrap();
    not_found(a.destroy_cq(pair.a.send_cq));
    not_found(a.poll_cq(pair.a.send_cq, &mut []));
}

#[test]
fn the_depth_of_a_completion_queue_is_limited() {
    let mut pair = limited(|config| config.max_cq_depth = 512);
    invalid(pair.a.endpoint.create_cq(0));
    invalid(pair.a.endpoint.create_cq(513));
    pair.a.endpoint.create_cq(512).unwrap();
}

#[test]
fn the_number_of_each_object_is_limited() {
    let mut pair = limited(|config| (config.max_cq, config.max_mr, config.max_qp) = (3, 2, 2));
    let Pair { a, .. } = &mut pair;
    a.endpoint.create_cq(1).unwrap();
    exhausted(a.endpoint.create_cq(1), 3);
    a.endpoint.reg_mr(a.pd, 0, 1, Access::ALL).unwrap();
    exhausted(a.endpoint.reg_mr(a.pd, 0, 1, Access::ALL), 2);
    a.endpoint.dereg_mr(a.keys.lkey).unwrap();
    a.endpoint.reg_mr(a.pd, 0, 1, Access::ALL).unwrap();
    a.another_qp();
    let init = QpInit { pd: a.pd, send_cq: a.send_cq, recv_cq: a.recv_cq, cap: QpCap::default() };
    exhausted(a.endpoint.create_qp(&init), 2);
}

#[test]
fn a_region_ends_within_the_address_space() {
    let mut pair = Pair::new();
    let Pair { a, .. } = &mut pair;
    invalid(a.endpoint.reg_mr(a.pd, u64::MAX, 1, Access::ALL));
    a.endpoint.reg_mr(a.pd, u64::MAX, 0, Access::ALL).unwrap();
    a.endpoint.reg_mr(a.pd, u64::MAX - 1, 1, Access::ALL).unwrap();
}

#[test]
fn a_queue_pair_needs_its_objects_and_sizes_within_the_limits() {
    let mut pair = limited(|config| (config.max_wr, config.max_sge) = (256, 32));
    let Pair { a, .. } = &mut pair;
    let cap = QpCap { max_send_wr: 256, max_recv_wr: 256, max_sge: 32, late_acks: false };
    let init = QpInit { pd: a.pd, send_cq: a.send_cq, recv_cq: a.recv_cq, cap };
    a.endpoint.create_qp(&init).unwrap();
    not_found(a.endpoint.create_qp(&QpInit { pd: PdId(99), ..init }));
    not_found(a.endpoint.create_qp(&QpInit { send_cq: CqId(99), ..init }));
    not_found(a.endpoint.create_qp(&QpInit { recv_cq: CqId(99), ..init }));
    invalid(a.endpoint.create_qp(&QpInit { cap: QpCap { max_send_wr: 257, ..cap }, ..init }));
    invalid(a.endpoint.create_qp(&QpInit { cap: QpCap { max_recv_wr: 257, ..cap }, ..init }));
    invalid(a.endpoint.create_qp(&QpInit { cap: QpCap { max_sge: 33, ..cap }, ..init }));
}

#[test]
fn queues_take_as_many_requests_as_they_were_created_for() {
    let mut pair = Pair::with(|setup| (setup.cap.max_send_wr, setup.cap.max_recv_wr) = (2, 3));
    let to = pair.b.remote(HALF);
    let post = |pair: &mut Pair| pair.a.post_with(1, SendOp::Write(to), 0, 10, SendFlags::SIGNALED);
    post(&mut pair).unwrap();
    post(&mut pair).unwrap();
    exhausted(post(&mut pair), 2);
    pair.drive();
    post(&mut pair).unwrap();
    (0..3).for_each(|id| pair.b.recv(id, 10));
    let sges = [pair.b.sge(HALF, 10)];
    exhausted(pair.b.endpoint.post_recv(pair.b.qp, &RecvWr { wr_id: 9, sges: &sges }), 3);
}

/// Posts the work request `op` with the payload `payload` to the queue pair of `pair.a`.
fn post(pair: &mut Pair, op: SendOp, payload: Payload<'_>) -> Result<(), Error> {
    let flags = SendFlags::SIGNALED;
    pair.a.endpoint.post_send(pair.a.qp, &SendWr { wr_id: 1, op, payload, flags })
}

#[test]
fn the_elements_of_a_request_are_checked_when_it_is_posted() {
    let mut pair = Pair::with(|setup| setup.cap.max_sge = 2);
    let (good, to) = (pair.a.sge(HALF, HALF), pair.b.remote(HALF));
    let protected = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::LocalProtection { .. })), "{result:?}");
    };
    for bad in [
        Sge { lkey: good.lkey ^ 1, ..good },
        Sge { length: HALF + 1, ..good },
        Sge { addr: good.addr + 1, ..good },
        Sge { addr: pair.a.va - 1, length: 1, ..good },
    ] {
        protected(post(&mut pair, SendOp::Write(to), Payload::Sges(&[good, bad])));
        protected(pair.a.endpoint.post_recv(pair.a.qp, &RecvWr { wr_id: 1, sges: &[bad] }));
    }
    invalid(post(&mut pair, SendOp::Write(to), Payload::Sges(&[good; 3])));
    invalid(pair.a.endpoint.post_recv(pair.a.qp, &RecvWr { wr_id: 1, sges: &[good; 3] }));
    post(&mut pair, SendOp::Write(to), Payload::Sges(&[good; 1])).unwrap();
    not_found(pair.a.endpoint.post_send(
        QpNum(0xffff),
        &SendWr { wr_id: 1, op: SendOp::Send, payload: Payload::Inline(&[]), flags: SendFlags::SIGNALED },
    ));
    not_found(pair.a.endpoint.post_recv(QpNum(0xffff), &RecvWr { wr_id: 1, sges: &[] }));
}

#[test]
fn memory_that_is_written_locally_needs_the_right() {
    let mut pair = Pair::new();
    let keys = pair.a.register(1 << 40, 64, Access::default());
    let sges = [Sge { addr: 1 << 40, length: 64, lkey: keys.lkey }];
    let (to, from) = (pair.b.remote(HALF), pair.b.remote(0));
    let denied = |result: Result<(), Error>| assert!(matches!(result, Err(Error::LocalProtection { .. })));
    denied(post(&mut pair, SendOp::Read(from), Payload::Sges(&sges)));
    denied(pair.a.endpoint.post_recv(pair.a.qp, &RecvWr { wr_id: 1, sges: &sges }));
    post(&mut pair, SendOp::Write(to), Payload::Sges(&sges)).unwrap();
    assert_eq!(pair.finish(), ok([1]));
}

#[test]
fn memory_of_another_protection_domain_cannot_be_used() {
    let mut pair = Pair::new();
    let own = std::mem::replace(&mut pair.a.pd, PdId(0));
    pair.a.pd = pair.a.endpoint.alloc_pd();
    let keys = pair.a.register(1 << 40, 64, Access::ALL);
    pair.a.pd = own;
    let sges = [Sge { addr: 1 << 40, length: 64, lkey: keys.lkey }];
    let posted = post(&mut pair, SendOp::Send, Payload::Sges(&sges));
    assert!(matches!(posted, Err(Error::LocalProtection { .. })), "{posted:?}");
}

#[test]
fn inline_data_has_a_limit_and_is_for_no_read() {
    let mut pair = limited(|config| config.max_inline_data = 100);
    let (to, from) = (pair.b.remote(HALF), pair.b.remote(0));
    post(&mut pair, SendOp::Write(to), Payload::Inline(&[1; 100])).unwrap();
    invalid(post(&mut pair, SendOp::Write(to), Payload::Inline(&[1; 101])));
    invalid(post(&mut pair, SendOp::Read(from), Payload::Inline(&[])));
}

#[test]
fn a_message_has_at_most_two_gib_and_a_read_at_most_half_of_the_outstanding_psns() {
    let mut pair = Pair::new();
    // The test posts work requests but sends no packets, so the endpoint needs only the bounds of this region, and no
    // memory.
    let (keys, _) = pair.a.endpoint.reg_mr(pair.a.pd, 1 << 50, 1 << 40, Access::ALL).unwrap();
    let sge = |length| Sge { addr: 1 << 50, length, lkey: keys.lkey };
    let (to, from) = (pair.b.remote(HALF), pair.b.remote(0));
    invalid(post(&mut pair, SendOp::Write(to), Payload::Sges(&[sge(1 << 31), sge(1)])));
    post(&mut pair, SendOp::Write(to), Payload::Sges(&[sge(1 << 30), sge(1 << 30)])).unwrap();
    invalid(post(&mut pair, SendOp::Read(from), Payload::Sges(&[sge((1 << 22) * MTU + 1)])));
    post(&mut pair, SendOp::Read(from), Payload::Sges(&[sge((1 << 22) * MTU)])).unwrap();
}

fn attr(peer: SocketAddr, path_mtu: u32) -> QpAttr {
    QpAttr { path_mtu, ..Setup::default().attr(peer, 9, [0, 0]) }
}

#[test]
fn the_path_mtu_is_one_of_five_and_within_the_link() {
    let mut pair = Pair::new();
    let peer = pair.b.addr;
    for mtu in [256, 512, 1024, 2048, 4096] {
        let qp = pair.a.another_qp();
        pair.a.endpoint.connect_qp(qp, &attr(peer, mtu)).unwrap();
    }
    let qp = pair.a.another_qp();
    for mtu in [0, 255, 768, 8192] {
        invalid(pair.a.endpoint.connect_qp(qp, &attr(peer, mtu)));
    }
    let (config, numbers) = (Config::default(), pair::end::numbers(1));
    let mut narrow = roce::Endpoint::new(config, 1024, numbers);
    invalid(narrow.connect_qp(QpNum(2), &attr(peer, 2048)));
    not_found(narrow.connect_qp(QpNum(2), &attr(peer, 1024)));
}

#[test]
fn a_queue_pair_is_connected_once() {
    let mut pair = Pair::new();
    let (qp, peer) = (pair.a.qp, pair.b.addr);
    let again = pair.a.endpoint.connect_qp(qp, &attr(peer, 256));
    assert!(matches!(again, Err(Error::QpState("already connected"))), "{again:?}");
    let (a, remote) = (&mut pair.a, (peer.ip(), PORT).into());
    let asked = a.endpoint.connect(pair.now, a.channel, qp, a.addr.ip(), remote, &ConnParam::default());
    assert!(matches!(asked, Err(Error::QpState("connected"))), "{asked:?}");
    let a = &mut pair.a;
    not_found(a.endpoint.connect(pair.now, a.channel, QpNum(3), a.addr.ip(), remote, &ConnParam::default()));
}

#[test]
fn retry_counts_above_seven_count_as_seven() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 200));
    pair.silence(A);
    pair.write(1, 10);
    assert_eq!(pair.finish(), failed(WcStatus::RetryExceeded, [1]));
    assert_eq!(pair.a.endpoint.counters().local_ack_timeout_err, 8);
    let mut pair = Pair::with(|setup| setup.rnr_retry_count = 200);
    pair.send(1, 10);
    pair.drive_for(1000 * DELAY);
    assert_eq!(pair.a.state(), "connected");
}

#[test]
fn completions_are_polled_in_their_order() {
    let mut pair = Pair::new();
    (1..=5).for_each(|id| pair.write(id, 10));
    assert!(!pair.a.endpoint.cq_ready(pair.a.send_cq));
    pair.drive();
    assert!(pair.a.endpoint.cq_ready(pair.a.send_cq) && !pair.a.endpoint.cq_ready(CqId(99)));
    let mut out = [verbs::Wc::EMPTY; 2];
    let mut ids = Vec::new();
    while let n @ 1.. = pair.a.endpoint.poll_cq(pair.a.send_cq, &mut out).unwrap() {
        ids.push(out[..n].iter().map(|wc| wc.wr_id).collect::<Vec<_>>());
    }
    assert_eq!(ids, [vec![1, 2], vec![3, 4], vec![5]]);
    assert!(!pair.a.endpoint.cq_ready(pair.a.send_cq));
}

#[test]
fn a_channel_is_busy_while_connections_report_to_it() {
    let mut pair = Pair::new();
    let a = &mut pair.a.endpoint;
    let (other, free) = (a.create_channel(), a.create_channel());
    let (listener, port) = a.listen(other, 0, 1).unwrap();
    assert!(port >= 0x8000, "{port}");
    busy(a.destroy_channel(other));
    a.destroy_channel(free).unwrap();
    not_found(a.destroy_channel(free));
    not_found(a.next_event(free));
    not_found(a.listen(free, 0, 1));
    a.destroy_id(pair.now, listener).unwrap();
    a.destroy_channel(other).unwrap();
    not_found(a.destroy_id(pair.now, CmId(77)));
}

#[test]
fn a_channel_is_ready_while_it_has_events() {
    let (mut pair, _, id) = Pair::requested();
    let channel = pair.b.channel;
    assert!(!pair.b.endpoint.channel_ready(channel));
    pair.b.endpoint.reject(pair.now, id, &[]).unwrap();
    pair.drive_for(DELAY);
    assert!(pair.a.endpoint.channel_ready(pair.a.channel));
    assert!(matches!(pair.a.event(), Some(CmEvent::Rejected { .. })));
    assert!(!pair.a.endpoint.channel_ready(pair.a.channel));
    not_found(pair.b.endpoint.reject(pair.now, CmId(77), &[]));
}

#[test]
fn a_request_is_accepted_with_a_queue_pair_that_is_not_connected() {
    let (mut pair, _, id) = Pair::requested();
    not_found(pair.b.endpoint.accept(pair.now, id, QpNum(3), &ConnParam::default()));
    pair.b.endpoint.fail_qp(pair.b.qp);
    let accepted = pair.b.endpoint.accept(pair.now, id, pair.b.qp, &ConnParam::default());
    assert!(matches!(accepted, Err(Error::QpState("in the error state"))), "{accepted:?}");
    pair.b.renew_qp();
    pair.accept(id);
    assert_eq!(pair.b.state(), "connected");
    pair.drive();
    assert!(matches!(pair.b.event(), Some(CmEvent::Established { id: got, .. }) if got == id));
}

#[test]
fn the_event_of_a_withdrawn_request_is_taken_back() {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    let listener = pair.listen();
    let id = pair.connect();
    pair.drive_for(DELAY);
    assert!(pair.b.endpoint.channel_ready(pair.b.channel));
    pair.a.endpoint.destroy_id(pair.now, id).unwrap();
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.b.event(), pair.kinds(B)), (None, vec![]));
    // A has withdrawn its connection request, so no request uses B's event channel any more, and the channel can be
    // destroyed after B's listener.
    pair.b.endpoint.destroy_id(pair.now, listener).unwrap();
    pair.b.endpoint.destroy_channel(pair.b.channel).unwrap();
}

#[test]
fn a_withdrawn_request_whose_event_was_taken_is_released_by_the_application() {
    let (mut pair, id_a, id_b) = Pair::requested();
    pair.a.endpoint.destroy_id(pair.now, id_a).unwrap();
    pair.drive();
    assert_eq!(pair.b.event(), None);
    not_found(pair.b.endpoint.accept(pair.now, id_b, pair.b.qp, &ConnParam::default()));
    busy(pair.b.endpoint.destroy_channel(pair.b.channel));
    pair.b.endpoint.destroy_id(pair.now, id_b).unwrap();
}

/// Makes two endpoints, A and B. A has sent a REQ to B's listener, and B has received the REQ, but the test has not
/// taken B's CM event yet. Returns both endpoints, the ID of the connection at A, and the ID of the listener.
fn asked() -> (Pair, CmId, CmId) {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    let listener = pair.listen();
    let id = pair.connect();
    pair.drive_for(DELAY);
    (pair, id, listener)
}

fn taken_request(pair: &mut Pair) -> CmId {
    let Some(CmEvent::ConnectRequest { id, .. }) = pair.b.event() else { panic!("no request arrived") };
    id
}

#[test]
fn a_rejection_releases_a_request_that_is_over() {
    for is_given_up in [true, false] {
        let (mut pair, id_a, listener) = asked();
        let id = taken_request(&mut pair);
        if is_given_up {
            pair.a.endpoint.disconnect(pair.now, id_a).unwrap();
            pair.drive_for(DELAY);
            not_found(pair.b.endpoint.reject(pair.now, id, &[]));
        } else {
            // All packets of A are lost now, so B does not learn that A gives up. B rejects the request by itself,
            // because the application has not accepted or rejected it for 30 s.
            pair.silence(A);
            pair.drive_for(Duration::from_millis(30_100));
            invalid(pair.b.endpoint.reject(pair.now, id, &[]));
        }
        pair.b.endpoint.destroy_id(pair.now, listener).unwrap();
        pair.b.endpoint.destroy_channel(pair.b.channel).unwrap();
    }
}

#[test]
fn a_listener_that_is_destroyed_takes_its_requests_with_it() {
    let (mut pair, _, listener) = asked();
    pair.b.endpoint.destroy_id(pair.now, listener).unwrap();
    assert_eq!(pair.b.event(), None);
    pair.b.endpoint.destroy_channel(pair.b.channel).unwrap();

    let (mut pair, _, listener) = asked();
    let id = taken_request(&mut pair);
    pair.b.endpoint.destroy_id(pair.now, listener).unwrap();
    invalid(pair.b.endpoint.reject(pair.now, id, &[]));
    pair.b.endpoint.destroy_channel(pair.b.channel).unwrap();
}

#[test]
fn a_rejection_that_fails_keeps_a_request_that_is_not_over() {
    let (mut pair, _, id) = Pair::requested();
    invalid(pair.b.endpoint.reject(pair.now, id, &[0; 149]));
    pair.accept(id);
    invalid(pair.b.endpoint.reject(pair.now, id, &[]));
    pair.drive();
    assert!(matches!(pair.b.event(), Some(CmEvent::Established { id: got, .. }) if got == id));
}

#[test]
fn rkeys_can_have_the_number_of_their_region() {
    let mut pair = limited(|config| config.rkeys = RKeys::WithSlot { bits: 8 });
    let other = pair.a.register(1 << 40, 64, Access::ALL);
    assert_eq!((pair.a.keys.rkey & 0xff, other.rkey & 0xff), (0, 1));
    pair.read(1, 3 * MTU);
    assert_eq!(pair.finish(), ok([1]));
}

#[test]
fn the_debug_form_of_an_endpoint_counts_its_queue_pairs() {
    let mut pair = Pair::new();
    pair.a.another_qp();
    assert_eq!(format!("{:?}", pair.a.endpoint), "Endpoint { qps: 2, .. }");
}
