//! Captured packets of Linux kernel peers (rxe, rdma_cm) are decoded, pass the ICRC check, and are encoded to the same
//! bytes again.

mod captures;
mod pair;

use captures::{CAPTURES, Datagram, datagram, packets};
use roce::{
    Time,
    cm::{Binding, Cm, CmConfig, CmOutput, embedded_guid},
    icrc::{Checked, Flow, IdRule, Solver, compute},
    wire::{
        Bth, Packet,
        mad::{CmMessage, CmaHeader, MAD_LEN, Mad, gid, mtu_bytes, service_port},
    },
};

fn all() -> Vec<Datagram> {
    CAPTURES.into_iter().flat_map(packets).map(|ip| datagram(&ip)).collect()
}

#[test]
fn every_icrc_is_right_and_every_identification_is_solved() {
    let mut solver = Solver::new();
    let (mut v4, mut v6) = (0, 0);
    for (n, packet) in all().iter().enumerate() {
        let flow = Flow::new(packet.src, packet.dst).unwrap();
        let known = packet.ip_id.map_or(IdRule::Any, IdRule::Exact);
        *if packet.ip_id.is_some() { &mut v4 } else { &mut v6 } += 1;
        for rule in [known, IdRule::Any] {
            let got = solver.verify(&flow, &packet.payload, rule, 0);
            assert_eq!(got, Ok(Checked { ip_id: packet.ip_id }), "packet {n} {rule:?}");
        }
        let (body, icrc) = packet.payload.split_last_chunk::<4>().unwrap();
        let (header, rest) = body.split_at(Bth::LEN);
        assert_eq!(compute(&flow, packet.ip_id.unwrap_or(0), header, rest.chunks(7)), *icrc, "packet {n}");
    }
    assert!(v4 > 100 && v6 > 20, "{v4} IPv4 and {v6} IPv6 packets");
}

#[test]
fn every_packet_reencodes_to_its_bytes() {
    for (n, packet) in all().iter().enumerate() {
        let decoded = Packet::decode(&packet.payload).unwrap_or_else(|e| panic!("packet {n}: {e}"));
        let mut bytes = Vec::new();
        decoded.encode(&mut bytes);
        assert_eq!(bytes, packet.payload, "packet {n}");
    }
}

#[test]
fn every_bit_of_a_bth_reencodes_to_itself() {
    for bit in 0..8 * Bth::LEN {
        let mut bytes = [0; Bth::LEN];
        bytes[bit / 8] = 1 << (bit % 8);
        for bytes in [bytes, bytes.map(|byte| !byte)] {
            assert_eq!(Bth::decode(&bytes).encode(), bytes, "bit {bit}");
        }
    }
}

/// Returns the CM datagrams of all captures.
fn mads() -> Vec<(Datagram, [u8; MAD_LEN])> {
    let of = |packet: Datagram| {
        let decoded = Packet::decode(&packet.payload).unwrap();
        let mad = (decoded.bth.dest_qp == 1).then(|| <[u8; MAD_LEN]>::try_from(decoded.payload).unwrap())?;
        Some((packet, mad))
    };
    all().into_iter().filter_map(of).collect()
}

#[test]
fn every_cm_message_reencodes_to_its_bytes() {
    let mut kinds = [0; 7];
    for (n, (_, raw)) in mads().iter().enumerate() {
        let mad = Mad::decode(raw).unwrap_or_else(|e| panic!("MAD {n}: {e}"));
        kinds[usize::from(mad.message.attribute()) - 0x10] += 1;
        assert_eq!(mad.encode(), *raw, "MAD {n}");
        // Linux kernels set only those bits of a REQ or REP that belong to a field of [`CmMessage`]. A new MAD with the
        // same fields therefore has the same bytes.
        if matches!(mad.message, CmMessage::Req(_) | CmMessage::Rep(_)) {
            assert_eq!(Mad::new(mad.tid, mad.message).encode(), *raw, "MAD {n}");
        }
    }
    let [req, _, _, rep, rtu, dreq, drep] = kinds;
    assert!(req > 5 && rep > 5 && rtu > 5 && dreq > 5 && drep > 0, "{kinds:?}");
}

#[test]
fn kernel_requests_mean_what_the_fields_say() {
    for (packet, raw) in mads() {
        let CmMessage::Req(req) = Mad::decode(&raw).unwrap().message else { continue };
        assert!(service_port(req.service_id).is_some());
        assert_eq!((req.remote_cm_timeout, req.transport, req.max_cm_retries), (20, 0, 15));
        assert_eq!((req.local_cm_timeout, req.retry_count, req.ack_timeout), (20, 7, 19));
        assert_eq!((mtu_bytes(req.mtu), req.p_key, req.hop_limit), (Some(1024), 0xffff, 64));
        assert_eq!((req.local_gid, req.remote_gid), (gid(packet.src.ip()), gid(packet.dst.ip())));
        let header = CmaHeader::decode(req.private_data.first_chunk().unwrap()).unwrap();
        assert_eq!((header.src, header.dst), (packet.src.ip(), packet.dst.ip()));
        assert_eq!(header.encode(), req.private_data[..CmaHeader::LEN]);
    }
}

/// The starting PSN in a REQ or REP is the PSN of the first request packet that the sender of this REQ or REP receives.
#[test]
fn starting_psns_are_the_receivers() {
    let mut expected = std::collections::HashMap::new();
    let mut checked = 0;
    for packet in all() {
        let decoded = Packet::decode(&packet.payload).unwrap();
        let Ok(raw) = <[u8; MAD_LEN]>::try_from(decoded.payload) else {
            let first = expected.remove(&(packet.dst.ip(), decoded.bth.dest_qp));
            let is_request = decoded.aeth.is_none();
            checked += usize::from(first.is_some_and(|psn| is_request && psn == decoded.bth.psn));
            continue;
        };
        match Mad::decode(&raw).map(|mad| mad.message) {
            Ok(CmMessage::Req(req)) => expected.insert((packet.src.ip(), req.qpn), req.starting_psn),
            Ok(CmMessage::Rep(rep)) => expected.insert((packet.src.ip(), rep.qpn), rep.starting_psn),
            _ => None,
        };
    }
    assert!(checked > 5, "{checked} first packets");
}

/// The passive side accepts a captured REQ of a Linux kernel, and sends the REP to UDP port 4791 of the REQ's source
/// address.
#[test]
fn a_kernel_client_is_served() {
    let (packet, raw) = mads().into_iter().find(|(_, raw)| raw[17] == 0x10).unwrap();
    let CmMessage::Req(req) = Mad::decode(&raw).unwrap().message else { panic!("a REQ") };
    let (mut cm, mut entropy) = (Cm::new(CmConfig::new(embedded_guid(7), 4096)), pair::end::numbers(0));
    let now = Time(0);
    cm.listen(service_port(req.service_id).unwrap(), 1, &mut *entropy).unwrap();
    assert_eq!(cm.handle_mad(now, packet.src, packet.dst.ip(), &raw, &mut *entropy), Ok(()));
    let Some(CmOutput::Event(verbs::CmEvent::ConnectRequest { id, endpoints, .. })) = cm.poll_output() else {
        panic!("a request");
    };
    assert_eq!(endpoints.remote.ip(), packet.src.ip());
    cm.accept(now, id, 0x55, roce::psn::Psn::new(9), &verbs::ConnParam::default()).unwrap();
    let Some(CmOutput::Bind(Binding { attr, .. })) = cm.poll_output() else { panic!("a binding") };
    let psn = req.starting_psn.value();
    assert_eq!((attr.remote_qpn, attr.send_psn, attr.path_mtu), (req.qpn, psn, 1024));
    assert_eq!(attr.peer, (packet.src.ip(), 4791).into());
    assert!(!attr.embedded_peer);
    let (to, rep) = cm.poll_transmit().unwrap();
    assert_eq!(to, attr.peer);
    assert!(matches!(
        Mad::decode(&rep).unwrap().message,
        CmMessage::Rep(rep) if rep.ids.remote == req.local_comm_id
    ));
}
