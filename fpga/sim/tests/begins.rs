//! `lb_begins` against a sorted list: trees with few begins and with all of them, and keys near each of them.

mod common;

use std::collections::VecDeque;

use common::{bench, random_run};
use naa_fpga::{Bench, Writer};
use simnet::Random;

const PLACES: usize = 4096;
/// The number of cycles between a key and its count.
const LATENCY: usize = 25;

/// A load balancer and a tick.
type Begin = (u8, u64);

/// The value of unused places.
const UNUSED: Begin = (7, u64::MAX);

fn random_begins(random: &mut Random) -> Vec<Begin> {
    let count = match random.below(3) {
        0 => PLACES - 1,
        1 => random.below(40) as usize,
        _ => random.below(PLACES as u64) as usize,
    };
    let mut tick = random.next_u64();
    let begin = |_| {
        // Often the next begin differs from the one before in one bit.
        tick = if random.below(4) == 0 { random.next_u64() } else { tick ^ 1 << random.below(64) };
        (random.below(8) as u8, tick)
    };
    let mut begins: Vec<_> = (0..count).map(begin).collect();
    begins.resize(PLACES - 1, UNUSED);
    begins.sort_unstable();
    begins
}

/// Calls `each` with the places of the search tree, in the order of the values that belong there.
fn in_order(place: usize, each: &mut impl FnMut(usize)) {
    if place < PLACES {
        in_order(2 * place, each);
        each(place);
        in_order(2 * place + 1, each);
    }
}

fn give(bench: &mut Bench, name: &str, (lb, tick): Begin) {
    let port = bench.model.port(name);
    Writer::default().field(tick.into(), 64).field(lb.into(), 3).give(&mut bench.model, port);
}

/// Writes the tree of an image.
fn write(bench: &mut Bench, image: usize, begins: &[Begin]) {
    let mut begins = begins.iter();
    let [write, write_image, write_place] =
        ["write", "write_image", "write_place"].map(|name| bench.model.port(name));
    bench.model.set(write, 1);
    bench.model.set(write_image, image as u64);
    in_order(1, &mut |place| {
        bench.model.set(write_place, place as u64);
        give(bench, "write_begin", *begins.next().unwrap());
        bench.cycle(&mut []);
    });
    // What is at the other inputs means nothing now.
    bench.model.set(write, 0);
    give(bench, "write_begin", (0, 0));
}

#[test]
fn as_many_begins_are_counted_as_are_at_or_before_a_tick() {
    let Some(mut bench) = bench("lb_begins") else { return };
    let (count, _, mut random) = random_run(0);
    let [image_port, count_port] = ["image", "count"].map(|name| bench.model.port(name));
    let mut images = [const { Vec::new() }; 2];
    for (image, begins) in images.iter_mut().enumerate() {
        *begins = random_begins(&mut random);
        write(&mut bench, image, begins);
    }
    let mut expected = VecDeque::from([None; LATENCY - 1]);
    for round in 0..count {
        if round % 5000 == 4999 {
            let image = random.below(2) as usize;
            images[image] = random_begins(&mut random);
            (0..LATENCY).for_each(|_| bench.cycle(&mut []));
            expected = [None; LATENCY - 1].into();
            write(&mut bench, image, &images[image]);
        }
        let image = random.below(2) as usize;
        let (lb, tick) = random.pick(&images[image]);
        let bit = 1 << random.below(64);
        let ticks = [tick, tick.wrapping_add(1), tick.wrapping_sub(1), tick ^ bit, random.next_u64()];
        let key =
            if random.below(8) == 0 { (random.below(8) as u8, tick) } else { (lb, random.pick(&ticks)) };
        bench.model.set(image_port, image as u64);
        give(&mut bench, "key", key);
        bench.cycle(&mut []);
        expected.push_back(Some((key, images[image].partition_point(|begin| *begin <= key))));
        if let Some((key, count)) = expected.pop_front().unwrap() {
            assert_eq!(bench.model.get(count_port), count as u64, "{key:x?}");
        }
    }
}
