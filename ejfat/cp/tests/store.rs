//! Tests with a store that fails, and with a control plane that is replaced by another one.

mod common;
#[path = "../../../support/store/tests/common/disk.rs"]
#[allow(dead_code, unreachable_pub, reason = "this suite uses a part of it")]
mod disk;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use common::{Client, TempFolder, settings, until};
use disk::{Disk, Faults};
use ejfat::lb::Rules;
use ejfat_control::{control::ControlConfig, plane::PlaneId};
use ejfat_cp::{Core, Parts, PlaneAddress, Public, service};
use ejfat_lb::SharedDataPlane;
use naa_grpc::{Credentials, GrpcServerConfig};
use naa_store::{SqliteConfig, SqliteStore, Store, Term};
use tonic::{Code, Status};

const ROOT: &str = "the-root-token";

/// A core that is served over gRPC, without sync sockets.
struct Site {
    core: Arc<Core>,
    server: naa_grpc::GrpcServer,
}

impl Site {
    fn start(ip: &str, store: Arc<dyn Store>, plane: PlaneAddress) -> Self {
        let config = settings(ip).config();
        let planes = [(PlaneId(0), plane)].into();
        let (options, root) = (ControlConfig::default(), ROOT.to_owned());
        let parts = Parts { config, options, root, store, planes, audit: None };
        let core = Core::start(parts).unwrap();
        let public = Public { tls: false, host: ip.to_owned(), port: 1 };
        let (connections, streams, threads) = (32, 16, 1);
        let config = GrpcServerConfig { connections, streams, threads, permits: None, tls: None };
        let at = SocketAddr::new(ip.parse().unwrap(), 0);
        let server = naa_grpc::serve(config, at, service(&core, Arc::new(OnceLock::from(public)))).unwrap();
        Self { core, server }
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address(), ROOT)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.core.stop();
    }
}

fn local() -> PlaneAddress {
    PlaneAddress::Local(Arc::new(SharedDataPlane::new(Rules::default(), 1)))
}

fn worker(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn is_unavailable(refused: &Status, says: &[&str]) -> bool {
    refused.code() == Code::Unavailable && says.iter().any(|says| refused.message().contains(says))
}

/// Checks that changes are refused with a reason while the fault lasts, that states are still taken and epochs made, and that
/// everything works afterwards. `says` has the texts of which one must be in the reason.
fn refuses_and_recovers(ip: &str, fault: impl Fn(&mut Faults, u64), says: &[&str]) {
    let (folder, disk) = (TempFolder::new(), Disk::new(Faults::default()));
    let store_settings = SqliteConfig { vfs: Some(disk.name()), ..SqliteConfig::default() };
    let store = SqliteStore::open(&folder.0.join("control.db"), &store_settings).unwrap();
    let site = Site::start(ip, Arc::new(store), local());
    let mut client = site.client();
    let lb = client.reserve(&["10.0.0.1"]).lb_id;
    let sessions: Vec<_> = (0..2).map(|n| client.register(&lb, worker(ip, 5000 + n)).unwrap()).collect();
    let slots = |client: &mut Client, fills: [f32; 2]| {
        for (session, fill) in sessions.iter().zip(fills) {
            client.state(&session.session_id, &session.token, fill).unwrap();
        }
        let status = client.status(&lb).unwrap();
        (status.current_epoch, status.workers.iter().map(|of| of.slots_assigned).collect::<Vec<_>>())
    };
    until("both have slots", || slots(&mut client, [0.1, 0.1]).1.iter().all(|slots| *slots > 200));
    let used = disk.used();
    disk.change(|faults| fault(faults, used));
    until("a change is refused", || match client.register(&lb, worker(ip, 6000)) {
        Ok(session) => {
            // SQLite's files still had room for this change.
            client.state(&session.session_id, &session.token, 0.0).unwrap();
            false
        }
        Err(refused) => {
            assert!(is_unavailable(&refused, says), "{refused:?}");
            true
        }
    });
    assert!(site.core.ready().is_err());
    // Calls that change nothing are still served, and a worker with a high fill level loses slots in new epochs.
    let before = slots(&mut client, [0.1, 0.1]).0;
    let mut during = 0;
    until("epochs go on", || {
        let (epoch, slots) = slots(&mut client, [0.1, 1.0]);
        during = epoch;
        epoch > before && slots[1] < slots[0]
    });
    let refused = client.register(&lb, worker(ip, 7000)).unwrap_err();
    assert!(is_unavailable(&refused, says), "{refused:?}");
    disk.change(|faults| *faults = Faults::default());
    until("changes are stored again", || client.register(&lb, worker(ip, 8000)).is_ok());
    assert_eq!(site.core.ready(), Ok(()));
    until("epochs come after it, too", || {
        let (epoch, slots) = slots(&mut client, [1.0, 0.1]);
        assert!(epoch >= during, "epoch {epoch} after {during}");
        slots[0] < slots[1]
    });
    drop((client, site));
    disk.sync_to_folder();
    let store = SqliteStore::open(&folder.0.join("control.db"), &SqliteConfig::default()).unwrap();
    let site = Site::start(ip, Arc::new(store), local());
    let status = site.client().status(&lb).unwrap();
    let named = |port: u16| status.workers.iter().any(|of| of.udp_port == u32::from(port));
    assert!(named(5000) && named(5001) && named(8000) && !named(7000), "{status:?}");
}

#[test]
fn a_full_disk_refuses_changes_only_and_everything_works_when_there_is_room() {
    refuses_and_recovers("127.0.80.11", |faults, used| faults.room = Some(used), &["cannot grow"]);
}

#[test]
fn a_read_only_disk_refuses_changes_only_until_it_may_be_written() {
    refuses_and_recovers("127.0.80.12", |faults, _| faults.read_only = true, &["may not be written"]);
}

#[test]
fn a_disk_that_fails_refuses_changes_only_until_it_works() {
    refuses_and_recovers("127.0.80.13", |faults, _| faults.broken = true, &["cannot be used", "is unknown"]);
}

#[test]
fn a_control_plane_that_is_replaced_at_its_data_plane_changes_nothing_more_and_says_so() {
    let ip = "127.0.80.14";
    let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
    let remote =
        ejfat_lb::grpc::serve((Ipv4Addr::new(127, 0, 80, 14), 0).into(), plane.clone(), None).unwrap();
    let address = || PlaneAddress::Staged {
        address: remote.address().to_string(),
        credentials: Credentials::new(None, None).unwrap(),
    };
    let folder = TempFolder::new();
    let open = |name: &str| SqliteStore::open(&folder.0.join(name), &SqliteConfig::default()).unwrap();
    let first = Site::start(ip, Arc::new(open("first.db")), address());
    let mut client = first.client();
    let lb = client.reserve(&[]).lb_id;
    let session = client.register(&lb, worker(ip, 5000)).unwrap();
    until("the data plane is the first one's", || {
        client.state(&session.session_id, &session.token, 0.1).unwrap();
        client.status(&lb).unwrap().workers[0].slots_assigned == 512
    });
    let store = open("second.db");
    store.claim(Term(0), Term(10)).unwrap();
    let second = Site::start(ip, Arc::new(store), address());
    until("the first one says that it is replaced", || first.core.ready().is_err());
    assert!(first.core.ready().unwrap_err().contains("another control plane has taken over"));
    let refused = client.register(&lb, worker(ip, 5001)).unwrap_err();
    assert!(is_unavailable(&refused, &["another control plane has taken over"]), "{refused:?}");
    let mut other = second.client();
    let lb = other.reserve(&[]).lb_id;
    let session = other.register(&lb, worker(ip, 6000)).unwrap();
    until("the data plane is the second one's", || {
        other.state(&session.session_id, &session.token, 0.1).unwrap();
        other.status(&lb).unwrap().workers[0].slots_assigned == 512
    });
    let of_second = plane.ticks();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(plane.ticks().term, of_second.term, "the first one does not take it back");
    assert!(plane.ticks().term.is_some_and(|term| term.get() >= 11));
}

#[test]
fn a_control_plane_whose_store_another_one_claimed_stops_changing_things() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.15");
    let store = Arc::new(SqliteStore::open(&folder.0.join("control.db"), &SqliteConfig::default()).unwrap());
    let site = Site::start(ip, store.clone(), local());
    let mut client = site.client();
    let lb = client.reserve(&[]).lb_id;
    let own = store.load().unwrap().term;
    store.claim(own, Term(own.0 + 5)).unwrap();
    let refused = client.register(&lb, worker(ip, 5000)).unwrap_err();
    assert!(is_unavailable(&refused, &["another control plane has taken over"]), "{refused:?}");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(site.core.ready().is_err(), "it does not claim it back");
    assert_eq!(store.load().unwrap().term, Term(own.0 + 5));
}
