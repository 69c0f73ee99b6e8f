use std::{collections::BTreeSet, path::Path};

use naa_server::{Config, Server, functions};

use super::{
    compare::{compare, sharpness},
    description::{Description, Instead},
    fields,
    replayer::{self, Step},
    *,
};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compat")
}

fn packets(name: &str) -> (Description, Vec<Step>) {
    let json = recordings().join(format!("{name}.json"));
    let capture = read(&json.with_extension("pcap")).unwrap();
    (parse(&json).unwrap(), replayer::steps(&pcap::read(&capture).unwrap()).unwrap())
}

fn requests(name: &str) -> Vec<grpc::Step> {
    parse::<grpc::Recording>(&recordings().join(format!("{name}.json"))).unwrap().steps
}

/// An accelerator in this process, at the address of recordings.
fn accelerator() -> (File, Server) {
    let alone = alone().unwrap();
    let config = Config::new((SERVER, WORKER_PORT).into());
    (alone, Server::start(config, functions::builtins().unwrap()).unwrap())
}

/// Replays with this expectation against an accelerator of today.
fn replayed(description: &Description, steps: &[Step]) -> Result<(), String> {
    let (_alone, _server) = accelerator();
    let leave = description.instead.as_ref().map(Instead::leave);
    let replayed = replayer::replay(steps, leave).unwrap();
    let difference = compare(description, &replayed.recorded, &replayed.live).err();
    both(replayed.fault, difference).map_or(Ok(()), Err)
}

/// The steps with the last byte of the headers, or of the payload, of one of the server's packets changed.
fn with_changed_answer(steps: &[Step], wanted: impl Fn(&[u8]) -> bool, in_payload: bool) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let found = steps.iter_mut().rev().find_map(|step| match step {
        Step::Server(packet) if wanted(packet) => Some(packet),
        _ => None,
    });
    let packet = found.expect("the recording has such a packet");
    let headers = fields::split(packet).0.len();
    let payload = fields::split(packet).1.len();
    let at = if in_payload { headers + payload } else { headers } - 1;
    packet[at] ^= 1;
    steps
}

#[test]
fn a_replay_passes_and_fails_when_one_byte_of_the_recorded_answers_is_another() {
    let (description, steps) = packets("call-1");
    assert_eq!(replayed(&description, &steps), Ok(()));
    let has_bytes = |packet: &[u8]| fields::is_message(packet[0]) && !fields::split(packet).1.is_empty();
    let why = replayed(&description, &with_changed_answer(&steps, has_bytes, true)).unwrap_err();
    assert!(why.contains("payload: byte"), "{why}");
    let has_immediate = |packet: &[u8]| fields::has_immediate(packet[0]);
    let why = replayed(&description, &with_changed_answer(&steps, has_immediate, false)).unwrap_err();
    assert!(why.contains("headers of packet"), "{why}");
}

#[test]
fn the_documented_answer_takes_the_place_of_a_recorded_one() {
    let (mut description, mut steps) = packets("call-1");
    // The host of a version that had function 15.
    let call = steps.iter_mut().find_map(|step| match step {
        Step::Host(packet) if fields::has_immediate(packet[0]) => Some(packet),
        _ => None,
    });
    let call = call.expect("the recorded host calls");
    let behind = fields::split(call).0.len();
    assert_eq!(call[behind - 4..behind], [0, 0, 0, 0x80 | 16]);
    call[behind - 1] = 0x80 | 15;
    description.instead = Some(Instead {
        connection: 0,
        message: 1,
        since: "0.2.0".into(),
        what: "there is no such function".into(),
        immediate: Some(0x1000),
        payload: Vec::new(),
    });
    assert_eq!(replayed(&description, &steps), Ok(()));
    description.instead.as_mut().unwrap().immediate = Some(0x1100);
    let why = replayed(&description, &steps).unwrap_err();
    assert!(why.contains("documented"), "{why}");
}

/// What is left out of a comparison is no more than what a server chooses: a number of 4 bytes, a queue pair, a PSN and
/// half a GUID in the REP, a number in the DREP, a PSN in each packet, address and RKey of each region.
#[test]
fn every_other_byte_of_the_answers_is_compared() {
    for (name, free_in_messages) in [("call-1", 0), ("subscribe-1", 8 + 3 * 16)] {
        let (description, steps) = packets(name);
        let output = replayer::recorded(&steps);
        assert_eq!(compare(&description, &output, &output), Ok(()), "{name}");
        let [output_once] = &output[..] else { panic!("{name} has one connection") };
        let count: usize = output_once.messages.iter().map(|message| message.packets.len()).sum();
        let regions = output_once.messages[0].payload().len() / 16;
        let free = (4 + 3 + 3 + 4) + 4 + 3 * count + 12 * regions + free_in_messages;
        assert_eq!(sharpness(&description, &output).free, free, "{name}");
    }
    let (tables, smartnic) = (requests("naa.lb.v1-1"), requests("sn_p4.v2-1"));
    assert_eq!(grpc::compare(&tables, &tables), Ok(()));
    assert_eq!(grpc::sharpness(&tables).free, 0);
    let sharpness = grpc::sharpness(&smartnic);
    assert!(sharpness.free * 5 < sharpness.compared, "{sharpness:?}");
}

#[test]
fn another_status_of_grpc_is_noticed() {
    let recorded = requests("naa.lb.v1-1");
    for at in 0..recorded.len() {
        let mut changed = recorded.clone();
        let Some(call) = &mut changed[at].call else { continue };
        call.status += 1;
        let why = grpc::compare(&recorded, &changed).unwrap_err();
        assert!(why.starts_with(&format!("step {at}, ")), "{why}");
    }
}

/// The page of versions names each recording, and each recording that the page names exists.
#[test]
fn the_page_of_versions_names_each_recording() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/versions.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(3));
    let named: BTreeSet<_> =
        rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let recorded = list(&recordings(), None).unwrap().into_iter().map(|recording| recording.name);
    assert_eq!(named, recorded.collect());
}

/// The folder holds every file that a replay needs, under the names that docs/reference/compat.md gives.
#[test]
fn every_wire_has_a_recording() {
    let all = list(&recordings(), None).unwrap();
    for wire in Wire::ALL {
        assert!(
            all.iter().any(|recording| split(&recording.name).is_some_and(|(of, _)| of == wire)),
            "{wire:?}"
        );
    }
    let captures = fs::read_dir(recordings()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "pcap")
    });
    let packets = all.iter().filter(|recording| split(&recording.name).unwrap().0.is_packets());
    assert_eq!(captures.count(), packets.count());
}

#[test]
fn captures_are_read_as_they_were_written() {
    let datagram = |port, payload: &[u8]| pcap::Datagram {
        nanos: 1_000_000_001,
        from: std::net::SocketAddrV4::new(HOST, port),
        to: std::net::SocketAddrV4::new(SERVER, 4791),
        payload: payload.to_vec(),
    };
    let all = [datagram(4791, b"one"), datagram(1, b"")];
    let file = pcap::write(&all).unwrap();
    assert_eq!(pcap::read(&file).unwrap(), all);
    assert!(pcap::read(&file[..file.len() - 1]).is_err());
    assert!(replayer::steps(&all).is_err(), "neither has an ICRC");
}
