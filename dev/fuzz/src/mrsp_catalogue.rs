//! Catalogues: what decodes encodes to the same bytes.

use mrsp::catalogue::{Catalogue, Header};

pub fn run(data: &[u8]) {
    let Ok(catalogue) = Catalogue::decode(data) else { return };
    let header = Header::decode(data).expect("the whole has decoded");
    assert_eq!(usize::from(header.functions), catalogue.functions.len());
    let again = catalogue.encode().expect("what was read can be written");
    assert_eq!(again, data[..header.bytes as usize]);
}
