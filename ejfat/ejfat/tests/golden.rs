//! Tests with recorded bytes of E2SAR 0.3.2 and udplbd 2.3.1.

use ejfat::{
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments},
    wire::{LbHeader, Malformed, ReHeader, Select, SyncHeader, Versions},
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

const V2: &str = "4c420201 0000ccb3 000660c450dccce5  100010e1 00000000 00000bb8 0000000000000000";
const V3: &str = "4c420301 c0e5c7cd 000660c45105c0e5  100010e1 00000000 00000bb8 0000000000000000";
/// The headers of a segment from udplbd's sender. The RE header has version 0, and the event number is equal to the
/// tick.
const UDPLBD: &str = "4c420301 4d290000 000660c4511d4d29  00000000 00000000 00001758 000660c4511d4d29";
const SYNC: &str = "4c430200 000004d2 000660c4d763a905 000f4240 18ea00e95d4c3e2b";

fn name(tick: u64, entropy: u16) -> EventFields {
    EventFields { tick, event: 0, data_id: 4321, entropy }
}

#[test]
fn segments_of_e2sar_are_ours() {
    let size = SegmentSize::of_mtu(1500, IpVersion::V4).unwrap();
    let v2 = Segments::new(LbVersion::V2, size, name(0x0006_60c4_50dc_cce5, 0xccb3), 3000).unwrap();
    let v3 = Segments::new(LbVersion::V3, size, name(0x0006_60c4_5105_c0e5, 0xc7cd), 3000).unwrap();
    for (golden, segments) in [(V2, v2), (V3, v3)] {
        let golden = hex(golden);
        assert_eq!(segments.len(), 3);
        for (segment, (offset, end)) in segments.zip([(0u32, 1436), (0x59c, 2872), (0xb38, 3000)]) {
            let mut expected = golden.clone();
            expected[20..24].copy_from_slice(&offset.to_be_bytes());
            assert_eq!(segment.headers[..], expected);
            assert_eq!(segment.payload, offset as usize..end);
        }
    }
}

#[test]
fn headers_of_others_are_read() {
    let v2 = hex(V2);
    let (lb, rest) = LbHeader::decode(&v2).unwrap();
    assert_eq!((lb.version(), lb.select), (2, Select::V2 { entropy: 0xccb3 }));
    assert_eq!((lb.slot_select(), lb.port_select(), lb.tick), (0xcce5, 0xccb3, 0x0006_60c4_50dc_cce5));
    let (re, payload) = ReHeader::decode(rest, Versions::default()).unwrap();
    assert_eq!(re, ReHeader { data_id: 4321, offset: 0, length: 3000, event: 0 });
    assert!(payload.is_empty());

    let udplbd = hex(UDPLBD);
    let (lb, rest) = LbHeader::decode(&udplbd).unwrap();
    assert_eq!(lb.select, Select::V3 { slot: 0x4d29, port: 0 });
    assert_eq!(lb.encode()[..], udplbd[..16]);
    let (re, _) = ReHeader::decode(rest, Versions::default()).unwrap();
    assert_eq!(re, ReHeader { data_id: 0, offset: 0, length: 0x1758, event: lb.tick });
    assert_eq!(ReHeader::decode(rest, Versions::ONE).unwrap_err(), Malformed::Version(0));
}

#[test]
fn sync() {
    let sync = SyncHeader {
        source: 1234,
        tick: 1_795_248_403_753_221,
        ticks_per_second: 1_000_000,
        unix_nanos: 0x18ea_00e9_5d4c_3e2b,
    };
    assert_eq!(sync.encode()[..], hex(SYNC));
    assert_eq!(SyncHeader::decode(&hex(SYNC)), Ok(sync));
    for datagram in [&hex(SYNC)[..27], &[]] {
        assert_eq!(SyncHeader::decode(datagram), Err(Malformed::Short(datagram.len())));
    }
}

#[test]
fn a_sync_datagram_that_is_too_long_is_not_called_too_short() {
    let error = SyncHeader::decode(&[hex(SYNC), vec![0]].concat()).unwrap_err();
    assert_eq!(error, Malformed::Long(29));
    assert_eq!(error.to_string(), "29 bytes are too long for a sync header");
}

#[test]
fn what_is_no_header_is_refused() {
    let mut bytes = hex(V2);
    assert_eq!(LbHeader::decode(&bytes[..15]).unwrap_err(), Malformed::Short(15));
    assert_eq!(ReHeader::decode(&bytes[16..35], Versions::default()).unwrap_err(), Malformed::Short(19));
    bytes[2] = 4;
    assert_eq!(LbHeader::decode(&bytes).unwrap_err(), Malformed::Version(4));
    bytes[1] = b'C';
    assert_eq!(LbHeader::decode(&bytes).unwrap_err(), Malformed::Magic(0x4c43));
    let mut sync = hex(SYNC);
    sync[2] = 1;
    assert_eq!(SyncHeader::decode(&sync), Err(Malformed::Version(1)));
}

#[test]
fn payload_by_mtu() {
    for (mtu, v4, v6) in [(576, 512, 492), (1500, 1436, 1416), (9000, 8936, 8916), (65535, 65471, 65451)] {
        assert_eq!(SegmentSize::of_mtu(mtu, IpVersion::V4).unwrap().bytes(), v4);
        assert_eq!(SegmentSize::of_mtu(mtu, IpVersion::V6).unwrap().bytes(), v6);
    }
    assert!(SegmentSize::of_mtu(575, IpVersion::V4).is_err());
}
