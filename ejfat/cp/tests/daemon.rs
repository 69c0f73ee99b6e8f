//! Tests of a whole control plane on real sockets, with a data plane in the same process.

mod common;

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use common::{Client, TempFolder, settings, start, until};
use ejfat_udp::{Sender, SenderConfig, SyncSender};
use proto::loadbalancer as pb;
use tonic::Code;

#[test]
fn events_of_a_registered_sender_reach_the_workers_that_registered() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.1");
    let daemon = start(&settings(ip), &folder.0);
    let mut client = Client::admin(&daemon);
    let reserved = client.reserve(&["127.0.0.1", ip]);
    assert_eq!(reserved.data_ipv4_address, ip);
    let workers: Vec<_> = (0..2).map(|_| UdpSocket::bind((ip, 0)).unwrap()).collect();
    let sessions: Vec<_> = workers
        .iter()
        .map(|of| client.register(&reserved.lb_id, of.local_addr().unwrap()).unwrap())
        .collect();
    let sync: SocketAddr =
        format!("{}:{}", reserved.sync_ipv4_address, reserved.sync_udp_port).parse().unwrap();
    let sync = SyncSender::new(sync, 1).unwrap();
    until("both workers have slots", || {
        sync.send().unwrap();
        for session in &sessions {
            client.state(&session.session_id, &session.token, 0.1).unwrap();
        }
        let status = client.status(&reserved.lb_id).unwrap();
        let slots: Vec<_> = status.workers.iter().map(|of| of.slots_assigned).collect();
        status.slot_resolution == 512
            && slots.iter().sum::<u32>() == 512
            && slots.iter().all(|slots| *slots > 200)
    });
    let to = format!("{ip}:{}", reserved.data_min_port).parse().unwrap();
    let mut out = Sender::new(SenderConfig::new(to)).unwrap();
    for event in 0..200 {
        out.send(event, 0, &event.to_be_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(300));
    }
    let got = |of: &UdpSocket| {
        of.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        std::iter::from_fn(|| of.recv(&mut [0; 100]).ok()).count()
    };
    let got: Vec<_> = workers.iter().map(got).collect();
    assert_eq!(got.iter().sum::<usize>(), 200, "{got:?}");
    assert!(got.iter().all(|got| *got > 40), "{got:?}");
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.2");
    let daemon = start(&settings(ip), &folder.0);
    let mut client = Client::admin(&daemon);
    let reserved = client.reserve(&["10.0.0.1"]);
    let worker = client.register(&reserved.lb_id, "127.0.80.2:5000".parse().unwrap()).unwrap();
    client.state(&worker.session_id, &worker.token, 0.5).unwrap();
    drop(client);
    daemon.stop();

    let daemon = start(&settings(ip), &folder.0);
    let mut client = Client::connect(daemon.addresses()[0], &reserved.token);
    let status = client.status(&reserved.lb_id).unwrap();
    assert_eq!(status.sender_addresses, ["10.0.0.1"]);
    assert_eq!(status.workers.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["worker-5000"]);
    client.state(&worker.session_id, &worker.token, 0.5).unwrap();
}

#[test]
fn calls_are_refused_by_cause() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.3");
    let daemon = start(&settings(ip), &folder.0);
    let mut client = Client::admin(&daemon);
    let reserved = client.reserve(&[]);
    let (runtime, stub) = (&client.runtime, &mut client.stub);
    let status = |authorization: Option<&str>,
                  id: &str,
                  stub: &mut pb::load_balancer_client::LoadBalancerClient<_>| {
        let mut request = tonic::Request::new(pb::LoadBalancerStatusRequest { lb_id: id.into() });
        if let Some(value) = authorization {
            request.metadata_mut().insert("authorization", value.parse().unwrap());
        }
        runtime.block_on(stub.load_balancer_status(request)).map(drop).map_err(|why| why.code())
    };
    let admin = format!("Bearer {}", client.token);
    assert_eq!(status(None, &reserved.lb_id, stub), Err(Code::Unauthenticated));
    assert_eq!(status(Some(&client.token), &reserved.lb_id, stub), Err(Code::InvalidArgument));
    assert_eq!(status(Some("Bearer 0123"), &reserved.lb_id, stub), Err(Code::PermissionDenied));
    assert_eq!(status(Some(&admin), "77", stub), Err(Code::NotFound));
    assert_eq!(status(Some(&admin), "x", stub), Err(Code::InvalidArgument));
    assert_eq!(status(Some(&admin), &reserved.lb_id, stub), Ok(()));
    let mut reserve = || {
        let request = client.request(pb::ReserveLoadBalancerRequest::default());
        client.runtime.block_on(client.stub.reserve_load_balancer(request)).unwrap_err().code()
    };
    assert_eq!(reserve(), Code::ResourceExhausted);
}

#[test]
fn health_is_told_to_anybody() {
    use proto::health::v1::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let (folder, ip) = (TempFolder::new(), "127.0.80.4");
    let daemon = start(&settings(ip), &folder.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint =
            tonic::transport::Channel::from_shared(format!("http://{}", daemon.addresses()[0])).unwrap();
        let mut health = HealthClient::new(endpoint.connect().await.unwrap());
        for (service, expected) in [
            ("", Some(ServingStatus::Serving)),
            ("loadbalancer.LoadBalancer", Some(ServingStatus::Serving)),
            ("x", None),
        ] {
            let answer = health.check(HealthCheckRequest { service: service.into() }).await;
            assert_eq!(answer.ok().map(|answer| answer.into_inner().status()), expected, "{service}");
        }
        let watched = health.watch(HealthCheckRequest::default()).await.unwrap();
        let first = watched.into_inner().message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
    });
}

#[test]
fn whoever_guesses_tokens_loses_connections_and_holders_of_tokens_are_served() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.5");
    let daemon = start(&settings(ip), &folder.0);
    let mut admin = Client::admin(&daemon);
    let lb = admin.reserve(&[]).lb_id;
    let mut cut = 0;
    for _ in 0..5 {
        let mut stranger = Client::connect(daemon.addresses()[0], "0123456789abcdef");
        let refused = (0..200).map(|_| stranger.status(&lb).unwrap_err());
        cut += usize::from(refused.map(|why| why.code()).any(|code| code != Code::PermissionDenied));
        admin.status(&lb).unwrap();
    }
    assert!(cut >= 4, "{cut} of 5 connections were ended");
}

#[test]
fn a_stranger_makes_nobody_read_a_long_message() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.6");
    let daemon = start(&settings(ip), &folder.0);
    let long = "x".repeat(900_000);
    let mut admin = Client::admin(&daemon);
    assert_eq!(
        admin.status(&long).unwrap_err().code(),
        Code::InvalidArgument,
        "the message is read, and the id is not a number"
    );
    // A message that is too long shows whether messages are read before the token is checked.
    let longer = "x".repeat(1_100_000);
    assert_eq!(admin.status(&longer).unwrap_err().code(), Code::OutOfRange);
    let mut stranger = Client::connect(daemon.addresses()[0], "0123456789abcdef");
    assert_eq!(stranger.status(&longer).unwrap_err().code(), Code::PermissionDenied);
}
