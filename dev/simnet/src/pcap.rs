//! Writes UDP datagrams as a classic pcap file that packet analysers open.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

/// Nanosecond timestamps, Ethernet.
const FILE_HEADER: [u8; 24] =
    [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// A capture being written.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: Write> Writer<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&FILE_HEADER)?;
        Ok(Self(out))
    }

    /// Appends a datagram sent at `now` nanoseconds. `ip_id` is ignored on IPv6. Checksums are left 0.
    pub fn datagram(
        &mut self,
        now: u64,
        from: SocketAddr,
        to: SocketAddr,
        ip_id: u16,
        payload: &[u8],
    ) -> io::Result<()> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let udp_len = u16::try_from(payload.len() + 8).map_err(|_| invalid("the datagram is too long"))?;
        let mut frame = ETHERNET.to_vec();
        match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                let total = udp_len.checked_add(20).ok_or_else(|| invalid("the datagram is too long"))?;
                frame.extend([8, 0, 0x45, 0]);
                frame.extend(total.to_be_bytes());
                frame.extend(ip_id.to_be_bytes());
                frame.extend([0x40, 0, 64, 17, 0, 0]);
                frame.extend(from.ip().octets());
                frame.extend(to.ip().octets());
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp_len.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(from.ip().octets());
                frame.extend(to.ip().octets());
            }
            _ => return Err(invalid("the addresses are of different families")),
        }
        for half in [from.port(), to.port(), udp_len, 0] {
            frame.extend(half.to_be_bytes());
        }
        let len = (frame.len() + payload.len()) as u32;
        for word in [(now / 1_000_000_000) as u32, (now % 1_000_000_000) as u32, len, len] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(&frame)?;
        self.0.write_all(payload)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let v4 = ["10.0.0.1:1", "10.0.0.2:4791"].map(|a| a.parse().unwrap());
        let v6 = ["[fd00::1]:1", "[fd00::2]:4791"].map(|a| a.parse().unwrap());
        writer.datagram(1_500_000_000, v4[0], v4[1], 7, &[1; 16]).unwrap();
        writer.datagram(2, v6[0], v6[1], 0, &[2; 16]).unwrap();
        assert!(writer.datagram(2, v4[0], v6[1], 0, &[]).is_err());
        assert_eq!(bytes.len(), 24 + (16 + 14 + 20 + 8 + 16) + (16 + 14 + 40 + 8 + 16));
        assert_eq!(bytes[24..28], 1u32.to_le_bytes());
        assert_eq!(bytes[24 + 16 + 14 + 4..][..2], [0, 7]);
    }
}
