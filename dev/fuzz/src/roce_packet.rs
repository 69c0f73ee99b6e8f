//! Packets: what decodes encodes to the same bytes.

use roce::wire::Packet;

pub fn run(data: &[u8]) {
    let Ok(packet) = Packet::decode(data) else { return };
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(again, data);
}
