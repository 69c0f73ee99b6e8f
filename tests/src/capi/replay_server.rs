//! A captured connection with this library's C server in the place of NAAICE's: packets of NAAICE's host are sent again,
//! and every message of the server is held against the captured one.

use std::{net::SocketAddr, time::Duration};

use roce::wire::{Packet, Syndrome};

use super::{
    capture::{Assembler, Connection},
    captured::{Agreement, Placed, advertised, difference},
    raw_end::RawEnd,
};
use crate::hostile::{Offer, RawPeer};

const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How long nothing more must come at the end.
const SILENCE: Duration = Duration::from_millis(50);

fn accepted(packet: &Packet<'_>) -> Result<(), String> {
    if packet.aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_))) {
        return Err(format!("the server refuses: {:?}", packet.aeth));
    }
    Ok(())
}

/// Plays the connection against the server at `server`.
pub(super) fn replay(
    connection: &Connection,
    mut raw: RawPeer,
    server: SocketAddr,
) -> Result<String, String> {
    let agreement = Agreement::of(connection)?;
    raw.guid = connection.req.ca_guid;
    let offer = Offer {
        retry_count: connection.req.retry_count,
        rnr_retry: connection.req.rnr_retry,
        ack_timeout: connection.req.ack_timeout,
        mtu: connection.req.mtu,
        user_data: Vec::new(),
    };
    let wire = raw.connect(server, &offer)?;
    let mut host = RawEnd {
        raw,
        peer: wire.peer,
        qpn: wire.qpn,
        remote_qpn: wire.remote_qpn,
        mtu: wire.mtu,
        next: wire.psn,
        received: Assembler::new(false, wire.epsn),
        count: 0,
    };
    let mut placed: Vec<Placed> = Vec::new();
    let mut alike = 0;
    for (number, message) in connection.messages.iter().enumerate() {
        let numbered = |why: String| format!("message {number}: {why}");
        if message.from_host {
            let target = match message.target {
                Some(target) => {
                    let index = agreement.on_accelerator(target).ok_or("a captured WRITE to no region")?;
                    placed.get(index).map(|region| (region.addr, region.rkey))
                }
                None => None,
            };
            host.say(message, target)?;
            continue;
        }
        let live =
            host.receive(TIME_LIMIT, accepted)?.ok_or_else(|| numbered("the server says no more".into()))?;
        if let Some(why) = difference(message, &live) {
            return Err(numbered(why));
        }
        if message.is_send() {
            placed = advertised(&live.bytes).map_err(numbered)?;
            let sizes = |regions: &[Placed]| regions.iter().map(|region| region.size).collect::<Vec<_>>();
            if sizes(&placed) != sizes(&agreement.placed) {
                return Err(numbered(format!("the A is {placed:x?} instead of {:x?}", agreement.placed)));
            }
        } else if live.target != message.target {
            return Err(numbered(format!("a WRITE to {:x?} instead of {:x?}", live.target, message.target)));
        }
        alike += 1;
    }
    if let Some(more) = host.receive(SILENCE, accepted)? {
        return Err(format!("the server says more: {}", more.name()));
    }
    // NAAICE's server never confirms; a better one does.
    host.raw.disconnect(&wire)?;
    Ok(format!("{alike} messages alike"))
}
