//! Tests of how the schedule divides the time of the pool threads among source networks.

use super::{
    tests::{CONFIG, MS, fill, peer},
    *,
};

/// Runs `calls` calls one after the other. Each call takes the time `time`. Returns the numbers of the source networks
/// of these calls in the order in which the calls ran. `of` returns the number of a call's source network from the
/// call's ID.
fn serve(schedule: &mut Schedule, calls: usize, time: Duration, of: impl Fn(u64) -> u32) -> Vec<u32> {
    let serve_one = || {
        let CallId(id) = schedule.next().unwrap();
        schedule.finished(peer(of(id)), time);
        of(id)
    };
    std::iter::repeat_with(serve_one).take(calls).collect()
}

#[test]
fn a_peer_alone_has_all_workers_and_a_newcomer_is_served_at_once() {
    let mut schedule = Schedule::new(CONFIG);
    fill(&mut schedule, peer(1), 0..6);
    let first: Vec<_> = std::iter::from_fn(|| schedule.next()).collect();
    assert_eq!(first, [CallId(0), CallId(1)]);
    // All pool threads compute for the first source network. The first call of the second source network therefore gets
    // an extra thread, and the second call of the second source network waits.
    fill(&mut schedule, peer(2), 10..12);
    assert_eq!((schedule.next(), schedule.next()), (Some(CallId(10)), None));
    // After a call of the first source network ends, each source network has one running call. There are two pool
    // threads and two running calls, so no pool thread is free. An extra thread is only for a source network without a
    // running call, so no other call starts.
    schedule.finished(peer(1), 100 * MS);
    assert_eq!(schedule.next(), None);
    // After the running call of the second source network ends, the waiting call of this source network gets a pool
    // thread.
    schedule.finished(peer(2), MS);
    assert_eq!(schedule.next(), Some(CallId(11)));
}

#[test]
fn peers_that_want_all_get_equal_time_whatever_their_calls_take() {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, queue: 1000, ..CONFIG });
    let (mut now, mut served, mut id) = (Duration::ZERO, [Duration::ZERO; 3], 0);
    let takes = [MS, 7 * MS, 40 * MS];
    while now < Duration::from_secs(60) {
        for number in 0..3 {
            while schedule.calls(peer(number)).waiting < 2 {
                assert_eq!(schedule.admit(peer(number), CallId(id * 3 + u64::from(number)), 0), Ok(None));
                id += 1;
            }
        }
        let CallId(next) = schedule.next().unwrap();
        let number = (next % 3) as usize;
        now += takes[number];
        served[number] += takes[number];
        schedule.finished(peer(number as u32), takes[number]);
    }
    for time in served {
        assert!(time.abs_diff(now / 3) <= 2 * takes[2], "{served:?}");
    }
}

#[test]
fn a_peer_that_stays_away_saves_up_no_time() {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, ..CONFIG });
    fill(&mut schedule, peer(1), 0..10);
    for _ in 0..4 {
        schedule.next().unwrap();
        schedule.finished(peer(1), 1000 * MS);
    }
    fill(&mut schedule, peer(2), 20..30);
    let order = serve(&mut schedule, 4, 1000 * MS, |id| if id < 20 { 1 } else { 2 });
    assert_eq!(order.iter().filter(|of| **of == 2).count(), 2, "{order:?}");
}

#[test]
fn a_peer_with_one_long_call_at_a_time_gets_no_more_than_its_share() {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, queue: 100, ..CONFIG });
    let (long, short) = (peer(1), peer(2));
    let (mut id, mut served) = (0, [Duration::ZERO; 2]);
    let mut admit = |schedule: &mut Schedule, of: SourceNetwork| {
        id += 2;
        assert_eq!(schedule.admit(of, CallId(id + u64::from(of == short)), 0), Ok(None));
    };
    // The source network `long` has one call at a time: it makes its next call when its previous call is finished.
    admit(&mut schedule, long);
    for _ in 0..4000 {
        // The source network `short` always has waiting calls.
        while schedule.calls(short).waiting < 2 {
            admit(&mut schedule, short);
        }
        if schedule.calls(long).waiting == 0 {
            admit(&mut schedule, long);
        }
        let CallId(next) = schedule.next().unwrap();
        let (of, time, at) = if next % 2 == 1 { (short, MS, 0) } else { (long, 1000 * MS, 1) };
        served[at] += time;
        schedule.finished(of, time);
    }
    assert!(served[0].abs_diff(served[1]) <= 1010 * MS, "{served:?}");
}

/// Simulates 20 s of one pool thread, and returns the time for which `honest` was served. There are `strangers` other
/// source networks, which make calls in turn and together always have `outstanding` unfinished calls. `honest` sends
/// its next call when its previous call is finished.
fn time_of(honest: SourceNetwork, strangers: u32, outstanding: usize) -> Duration {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, queue: 1000, ..CONFIG });
    let (mut id, mut next, mut time, mut present) = (0, 0, Duration::ZERO, 0);
    let mut of = BTreeMap::new();
    for _ in 0..20_000 {
        while present < outstanding {
            next = (next + 1) % strangers;
            id += 1;
            assert_eq!(schedule.admit(peer(100 + next), CallId(id), 0), Ok(None));
            of.insert(id, peer(100 + next));
            present += 1;
        }
        if schedule.calls(honest).waiting == 0 {
            id += 1;
            assert_eq!(schedule.admit(honest, CallId(id), 0), Ok(None));
            of.insert(id, honest);
        }
        let CallId(ran) = schedule.next().unwrap();
        let ran = of.remove(&ran).unwrap();
        if ran == honest {
            time += MS
        } else {
            present -= 1
        }
        schedule.finished(ran, MS);
    }
    time
}

#[test]
fn calls_from_ever_other_addresses_do_not_starve_a_peer() {
    for strangers in [4, 200, 258, 300, 5000] {
        let time = time_of(peer(1), strangers, 3);
        assert!(time > 20_000 * MS / 8, "{strangers} addresses: {time:?} of 20 s");
    }
}

#[test]
fn an_abandoned_call_gives_nobody_a_lead() {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, queue: 100, ..CONFIG });
    fill(&mut schedule, peer(1), 0..1);
    schedule.next().unwrap();
    schedule.gave_up(peer(1), MS);
    // Two source networks make calls for a minute.
    let both = [peer(2), peer(3)];
    for id in 0..60_000 {
        for (at, of) in both.into_iter().enumerate() {
            if schedule.calls(of).waiting == 0 {
                fill(&mut schedule, of, 10 + 2 * id + at as u64..11 + 2 * id + at as u64);
            }
        }
        let CallId(ran) = schedule.next().unwrap();
        schedule.finished(both[(ran % 2) as usize], MS);
    }
    // Now source network 1 makes calls, although it has an abandoned call. The new source network 4 makes calls, too.
    // Source networks 1 and 4 must share the pool thread with the two source networks that made calls for a minute.
    fill(&mut schedule, peer(1), 1_000_000..1_000_009);
    fill(&mut schedule, peer(4), 2_000_000..2_000_009);
    let mut turns = BTreeMap::<u64, u32>::new();
    for _ in 0..8 {
        for (at, of) in both.into_iter().enumerate() {
            if schedule.calls(of).waiting == 0 {
                let id = 3_000_000 + 2 * schedule.turns + at as u64;
                fill(&mut schedule, of, id..id + 1);
            }
        }
        let CallId(ran) = schedule.next().unwrap();
        let of = match ran / 1_000_000 {
            1 => peer(1),
            2 => peer(4),
            _ => both[(ran % 2) as usize],
        };
        *turns.entry(ran / 1_000_000).or_default() += 1;
        schedule.finished(of, MS);
    }
    assert!(turns[&1] <= 3 && turns[&2] <= 3, "{turns:?}");
}

#[test]
fn peers_that_were_served_alike_take_turns_whatever_their_addresses() {
    let mut schedule = Schedule::new(PoolConfig { pool_threads: 1, extra_threads: 0, queue: 100, ..CONFIG });
    for number in [3, 1, 2] {
        fill(&mut schedule, peer(number), u64::from(number) * 10..u64::from(number) * 10 + 3);
    }
    let order = serve(&mut schedule, 9, MS, |id| (id / 10) as u32);
    assert_eq!(order, [3, 1, 2, 3, 1, 2, 3, 1, 2]);
}

#[test]
fn differences_are_kept_while_others_have_calls_and_the_largest_of_so_many_peers() {
    let mut schedule = Schedule::new(PoolConfig { queue: 1000, per_peer: 1000, ..CONFIG });
    let present = peer(5000);
    fill(&mut schedule, present, 0..3);
    let running = schedule.next().unwrap();
    assert_eq!(running, CallId(0));
    let most = MOST_ABSENT as u32;
    for number in 1..=2 * most {
        fill(&mut schedule, peer(number), 10 + u64::from(number)..11 + u64::from(number));
        assert_eq!(schedule.next(), Some(CallId(10 + u64::from(number))));
        schedule.finished(peer(number), MS * number);
    }
    let Absent { peers, by_size } = &schedule.absent;
    assert!(peers.len() <= MOST_ABSENT && by_size.len() == peers.len());
    assert!(peers.contains_key(&peer(2 * most)), "the largest is kept");
    for _ in 0..3 {
        schedule.finished(present, MS);
        schedule.next();
    }
    assert!(schedule.absent.peers.is_empty(), "nobody is there to be owed anything");
}

#[test]
fn a_peer_with_one_call_at_a_time_gets_its_share_beside_long_calls_and_many_calls() {
    for (takes, least) in [(1000, 0.3), (60_000, 0.05)] {
        let config = PoolConfig { pool_threads: 1, extra_threads: 0, queue: 100, ..CONFIG };
        let mut schedule = Schedule::new(config);
        // The first source network always has one waiting call of 10 ms, and the second source network always has
        // two. The third source network always has one waiting call that takes long.
        let peers = [(peer(1), 1, 10 * MS), (peer(2), 2, 10 * MS), (peer(3), 1, takes * MS)];
        let (mut id, mut served) = (0, [Duration::ZERO; 3]);
        while served.iter().sum::<Duration>() < 1000 * takes * MS {
            for (at, (of, most, _)) in peers.into_iter().enumerate() {
                while schedule.calls(of).waiting < most {
                    id += 1;
                    assert_eq!(schedule.admit(of, CallId(id * 3 + at as u64), 0), Ok(None));
                }
            }
            let CallId(ran) = schedule.next().unwrap();
            let at = (ran % 3) as usize;
            served[at] += peers[at].2;
            schedule.finished(peers[at].0, peers[at].2);
        }
        let all = served.iter().sum::<Duration>().as_secs_f64();
        let [one, two, _] = served.map(|time| time.as_secs_f64() / all);
        assert!(one > least && (one / two - 1.0).abs() < 0.1, "{one} and {two} beside {takes} ms");
    }
}

#[test]
fn what_nobody_waits_for_is_owed_to_nobody() {
    let mut schedule = Schedule::new(PoolConfig { queue: 100, ..CONFIG });
    // The first source network computes for a long time, while the second one uses the other pool thread.
    fill(&mut schedule, peer(1), 0..1);
    schedule.next().unwrap();
    for id in 10..20 {
        fill(&mut schedule, peer(2), id..id + 1);
        schedule.next().unwrap();
        schedule.finished(peer(2), 1000 * MS);
    }
    // When other source networks come, the second source network shares the threads with them.
    for number in 3..6 {
        fill(&mut schedule, peer(number), u64::from(number) * 100..u64::from(number) * 100 + 2);
    }
    fill(&mut schedule, peer(2), 20..22);
    let order = serve(&mut schedule, 4, MS, |id| if id < 100 { 2 } else { (id / 100) as u32 });
    assert!(order.contains(&2), "{order:?}");
}
