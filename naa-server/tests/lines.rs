//! Tests of the limit on the number of log lines that one source network may cause (`verbs::log_limit`). The tests
//! compute the times that they pass to the limit, so no test has to wait.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use verbs::{log_limit::LogLimit, source_network::SourceNetwork};

fn peer(number: u32) -> SourceNetwork {
    IpAddr::from(Ipv4Addr::from_bits(number)).into()
}

#[test]
fn a_flood_of_one_peer_is_a_line_a_second_and_leaves_the_lines_of_others() {
    let (mut lines, start) = (LogLimit::default(), Instant::now());
    let (mut written, mut left_out) = (0, 0);
    for millisecond in 0..20_000 {
        let now = start + Duration::from_millis(millisecond);
        if let Some(before) = lines.take(peer(1), now) {
            (written, left_out) = (written + 1, left_out + before);
        }
        if millisecond == 10_000 {
            assert_eq!(lines.take(peer(2), now), Some(0));
        }
    }
    // The log limit permits eight lines of a source network without a pause, and then one line in each second.
    assert_eq!(written, 8 + 19);
    // A written line reports the number of lines that were left out before it. The lines that were left out after the
    // last written line are therefore not in `left_out`. There are at most 1000 such lines. The last written line was
    // written in the last second of the test, and the test causes 1000 lines in each second.
    assert!((18_900..=20_000 - written).contains(&left_out), "{left_out}");
}

#[test]
fn peers_that_are_too_many_to_be_told_apart_share_what_one_may_cause() {
    let (mut lines, now) = (LogLimit::default(), Instant::now());
    let count = |lines: &mut LogLimit, peers: std::ops::Range<u32>, now| {
        peers.filter(|&number| lines.take(peer(number), now).is_some()).count()
    };
    assert_eq!(count(&mut lines, 0..100_000, now), 1024 + 8);
    // The log limit counts the lines of 1024 source networks separately. A minute later, no line of these source
    // networks counts against the limit any more. The log limit then forgets them, and can count the lines of 1024 new
    // source networks separately.
    let later = now + Duration::from_secs(60);
    assert_eq!(count(&mut lines, 100_000..101_024, later), 1024);
}
