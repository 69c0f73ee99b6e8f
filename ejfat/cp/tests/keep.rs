//! Tests of what a control plane keeps for its operator: backups, the audit log, and what it says of its data planes.

mod common;

use std::{fs, net::Ipv4Addr, path::Path, sync::Arc};

use common::{Client, TempFolder, settings, start, until};
use ejfat::lb::Rules;
use ejfat_cp::{Daemon, settings::Settings};
use ejfat_lb::SharedDataPlane;

/// A control plane at `ip` whose store is in the folder `name`.
fn at(folder: &TempFolder, ip: &str, name: &str) -> Daemon {
    let state = folder.0.join(name);
    fs::create_dir_all(&state).unwrap();
    start(&settings(ip), &state)
}

fn revision(backup: &Path) -> u64 {
    naa_store::revision_of(backup, &naa_store::SqliteConfig::default()).unwrap().0
}

#[test]
fn the_backup_of_a_store_that_was_lost_is_kept() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.31");
    let [to, before, kept] = ["lb.backup", "lb.backup.1", "lb.backup.kept"].map(|name| folder.0.join(name));
    let first = at(&folder, ip, "first");
    let mut client = Client::admin(&first);
    client.reserve(&[]);
    first.backup(&to).unwrap();
    let old = revision(&to);
    let lb = client.runtime.block_on(client.stub.overview(client.request(Default::default()))).unwrap();
    let id = &lb.into_inner().load_balancers[0].reservation.as_ref().unwrap().lb_id.clone();
    client.register(id, "127.0.80.31:5000".parse().unwrap()).unwrap();
    first.backup(&to).unwrap();
    let good = revision(&to);
    assert!(good > old);
    assert_eq!(revision(&before), old, "the backup before is kept, too");
    first.stop();
    // Its store is there: the backup is its own.
    let again = at(&folder, ip, "first");
    again.backup(&to).unwrap();
    assert!(!kept.exists());
    let good = revision(&to);
    again.stop();
    // The store was lost.
    let second = at(&folder, ip, "second");
    second.backup(&to).unwrap();
    assert_eq!(revision(&kept), good);
    assert!(revision(&to) < good);
    second.backup(&to).unwrap();
    assert_eq!(revision(&kept), good);
    second.stop();
    // It was lost once more.
    let third = at(&folder, ip, "third");
    let refused = third.backup(&to).unwrap_err().to_string();
    assert!(refused.contains("move one of them away"), "{refused}");
    third.stop();
    // An older store than that of the backup.
    fs::remove_file(&to).unwrap();
    fs::rename(&kept, &to).unwrap();
    let second = at(&folder, ip, "second");
    second.backup(&to).unwrap();
    assert_eq!(revision(&kept), good);
}

#[test]
fn a_backup_leaves_the_stores_own_files_alone() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.34");
    let first = at(&folder, ip, "site");
    let state = folder.0.join("site");
    let store = state.join("control.db");
    // A second name of the store's file is the file itself.
    let named = state.join("control.db.former");
    fs::hard_link(&store, &named).unwrap();
    for own in ["control.db", "control.db-wal", "control.db.lock", "control.db.former"] {
        let refused = first.backup(&state.join(own)).unwrap_err().to_string();
        assert!(refused.contains("name another file for its backup"), "{own}: {refused}");
    }
    fs::remove_file(named).unwrap();
    let [kept, former] = [".kept", ".former"].map(|ending| state.join(format!("control.db{ending}")));
    assert!(store.exists() && !kept.exists() && !former.exists());
    Client::admin(&first).reserve(&[]);
    first.backup(&folder.0.join("lb.backup")).unwrap();
    assert!(revision(&folder.0.join("lb.backup")) > 0);
}

#[test]
fn the_audit_log_is_opened_again_after_its_file_was_renamed() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.32");
    let [audit, renamed] = ["audit.json", "audit.json.1"].map(|name| folder.0.join(name));
    let text = format!(
        "listen: ['{ip}:0']\nload_balancers: [{{ipv4: {ip}}}]\nworkers: {{loopback: true}}\naudit: '{}'",
        audit.display()
    );
    let daemon = start(&Settings::parse(&text).unwrap(), &folder.0);
    let lines = |path: &Path| fs::read_to_string(path).map_or(0, |text| text.lines().count());
    let mut client = Client::admin(&daemon);
    let lb = client.reserve(&[]).lb_id;
    until("the first line is written", || lines(&audit) == 1);
    fs::rename(&audit, &renamed).unwrap();
    daemon.reopen();
    until("the file is there again", || audit.exists());
    client.register(&lb, "127.0.80.32:5000".parse().unwrap()).unwrap();
    until("the next line is in the new file", || lines(&audit) == 1);
    assert_eq!(lines(&renamed), 1);
}

#[test]
fn a_control_plane_without_a_data_plane_is_not_ready_and_its_statuses_say_why() {
    let (folder, ip) = (TempFolder::new(), "127.0.80.33");
    let token = folder.0.join("plane.token");
    fs::write(&token, "not the token").unwrap();
    let text = format!(
        "listen: ['{ip}:0']\nload_balancers: [{{ipv4: {ip}}}]\nworkers: {{loopback: true}}\n\
         planes: [{{kind: naa, address: '{ip}:18010', token_file: '{}'}}]",
        token.display()
    );
    let daemon = start(&Settings::parse(&text).unwrap(), &folder.0);
    let mut client = Client::admin(&daemon);
    let lb = client.reserve(&[]).lb_id;
    let issue = |client: &mut Client| {
        let issues = client.status(&lb).unwrap().health_issues;
        issues.first().map(|issue| (issue.r#type.clone(), issue.message.clone()))
    };
    until("nobody listens", || daemon.core().ready().is_err_and(|why| why.contains("cannot reach")));
    let (kind, text) = issue(&mut client).unwrap();
    assert_eq!(kind, "data_plane_away");
    assert!(text.contains("127.0.80.33:18010 is not in use since 20"), "{text}");
    let serve = |token: &str| {
        let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
        let at = (Ipv4Addr::new(127, 0, 80, 33), 18_010).into();
        let mut server = None;
        // A server that has just been dropped may still have the port.
        until("the port is free", || {
            server = ejfat_lb::grpc::serve(at, plane.clone(), Some(token.to_owned())).ok();
            server.is_some()
        });
        server.unwrap()
    };
    let other = serve("another token");
    until("the token is refused", || daemon.core().ready().is_err_and(|why| why.contains("not the token")));
    drop(other);
    let right = serve("not the token");
    until("it is in use", || daemon.core().ready().is_ok());
    assert_eq!(issue(&mut client), None);
    drop(right);
    until("its end is noticed", || daemon.core().ready().is_err());
    let (_, text) = issue(&mut client).unwrap();
    assert!(!text.contains("Unknown error"), "{text}");
}
