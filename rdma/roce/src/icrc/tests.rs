use std::net::SocketAddr;

use super::*;
use crate::entropy::{Entropy as _, tests::Random};

fn flow(v6: bool) -> Flow {
    let [src, dst]: [SocketAddr; 2] = if v6 {
        ["[fd00::1]:50000", "[fd00::2]:4791"].map(|a| a.parse().unwrap())
    } else {
        ["10.1.2.3:50000", "10.1.2.4:4791"].map(|a| a.parse().unwrap())
    };
    Flow::new(src, dst).unwrap()
}

/// Makes a packet with a random BTH and `mtu` random bytes of payload.
fn packet(random: &mut Random, flow: &Flow, id: u16, mtu: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..Bth::LEN + mtu).map(|_| random.next_u32() as u8).collect();
    let (header, payload) = packet.split_at(Bth::LEN);
    let icrc = compute(flow, id, header, payload.chunks(100));
    packet.extend(icrc);
    packet
}

#[test]
fn families_must_agree() {
    let v4 = "10.0.0.1:1".parse().unwrap();
    let v6 = "[fd00::1]:1".parse().unwrap();
    assert_eq!(Flow::new(v4, v6), None);
}

#[test]
fn retreat_undoes_advance() {
    // One zero byte multiplies the CRC register by x^8.
    let x8 = {
        let mut r = ONE;
        (0..8).for_each(|_| r = multiply(r, ONE >> 1));
        r
    };
    let mut advance = ONE;
    for bytes in 0..70_000 {
        if bytes % 977 == 0 {
            assert_eq!(multiply(advance, retreat_by(bytes)), ONE, "{bytes}");
        }
        advance = multiply(advance, x8);
    }
}

#[test]
fn identifications_are_solved_for() {
    let (mut random, mut solver, flow) = (Random(1), Solver::new(), flow(false));
    for round in 0..2000 {
        let id = random.next_u32() as u16;
        let len = (random.next_u32() % 4200) as usize;
        let packet = packet(&mut random, &flow, id, len);
        let hint = random.next_u32() as u16;
        let solved = Ok(Checked { ip_id: Some(id) });
        assert_eq!(solver.verify(&flow, &packet, IdRule::Any, hint), solved, "round {round}");
        assert_eq!(solver.verify(&flow, &packet, IdRule::Any, id), solved);
        assert_eq!(solver.verify(&flow, &packet, IdRule::Exact(id), hint), solved);
        let other = id ^ 1 << (round % 16);
        assert_eq!(solver.verify(&flow, &packet, IdRule::Exact(other), hint), Err(Mismatch::IpId(id)));
    }
}

#[test]
fn embedded_identifications_stay_below_128() {
    let (mut random, mut solver, flow) = (Random(2), Solver::new(), flow(false));
    for id in 0..300 {
        let packet = packet(&mut random, &flow, id, 4096);
        for hint in [0, id, 200] {
            let got = solver.verify(&flow, &packet, IdRule::Below128, hint);
            let want = if id < 128 { Ok(Checked { ip_id: Some(id) }) } else { Err(Mismatch::IpId(id)) };
            assert_eq!(got, want, "{id}");
        }
    }
}

#[test]
fn a_clear_df_bit_needs_a_known_identification() {
    let (mut random, mut solver, set) = (Random(3), Solver::new(), flow(false));
    let mut clear = set;
    clear.template[V4_ID + 2] = 0;
    let packet = packet(&mut random, &clear, 5, 1024);
    assert_eq!(solver.verify(&set, &packet, IdRule::Exact(5), 0), Ok(Checked { ip_id: Some(5) }));
    assert_eq!(solver.verify(&set, &packet, IdRule::Any, 0), Err(Mismatch::Icrc));
    assert_eq!(solver.verify(&set, &packet, IdRule::Below128, 0), Err(Mismatch::Icrc));
}

#[test]
fn single_bit_errors_are_detected() {
    let (mut random, mut solver) = (Random(4), Solver::new());
    for v6 in [false, true] {
        let flow = flow(v6);
        for mtu in [256, 512, 1024, 2048, 4096] {
            let mut packet = packet(&mut random, &flow, 77, mtu);
            for bit in (0..packet.len() * 8).filter(|bit| bit / 8 != 4) {
                // The test changes each of the first 500 bits and the last 500 bits of the packet, and a random sample
                // of all other bits.
                let edge = bit < 500 || bit + 500 > packet.len() * 8;
                if !edge && !random.next_u32().is_multiple_of(16) {
                    continue;
                }
                packet[bit / 8] ^= 1 << (bit % 8);
                for rule in [IdRule::Any, IdRule::Below128, IdRule::Exact(77)] {
                    assert!(solver.verify(&flow, &packet, rule, 0).is_err(), "bit {bit} of MTU {mtu}");
                }
                packet[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

/// A packet is never accepted if exactly one of the bits behind its IPv4 identification is wrong. A receiver does not
/// see the IPv4 header, in which the IPv4 identification may have any value. The receiver therefore computes two words
/// of this header from the ICRC: the identification, and the fragment word (the IPv4 flags and the fragment offset).
/// The computed words are the values with which the ICRC is right. With the rule `Any`, the receiver accepts the packet
/// only if the computed fragment word is that of an unfragmented packet with a set DF bit. The computed identification
/// may have any value. The test checks that each single wrong bit changes the computed fragment word.
#[test]
fn no_single_bit_error_looks_like_an_identification() {
    let bits = (V4_LEN - V4_ID + 16 + 4096 + ICRC_LEN) * 8;
    // The loop goes through all bits of the packet behind the identification, from the last bit to the first. A set bit
    // in `error` stands for a bit of the two computed words that changes if only the current bit of the packet is
    // wrong. The lower 16 bits of `error` belong to the identification, and the upper 16 bits belong to the fragment
    // word.
    let mut error = multiply(ONE, retreat_by(bits as u32 / 8 - 4));
    for bit in (16..bits).rev() {
        assert_ne!(error >> 16, 0, "bit {bit}");
        error = multiply(error, ONE >> 1);
    }
    assert_eq!(error, 1 << 15, "the last bit of the identification");
}

#[test]
fn what_routers_change_is_not_covered_and_lengths_are_bounded() {
    let (mut random, mut solver, flow) = (Random(5), Solver::new(), flow(false));
    let mut packet = packet(&mut random, &flow, 0, 64);
    packet[4] ^= 0xff;
    assert!(solver.verify(&flow, &packet, IdRule::Exact(0), 0).is_ok());
    for len in [0, 3, 4, 15, 65_508, 70_000] {
        let bytes = vec![0; len];
        assert_eq!(solver.verify(&flow, &bytes, IdRule::Any, 0), Err(Mismatch::Length(len)));
    }
    assert_eq!(solver.verify(&flow, &[0; 16], IdRule::Below128, 0), Err(Mismatch::Icrc));
}

#[test]
fn renumbering_equals_computing_anew() {
    let flow = Flow::new("10.0.0.1:4791".parse().unwrap(), "10.0.0.2:4791".parse().unwrap()).unwrap();
    for len in [16usize, 44, 1040, 4112] {
        let header: Vec<u8> = (0..len - ICRC_LEN).map(|i| (i * 7) as u8).collect();
        let mut icrc = compute(&flow, 13, &header, std::iter::empty());
        renumber(&mut icrc, len, 13, 0);
        assert_eq!(icrc, compute(&flow, 0, &header, std::iter::empty()));
    }
}

#[test]
fn folded_bytes_count_as_the_bytes_themselves() {
    let flow = Flow::new("10.9.0.1:4791".parse().unwrap(), "10.9.0.2:4791".parse().unwrap()).unwrap();
    let payload: Vec<u8> = (0..128 + 37).map(|n| (n * 7) as u8).collect();
    let begin = || Icrc::begin(&flow, 0, 256, &[0x2a; Bth::LEN]);
    let mut plain = begin();
    plain.update(&payload);
    let mut folded = begin();
    // The closure returns the first 128 bytes of the payload with `register` XORed into the first four bytes. The CRC
    // of the returned bytes with the initial register value 0 equals the CRC of the original bytes with the initial
    // register value `register`.
    assert!(folded.update_folded(|register| {
        let mut block: [u8; 128] = *payload.first_chunk()?;
        block.iter_mut().zip(register.to_le_bytes()).for_each(|(byte, of_register)| *byte ^= of_register);
        Some(block)
    }));
    folded.update(&payload[128..]);
    let refused = folded.clone();
    assert!(!folded.update_folded(|_| None), "nothing was folded");
    let [plain, folded, refused] = [plain, folded, refused].map(Icrc::finish);
    assert_eq!((folded, refused), (plain, plain));
}
