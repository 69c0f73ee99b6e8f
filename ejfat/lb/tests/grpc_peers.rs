//! Peers that do not speak gRPC, or stop doing so.

mod grpc_common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use ejfat_lb::{
    When,
    grpc::{Client, GrpcServer},
};
use grpc_common::{channel, rules_to, runtime, start};
use proto::{lb::v1, sn_p4::v2};
use tonic::transport::Endpoint;

fn serves(address: SocketAddr) {
    Client::connect(&address.to_string(), None).unwrap().load(&rules_to(1), When::Now).unwrap();
}

/// How long until the server ends a connection that says no more than this.
fn time_limit(address: SocketAddr, says: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let start = Instant::now();
    stream.write_all(says).unwrap();
    let mut answer = Vec::new();
    // It may end with a reset.
    let _ = stream.read_to_end(&mut answer);
    start.elapsed()
}

#[test]
fn junk_ends_its_own_connection_only() {
    let (_, server) = start(None);
    let address = server.address();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0].as_slice();
    // A data frame for a stream that is none, and one that claims 16 MiB.
    let stray = [0, 0, 1, 0, 0, 0, 0, 0, 9, 1].as_slice();
    let huge = [0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1].as_slice();
    let says = [
        b"GET / HTTP/1.1\r\n\r\nmore than a greeting".to_vec(),
        vec![0xff; 100_000],
        [preface, &[0xff; 100]].concat(),
        [preface, settings, stray].concat(),
        [preface, settings, huge].concat(),
    ];
    for says in says {
        let took = time_limit(address, &says);
        assert!(took < Duration::from_secs(4), "{took:?}");
        serves(address);
    }
}

#[test]
fn the_silent_lose_their_seats() {
    let (_, server) = start(None);
    let address = server.address();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let took = time_limit(address, b"PRI * HTTP/2.0\r\n");
    assert!((4..30).contains(&took.as_secs()), "{took:?}");
    serves(address);
    drop(silent);
}

#[test]
fn those_without_a_token_lose_their_seats() {
    let (_, server) = start(Some("secret"));
    let address = server.address();
    let idle = idle([127, 0, 0, 1], address, 40, GREETING);
    let took = time_limit(address, GREETING);
    assert!((4..30).contains(&took.as_secs()), "{took:?}");
    let mut client = Client::connect(&address.to_string(), Some("secret")).unwrap();
    client.load(&rules_to(1), When::Now).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(client.get(None, false).unwrap().len(), 1, "who was let in keeps its seat");
    drop(idle);
}

/// Connections from an address, which say what they are told and no more.
fn idle(from: [u8; 4], to: SocketAddr, number: usize, says: &[u8]) -> Vec<TcpStream> {
    let connect = || async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await?.into_std()
    };
    let connect = || {
        let mut stream = runtime().block_on(connect()).expect("the listener's queue has room");
        // It may have been ended for a later one.
        let _ = stream.write_all(says);
        stream
    };
    (0..number).map(|_| connect()).collect()
}

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Three clients in turn. `PATIENCE` is 5 seconds, which nobody has to wait for.
fn three_get_in(server: &GrpcServer) {
    let begin = Instant::now();
    for _ in 0..3 {
        let mut client = Client::connect(&server.address().to_string(), Some("secret")).unwrap();
        client.load(&rules_to(1), When::Now).unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn idle_connections_of_another_source_keep_nobody_out() {
    let (_, server) = start(Some("secret"));
    let idle = idle([127, 0, 0, 9], server.address(), 200, GREETING);
    three_get_in(&server);
    drop(idle);
}

#[test]
fn idle_connections_of_the_same_source_keep_nobody_out() {
    let (_, server) = start(Some("secret"));
    let idle = idle([127, 0, 0, 1], server.address(), 200, b"");
    three_get_in(&server);
    drop(idle);
}

#[test]
fn who_is_seated_stays_while_others_come() {
    let (_, server) = start(Some("secret"));
    let mut client = Client::connect(&server.address().to_string(), Some("secret")).unwrap();
    client.load(&rules_to(1), When::Now).unwrap();
    let mut idles = idle([127, 0, 0, 9], server.address(), 100, GREETING);
    // These connections come from the client's own address: connections that show no token are ended first.
    idles.extend(idle([127, 0, 0, 1], server.address(), 100, GREETING));
    std::thread::sleep(Duration::from_millis(200));
    let mut seated = 0;
    for stream in &mut idles {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut byte = [0; 1024];
        // The server greets, and ends those that lost their seats.
        while matches!(stream.read(&mut byte), Ok(1..)) {}
        let waits = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        seated += usize::from(stream.read(&mut byte).is_err_and(|error| waits(&error)));
    }
    assert_eq!(seated, 31, "all other seats are taken");
    assert_eq!(client.get(None, false).unwrap().len(), 1, "it did not have to connect again");
}

#[test]
fn requests_that_never_end_keep_only_their_own_source_out() {
    let (_, server) = start(None);
    let runtime = runtime();
    let stalled = |from: [u8; 4]| {
        let batch = async {
            let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
            let endpoint = endpoint.local_address(Some(from.into()));
            let mut client = v2::smartnic_p4_client::SmartnicP4Client::new(endpoint.connect().await?);
            let stream = client.batch(tokio_stream::pending::<v2::BatchRequest>()).await?.into_inner();
            Ok::<_, Box<dyn std::error::Error>>((client, stream))
        };
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), batch).await? })
    };
    let streams: Vec<_> = (0..32).map(|_| stalled([127, 0, 0, 9]).expect("a seat")).collect();
    assert!(stalled([127, 0, 0, 9]).is_err(), "no request is cut off for another one of its source");
    let begin = Instant::now();
    serves(server.address());
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    drop(streams);
}

#[test]
fn half_a_batch_changes_nothing_more() {
    let (plane, server) = start(None);
    runtime().block_on(async {
        let mut client = v2::smartnic_p4_client::SmartnicP4Client::new(channel(&server).await);
        // A stream that never goes on.
        let stalled = tokio_stream::pending::<v2::BatchRequest>();
        let mut stream = client.batch(stalled).await.unwrap().into_inner();
        let pending = tokio::time::timeout(Duration::from_millis(100), stream.message()).await;
        assert!(pending.is_err(), "there is no answer without a request");
        let mut tables = v1::tables_client::TablesClient::new(channel(&server).await);
        assert_eq!(tables.get(v1::GetRequest::default()).await.unwrap().into_inner().sets.len(), 1);
    });
    assert_eq!(plane.sets().unwrap().len(), 1);
    drop(server);
}
