//! MRSP messages: what is read can be written and read again.

use mrsp::{Message, RegionRequest, codec, layout::LayoutEntry};

pub fn run(data: &[u8]) {
    let Ok(message) = codec::decode(data) else { return };
    let again = match message {
        Message::Error(code) => codec::encode_error(code).to_vec(),
        Message::AdvertiseAndRequest(regions) => {
            codec::encode_request(&regions.iter().collect::<Vec<_>>()).expect("no more than were read")
        }
        Message::Arranged(regions, slots) => {
            let (regions, slots): (Vec<_>, Vec<_>) = (regions.iter().collect(), slots.iter().collect());
            let again = codec::encode_arranged(&regions, &slots).expect("no more than were read");
            return check_arranged(&again, data, &regions, &slots);
        }
        Message::Advertisement(regions) => {
            codec::encode_advertisement(&regions.iter().collect::<Vec<_>>()).expect("no more than were read")
        }
    };
    assert_eq!(codec::decode(&again).as_ref(), Ok(&message));
}

/// A block is read with any padding, and written with none.
fn check_arranged(again: &[u8], data: &[u8], regions: &[RegionRequest], slots: &[LayoutEntry]) {
    assert_eq!(again.len(), data.len());
    let Ok(Message::Arranged(found, in_them)) = codec::decode(again) else { panic!("no layout any more") };
    assert!(found.iter().eq(regions.iter().copied()) && in_them.iter().eq(slots.iter().copied()));
    assert_eq!((found.len(), in_them.len()), (regions.len(), slots.len()));
}
