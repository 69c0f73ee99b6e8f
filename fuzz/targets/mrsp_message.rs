//! MRSP messages as a peer may send them: never a panic, and what is read can be written and read again.
#![no_main]

use mrsp::{Message, codec};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = codec::decode(bytes) else { return };
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
});
