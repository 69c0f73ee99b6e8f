//! Management datagrams: what decodes encodes to the same bytes; messages survive without the bits they do not name.

use roce::wire::mad::{CmMessage, CmaHeader, MAD_LEN, Mad};

pub fn run(data: &[u8]) {
    let mut raw = [0; MAD_LEN];
    let len = data.len().min(MAD_LEN);
    raw[..len].copy_from_slice(&data[..len]);
    let Ok(mad) = Mad::decode(&raw) else { return };
    assert_eq!(mad.encode(), raw);
    let fresh = Mad::new(mad.tid, mad.message.clone()).encode();
    let again = Mad::decode(&fresh).expect("own messages decode");
    assert_eq!((again.tid, &again.message), (mad.tid, &mad.message));
    let CmMessage::Req(req) = mad.message else { return };
    let header = req.private_data.first_chunk().expect("private data is longer than the header");
    let Some(header) = CmaHeader::decode(header) else { return };
    assert_eq!(CmaHeader::decode(&header.encode()), Some(header));
}
