//! MRSP messages: what is read can be written and read again.

use mrsp::{Message, codec};

pub fn run(data: &[u8]) {
    let Ok(message) = codec::decode(data) else { return };
    let again = match message {
        Message::Error(code) => codec::encode_error(code).to_vec(),
        Message::AdvertiseAndRequest(regions) => {
            codec::encode_request(&regions.iter().collect::<Vec<_>>()).expect("no more than were read")
        }
        Message::Advertisement(regions) => {
            codec::encode_advertisement(&regions.iter().collect::<Vec<_>>()).expect("no more than were read")
        }
    };
    assert_eq!(codec::decode(&again).as_ref(), Ok(&message));
}
