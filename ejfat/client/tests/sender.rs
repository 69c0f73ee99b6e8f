//! Senders of one reservation, at a control plane on a real socket.

mod site;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use ejfat_client::{AllowedSender, Connection, SenderNotice, Trust};
use naa_grpc::GrpcServer;
use site::{Site, TOKEN, until};
use tonic::Code;

const EVERY: Duration = Duration::from_millis(50);

fn open(server: &GrpcServer) -> AllowedSender {
    let connection = Connection::open(&Site::uri(server, TOKEN).parse().unwrap(), &Trust::default()).unwrap();
    let data: [SocketAddr; 1] = ["127.0.0.1:19522".parse().unwrap()];
    AllowedSender::open(&connection, "1", &data).unwrap()
}

/// Watches a sender, and returns what it tells.
fn watch(sender: &mut AllowedSender) -> Arc<Mutex<Vec<SenderNotice>>> {
    let notices = Arc::<Mutex<Vec<_>>>::default();
    let told = notices.clone();
    sender.watch(EVERY, move |notice| told.lock().unwrap().push(notice)).unwrap();
    notices
}

fn is_listed(site: &Site) -> bool {
    site.state().senders.contains("127.0.0.1")
}

#[test]
fn the_last_of_several_senders_takes_their_address_off() {
    let (site, server) = Site::served();
    let (first, second) = (open(&server), open(&server));
    first.close().unwrap();
    assert!(is_listed(&site), "the second one sends still");
    let third = open(&server);
    second.close().unwrap();
    assert!(is_listed(&site), "the third one sends still");
    third.close().unwrap();
    assert!(!is_listed(&site));
    // An address that somebody else added stays.
    site.state().senders.insert("127.0.0.1".into());
    open(&server).close().unwrap();
    assert!(is_listed(&site));
}

#[test]
fn an_address_that_somebody_removed_is_added_again() {
    let (site, server) = Site::served();
    let mut sender = open(&server);
    let notices = watch(&mut sender);
    for _ in 0..3 {
        site.state().senders.clear();
        until("added again", || is_listed(&site));
    }
    let again = |notice: &&SenderNotice| matches!(notice, SenderNotice::AddedAgain { .. });
    until("told", || notices.lock().unwrap().iter().any(|notice| again(&notice)));
    assert_eq!(notices.lock().unwrap().iter().filter(again).count(), 1, "each cause once");
    // A token that may not read the list adds the address in any case.
    site.refuse("Status", Code::PermissionDenied, "no right");
    site.state().senders.clear();
    until("added blindly", || is_listed(&site));
    drop(sender);
    assert!(!is_listed(&site));
}

#[test]
fn a_reservation_without_workers_is_told_and_one_that_ended_too() {
    let (site, server) = Site::served();
    let mut sender = open(&server);
    let (notices, ending) = (watch(&mut sender), sender.ending());
    until("told", || matches!(notices.lock().unwrap()[..], [SenderNotice::NoWorker { .. }]));
    assert_eq!(ending.why(), None);
    site.refuse("Status", Code::NotFound, "there is no reservation 1");
    until("it ended", || ending.why().is_some());
    assert!(ending.why().unwrap().contains("reservation 1 at 127.0.0.1"), "{:?}", ending.why());
    let calls = site.state().count("RemoveSenders");
    sender.close().unwrap();
    assert_eq!(site.state().count("RemoveSenders"), calls, "there is no list any more");
}

#[test]
fn a_control_plane_that_is_away_ends_nothing() {
    let (_site, server) = Site::served();
    let mut sender = open(&server);
    let (notices, ending) = (watch(&mut sender), sender.ending());
    drop(server);
    until("told", || notices.lock().unwrap().iter().any(|of| matches!(of, SenderNotice::Unknown(_))));
    assert_eq!(ending.why(), None);
}
