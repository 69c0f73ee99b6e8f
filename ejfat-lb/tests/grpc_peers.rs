//! Peers that do not speak gRPC, or stop doing so.

mod grpc_common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use ejfat_lb::{When, grpc::Client};
use grpc_common::{channel, rules_to, runtime, start};
use proto::{lb::v1, sn_p4::v2};

fn serves(address: SocketAddr) {
    Client::connect(&address.to_string(), None).unwrap().load(&rules_to(1), When::Now).unwrap();
}

/// How long until the server ends a connection that says no more than this.
fn patience(address: SocketAddr, says: &[u8]) -> Duration {
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
        let took = patience(address, &says);
        assert!(took < Duration::from_secs(4), "{took:?}");
        serves(address);
    }
}

#[test]
fn the_silent_lose_their_seats() {
    let (_, server) = start(None);
    let address = server.address();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let took = patience(address, b"PRI * HTTP/2.0\r\n");
    assert!((4..30).contains(&took.as_secs()), "{took:?}");
    serves(address);
    drop(silent);
}

#[test]
fn those_without_a_token_lose_their_seats() {
    let (_, server) = start(Some("secret"));
    let address = server.address();
    let greeting = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let idle: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&greeting).unwrap();
            stream
        })
        .collect();
    let took = patience(address, &greeting);
    assert!((4..30).contains(&took.as_secs()), "{took:?}");
    let mut client = Client::connect(&address.to_string(), Some("secret")).unwrap();
    client.load(&rules_to(1), When::Now).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(client.get().unwrap().len(), 1, "who was let in keeps its seat");
    drop(idle);
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
        assert_eq!(tables.get(v1::GetRequest {}).await.unwrap().into_inner().sets.len(), 1);
    });
    assert_eq!(plane.sets().len(), 1);
    drop(server);
}
