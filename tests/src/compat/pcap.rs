//! Recordings as pcap files: UDP over IPv4 over Ethernet, so that tcpdump and tshark show them.

use std::net::{SocketAddr, SocketAddrV4};

use simnet::pcap;

/// A UDP datagram of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) nanos: u64,
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) payload: Vec<u8>,
}

pub(super) fn write(datagrams: &[Datagram]) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let mut writer = pcap::Writer::new(&mut file).map_err(|error| error.to_string())?;
    for Datagram { nanos, from, to, payload } in datagrams {
        let written = writer.datagram(*nanos, (*from).into(), (*to).into(), 0, payload);
        written.map_err(|error| error.to_string())?;
    }
    Ok(file)
}

/// All datagrams of a file that [`write`] or tcpdump made.
pub(crate) fn read(file: &[u8]) -> Result<Vec<Datagram>, String> {
    let datagram = |frame: Result<pcap::Frame<'_>, pcap::CutOff>| {
        let frame = frame.map_err(|error| error.to_string())?;
        let datagram = pcap::datagram(frame.data).ok_or("a frame of it is no UDP datagram")?;
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (datagram.from, datagram.to) else {
            return Err("a datagram of it is not over IPv4".into());
        };
        // Times do not matter to replays, so those of files with microseconds are not converted.
        let nanos = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec);
        Ok(Datagram { nanos, from, to, payload: datagram.udp[8..].to_vec() })
    };
    pcap::frames(file)?.map(datagram).collect()
}
