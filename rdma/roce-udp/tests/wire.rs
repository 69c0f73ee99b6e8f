//! Packets on the wire, in network namespaces of their own: the IPv4 identifications that the ICRC covers, and full send
//! buffers. The tests need root, `ip` and `tc`; a test that has not what it needs prints a message and passes.
#![allow(unsafe_code)]

mod side;

use std::{
    fs::{self, File},
    io::{self, Read},
    net::SocketAddr,
    os::fd::FromRawFd,
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use naa_udp::{Port, PortConfig, RecvBatch, Rest, SendBatch, local_mtu, wait};
use roce_udp::{EmbeddedConfig, ROCE_PORT};
use side::{Side, address, connect, counter, device, pattern, remote, set_device_option};
use verbs::{CmEvent, ConnParam, Payload, SendOp, WaitMode, WcStatus};

/// The lengths in bytes of the seven datagrams that the test sends. The Linux kernel gets the datagrams as a
/// super-packet of four datagrams, a super-packet of two, and a single datagram.
const LENS: [usize; 7] = [4112, 4112, 4112, 100, 4128, 4112, 4112];
const IDS: [u16; 7] = [0, 1, 2, 3, 0, 1, 0];

#[test]
fn segments_are_numbered_from_zero() {
    let (to_main, from_receiver) = mpsc::channel();
    let (to_receiver, from_main) = mpsc::channel();
    let receiver = thread::spawn(move || {
        to_main.send(new_namespace()).expect("the main thread");
        if from_main.recv().is_err() {
            return Vec::new();
        }
        receive(|| to_main.send(Ok(0)).expect("the main thread"))
    });
    // Each of the two threads has its own network namespace, which ends when the thread ends.
    let sender = thread::spawn(move || {
        let there = from_receiver.recv().expect("the receiver");
        let ready = there.and_then(|thread| new_namespace().map(|_| thread)).and_then(veth_pair);
        if let Err(error) = ready {
            println!("skipped: no network namespaces with a veth pair ({error})");
            return false;
        }
        to_receiver.send(()).expect("the receiver");
        from_receiver.recv().expect("a bound receiver").expect("an id");
        send();
        true
    });
    if sender.join().expect("the sender") {
        let headers = receiver.join().expect("the receiver");
        assert_eq!(headers, IDS.map(|id| (id, 0x4000)), "(identification, flags and fragment offset)");
    }
}

#[test]
fn a_full_send_buffer_keeps_the_rest() {
    in_network(silent_network, send_to_nobody);
}

/// Calls `run` in a thread with a new network namespace, in which `make` has made a network. If the network namespace
/// or the network cannot be made, prints a message and does not call `run`.
fn in_network(make: fn() -> io::Result<()>, run: fn()) {
    thread::spawn(move || match new_namespace().and_then(|_| make()) {
        Ok(()) => run(),
        Err(error) => println!("skipped: no network namespace for the test ({error})"),
    })
    .join()
    .expect("the sender");
}

/// Makes a network in which no machine answers ARP requests: datagrams stay in the send buffer until the ARP requests
/// have failed.
fn silent_network() -> io::Result<()> {
    ip("link add v0 type veth peer name v1")?;
    for (name, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "20")] {
        fs::write(format!("/proc/sys/net/ipv4/neigh/v0/{name}"), value)?;
    }
    ip("addr add 10.77.0.1/24 dev v0")?;
    ip("link set v0 up")?;
    ip("link set v1 up")
}

fn send_to_nobody() {
    let port = Port::bind(SocketAddr::new([10, 77, 0, 1].into(), 0), &PortConfig::default()).expect("a port");
    side::set_option(&port, (libc::SOL_SOCKET, libc::SO_SNDBUF), 4608);
    let mut batch = SendBatch::new(20, 1 << 16, false);
    for _ in 0..20 {
        let segment = batch.segment(SocketAddr::new([10, 77, 0, 9].into(), ROCE_PORT), 1000).expect("room");
        segment.finish(&[7; 1000]);
    }
    let (mut sent, mut blocked) = (0, 0);
    while !batch.is_empty() {
        let outcome = batch.flush(&port).expect("a usable socket");
        assert_eq!(outcome.rest == Rest::Empty, batch.is_empty(), "{outcome:?}");
        sent += outcome.sent + outcome.dropped;
        if outcome.rest == Rest::Blocked {
            blocked += 1;
            let ready = wait(&[&port], None, true, Some(Duration::from_secs(5))).expect("a wait");
            assert!(ready.writable, "{sent} of 20 went");
        }
    }
    assert_eq!(sent, 20);
    assert!(blocked > 0, "the buffer was never full");
}

/// Puts the calling thread into a network namespace of its own. Returns the thread's id.
fn new_namespace() -> io::Result<libc::pid_t> {
    // SAFETY: the call takes no pointers.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        // SAFETY: the call takes no pointers.
        0 => Ok(unsafe { libc::gettid() }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    command("ip", arguments)
}

fn command(program: &str, arguments: &str) -> io::Result<()> {
    let output = Command::new(program).args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {arguments}: {}", said.trim())))
}

/// Makes a veth pair between this network namespace and the network namespace of `thread`. A veth pair can carry a
/// whole super-packet, but the test must see the datagrams one by one. The option `gso_max_segs 1` therefore makes the
/// Linux kernel split each super-packet before it enters the veth pair.
fn veth_pair(thread: libc::pid_t) -> io::Result<()> {
    ip(&format!("link add v0 mtu 9000 type veth peer name v1 mtu 9000 netns {thread}"))?;
    ip("link set v0 gso_max_segs 1")?;
    ip("addr add 10.77.0.1/24 dev v0")?;
    ip("link set v0 up")
}

fn send() {
    let from = SocketAddr::new([10, 77, 0, 1].into(), ROCE_PORT);
    let port = Port::bind(from, &PortConfig::default()).expect("a port");
    assert_eq!(local_mtu(from.ip()).expect("an interface"), 9000);
    let mut batch = SendBatch::new(LENS.len(), 1 << 16, port.gso());
    let ids = LENS.map(|len| {
        let segment = batch.segment(SocketAddr::new([10, 77, 0, 2].into(), ROCE_PORT), len).expect("room");
        let id = segment.ip_id();
        segment.finish(&vec![len as u8; len]);
        id
    });
    assert_eq!(ids, IDS);
    let outcome = batch.flush(&port).expect("a usable socket");
    assert_eq!((outcome.sent, outcome.rest), (LENS.len(), Rest::Empty), "{outcome:?}");
}

/// Returns two 16-bit fields of the IPv4 header of each UDP packet that arrived on the wire: the identification, and
/// the flags with the fragment offset. The function also binds a [`Port`], calls `bound`, and checks that the port
/// receives datagrams with the lengths in `LENS`.
fn receive(bound: impl FnOnce()) -> Vec<(u16, u16)> {
    ip("addr add 10.77.0.2/24 dev v1").expect("an address");
    ip("link set v1 up").expect("a link");
    let mut wire = packet_socket();
    let local = SocketAddr::new([10, 77, 0, 2].into(), ROCE_PORT);
    let port = Port::bind(local, &PortConfig::default()).expect("a port");
    bound();
    let (mut batch, mut lens) = (RecvBatch::new(8), Vec::new());
    while lens.len() < LENS.len() {
        let ready = wait(&[&port], None, false, Some(Duration::from_secs(5))).expect("a wait");
        assert!(ready.readable, "only {lens:?} came");
        port.recv(&mut batch).expect("a usable socket");
        lens.extend(batch.messages().flat_map(|message| message.segments()).map(|(_, bytes)| bytes.len()));
    }
    assert_eq!(lens, LENS);
    let mut headers = Vec::new();
    let mut frame = [0; 16 << 10];
    while let Ok(len) = wire.read(&mut frame) {
        // A frame has the Ethernet type of IPv4 in the bytes 12 and 13, and the IP protocol number of UDP in byte 23.
        if len > 34 && frame[12..14] == [8, 0] && frame[23] == 17 {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            headers.push((word(18), word(20)));
        }
    }
    headers
}

/// Opens a non-blocking packet socket that receives all frames of the network namespace.
fn packet_socket() -> File {
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, all) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the file descriptor is new, and nothing else owns it.
    unsafe { File::from_raw_fd(fd) }
}

#[test]
fn a_device_outlives_a_full_send_buffer() {
    in_network(silent_network, connect_to_nobody);
}

/// Makes more connection requests than the socket's send buffer has room for. Tests that the device waits for room, and
/// reports each peer as unreachable.
fn connect_to_nobody() {
    const CONNECTIONS: usize = 40;
    let local = [10, 77, 0, 1].into();
    let sides: Vec<_> = {
        let device = device(local, &EmbeddedConfig::default());
        (0..CONNECTIONS).map(|_| Side::on(device.clone())).collect()
    };
    set_device_option(local, (libc::SOL_SOCKET, libc::SO_SNDBUF), 4608);
    let remote = SocketAddr::new([10, 77, 0, 9].into(), 1);
    let param = ConnParam { connect_timeout: Some(Duration::from_secs(1)), ..ConnParam::default() };
    let start = Instant::now();
    for side in &sides {
        side.channel.connect(&side.qp, remote, &param).expect("a request");
    }
    for side in &sides {
        let event = side.event();
        assert!(matches!(event, CmEvent::Unreachable { .. }), "{event:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let turns = counter(&sides[0].context, "turns");
    assert!(turns < 20_000, "{turns} turns: the device does not sleep");
}

#[test]
fn a_run_goes_on_where_a_full_send_buffer_stopped_it() {
    in_network(slow_network, write_through_a_small_send_buffer);
}

/// Makes a loopback interface on which packets wait for their turn. A packet that waits counts as a part of its
/// sender's send buffer.
fn slow_network() -> io::Result<()> {
    ip("link set lo up")?;
    command("tc", "qdisc add dev lo root tbf rate 2gbit burst 128kb limit 16mb")
}

/// Writes much more than the send buffer and the send batch of a device have room for, and checks that the packets
/// nevertheless leave once each and in order: most of them are in runs, so runs are stopped and go on.
fn write_through_a_small_send_buffer() {
    const LEN: usize = 8 << 20;
    // With this path MTU the window has room for more packets than the send batch, so that the send batch gets full in
    // the middle of a run.
    let small = EmbeddedConfig { max_path_mtu: Some(512), ..EmbeddedConfig::default() };
    let (a, b) = (Side::on(device(address(), &small)), Side::on(device(address(), &small)));
    connect(&a, &b);
    set_device_option(a.context.attr().address, (libc::SOL_SOCKET, libc::SO_SNDBUF), 4608);
    let (source, target) = (a.region(LEN), b.region(LEN));
    let data = pattern(LEN, 3);
    source.memory().write(0, &data);
    let refused = refused_for_want_of_room();
    a.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, LEN as u32)]));
    assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
    assert!(target.memory().to_vec(0, LEN) == data);
    let refused = refused_for_want_of_room() - refused;
    assert!(refused > 20, "the send buffer was full {refused} times");
    assert_eq!(counter(&a.context, "send_errors"), 0);
    assert_eq!(counter(&b.context, "out_of_seq_request"), 0, "{:?}", b.context.driver().counters());
}

/// Returns how many times a send buffer of this network namespace was full when a datagram was to be sent
/// (`SndbufErrors` of `/proc/net/snmp`).
fn refused_for_want_of_room() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == "SndbufErrors").expect("the counter");
    values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number")
}
