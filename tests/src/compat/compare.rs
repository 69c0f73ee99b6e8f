//! Whether a server says what it said when a recording was made.

use super::{
    catalogue,
    description::{Description, Instead, MessageIndex},
    ends::{ADVERTISED, MRSP_HEADER, Message, ServerOutput},
    fields::{self, ACK_REQUEST, Cm, LOCAL_COMM_ID, OPCODE, PSN, REP_GUID, REP_PSN, REP_QPN, be32},
};

/// Bytes of an entry of an advertisement that the server chooses: address and RKey. Its size follows.
const CHOSEN: usize = 12;

/// The first difference that matters, in words.
pub(super) fn compare(
    description: &Description,
    recorded: &[ServerOutput],
    live: &[ServerOutput],
) -> Result<(), String> {
    if recorded.len() != live.len() {
        return Err(format!("{} connections instead of {}", live.len(), recorded.len()));
    }
    recorded.iter().zip(live).enumerate().try_for_each(|(at, (recorded, live))| {
        connection(description, at, recorded, live).map_err(|why| format!("connection {at}: {why}"))
    })
}

fn connection(
    description: &Description,
    at: usize,
    recorded: &ServerOutput,
    live: &ServerOutput,
) -> Result<(), String> {
    let instead = description.instead.as_ref().filter(|instead| instead.connection == at);
    let messages = match instead {
        Some(instead) => {
            recorded.messages.get(..instead.message).ok_or("`instead` names no recorded message")?
        }
        None => &recorded.messages[..],
    };
    for (number, (recorded, live)) in messages.iter().zip(&live.messages).enumerate() {
        let place = MessageIndex { connection: at, message: number };
        message(description, place, recorded, live).map_err(|why| {
            format!("message {number} is {} where it was {}: {why}", live.name(), recorded.name())
        })?;
    }
    let live_messages = match (instead, live.messages.get(messages.len())) {
        (Some(instead), Some(live)) => {
            documented(instead, live)?;
            messages.len() + 1
        }
        (Some(_), None) => return Err("the documented answer did not come".into()),
        (None, _) => messages.len(),
    };
    if live.messages.len() != live_messages {
        return Err(format!("{} messages instead of {live_messages}", live.messages.len()));
    }
    for (recorded, live) in recorded.mads.iter().zip(&live.mads) {
        let (was, is) = (fields::cm(recorded), fields::cm(live));
        if was != is {
            // If the server refuses, either side may disconnect first.
            let disconnects = [Cm::Dreq, Cm::Drep];
            if instead.is_some() && disconnects.contains(&was) && disconnects.contains(&is) {
                continue;
            }
            return Err(format!("{is:?} instead of {was:?}"));
        }
        same(&mad(recorded), &mad(live)).map_err(|why| format!("{is:?}: {why}"))?;
    }
    if recorded.mads.len() != live.mads.len() {
        return Err(format!("{} management datagrams instead of {}", live.mads.len(), recorded.mads.len()));
    }
    Ok(())
}

/// A management datagram without what its sender chooses.
fn mad(mad: &[u8]) -> Vec<u8> {
    let mut mad = mad.to_vec();
    mad[LOCAL_COMM_ID..LOCAL_COMM_ID + 4].fill(0);
    if fields::cm(&mad) == Cm::Rep {
        mad[REP_QPN..REP_QPN + 3].fill(0);
        mad[REP_PSN..REP_PSN + 3].fill(0);
        // The upper half tells whose stack it is.
        mad[REP_GUID + 4..REP_GUID + 8].fill(0);
    }
    mad
}

fn same(recorded: &[u8], live: &[u8]) -> Result<(), String> {
    if let Some(at) = recorded.iter().zip(live).position(|(recorded, live)| recorded != live) {
        return Err(format!("byte {at} is {:#04x} where it was {:#04x}", live[at], recorded[at]));
    }
    if recorded.len() != live.len() {
        return Err(format!("{} bytes where there were {}", live.len(), recorded.len()));
    }
    Ok(())
}

fn message(
    description: &Description,
    place: MessageIndex,
    recorded: &Message,
    live: &Message,
) -> Result<(), String> {
    if description.catalogue == Some(place) {
        return catalogue_message(recorded, live);
    }
    if recorded.packets.len() != live.packets.len() {
        return Err(format!("{} packets", live.packets.len()));
    }
    for (number, (recorded, live)) in recorded.packets.iter().zip(&live.packets).enumerate() {
        same(&headers(recorded), &headers(live))
            .map_err(|why| format!("headers of packet {number}: {why}"))?;
    }
    let bytes = |message: &Message| {
        let mut payload = message.payload();
        if message.is_advertisement() {
            // The size, which is not chosen, is behind what is.
            for entry in payload[MRSP_HEADER..].chunks_exact_mut(ADVERTISED) {
                entry[..CHOSEN].fill(0);
            }
        }
        for free in description.free_in(place) {
            if let Some(bytes) = payload.get_mut(free.bytes.clone()) {
                bytes.fill(0);
            }
        }
        payload
    };
    same(&bytes(recorded), &bytes(live)).map_err(|why| format!("payload: {why}"))
}

/// The headers of a packet without its PSN. Only the last packet of a message must ask for an acknowledgement; whether
/// others do depends on the window.
fn headers(packet: &[u8]) -> Vec<u8> {
    let mut headers = fields::split(packet).0.to_vec();
    headers[PSN..PSN + 3].fill(0);
    if !fields::ends(packet[OPCODE]) {
        headers[ACK_REQUEST] &= 0x7f;
    }
    headers
}

/// Later servers have more functions, so the length of the catalogue is another one.
fn catalogue_message(recorded: &Message, live: &Message) -> Result<(), String> {
    let target = |message: &Message| {
        let packet = message.packets.first().filter(|packet| fields::has_reth(packet[OPCODE]));
        let packet = packet.ok_or("the catalogue does not come by a WRITE")?;
        Ok::<_, String>((fields::be64(packet, fields::RETH_ADDRESS), be32(packet, fields::RETH_RKEY)))
    };
    if target(recorded)? != target(live)? {
        return Err("it is written to another place".into());
    }
    catalogue::compare(&recorded.payload(), &live.payload())
}

fn documented(instead: &Instead, live: &Message) -> Result<(), String> {
    let packet = live.packets.last().ok_or("a message without packets")?;
    let immediate = fields::has_immediate(packet[OPCODE]).then(|| {
        let headers = fields::split(packet).0;
        be32(headers, headers.len() - 4)
    });
    if immediate != instead.immediate {
        return Err(format!("the immediate is {immediate:x?}, documented is {:x?}", instead.immediate));
    }
    same(&instead.payload, &live.payload()).map_err(|why| format!("the documented answer: {why}"))
}

/// How many bytes of a recording are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharpness {
    /// A replay fails if one of them changes.
    pub(super) compared: usize,
    /// These differ by nature.
    pub(super) free: usize,
}

impl Sharpness {
    /// Notes whether a change of a byte is noticed.
    pub(super) fn note(&mut self, noticed: bool) {
        if noticed { self.compared += 1 } else { self.free += 1 }
    }
}

/// Changes every byte of the recorded answers, one at a time, and looks whether that is noticed.
pub(super) fn sharpness(description: &Description, recorded: &[ServerOutput]) -> Sharpness {
    let mut sharpness = Sharpness::default();
    for (connection, output) in recorded.iter().enumerate() {
        for recorded in &output.mads {
            let mut changed = recorded.clone();
            for byte in 0..changed.len() {
                changed[byte] ^= 1;
                sharpness.note(mad(&changed) != mad(recorded));
                changed[byte] ^= 1;
            }
        }
        for (number, recorded) in output.messages.iter().enumerate() {
            let place = MessageIndex { connection, message: number };
            let mut changed = recorded.clone();
            for packet in 0..changed.packets.len() {
                let (headers, payload) = fields::split(&recorded.packets[packet]);
                // The opcode, the first byte, says where the other fields lie.
                for byte in 1..headers.len() + payload.len() {
                    changed.packets[packet][byte] ^= 1;
                    sharpness.note(message(description, place, &changed, recorded).is_err());
                    changed.packets[packet][byte] ^= 1;
                }
            }
        }
    }
    sharpness
}
