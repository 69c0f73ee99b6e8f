//! `naa rping` speaks the protocol of rdma-core's rping, as client or server.
//!
//! In each round, the client advertises a source buffer, and the server READs it and sends "go ahead". Then the client
//! advertises a sink buffer, and the server WRITEs the data that it read and sends "go ahead". Advertisements are SENDs
//! of 16 bytes: address, RKey and size, big-endian (rdma-core, librdmacm/examples/rping.c).

mod client;
mod connection;
mod server;

use std::net::IpAddr;

use clap::ArgGroup;

use crate::{show, size};

/// Ping over RDMA, compatible with rdma-core's rping.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("role").required(true).args(["server", "client"])))]
pub(crate) struct Args {
    /// Serve
    #[arg(short = 's', long)]
    server: bool,
    /// Ping the server at the address given by -a
    #[arg(short = 'c', long)]
    client: bool,
    /// Server: the local address to listen on. Client: the server's address
    #[arg(short = 'a', value_name = "ADDR", default_value = "127.0.0.1")]
    address: IpAddr,
    /// Client: the local address to dial from [default: by route]
    #[arg(short = 'I', value_name = "ADDR")]
    source: Option<IpAddr>,
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7174)]
    port: u16,
    /// Rounds; 0 is for ever
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 0)]
    count: u32,
    /// Bytes per message, 24 to 64K
    #[arg(short = 'S', value_name = "SIZE", default_value = "64", value_parser = size)]
    size: u32,
    /// Client: compare what comes back with what was sent
    #[arg(short = 'V')]
    validate: bool,
    /// Print the messages
    #[arg(short = 'v')]
    verbose: bool,
    /// Server: serve one client after another
    #[arg(short = 'P')]
    persistent: bool,
    #[command(flatten)]
    provider: crate::provider::Args,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// The result of a run.
#[derive(Debug, serde::Serialize)]
struct Report {
    role: &'static str,
    provider: &'static str,
    why: String,
    device: String,
    peer: String,
    path_mtu: u32,
    size: u32,
    rounds: u32,
    seconds: f64,
    validated: bool,
}

impl Report {
    fn print(&self, json: bool) -> anyhow::Result<()> {
        let text = match json {
            true => serde_json::to_string(self)?,
            false => format!(
                "rping {}: {} rounds of {} bytes with {} in {:.3} s, path MTU {} ({}){}",
                self.role,
                self.rounds,
                self.size,
                self.peer,
                self.seconds,
                self.path_mtu,
                self.device,
                if self.validated { ", validated" } else { "" }
            ),
        };
        Ok(show::line(&text)?)
    }
}

fn size(text: &str) -> Result<u32, String> {
    let bytes = size::bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| (24..=65536).contains(bytes));
    bytes.ok_or_else(|| "write a number of bytes from 24 to 64K, such as 4096 or 4K".into())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.server { server::run(args) } else { client::run(args) }
}

/// The text of round `n`: a counter, then printable characters that start one later each round, then a zero.
fn message(n: u32, size: usize) -> Vec<u8> {
    const FIRST: u8 = b'A';
    const COUNT: u32 = (b'z' - b'A' + 1) as u32;
    let mut text = format!("rdma-ping-{n}: ").into_bytes();
    let start = n % COUNT;
    let run = (start..).map(|i| FIRST + (i % COUNT) as u8);
    text.extend(run.take((size - 1).saturating_sub(text.len())));
    text.truncate(size - 1);
    text.push(0);
    text
}

/// The text up to its first zero byte.
fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_look_like_rpings() {
        assert_eq!(
            printable(&message(0, 64)),
            "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"
        );
        assert_eq!(printable(&message(1, 24)), "rdma-ping-1: BCDEFGHIJK");
        assert_eq!(message(57, 30)[13 + 1], b'z');
        assert_eq!(message(58, 24).len(), 24);
    }
}
