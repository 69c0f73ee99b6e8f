//! Bytes that move: SEND, WRITE, READ, with and without immediate, inline, in several pieces, fenced.

use super::{
    super::{
        case::{Case, doing, ensure},
        environment::Environment,
    },
    pair::{Pair, both_directions, part, wr},
    wire::{AccessRequest, Done, Load, Op, Queue, Wr},
};

pub(super) const CASES: &[Case] = &[
    Case::bytes("seam: SEND with and without immediate", |s| both_directions(s, send)),
    Case::bytes("seam: WRITE, and WRITE with immediate", |s| both_directions(s, write)),
    Case::bytes("seam: READ", |s| both_directions(s, read)),
    Case::rest("seam: inline payloads are copied while posting", |s| both_directions(s, inline)),
    Case::rest("seam: payloads in several pieces", |s| both_directions(s, pieces)),
    Case::rest("seam: unsignaled requests complete in silence", |s| both_directions(s, unsignaled)),
    Case::rest("seam: a fenced SEND waits for the READ before it", |s| both_directions(s, fence)),
    Case::bytes("seam: 64 requests at once, in order", |s| both_directions(s, in_order)),
    Case::rest("seam: a receive posted late is waited for", late_receive),
];

const MOST: usize = 1 << 20;

fn sizes(pair: &Pair<'_>) -> [usize; 8] {
    let mtu = pair.path_mtu;
    [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 2, MOST]
}

fn received(done: &Done, opcode: &str, len: usize, imm: Option<u32>) -> Result<(), String> {
    ensure(done.opcode == opcode && done.len as usize == len && done.imm == imm, || {
        format!("received {done:?} instead of {opcode} of {len} bytes with {imm:?}")
    })
}

fn send(pair: &mut Pair<'_>) -> Result<(), String> {
    pair.active.region(MOST, AccessRequest::Local)?;
    pair.passive.region(MOST, AccessRequest::Local)?;
    for (id, len) in (1..).zip(sizes(pair)) {
        for (op, imm) in
            [(Op::Send, None), (Op::SendWithImm(0x8000_0000 | id as u32), Some(0x8000_0000 | id as u32))]
        {
            let what = format!("{op:?} of {len} bytes");
            pair.passive.receive(id, part(0, 0, MOST))?;
            pair.active.fill(part(0, 0, len), id as u32)?;
            pair.active.post(vec![wr(id, op, part(0, 0, len))])?;
            let done = doing(&what, pair.passive.completes(Queue::Receive, id, "Success"))?;
            received(&done, "Recv", len, imm)?;
            doing(&what, pair.active.completes(Queue::Send, id, "Success"))?;
            pair.passive.holds(&what, part(0, 0, len), id as u32)?;
        }
    }
    Ok(())
}

fn write(pair: &mut Pair<'_>) -> Result<(), String> {
    pair.active.region(MOST, AccessRequest::Local)?;
    let to = pair.passive.region(MOST + 16, AccessRequest::Write)?;
    pair.passive.region(8, AccessRequest::Local)?;
    for (id, len) in (1..).zip(sizes(pair)) {
        for imm in [None, Some(id as u32)] {
            let seed = 2 * id as u32 + imm.map_or(0, |_| 1);
            // The target is an odd address.
            let op = imm.map_or(Op::Write(to.at(3)), |imm| Op::WriteWithImm(to.at(3), imm));
            let what = format!("{op:?} of {len} bytes");
            if imm.is_some() {
                pair.passive.receive(id, part(1, 0, 8))?;
            }
            pair.active.fill(part(0, 0, len), seed)?;
            pair.active.post(vec![wr(id, op, part(0, 0, len))])?;
            let done = doing(&what, pair.active.completes(Queue::Send, id, "Success"))?;
            ensure(done.opcode == "Write", || format!("{what}: completed as {}", done.opcode))?;
            if imm.is_some() {
                let done = doing(&what, pair.passive.completes(Queue::Receive, id, "Success"))?;
                received(&done, "RecvWriteWithImm", len, imm)?;
            }
            pair.passive.holds(&what, part(0, 3, len), seed)?;
        }
    }
    Ok(())
}

fn read(pair: &mut Pair<'_>) -> Result<(), String> {
    pair.active.region(MOST, AccessRequest::Local)?;
    let from = pair.passive.region(MOST, AccessRequest::Read)?;
    for (id, len) in (1..).zip(sizes(pair)) {
        let what = format!("READ of {len} bytes");
        pair.passive.fill(part(0, 0, len), id as u32)?;
        pair.active.post(vec![wr(id, Op::Read(from), part(0, 0, len))])?;
        let done = doing(&what, pair.active.completes(Queue::Send, id, "Success"))?;
        ensure(done.opcode == "Read", || format!("{what}: completed as {}", done.opcode))?;
        pair.active.holds(&what, part(0, 0, len), id as u32)?;
    }
    Ok(())
}

fn inline(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(4096, AccessRequest::All)?;
    let most = pair.inline.min(256);
    ensure(most >= 16, || format!("only {most} bytes inline"))?;
    for (id, len) in (1..).zip([0, 1, 16, most]) {
        let bytes = super::super::calls::pattern(id as u32, len);
        pair.active.post(vec![Wr::inline(id, Op::Write(to), &bytes)])?;
        doing("WRITE", pair.active.completes(Queue::Send, id, "Success"))?;
        pair.passive.holds("WRITE", part(0, 0, len), id as u32)?;
        pair.passive.receive(id, part(0, 1000, 1000))?;
        pair.active.post(vec![Wr::inline(id, Op::SendWithImm(7), &bytes)])?;
        doing("SEND", pair.active.completes(Queue::Send, id, "Success"))?;
        let done = doing("SEND", pair.passive.completes(Queue::Receive, id, "Success"))?;
        received(&done, "Recv", len, Some(7))?;
        pair.passive.holds("SEND", part(0, 1000, len), id as u32)?;
    }
    let too_much = vec![0; pair.inline + 1];
    let refused = pair.active.post(vec![Wr::inline(9, Op::Write(to), &too_much)]);
    ensure(refused.is_err(), || format!("{} bytes inline were taken", pair.inline + 1))
}

fn pieces(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(20_000, AccessRequest::All)?;
    pair.active.region(30_000, AccessRequest::Local)?;
    let (a, b, c) = (part(0, 20_000, 1), part(0, 5, 9000), part(0, 10_000, 4097));
    pair.active.fill(part(0, 0, 30_000), 6)?;
    pair.active.post(vec![Wr::new(1, Op::Write(to), &[a, b, part(0, 0, 0), c])])?;
    pair.active.completes(Queue::Send, 1, "Success")?;
    // Back in three pieces to where it came from, which was overwritten meanwhile.
    pair.active.fill(part(0, 0, 30_000), 7)?;
    pair.active.post(vec![Wr::new(2, Op::Read(to), &[a, b, c])])?;
    pair.active.completes(Queue::Send, 2, "Success")?;
    // Both patterns are streams: a check of each piece is one of the whole as it was.
    let whole = super::super::calls::pattern(6, 30_000);
    pair.active.post(vec![wr(3, Op::Write(to), part(0, 5, 9000))])?;
    pair.active.completes(Queue::Send, 3, "Success")?;
    pair.passive.region(9000, AccessRequest::Local)?;
    pair.passive.receive(4, part(1, 0, 9000))?;
    let inline = whole[5..21].to_vec();
    let send = Wr { load: Load::Parts(vec![part(0, 5, 16)]), ..Wr::inline(4, Op::Send, &inline) };
    pair.active.post(vec![send])?;
    let done = pair.passive.completes(Queue::Receive, 4, "Success")?;
    received(&done, "Recv", 16, None)?;
    pair.active.completes(Queue::Send, 4, "Success").map(drop)
}

fn unsignaled(pair: &mut Pair<'_>) -> Result<(), String> {
    let to = pair.passive.region(100_000, AccessRequest::All)?;
    pair.active.region(100_000, AccessRequest::Local)?;
    pair.active.fill(part(0, 0, 100_000), 3)?;
    for round in 0..3 {
        let mut wrs: Vec<_> = (0..10)
            .map(|i| wr(i, Op::Write(to.at(1000 * i)), part(0, 1000 * i as usize, 1000)).unsignaled())
            .collect();
        wrs.push(wr(99 + round, Op::Write(to.at(10_000)), part(0, 10_000, 90_000)));
        pair.active.post(wrs)?;
        pair.active.completes(Queue::Send, 99 + round, "Success")?;
        pair.passive.holds("what was written", part(0, 0, 100_000), 3)?;
    }
    let more = pair.active.next(Queue::Send, 100)?;
    ensure(more.is_none(), || format!("{more:?} completed too"))
}

fn fence(pair: &mut Pair<'_>) -> Result<(), String> {
    let from = pair.passive.region(200_000, AccessRequest::All)?;
    pair.passive.region(200_000, AccessRequest::Local)?;
    pair.active.region(200_000, AccessRequest::Local)?;
    pair.passive.fill(part(0, 0, 200_000), 4)?;
    pair.passive.receive(5, part(1, 0, 200_000))?;
    let there = wr(1, Op::Read(from), part(0, 0, 200_000));
    let back = wr(2, Op::Send, part(0, 0, 200_000)).fenced();
    pair.active.post(vec![there, back])?;
    pair.active.completes(Queue::Send, 1, "Success")?;
    pair.active.completes(Queue::Send, 2, "Success")?;
    pair.passive.completes(Queue::Receive, 5, "Success")?;
    pair.passive.holds("what was read and sent back", part(1, 0, 200_000), 4)
}

fn in_order(pair: &mut Pair<'_>) -> Result<(), String> {
    const EACH: usize = 5000;
    let to = pair.passive.region(64 * EACH, AccessRequest::All)?;
    pair.active.region(64 * EACH, AccessRequest::Local)?;
    pair.active.fill(part(0, 0, 64 * EACH), 8)?;
    let at = |i: u64| part(0, i as usize * EACH, EACH);
    pair.active.post((0..64).map(|i| wr(i, Op::Write(to.at(i * EACH as u64)), at(i))).collect())?;
    for id in 0..64 {
        pair.active.completes(Queue::Send, id, "Success")?;
    }
    pair.passive.holds("what was written", part(0, 0, 64 * EACH), 8)
}

fn late_receive(env: &mut Environment) -> Result<String, String> {
    both_directions(env, |pair| {
        pair.active.region(9000, AccessRequest::Local)?;
        pair.passive.region(9000, AccessRequest::Local)?;
        pair.active.fill(part(0, 0, 9000), 2)?;
        pair.active
            .post(vec![wr(1, Op::Send, part(0, 0, 9000)), wr(2, Op::SendWithImm(5), part(0, 0, 10))])?;
        let early = pair.active.next(Queue::Send, 50)?;
        ensure(early.is_none(), || format!("{early:?} without a receive"))?;
        pair.passive.receive(1, part(0, 0, 9000))?;
        pair.active.completes(Queue::Send, 1, "Success")?;
        pair.passive.completes(Queue::Receive, 1, "Success")?;
        pair.passive.holds("what was sent", part(0, 0, 9000), 2)?;
        pair.passive.receive(2, part(0, 0, 9000))?;
        let done = pair.passive.completes(Queue::Receive, 2, "Success")?;
        received(&done, "Recv", 10, Some(5))?;
        pair.active.completes(Queue::Send, 2, "Success").map(drop)
    })
}
