//! Tests the sockets that only receive and those that only send: datagrams arrive whole, and what was refused or dropped
//! is told.
#![allow(unsafe_code)]

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    time::{Duration, Instant},
};

use naa_udp::{ConnectedSocket, Error, MAX_MESSAGES, ReceiveSocket, RecvHeaders};

const BUFFER: usize = 1 << 16;

fn receiver(at: &str, buffer: Option<usize>) -> ReceiveSocket {
    ReceiveSocket::bind(at.parse().expect("an address"), buffer).expect("a loopback port")
}

fn sender(to: &ReceiveSocket) -> ConnectedSocket {
    ConnectedSocket::connect(to.local_addr(), None).expect("a socket")
}

/// Receives until `count` datagrams have arrived. Returns the messages, each with its sender and its datagrams.
fn receive(socket: &ReceiveSocket, count: usize) -> Vec<(SocketAddr, Vec<Vec<u8>>)> {
    let mut headers = RecvHeaders::new(4);
    let mut memory = vec![0; 4 * BUFFER];
    let (mut all, mut datagrams) = (Vec::new(), 0);
    let begin = Instant::now();
    while datagrams < count {
        assert!(begin.elapsed() < Duration::from_secs(5), "{datagrams} of {count} datagrams came");
        let mut buffers: Vec<_> = memory.chunks_mut(BUFFER).map(IoSliceMut::new).collect();
        let messages = socket.recv(&mut headers, &mut buffers).expect("a usable socket");
        assert!(headers.message(messages).is_none(), "a message that was not received");
        for (at, buffer) in buffers.iter().enumerate().take(messages) {
            let message = headers.message(at).expect("a whole message");
            let bytes: Vec<_> =
                buffer[..message.len].chunks(message.segment_len).map(<[u8]>::to_vec).collect();
            datagrams += bytes.len();
            all.push((message.from, bytes));
        }
    }
    all
}

#[test]
fn a_super_packet_arrives_as_its_datagrams() {
    for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
        let to = receiver(at, None);
        let mut remote = to.local_addr();
        if remote.ip().is_unspecified() {
            remote.set_ip([127, 0, 0, 1].into());
        }
        let from = ConnectedSocket::connect(remote, Some(1 << 20)).expect("a socket");
        let bytes: Vec<u8> = (0..60_500u32).map(|at| (at / 7) as u8).collect();
        assert_eq!(from.max_segments(), 64);
        from.send(&bytes, 1000).expect("sent");
        from.send(&bytes[..1000], 1000).expect("sent");
        let got = receive(&to, 62);
        let local = from.socket().local_addr().expect("an address");
        assert!(got.iter().all(|(from, _)| *from == local), "{local}");
        let datagrams: Vec<_> = got.into_iter().flat_map(|(_, datagrams)| datagrams).collect();
        assert!(datagrams[..61].iter().eq(bytes.chunks(1000)), "{at}: the bytes of the super-packet");
        assert!(datagrams[61] == bytes[..1000], "{at}");
    }
}

#[test]
fn messages_lie_in_the_buffers_in_their_order() {
    let to = receiver("127.0.0.1:0", None);
    let from = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for number in 0..6u8 {
        from.send_to(&vec![number; 10 * usize::from(number)], to.local_addr()).expect("sent");
    }
    let mut headers = RecvHeaders::new(MAX_MESSAGES);
    let mut memory = vec![0; 4 * BUFFER];
    for first in [0, 4] {
        let mut buffers: Vec<_> = memory.chunks_mut(BUFFER).map(IoSliceMut::new).collect();
        let got = to.recv(&mut headers, &mut buffers).expect("a usable socket");
        assert_eq!(got, if first == 0 { 4 } else { 2 }, "a message for each buffer");
        for (at, buffer) in buffers.iter().enumerate().take(got) {
            let (message, number) = (headers.message(at).expect("a message"), first + at);
            assert_eq!((message.len, message.segment_len), (10 * number, (10 * number).max(1)));
            assert!(buffer[..message.len].iter().all(|byte| usize::from(*byte) == number));
        }
    }
    assert_eq!(to.recv(&mut headers, &mut []).expect("no buffer is no error"), 0);
    let mut buffers = [IoSliceMut::new(&mut memory)];
    assert_eq!(to.recv(&mut headers, &mut buffers).expect("nothing is no error"), 0);
}

#[test]
fn a_datagram_longer_than_its_buffer_is_no_message() {
    let to = receiver("127.0.0.1:0", None);
    let from = sender(&to);
    from.send(&[1; 100], 100).expect("sent");
    let (mut headers, mut short) = (RecvHeaders::new(1), [0; 50]);
    assert_eq!(to.recv(&mut headers, &mut [IoSliceMut::new(&mut short)]).expect("a usable socket"), 1);
    assert!(headers.message(0).is_none());
}

#[test]
fn drops_and_the_fill_level_are_told() {
    let to = receiver("127.0.0.1:0", Some(20_000));
    assert_eq!(to.recv_buffer().expect("a size"), 40_000);
    let other = to.try_clone().expect("a file descriptor");
    assert_eq!((to.drops().expect("a counter"), other.fill(0).expect("a level")), (0, 0.0));
    assert!((other.fill(20_000).expect("a level") - 0.5).abs() < 1e-9);
    let from = sender(&to);
    (0..30).for_each(|_| from.send(&[5; 4096], 4096).expect("sent"));
    assert!(other.fill(0).expect("a level") > 0.5);
    let dropped = to.drops().expect("a counter");
    let kept = receive(&to, 30 - dropped as usize).len();
    assert!((1..30).contains(&dropped), "{dropped} dropped, {kept} kept");
}

#[test]
fn a_refusal_is_told_once_and_the_socket_goes_on() {
    let to = receiver("127.0.0.1:0", None);
    let from = sender(&to);
    let at = to.local_addr();
    drop(to);
    from.send(&[1; 10], 10).expect("the first is sent");
    let refused = from.send(&[2; 10], 10).expect_err("the first was refused");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let to = ReceiveSocket::bind(at, None).expect("the port is free");
    from.send(&[3; 10], 10).expect("sent");
    assert_eq!(receive(&to, 1)[0].1, [vec![3; 10]]);
}

#[test]
fn an_interface_that_cannot_split_super_packets_gets_no_more() {
    let to = receiver("127.0.0.1:0", None);
    let from = sender(&to);
    // The Linux kernel refuses to split the super-packets of a socket that sends no UDP checksums.
    let no_checksums: libc::c_int = 1;
    // SAFETY: the option is an integer of 4 bytes, and the last argument is this length.
    let set = unsafe {
        let fd = from.socket().as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const no_checksums).cast(), 4)
    };
    assert_eq!(set, 0);
    let error = from.send(&[1; 3000], 1000).expect_err("a super-packet");
    assert!(matches!(error.raw_os_error(), Some(5 | 22)), "{error}");
    assert_eq!(from.max_segments(), 1);
    from.send(&[1; 1000], 1000).expect("a single datagram");
    assert_eq!(receive(&to, 1).len(), 1);
}

#[test]
fn errors_name_the_address_and_the_cause() {
    let held = receiver("127.0.0.1:0", None);
    let error = ReceiveSocket::bind(held.local_addr(), None).expect_err("the port is taken");
    assert!(matches!(error, Error::AddressInUse { addr } if addr == held.local_addr()), "{error}");
    let expected = format!("{} is held by process {} (", held.local_addr(), std::process::id());
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error = ReceiveSocket::bind("203.0.113.7:0".parse().expect("an address"), None).expect_err("foreign");
    assert!(matches!(error, Error::NotLocal(_)), "{error}");
    let error = ConnectedSocket::connect("255.255.255.255:9".parse().expect("an address"), None);
    let error = error.expect_err("a broadcast address").to_string();
    assert!(error.starts_with("cannot reach 255.255.255.255:9: "), "{error}");
}
